from typing import Any

import pytest
from django.test import Client

from memory.agents import lifecycle
from memory.models import Agent
from memory.writing import operations
from tests.consent.visiting import ADMIN, STEW
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, remember


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def visitor() -> Client:
    return Client(raise_request_exception=False)


@pytest.fixture
def agent(ada: Agent) -> Agent:
    """An agent with a steward and three memories: 1 and 2 have the same text, 3 is constitutional."""
    remember(ada, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} milk", tags=(MARKER,))
    operations.protect(fresh(ada), [3], ADMIN)
    lifecycle.change(fresh(ada), ME, steward=STEW)
    return fresh(ada)
