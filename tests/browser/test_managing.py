"""Managing an agent in a browser: protect a memory, refine, roll back, pause. No page shows content."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from memory.models import Agent, Memory, Person
from refinement.models import RefinementSession
from tests import queueing, steps
from tests.browser.conftest import NewWindow
from tests.browser.walk import Walk
from tests.browser.window import USUAL, Window
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.refining import filler

ALL = list(range(1, 12))


@pytest.fixture(params=USUAL, ids="-".join)
def walk(request: pytest.FixtureRequest, new_window: NewWindow, pat: Person, past: Agent) -> Walk:
    """A window in which pat is signed in."""
    walk = Walk(new_window(*request.param))
    walk.enter(pat)
    return walk


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    """An agent with one duplicate. Pat is an admin of its tenant."""
    text = f"{MARKER} likes green tea in the morning."
    steps.remember(house.ada, text, text, *(f"{MARKER} {filler(12, seed)}" for seed in range(9)))
    join(person=pat, tenant=house.ada.tenant, role="admin")
    return house.ada


def page_of(agent: Agent) -> str:
    return reverse("admin:memory_agent_change", args=[agent.pk])


def kept(agent: Agent) -> list[int]:
    """The numbers of the core memories, without the system's notices in the journal."""
    rows = Memory.objects.filter(agent=agent, discarded_at=None, kind="core").order_by("number")
    return list(rows.values_list("number", flat=True))


def test_a_memory_is_protected_and_unprotected(walk: Walk, past: Agent) -> None:
    walk.open(reverse("admin:memory_memory_change", args=[Memory.objects.get(agent=past, number=1).pk]))
    walk.press("Protect")
    walk.sees("1 memory of 1 agent", "No session discards, merges or rewrites protected memories.")
    assert not steps.row(past, 1).constitutional
    walk.press("Protect")
    walk.sees(f"acme/ada: 1 memory protected, as entry {steps.last_entry(past).seq} of the audit trail.")
    assert steps.row(past, 1).constitutional
    walk.press("Remove protection")
    walk.sees("1 memory of 1 agent", "After that, sessions may discard, merge or rewrite them.")
    reason = walk.page.get_by_label("Reason")
    walk.page.get_by_role("button", name="Remove protection").click()
    expect(reason).to_be_focused()  # the browser requires one
    assert steps.row(past, 1).constitutional
    reason.fill("It was meant for a week.")
    walk.press("Remove protection")
    walk.sees("acme/ada: 1 memory no longer protected")
    assert not steps.row(past, 1).constitutional


def test_a_refinement_is_rolled_back(walk: Walk, past: Agent) -> None:
    walk.open(page_of(past))
    walk.press("Refine now")
    walk.sees("Starts a refinement session for 1 agent")
    walk.press("Refine now")
    walk.sees("acme/ada: refinement requested. It does not start until a worker runs")
    assert queueing.work() == [("refine_agent", "completed")]
    assert len(kept(past)) == len(ALL) - 1
    walk.open(page_of(past))
    walk.follow("session 1")
    timeline = walk.page.get_by_role("region", name="The session's calls")
    calls = RefinementSession.objects.get().timeline.count()
    expect(timeline.locator("tbody tr")).to_have_count(1 + calls)  # duplicates are removed before the first call
    walk.press("Roll back session")
    walk.sees("Preview: roll back session 1", "comes back")
    assert len(kept(past)) == len(ALL) - 1
    walk.press("Roll back session 1")
    assert kept(past) == ALL
    entry = steps.last_entry(past)
    walk.sees(f"acme/ada: rolled back, as entry {entry.seq} of the audit trail.", "rolled back")
    expect(walk.page).to_have_url(f"{walk.window.origin}{reverse('admin:audit_auditentry_change', args=[entry.pk])}")
    walk.open(page_of(past))
    walk.follow("Time Machine")
    walk.sees(f"Its audit trail has {entry.seq} entries", "Latest sessions")


def test_an_agent_is_paused_by_keyboard_only(window: Window, past: Agent, pat: Person) -> None:
    walk = Walk(window)
    walk.enter(pat)
    page = walk.page
    walk.press_key_on(page.get_by_role("link", name="Agents").first)
    walk.press_key_on(page.get_by_role("link", name="acme/ada").first)
    walk.press_key_on(page.get_by_role("button", name="Pause"))
    walk.sees("Pauses 1 agent. While an agent is paused, no refinement starts automatically.")
    walk.press_key_on(page.get_by_role("button", name="Pause"), "Space")
    walk.sees("acme/ada: paused.")
    assert steps.fresh(past).paused
