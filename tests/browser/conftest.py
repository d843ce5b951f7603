"""The real service, a real browser, and windows that fail a test for every error in them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from memory.models import Person
from tests.admin.conftest import enrolled
from tests.api.serving import Served, serving
from tests.browser import chromium
from tests.browser.window import Window, opened

NewWindow = Callable[..., Window]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.running() as started:
        yield started


@pytest.fixture(scope="session")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    """The service. It keeps mail in memory. Letters with links to stewards are sent by workers, not by the service."""
    with django_db_blocker.unblock(), serving(EMAIL_URL="memorymail://") as service:
        yield service


@pytest.fixture
def new_window(browser: Browser, served: Served) -> Iterator[NewWindow]:
    """A function that opens a window (tests/browser/window.py). A fault in a window fails the test at its end."""
    windows: list[Window] = []
    with ExitStack() as stack:

        def make(size: str = "desktop", colours: str = "light", state: Any = None, zone: str = "UTC") -> Window:
            windows.append(stack.enter_context(opened(browser, served.url, size, colours, state, zone)))
            return windows[-1]

        yield make
    faults = [fault for window in windows for fault in window.faults]
    assert not faults, "\n".join(faults)


@pytest.fixture
def window(new_window: NewWindow) -> Window:
    return new_window()


@pytest.fixture
def pat(transactional_db: None) -> Person:
    return enrolled("pat@acme.test")
