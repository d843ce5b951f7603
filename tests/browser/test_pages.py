"""Every page there is, as an owner opens it: on a desk and on a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import TransactionTestCase
from playwright.sync_api import Browser, expect

from tests.api.serving import Served
from tests.browser.conftest import NewWindow
from tests.browser.furnishing import Home, furnish
from tests.browser.places import PLACES
from tests.browser.window import LOOKS, opened
from tests.privacy.marker import MARKER


@dataclass(frozen=True)
class Lived:
    """A house that is lived in, and the cookies of its owner, who signed in once for all these tests."""

    home: Home
    cookies: Any


@pytest.fixture(scope="module")
def lived(browser: Browser, served: Served, django_db_blocker: Any) -> Iterator[Lived]:
    with django_db_blocker.unblock():
        try:
            home = furnish(MARKER)
            with opened(browser, served.url, "desktop", "light") as window:
                window.sign_in(home.owner)
                cookies = window.page.context.storage_state()
            yield Lived(home, cookies)
        finally:
            TransactionTestCase()._fixture_teardown()  # as after a test that commits (tests/conftest.py)


@pytest.mark.parametrize(("size", "colours"), LOOKS)
@pytest.mark.parametrize("place", PLACES)
def test_a_page(place: str, size: str, colours: str, new_window: NewWindow, lived: Lived) -> None:
    window = new_window(size, colours, lived.cookies)
    assert window.open(PLACES[place](lived.home)) == 200
    expect(window.page.locator("html")).to_have_class("dark" if colours == "dark" else "")
    assert MARKER not in window.page.content()
    window.is_usable()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_page_of_the_api(size: str, new_window: NewWindow, transactional_db: None) -> None:
    window = new_window(size)
    assert window.open("/api/v1/docs/") == 200
    expect(window.page.locator(".opblock").first).to_be_visible()
    assert window.page.locator(".opblock").count() > 10
    assert window.overflow() == []
