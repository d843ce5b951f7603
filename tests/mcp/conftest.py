"""The clients of ada and bob, who belong to two tenants."""

from typing import Any

import pytest

from tests.conftest import House
from tests.mcp.calling import NEW, OLD, Mcp


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def client(house: House) -> Mcp:
    return Mcp(house.ada_key)


@pytest.fixture(params=[OLD, NEW])
def each(request: Any, house: House) -> Mcp:
    """A client of each generation."""
    return Mcp(house.ada_key, request.param)
