"""Reading under a grant in a browser: content leaves the page when the grant ends or the reader comes back."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from memory.models import Agent, Person
from memory.writing import operations
from tests import steps
from tests.admin.reading import at, granted
from tests.browser.conftest import NewWindow
from tests.browser.window import USUAL, Window
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME

TEA = f"{MARKER} drinks tea"


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    steps.remember(house.ada, TEA, f"{MARKER}<b>" + "w" * 300, tags=["kitchen"])
    operations.revise(house.ada, 1, ME, content=f"{TEA} at nine")
    join(person=pat, tenant=house.ada.tenant, role="auditor")
    return house.ada


@pytest.fixture
def reading(window: Window, past: Agent, pat: Person) -> Window:
    """A window that shows memory 1, with a clock that the test sets. The reader used the keyboard."""
    window.page.clock.install()
    window.sign_in(pat)
    window.open(at(past, granted(past, pat, seconds=900)))
    window.page.get_by_role("button", name="Read memory 1", exact=True).focus()
    with window.leaving():
        window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("main")).to_contain_text(TEA)
    return window


def unfold(window: Window, button: str) -> None:
    """Open the part of the page that has the button for the token."""
    if "token" in button:
        window.page.get_by_text("For developers").click()


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_every_page_of_a_grant_is_usable(
    size: str, colours: str, new_window: NewWindow, past: Agent, pat: Person
) -> None:
    window, number = new_window(size, colours), granted(past, pat)
    window.sign_in(pat)
    for query, button, role, text in (
        ("", "Read all 2", "main", TEA),
        ("?show=edits", "Read the changes of entry 4", "main", "at nine"),
        ("", "Show the token for commands", "main", "palg_"),
        ("", "End this grant now", "status", "Revoked"),
    ):
        window.open(at(past, number) + query)
        window.is_usable()
        unfold(window, button)
        with window.leaving():
            window.page.get_by_role("button", name=button).click()
        expect(window.page.get_by_role(role)).to_contain_text(text)  # type: ignore[arg-type]
        window.is_usable()
    window.expected.append("404")
    assert window.open(at(past, 9_999)) == 404
    window.is_usable()


@pytest.mark.parametrize(
    ("query", "button"),
    [
        ("", ""),
        ("", "Read memory 1"),
        ("?show=edits", "Read the changes of entry 4"),
        ("", "Show the token for commands"),
    ],
)
def test_the_grant_can_end_on_each_of_its_pages(
    query: str, button: str, new_window: NewWindow, past: Agent, pat: Person
) -> None:
    window = new_window("phone")
    window.sign_in(pat)
    window.open(at(past, granted(past, pat)) + query)
    assert window.page.locator("button").evaluate_all(_LINES) == [1] * window.page.locator("button").count()
    if button:
        unfold(window, button)
        with window.leaving():
            window.page.get_by_role("button", name=button, exact=True).click()
    window.is_usable()
    with window.leaving():
        window.page.get_by_role("button", name="End this grant now").click()
    expect(window.page.get_by_role("status")).to_contain_text("Revoked")
    expect(window.page.get_by_role("button")).to_have_count(0)


def has_hidden(window: Window, message: str) -> bool:
    expect(window.page.get_by_role("alert")).to_contain_text(message)
    return MARKER not in window.page.content()


def test_content_leaves_the_page_when_the_grant_expires(reading: Window) -> None:
    expect(reading.page.get_by_role("timer")).to_have_text(re.compile(r"^\(00:1[45]:\d\d left\)$"))
    reading.page.clock.fast_forward(880_000)
    expect(reading.page.get_by_role("main")).to_contain_text(TEA)
    reading.page.clock.fast_forward(21_000)
    assert has_hidden(reading, "The grant has ended")
    reading.is_usable()


def test_content_leaves_the_page_after_the_computer_slept(reading: Window) -> None:
    """The timers stop in that time, and the clock does not."""
    reading.page.clock.set_system_time(datetime.now(UTC) + timedelta(minutes=16))
    reading.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert has_hidden(reading, "The grant has ended")


def test_content_is_not_there_when_the_reader_comes_back(reading: Window) -> None:
    """The browser keeps pages in memory."""
    reading.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    assert has_hidden(reading, "You left this page")


_LINES = """buttons => buttons.map(button => {
    const range = document.createRange();
    range.selectNodeContents(button);
    return new Set([...range.getClientRects()].map(each => Math.round(each.top))).size;
})"""
