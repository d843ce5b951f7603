"""Pages that show what happened: changes of entries and sessions, lineage, size over time, lists and their exports."""

import csv
import io
import re
from decimal import Decimal

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from audit.models import AuditEntry, Operation
from memory.admin.base import links
from memory.admin.base.texts import time_machine_url
from memory.models import Agent, Person
from memory.time_machine.rollback import What, roll_back
from refinement import session
from refinement.models import Driver, RefinementSession
from tests import refining, steps
from tests.browser.conftest import NewWindow
from tests.browser.walk import Walk
from tests.browser.window import USUAL
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import fresh


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    """An agent with a merge. Pat is an owner of its tenant."""
    texts = (f"{MARKER} likes green tea in the morning", f"{MARKER} likes green tea at noon", f"{MARKER} moved")
    steps.remember(house.ada, *texts)
    held = refining.opened(fresh(house.ada), retention=Decimal("0.5"))
    merge = {"ids_to_merge": [1, 2], "new_content": f"{MARKER} likes green tea in the morning and at noon"}
    answer = held.send("consolidate_memories", merge)
    assert answer["ok"], answer
    session.close(held.session, "completed")
    join(person=pat, tenant=house.ada.tenant, role="owner")
    return fresh(house.ada)


@pytest.fixture(params=USUAL, ids="-".join)
def walk(request: pytest.FixtureRequest, new_window: NewWindow, pat: Person, past: Agent) -> Walk:
    walk = Walk(new_window(*request.param))
    walk.enter(pat)
    return walk


def merge_of(agent: Agent) -> AuditEntry:
    return AuditEntry.objects.get(agent_id=agent.pk, operation=Operation.CONSOLIDATED)


def test_an_entry_shows_its_memories_and_the_pages_link_to_each_other(walk: Walk, past: Agent) -> None:
    entry = merge_of(past)
    walk.open(reverse("admin:audit_auditentry_change", args=[entry.pk]))
    line = walk.page.locator(".pal-line").first
    expect(line).to_have_text(re.compile(r"^12→became4\d+ → \d+ tokens$"))
    walk.follow("4")  # the merged memory
    walk.sees("Memory 4 of acme/ada", "tokens, merged from 1, 2 in session 1.", "new", "Lineage")
    expect(walk.page.get_by_role("link", name=re.compile("^memory 1, .* beneath$"))).to_be_visible()
    walk.follow(str(entry.seq))
    walk.follow("1")
    walk.sees("Memory 1 of acme/ada", "Replaced by 4.", "replaced by 4")
    walk.open(links.url(past.pk, "entry", entry.seq))
    walk.follow("1")  # the first link with this name is the memory, or the session
    walk.open(links.url(past.pk, "session", 1))
    walk.follow(f"entry {entry.seq}")
    walk.follow("acme/ada")
    walk.sees("Agent acme/ada", "Latest merges")


def test_a_session_shows_tokens_and_what_each_call_changed(walk: Walk, past: Agent) -> None:
    row = RefinementSession.objects.get()
    walk.open(links.url(past.pk, "session", 1))
    headings = walk.page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[:2] == ["Before and after", "Timeline"]
    walk.sees(f"{row.tokens_before:,} → {row.tokens_after:,} tokens", "consolidate memories")
    region = walk.page.get_by_role("region", name="The session's calls")
    expect(region.get_by_role("link", name=f"entry {merge_of(past).seq}")).to_have_count(1)


def test_the_page_follows_a_session_until_it_ends(walk: Walk, past: Agent) -> None:
    opened = session.open_session(fresh(past), trigger="manual", driver=Driver.RUNTIME)
    walk.open(links.url(past.pk, "session", opened.number))
    part = walk.page.locator("#part-summary")
    expect(part).to_have_attribute("data-live", re.compile("/refinementsession/"))
    session.close(opened, "completed")
    expect(part).not_to_have_attribute("data-live", re.compile("."), timeout=30_000)


def test_a_moment_is_chosen_with_the_keyboard(walk: Walk, past: Agent) -> None:
    walk.open(time_machine_url(past.pk))
    slider = walk.page.get_by_label("Moment")
    slider.focus()
    walk.page.keyboard.press("Home")  # the first edit
    panel = walk.page.locator("#time-panel")
    expect(panel).to_contain_text("Preview: undo everything after", timeout=15_000)
    expect(panel).to_contain_text("are discarded")
    assert MARKER not in walk.page.content()
    walk.follow("Continue")
    walk.sees("Preview: undo everything after")


def test_the_slider_and_the_chart_fit_the_page_and_have_the_same_edges(walk: Walk, past: Agent) -> None:
    walk.open(time_machine_url(past.pk))
    chart, slider = (walk.page.locator(each).bounding_box() for each in ("#time-chart .pal-svg", "#time-slider"))
    assert chart
    assert slider
    assert (slider["x"] + 8, slider["width"] - 16) == (chart["x"], chart["width"]), "without both halves of its thumb"
    assert chart["x"] + chart["width"] < walk.page.viewport_size["width"]  # type: ignore[index]
    expect(walk.page.locator("#time-chosen")).to_have_text(re.compile("20[0-9]{2}.*: [0-9]+ tokens"))
    walk.sees("The preview appears here.")
    target = walk.page.locator(".pal-target").first.bounding_box()
    assert target
    assert min(target["width"], target["height"]) >= 24


