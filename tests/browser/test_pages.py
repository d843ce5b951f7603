"""Every page is usable: on a desktop and on a phone, in light and in dark colours."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import TransactionTestCase
from playwright.sync_api import Browser, expect

from memory.models import Person
from tests.api.serving import Served
from tests.browser.conftest import NewWindow
from tests.browser.example_data import Home, furnish
from tests.browser.places import BY_LINK, FOR_OWNERS, FOR_SUPERUSERS
from tests.browser.window import LOOKS, USUAL, opened
from tests.privacy.marker import MARKER

IN_EACH_LOOK = {"overview", "agents", "agent", "time-machine-preview", "reading", "consent"}  # one of each kind


@pytest.fixture(scope="module")
def home(browser: Browser, served: Served, django_db_blocker: Any) -> Iterator[tuple[Home, Any, Any]]:
    """Example data, and the cookies of the owner and of the superuser, who sign in once for all tests."""

    def cookies(person: Person) -> Any:
        with opened(browser, served.url, "desktop", "light") as window:
            window.sign_in(person)
            return window.page.context.storage_state()

    with django_db_blocker.unblock():
        try:
            home = furnish(MARKER)
            yield home, cookies(home.owner), cookies(home.root)
        finally:
            TransactionTestCase()._fixture_teardown()  # as after a transactional test (tests/conftest.py)


@pytest.mark.parametrize(("size", "colours"), LOOKS)
def test_every_page_is_usable(size: str, colours: str, new_window: NewWindow, home: tuple[Home, Any, Any]) -> None:
    wrong: list[str] = []
    data, owner, root = home
    for pages, cookies in ((FOR_OWNERS, owner), (BY_LINK, None), (FOR_SUPERUSERS, root)):
        window = new_window(size, colours, cookies)  # one for many pages: it loads each file once
        for name in pages if (size, colours) in USUAL else pages.keys() & IN_EACH_LOOK:
            assert window.open(pages[name](data)) == 200, name
            if themed := window.page.locator("html[x-data]").all():  # other pages follow the browser's colours
                expect(themed[0]).to_have_class("dark" if colours == "dark" else "")
            assert MARKER not in window.page.content(), name
            wrong += [f"{name}: {fault}" for fault in window.harm() + window.overflow()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_page_of_the_api(size: str, new_window: NewWindow, transactional_db: None) -> None:
    window = new_window(size)
    assert window.open("/api/v1/docs/") == 200
    expect(window.page.locator(".opblock").first).to_be_visible(timeout=60_000)  # its script is large
    assert window.page.locator(".opblock").count() > 10
    assert window.overflow() == []
