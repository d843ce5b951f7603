"""What whoever steers an agent does, page by page, and without a word of what it remembers."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from memory.models import Agent, Membership, Memory, Person
from refinement.models import RefinementSession
from tests import queueing, steps
from tests.browser.conftest import NewWindow
from tests.browser.walking import Walk
from tests.browser.window import USUAL, Window
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.refining import filler

TWICE = f"{MARKER} likes green tea in the morning."
ALL = list(range(1, 12))


@pytest.fixture(params=USUAL, ids="-".join)
def walk(request: pytest.FixtureRequest, new_window: NewWindow) -> Walk:
    return Walk(new_window(*request.param))


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    """An agent with the same said twice, and pat, who may steer it."""
    others = [f"{MARKER} {filler(12, seed)}" for seed in range(9)]  # for a session may not drop a third of everything
    steps.remember(house.ada, TWICE, TWICE, *others)
    Membership.objects.create(person=pat, tenant=house.ada.tenant, role="admin")
    return house.ada


def page_of(agent: Agent) -> str:
    return reverse("admin:memory_agent_change", args=[agent.pk])


def memory_page(agent: Agent, number: int) -> str:
    return reverse("admin:memory_memory_change", args=[Memory.objects.get(agent=agent, number=number).pk])


def kept(agent: Agent) -> list[int]:
    """Without what the service tells the agent in its journal."""
    rows = Memory.objects.filter(agent=agent, discarded_at=None, kind="core").order_by("number")
    return list(rows.values_list("number", flat=True))


def test_protecting_a_memory_and_no_longer(walk: Walk, past: Agent, pat: Person) -> None:
    walk.enter(pat)
    walk.open(memory_page(past, 1))
    walk.press("Protect")
    walk.sees("1 memory of 1 agent", "No session discards, merges or rewrites protected memories.")
    assert not steps.row(past, 1).constitutional
    walk.press("Protect")
    walk.sees(f"acme/ada: 1 memory protected, as entry {steps.last_entry(past).seq} of the audit trail.")
    assert steps.row(past, 1).constitutional
    walk.press("Remove protection")
    walk.sees("1 memory of 1 agent", "Sessions may then discard, merge or rewrite them.")
    reason = walk.page.get_by_label("Reason")
    walk.page.get_by_role("button", name="Remove protection").click()
    expect(reason).to_be_focused()  # the browser itself asks for one
    assert steps.row(past, 1).constitutional
    reason.fill("It was meant for a week.")
    walk.press("Remove protection")
    walk.sees("acme/ada: 1 memory no longer protected")
    assert not steps.row(past, 1).constitutional


def test_refining_and_rolling_it_back(walk: Walk, past: Agent, pat: Person) -> None:
    walk.enter(pat)
    walk.open(page_of(past))
    walk.press("Refine now")
    walk.sees("Starts a refinement session for 1 agent")
    walk.press("Refine now")
    walk.sees("acme/ada: refinement requested. It waits until a worker runs")
    assert queueing.work() == [("refine_agent", "completed")]
    assert len(kept(past)) == len(ALL) - 1
    walk.open(page_of(past))
    walk.follow("session 1")
    timeline = walk.page.get_by_role("region", name="The session's calls")
    expect(timeline.get_by_role("row")).to_have_count(1 + RefinementSession.objects.get().timeline.count())
    walk.press("Roll back session")
    walk.sees("Preview: roll back session 1", "Restored")
    assert len(kept(past)) == len(ALL) - 1
    walk.press("Roll back")
    assert kept(past) == ALL
    entry = steps.last_entry(past)
    walk.sees(f"acme/ada: rolled back, as entry {entry.seq} of the audit trail.", "rolled back")
    expect(walk.page).to_have_url(f"{walk.window.origin}{reverse('admin:audit_auditentry_change', args=[entry.pk])}")
    walk.open(page_of(past))
    walk.follow("Time Machine")
    walk.sees(f"Its audit trail has {entry.seq} entries", "Latest sessions")


def test_the_time_machine_by_date(walk: Walk, past: Agent, pat: Person) -> None:
    moment = timezone.now().replace(microsecond=0) + timedelta(seconds=1)
    time.sleep(max(0.0, (moment - timezone.now()).total_seconds()))
    steps.remember(past, f"{MARKER} it rains")
    walk.enter(pat)
    walk.open(page_of(past))
    walk.follow("Time Machine")
    walk.page.get_by_role("combobox", name="Roll back").select_option("everything since a date and time")
    walk.page.get_by_label("Which").fill("some day")
    walk.press("Preview")
    expect(walk.page.get_by_role("alert").first).to_be_visible()
    walk.page.get_by_label("Which").fill(f"{moment:%Y-%m-%d %H:%M:%S}")
    walk.press("Preview")
    walk.sees(f"Preview: roll back everything since {moment:%Y-%m-%d %H:%M:%S} UTC")
    assert kept(past) == [*ALL, len(ALL) + 1]
    walk.press("Roll back")
    walk.sees("acme/ada: rolled back")
    assert kept(past) == ALL


def test_pausing_by_keyboard_alone(window: Window, past: Agent, pat: Person) -> None:
    walk = Walk(window)
    walk.enter(pat)
    page = walk.page
    walk.strike(page.get_by_role("link", name="Agents").first)
    walk.strike(page.get_by_role("link", name="acme/ada").first)
    walk.strike(page.get_by_role("button", name="Pause"))
    walk.sees("Pauses 1 agent: no refinement when due.")
    walk.strike(page.get_by_role("button", name="Pause"), "Space")
    walk.sees("acme/ada: paused.")
    assert steps.fresh(past).paused
