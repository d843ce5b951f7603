"""The real service, a real browser, and windows of it that fail a test for whatever goes wrong in them."""

from __future__ import annotations

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
NOWHERE = "memorymail://"  # where the service sends what it mails itself: links to stewards it leaves to the workers


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.running() as started:
        yield started


@pytest.fixture(scope="session")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(EMAIL_URL=NOWHERE) as service:
        yield service


@pytest.fixture
def new_window(browser: Browser, served: Served) -> Iterator[NewWindow]:
    """A function that opens a window (tests/browser/window.py). What goes wrong in one fails the test at its end."""
    windows: list[Window] = []
    with ExitStack() as stack:

        def make(size: str = "desktop", colours: str = "light", state: Any = None) -> Window:
            windows.append(stack.enter_context(opened(browser, served.url, size, colours, state)))
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
