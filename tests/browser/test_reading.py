"""Reading under a grant in a browser: readable in every look, by keyboard, and off the page when the time is over."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from memory.models import Agent, Membership, Person
from memory.writing import operations
from tests import steps
from tests.admin.reading import at, granted
from tests.browser.conftest import NewWindow
from tests.browser.window import USUAL, Window
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME

TEA = f"{MARKER} drinks tea"


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    steps.remember(house.ada, TEA, f"{MARKER}<b>" + "w" * 300, tags=["kitchen"])
    operations.revise(house.ada, 1, ME, content=f"{TEA} at nine")
    Membership.objects.create(person=pat, tenant=house.ada.tenant, role="auditor")
    return house.ada


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_every_page_is_usable(size: str, colours: str, new_window: NewWindow, past: Agent, pat: Person) -> None:
    window, number = new_window(size, colours), granted(past, pat)
    window.sign_in(pat)
    page = window.page
    for query, button, shown in (
        ("", "Read these 2", TEA),
        ("?show=edits", "Read the changes of entry 4", "at nine"),
        ("", "Show the token for commands", "palg_"),
    ):
        window.open(at(past, number) + query)
        window.is_usable()
        with window.leaving():
            page.get_by_role("button", name=button).click()
        expect(page.get_by_role("main")).to_contain_text(shown)
        window.is_usable()
    window.open(at(past, number))
    with window.leaving():
        page.get_by_role("button", name="End this grant now").click()
    expect(page.get_by_role("status")).to_contain_text("Revoked")
    window.is_usable()
    window.meant.append("404")
    assert window.open(at(past, 9_999)) == 404
    window.is_usable()


def reading(window: Window, past: Agent, pat: Person) -> None:
    """With memory 1 on the page, and a clock that the test sets."""
    window.page.clock.install()
    window.sign_in(pat)
    window.open(at(past, granted(past, pat, seconds=900)))
    button = window.page.get_by_role("button", name="Read memory 1", exact=True)
    button.focus()
    with window.leaving():
        window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("main")).to_contain_text(TEA)


def test_it_goes_off_the_page_when_the_time_is_over(window: Window, past: Agent, pat: Person) -> None:
    reading(window, past, pat)
    expect(window.page.get_by_role("timer")).to_have_text(re.compile(r"^\(00:1[45]:\d\d left\)$"))
    window.page.clock.fast_forward(880_000)
    expect(window.page.get_by_role("main")).to_contain_text(TEA)
    window.page.clock.fast_forward(21_000)
    expect(window.page.get_by_role("alert")).to_contain_text("The grant has ended")
    assert MARKER not in window.page.content()
    window.is_usable()


def test_it_is_not_there_when_one_comes_back(window: Window, past: Agent, pat: Person) -> None:
    """By the browser's own memory of pages."""
    reading(window, past, pat)
    window.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    expect(window.page.get_by_role("alert")).to_contain_text("You left this page")
    assert MARKER not in window.page.content()


def test_a_machine_that_slept_shows_nothing_when_it_wakes(window: Window, past: Agent, pat: Person) -> None:
    """Its timers stood still; its clock did not."""
    reading(window, past, pat)
    window.page.clock.set_system_time(datetime.now(UTC) + timedelta(minutes=16))
    window.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(window.page.get_by_role("alert")).to_contain_text("The grant has ended")
    assert MARKER not in window.page.content()
