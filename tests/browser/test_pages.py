"""Every page there is, as an owner opens it: on a desk and on a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import TransactionTestCase
from playwright.sync_api import Browser, expect

from memory.models import Person
from tests.api.serving import Served
from tests.browser.conftest import NewWindow
from tests.browser.furnishing import Home, furnish
from tests.browser.places import BY_LINK, OF_SERVICE, PLACES
from tests.browser.window import LOOKS, USUAL, opened
from tests.privacy.marker import MARKER

EACH_LOOK = {"overview", "agents", "agent", "time-machine-preview", "reading", "consent"}  # one of each kind


@dataclass(frozen=True)
class Lived:
    """A house that is lived in, and the cookies of who signed in once for all these tests."""

    home: Home
    owner: Any
    root: Any


@pytest.fixture(scope="module")
def lived(browser: Browser, served: Served, django_db_blocker: Any) -> Iterator[Lived]:
    with django_db_blocker.unblock():
        try:
            home = furnish(MARKER)
            cookies = [_cookies(browser, served, person) for person in (home.owner, home.root)]
            yield Lived(home, *cookies)
        finally:
            TransactionTestCase()._fixture_teardown()  # as after a test that commits (tests/conftest.py)


def _cookies(browser: Browser, served: Served, person: Person) -> Any:
    with opened(browser, served.url, "desktop", "light") as window:
        window.sign_in(person)
        return window.page.context.storage_state()


@pytest.mark.parametrize(("size", "colours"), LOOKS)
def test_every_page_is_usable(size: str, colours: str, new_window: NewWindow, lived: Lived) -> None:
    """One window for each who opens them: what it loaded for one page it need not load for the next."""
    wrong: list[str] = []
    for places, cookies in ((PLACES, lived.owner), (BY_LINK, None), (OF_SERVICE, lived.root)):
        window = new_window(size, colours, cookies)
        for place in places if (size, colours) in USUAL else places.keys() & EACH_LOOK:
            assert window.open(places[place](lived.home)) == 200, place
            if themed := window.page.locator("html[x-data]").all():  # plain pages are dark by their style alone
                expect(themed[0]).to_have_class("dark" if colours == "dark" else "")
            assert MARKER not in window.page.content(), place
            wrong += [f"{place}: {told}" for told in window.harm() + window.overflow()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_page_of_the_api(size: str, new_window: NewWindow, transactional_db: None) -> None:
    window = new_window(size)
    assert window.open("/api/v1/docs/") == 200
    expect(window.page.locator(".opblock").first).to_be_visible()
    assert window.page.locator(".opblock").count() > 10
    assert window.overflow() == []
