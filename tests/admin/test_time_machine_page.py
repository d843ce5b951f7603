"""The Time Machine's page: it shows a preview, and rolls back only what the preview showed."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.models import AuditEntry
from memory.admin.base.texts import time_machine_url
from memory.models import Agent, Memory
from memory.writing import operations
from refinement import loop
from tests import steps
from tests.admin.actions import html, text_of
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh, last_entry


@pytest.fixture
def past(house: House) -> Agent:
    """Both agents have had a session. The result is ada."""
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} sails")
        loop.refine(fresh(agent), trigger="manual")
    return fresh(house.ada)


def active(agent: Agent) -> list[int]:
    rows = Memory.objects.filter(agent=agent, kind="core", discarded_at=None)
    return list(rows.order_by("number").values_list("number", flat=True))


def head(agent: Agent) -> int:
    return fresh(agent).audit_seq


def test_a_session_is_rolled_back(past: Agent, enter: Enter) -> None:
    client, address = enter("admin"), time_machine_url(past.pk, "session", 1)
    page = text_of(client, time_machine_url(past.pk))
    assert ("session 1" in page.lower(), "are not marked" in page) == (True, False)
    before, preview = active(past), html(client.get(address))
    assert "Preview: roll back session 1<" in preview
    assert "This undoes 2 entries: 1 memory comes back, 1 memory is discarded." in preview
    assert re.search(r"Core memory becomes \d+ tokens \(\+\d+\)\.", preview)
    assert "No later entry changed these memories." in preview
    assert 'name="conflicts"' not in preview
    assert 'name="include_constitutional"' not in preview
    assert "<span>Roll back session 1</span></button>" in preview
    assert MARKER not in preview
    assert client.post(address, {"conflicts": ""}).status_code == 200, "without the head of a preview"
    assert active(past) == before
    response = client.post(address, {"head": head(past), "conflicts": "", "reason": "too much"})
    entry = last_entry(past)
    assert response["Location"] == f"/admin/agents/{past.pk}/entry/{entry.seq}/"
    assert (entry.operation, entry.actor_label) == ("rolled_back", "admin@acme.test")
    assert entry.detail["reason"] == "too much"
    assert active(past) == [1, 2, 3]
    assert "rolled back, as entry" in html(client.get(response["Location"], follow=True))


def test_a_change_after_the_preview_needs_another_preview(past: Agent, client: Client) -> None:
    address, old = time_machine_url(past.pk, "session", 1), past.audit_seq
    steps.remember(past, f"{MARKER} new")
    response = client.post(address, {"head": old})
    assert (response.status_code, "Preview it again" in html(response)) == (200, True)
    assert not AuditEntry.objects.filter(agent_id=past.pk, operation="rolled_back").exists()
    preview = html(client.post(address, {"head": old, "look": "1"}))
    assert f'name="head" value="{head(past)}"' in preview


def test_conflicts_are_listed_and_forced(past: Agent, client: Client) -> None:
    operations.revise(past, 3, steps.ME, content=f"{MARKER} sails far")
    seq = head(past)
    operations.revise(fresh(past), 3, steps.ME, content=f"{MARKER} sails further")
    address, force = time_machine_url(past.pk, "entry", seq), {"head": seq + 1, "conflicts": "force"}
    preview = html(client.get(address))
    assert "Memories that later entries changed: 1" in preview
    assert f"memory 3, changed by entry {seq + 1}" in preview
    assert 'name="conflicts"' in preview
    assert "Later entries changed the same memories" in html(client.post(address, force | {"conflicts": ""}))
    assert client.post(address, force | {"look": "1"}).status_code == 200
    assert head(past) == seq + 1
    assert client.post(address, force).status_code == 302
    assert last_entry(past).detail["forced"] == [3]


def test_protected_memories_need_the_box_and_a_reason(past: Agent, client: Client) -> None:
    operations.protect(past, [3], steps.PERSON)
    address, form = time_machine_url(past.pk, "from_entry", 1), {"head": head(past)}
    assert "Tick the box" in html(client.get(address))
    assert client.post(address, form).status_code == 200
    form["include_constitutional"] = "on"
    assert "To roll back protected memories, give a reason" in html(client.post(address, form))
    assert active(past)
    assert client.post(address, form | {"reason": "all of it"}).status_code == 302
    assert active(past) == []


def test_everything_since_a_moment_is_rolled_back(past: Agent, client: Client) -> None:
    now = timezone.now()
    steps.remember(past, f"{MARKER} tea")
    page = text_of(client, time_machine_url(past.pk, "moment", f"{now:%Y-%m-%dT%H:%M:%S}"))  # as browsers write it
    assert f"Preview: undo everything after {now:%Y-%m-%d %H:%M:%S} UTC" in page
    address = time_machine_url(past.pk, "moment", f"{now - timedelta(days=1):%Y-%m-%dT%H:%M}")
    assert "Preview: undo everything after" in html(client.get(address))
    assert client.post(address, {"head": head(past)}).status_code == 302
    assert active(past) == []


def test_an_entry_is_undone_alone_or_with_everything_later(past: Agent, client: Client) -> None:
    steps.remember(past, f"{MARKER} tea")
    seq = head(past)
    steps.remember(fresh(past), f"{MARKER} boats")
    alone, more = (text_of(client, time_machine_url(past.pk, kind, seq)) for kind in ("entry", "from_entry"))
    assert f"Preview: undo only entry {seq} This undoes 1 entry: 1 memory is discarded." in alone
    assert f"Or undo entry {seq} and everything later" in alone
    assert f"Preview: undo entry {seq} and everything later This undoes 2 entries: 2 memories are discarded." in more
    assert f"Or undo only entry {seq}" in more


def test_each_count_of_changes_agrees_with_the_preview(past: Agent, client: Client) -> None:
    page = text_of(client, time_machine_url(past.pk))
    count = sum(AuditEntry.objects.filter(agent_id=past.pk, session=1).values_list("changes", flat=True))
    assert re.search(rf"→ \d+ {count} Roll back session 1", page)
    assert f"Memories that these entries changed: {count}" in text_of(client, time_machine_url(past.pk, "session", 1))


BAD = [
    *(("entry", at) for at in ("x", "-1", "9" * 30, "0", "999")),
    *(("moment", at) for at in ("yesterday", "9999-12-31 23:59", "2026-02-30", "\0")),
    *(("session", "999"), ("from_entry", "999"), ("from_entry", "0"), ("nothing", "1"), ("", "")),
]


def test_bad_input_is_refused(past: Agent, client: Client) -> None:
    before = active(past)
    for kind, at in BAD:
        address = time_machine_url(past.pk, kind, at) if kind else f"{time_machine_url(past.pk)}?kind="
        for response in (client.get(address), client.post(address, {"head": "x", "conflicts": "none"})):
            assert response.status_code == 200
            assert re.search("pal-field-error|pal-error", html(response)), (kind, at)
    everything = time_machine_url(past.pk, "moment", "0001-01-01")
    assert client.post(everything, {"head": "x", "conflicts": "none"}).status_code == 200
    assert active(past) == before


def test_the_number_of_queries_does_not_grow_with_the_trail(
    past: Agent, client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        steps.remember(fresh(past), f"{MARKER} {number}")
    with django_assert_max_num_queries(12):
        page = text_of(client, time_machine_url(past.pk))
    assert re.search(r"Edits before \d+ \w+ \d{4} are not marked", page)
