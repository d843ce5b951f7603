"""The callers: the runtimes of ada and bob, who belong to two tenants, and a program of each tenant."""

from typing import Any

import pytest

from memory.access import tenants
from tests.api.calling import Caller
from tests.conftest import House


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def runtime(house: House) -> Caller:
    return Caller(house.ada_key)


@pytest.fixture
def stranger(house: House) -> Caller:
    """The runtime of another tenant's agent."""
    return Caller(house.bob_key)


@pytest.fixture
def acme(house: House) -> Caller:
    return Caller(tenants.issue_key("acme"))


@pytest.fixture
def globex(house: House) -> Caller:
    return Caller(tenants.issue_key("globex"))
