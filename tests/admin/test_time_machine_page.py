"""The Time Machine's page: nothing before it is confirmed, in numbers first, and as the trail stood then."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.models import AuditEntry
from memory.admin.base.page import time_machine_url
from memory.models import Memory
from memory.writing import operations
from refinement import loop
from tests import steps
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh


@pytest.fixture
def lived(house: House) -> House:
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} sails")
        loop.refine(fresh(agent), trigger="manual")
    return house


def active(house: House) -> list[int]:
    rows = Memory.objects.filter(agent=house.ada, kind="core", discarded_at=None)
    return list(rows.order_by("number").values_list("number", flat=True))


def test_a_session_is_taken_back(lived: House, enter: Enter) -> None:
    client = enter("admin")
    assert "session 1" in client.get(time_machine_url(lived.ada.pk)).content.decode().lower()
    before = active(lived)
    place = time_machine_url(lived.ada.pk, "session", 1)
    page = client.get(place)
    told = page.content.decode()
    assert "Preview: roll back session 1" in told
    assert re.search(r"<dt>Core tokens</dt><dd>\d+ → \d+ \(\+\d+\)</dd>", told)
    assert MARKER not in told
    assert client.post(place, {"conflicts": ""}).status_code == 200, "nobody has seen the numbers"
    assert active(lived) == before
    answer = client.post(place, {"head": fresh(lived.ada).audit_seq, "conflicts": "", "reason": "too much"})
    entry = AuditEntry.objects.filter(agent_id=lived.ada.pk).latest("seq")
    assert answer["Location"] == f"/admin/audit/auditentry/{entry.pk}/change/"
    assert (entry.operation, entry.actor_label) == ("rolled_back", "admin@acme.test")
    assert entry.detail["reason"] == "too much"
    assert active(lived) == [1, 2, 3]
    assert "rolled back, as entry" in client.get(answer["Location"]).content.decode()


def test_what_changed_since_it_was_shown_is_shown_again(lived: House, enter: Enter) -> None:
    client = enter("admin")
    place = time_machine_url(lived.ada.pk, "session", 1)
    head = fresh(lived.ada).audit_seq
    steps.remember(fresh(lived.ada), f"{MARKER} new")
    answer = client.post(place, {"head": head})
    assert answer.status_code == 200
    assert "Repeat the preview" in answer.content.decode()
    assert not AuditEntry.objects.filter(agent_id=lived.ada.pk, operation="rolled_back").exists()
    looked = client.post(place, {"head": head, "look": "1"}).content.decode()
    assert f'name="head" value="{fresh(lived.ada).audit_seq}"' in looked


def test_conflicts_are_listed_and_settled(lived: House, enter: Enter) -> None:
    client = enter("admin")
    operations.revise(fresh(lived.ada), 3, steps.ME, content=f"{MARKER} sails far")
    seq = fresh(lived.ada).audit_seq
    operations.revise(fresh(lived.ada), 3, steps.ME, content=f"{MARKER} sails further")
    place = time_machine_url(lived.ada.pk, "entry", seq)
    page = client.get(place).content.decode()
    assert f"memory 3, by entry {seq + 1}" in page
    refused = client.post(place, {"head": seq + 1, "conflicts": ""})
    assert "Later entries changed the same memories" in refused.content.decode()
    looked = client.post(place, {"head": seq + 1, "conflicts": "force", "look": "1"})
    assert looked.status_code == 200
    assert fresh(lived.ada).audit_seq == seq + 1
    assert client.post(place, {"head": seq + 1, "conflicts": "force"}).status_code == 302
    entry = AuditEntry.objects.filter(agent_id=lived.ada.pk).latest("seq")
    assert entry.detail["forced"] == [3]


def test_constitutional_memories_need_the_box_and_a_reason(lived: House, client: Client) -> None:
    operations.protect(fresh(lived.ada), [3], steps.PERSON)
    place = time_machine_url(lived.ada.pk, "since_entry", 0)
    head = fresh(lived.ada).audit_seq
    assert "Tick the box" in client.get(place).content.decode()
    assert client.post(place, {"head": head}).status_code == 200
    without = client.post(place, {"head": head, "include_constitutional": "on"})
    assert "A reason is required for protected memories" in without.content.decode()
    assert active(lived)
    given = {"head": head, "include_constitutional": "on", "reason": "all of it"}
    assert client.post(place, given).status_code == 302
    assert active(lived) == []


def test_everything_since_a_moment(lived: House, client: Client) -> None:
    shown = f"{timezone.now():%Y-%m-%d %H:%M:%S} UTC"
    steps.remember(fresh(lived.ada), f"{MARKER} tea")
    page = client.get(time_machine_url(lived.ada.pk, "moment", shown)).content.decode()
    assert f"Preview: roll back everything since {shown}" in page, "a time as it is shown is taken"
    place = time_machine_url(lived.ada.pk, "moment", (timezone.now() - timedelta(days=1)).strftime("%Y-%m-%d %H:%M"))
    assert "Preview: roll back everything since" in client.get(place).content.decode()
    assert client.post(place, {"head": fresh(lived.ada).audit_seq}).status_code == 302
    assert active(lived) == []


NONSENSE = [
    *(("entry", at) for at in ("x", "-1", "9" * 30, "0", "999")),
    *(("moment", at) for at in ("yesterday", "0001-01-01", "9999-12-31 23:59", "2026-02-30", "\0")),
    *(("session", "999"), ("since_entry", "999"), ("nothing", "1"), ("", "")),
]


def test_what_makes_no_sense_is_told(lived: House, client: Client) -> None:
    before = active(lived)
    for kind, at in NONSENSE:
        place = time_machine_url(lived.ada.pk, kind, at) if kind else f"{time_machine_url(lived.ada.pk)}?kind="
        for answer in (client.get(place), client.post(place, {"head": "x", "conflicts": "none"})):
            assert answer.status_code == 200
            if (kind, at) != ("moment", "0001-01-01"):  # which is everything
                assert "pal-field-error" in answer.content.decode() or "pal-error" in answer.content.decode(), (
                    kind,
                    at,
                )
    assert active(lived) == before


def test_it_is_for_those_who_steer_the_agents_of_their_tenant(lived: House, client: Client, enter: Enter) -> None:
    own = time_machine_url(lived.ada.pk, "session", 1)
    for other, refused in ((enter("auditor"), 403), (enter("stranger"), 404)):
        assert [other.get(own).status_code, other.post(own, {"head": 1}).status_code] == [refused, refused]
    for place in (time_machine_url(lived.bob.pk, "session", 1), "/admin/memory/agent/99999999/time-machine/"):
        assert [client.get(place).status_code, client.post(place, {"head": 1}).status_code] == [404, 404]


def test_it_takes_as_many_queries_however_long_the_trail(
    lived: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        steps.remember(fresh(lived.ada), f"{MARKER} {number}")
    with django_assert_max_num_queries(12):
        client.get(time_machine_url(lived.ada.pk))
