"""Pages show times in the reader's own time zone, and in UTC under the mouse pointer."""

import re
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from memory.admin.base.texts import time_machine_url
from memory.models import Agent, Person
from tests import steps
from tests.admin.reading import asked, at, granted
from tests.browser.conftest import NewWindow
from tests.conftest import House
from tests.members import join

ZONES = [("Asia/Kolkata", "GMT+5:30"), ("America/Phoenix", "GMT-7")]  # both without summer time


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    steps.remember(house.ada, "drinks tea")
    join(person=pat, tenant=house.ada.tenant, role="auditor")
    return house.ada


@pytest.mark.parametrize(("zone", "name"), ZONES)
def test_a_grant_shows_local_times(zone: str, name: str, new_window: NewWindow, past: Agent, pat: Person) -> None:
    window = new_window("phone", zone=zone)
    window.sign_in(pat)
    window.open(at(past, granted(past, pat)) + "?show=edits")
    times = window.page.locator("main time")
    assert times.count() >= 4
    for time in times.all():
        expect(time).to_have_text(re.compile(rf"^\d{{1,2}} \w+ 20\d\d, \d\d:\d\d(:\d\d)? {re.escape(name)}$"))
        expect(time).to_have_attribute("title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    first, local = times.first, times.first.inner_text()
    utc = datetime.fromisoformat(str(first.get_attribute("datetime")))
    assert f"{utc:%Y-%m-%d %H:%M:%S} UTC" == first.get_attribute("title")
    assert f"{utc:%H:%M}" not in local, "the hours of the reader"
    window.is_usable()


def test_a_reader_in_utc_sees_the_times_of_the_server(new_window: NewWindow, past: Agent, pat: Person) -> None:
    window = new_window()
    window.sign_in(pat)
    window.open(at(past, asked(past, pat)))
    expect(window.page.locator("main time")).to_have_text(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d UTC$"))


def test_a_moment_is_chosen_in_local_time(new_window: NewWindow, past: Agent, pat: Person) -> None:
    join(person=pat, tenant=past.tenant, role="owner")
    window = new_window(zone="Asia/Kolkata")
    window.sign_in(pat)
    window.open(time_machine_url(past.pk))
    field = window.page.get_by_label("Date and time (GMT+5:30)", exact=True)
    expect(field).to_have_value("")
    window.page.get_by_label("Undo *").select_option("entry")
    window.page.get_by_label("Moment").press("Home")
    expect(field).to_be_visible()
    chosen = datetime.fromisoformat(field.input_value())
    with window.leaving():
        window.page.get_by_role("button", name="Preview").click()
    sent = datetime.fromisoformat(parse_qs(urlsplit(window.page.url).query)["moment"][0])
    assert chosen - sent.replace(tzinfo=None) == timedelta(hours=5, minutes=30)
    expect(window.page.get_by_role("heading", name="Preview: undo everything after")).to_contain_text("GMT+5:30")


def test_parts_that_come_later_show_local_times(new_window: NewWindow, past: Agent, pat: Person) -> None:
    """The admin loads the script too."""
    window = new_window(zone="Asia/Kolkata")
    window.sign_in(pat)
    window.open(reverse("admin:memory_agent_change", args=[past.pk]))
    for utc, local in (("20:00", "3 Jan 2026, 01:30 GMT+5:30"), ("2 Jan 2026", "3 Jan 2026")):
        window.page.evaluate(
            "utc => document.body.insertAdjacentHTML('beforeend', "
            '`<time datetime="2026-01-02T20:00:00+00:00">${utc}</time>`)',
            utc,
        )
        expect(window.page.locator("time").last).to_have_text(local)
