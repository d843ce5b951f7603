"""The clients of ada and bob, who belong to two tenants."""

from typing import Any

import pytest

from tests.api.conftest import _hosts as _hosts
from tests.conftest import House
from tests.mcp.calling import NEW, OLD, Mcp


@pytest.fixture
def client(house: House) -> Mcp:
    return Mcp(house.ada_key)


@pytest.fixture(params=[OLD, NEW])
def each(request: Any, house: House) -> Mcp:
    """A client of each generation."""
    return Mcp(house.ada_key, request.param)