def test_the_form_shows_only_the_field_of_the_choice(walk: Walk, past: Agent) -> None:
    walk.open(time_machine_url(past.pk))
    for kind, label in (("moment", "Date and time (UTC)"), ("import", "Number of the entry"), ("session", "Session")):
        walk.page.get_by_label("Undo *").select_option(kind)
        for each in ("Date and time (UTC)", "Number of the entry", "Session"):
            expect(walk.page.get_by_label(each, exact=True)).to_be_visible(visible=each == label)
    walk.press("Preview")  # the latest session is chosen
    walk.sees("Preview: roll back session 1")


def test_the_time_machine_offers_only_changes(walk: Walk, past: Agent) -> None:
    walk.open(time_machine_url(past.pk))
    rows = walk.page.get_by_role("region", name="Latest changes")
    expect(rows.get_by_text(re.compile("session opened|content read"))).to_have_count(0)
    button = rows.get_by_role("link", name=re.compile("^Undo only entry")).first
    box = button.bounding_box()
    assert box
    assert box["height"] >= 40
    assert box["x"] + box["width"] <= walk.page.viewport_size["width"]  # type: ignore[index]


def test_the_entries_of_a_month_are_exported(walk: Walk, past: Agent) -> None:
    month = timezone.now().strftime("%Y-%m")
    walk.open(f"{reverse('admin:audit_auditentry_changelist')}?time={month}&operation__exact=consolidated")
    with walk.page.expect_download() as download:
        walk.page.get_by_role("link", name="CSV").click()
    text = download.value.path().read_text()
    assert MARKER not in text
    [row] = csv.DictReader(io.StringIO(text))
    assert (row["seq"], row["operation"]) == (str(merge_of(past).seq), "consolidated")


def test_a_number_leads_to_its_row(walk: Walk, past: Agent) -> None:
    walk.open(f"{reverse('admin:memory_memory_changelist')}?agent=acme/ada&q=3")
    walk.sees("Memory 3 of acme/ada")


def test_the_pages_need_no_unsafe_eval(walk: Walk) -> None:
    response = walk.page.goto(f"{walk.window.origin}/admin/")
    assert response
    assert "unsafe-eval" not in response.headers["content-security-policy"]
    menu = walk.page.get_by_role("button", name="Menu")
    links = walk.page.get_by_role("link", name="Audit trail")
    before = links.is_visible()
    menu.locator("visible=true").first.click()
    expect(links).to_be_visible(visible=not before)


def test_a_failed_session_says_why(walk: Walk, past: Agent) -> None:
    opened = session.open_session(fresh(past), trigger="over_budget")
    session.close(opened, "failed", "no_tool_call", problem="The model answered in text.")
    walk.open(reverse("admin:refinement_refinementsession_changelist"))
    row = walk.page.locator("#result_list tbody tr").first
    expect(row).to_contain_text(re.compile("failed.*The model answered in text", re.DOTALL | re.IGNORECASE))
    walk.open(reverse("admin:index"))
    walk.follow("See the session")
    walk.sees("Over budget session of acme/ada", "The model answered in text.")


def test_an_agents_page_says_how_it_stands_in_words(walk: Walk, past: Agent) -> None:
    walk.open(reverse("admin:memory_agent_change", args=[past.pk]))
    walk.sees("within target", "Core memory has", "Next refinement", "Keeps at least", "Refined every", "7 days")
    assert not re.search("Last n|Whose|0:00:00", walk.page.locator("body").inner_text())
    headings = walk.page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[:3] == ["Core memory", "Core memory over time", "Latest merges"]


def test_the_overview_counts_only_what_sessions_really_saved(walk: Walk, past: Agent) -> None:
    saved = walk.page.get_by_role("region", name="Tokens saved per week")
    row = RefinementSession.objects.get()
    walk.open(reverse("admin:index"))
    saved.get_by_text("Figures").click()
    expect(saved.get_by_role("row").last).to_contain_text(f"{row.tokens_before - row.tokens_after:,} tokens")
    scale = saved.locator("svg text[text-anchor=end]").all_text_contents()
    assert all(re.fullmatch("[0-9,]+", each) for each in scale), "whole numbers"
    opened = session.open_session(fresh(past), trigger="manual")
    session.close(opened, "failed", "no_tool_call")
    roll_back(fresh(past), What("session", 1), steps.PERSON)
    walk.open(reverse("admin:index"))
    expect(saved).to_contain_text("None yet.")
    outcomes = walk.page.get_by_role("region", name="Sessions of the last 30 days")
    colours = outcomes.locator("rect").evaluate_all("bars => bars.map((bar) => getComputedStyle(bar).fill)")
    assert len(set(colours)) == 2, "completed and failed"
