"""Requests to read an agent's memories: who may ask, who decides, what a grant opens, and what SQL cannot change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.consent import Person, Scope, same_address
from audit.models import AccessRequest, AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import granted_reads, grants
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from tests import steps
from tests.asking import EVE, PAT, PURPOSE, SILO, STEWARD, ask, granted, read, state, with_a_past
from tests.conftest import drop_guards
from tests.steps import ME, fresh, last_entry, problems, refused, remember


@pytest.fixture
def agent(ada: Agent) -> Agent:
    return with_a_past(ada)


def cannot_read(agent: Agent, number: int, *numbers: int, person: Person = PAT) -> None:
    with refused(agent, errors.NotGranted):
        read(agent, number, *numbers, person=person)


# --- requests


def test_a_request_out_of_bounds_is_refused(agent: Agent) -> None:
    purposes = ["because I want to", "x" * 1_001, "\u200b" * 30, "\u202e\u3164" * 15, f"{PURPOSE}\0"]
    scopes = [Scope("memories"), Scope("memories", numbers=tuple(range(1, 1_003))), Scope("all")]
    scopes += [Scope("entries", first=3, last=2), Scope("entries", first=1, last=999)]
    invalid = [{"purpose": text} for text in purposes] + [{"seconds": n} for n in (14 * 60, 4 * 3600 + 1)]
    rows: list[tuple[dict[str, Any], type[Exception]]] = [
        *((fields, errors.Invalid) for fields in [*invalid, *({"scope": scope} for scope in scopes)]),
        ({"scope": Scope("memories", numbers=(1, 9))}, errors.UnknownMemory),
        ({"scope": Scope("session", session=8)}, errors.UnknownEntry),
    ]
    for fields, error in rows:
        with refused(agent, error):
            ask(agent, **fields)
        assert not AccessRequest.objects.exists()


def test_a_request_is_an_entry_of_the_trail(agent: Agent) -> None:
    request = ask(agent, scope=Scope("memories", numbers=(1, 2)), seconds=900)
    entry = last_entry(agent)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("access_requested", "person", PAT.address)
    assert (entry.seq, entry.detail["purpose"], entry.detail["seconds"]) == (request.number, PURPOSE, 900)
    assert state(agent, request.number) == "requested"
    assert problems(agent) == []


def test_a_person_has_one_open_request_per_agent(agent: Agent, bob: Agent) -> None:
    ask(agent)
    with refused(agent, errors.AlreadyRequested):
        ask(agent)
    ask(agent, EVE)
    ask(bob)


def test_a_request_for_an_erased_silo_is_refused(agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(wrapped_key=b"")
    with pytest.raises(errors.Erased):
        ask(agent)


# --- decisions


def test_only_the_agents_side_decides(agent: Agent) -> None:
    number = ask(agent).number
    people = Actor.person(PAT.address), Actor.person(STEWARD.label), Actor.steward("another@acme.test")
    for actor in (*people, Actor.operator("shell"), Actor.system("sweep")):
        for decide in (grants.approve, grants.deny):
            with refused(agent, errors.ConsentRequired):
                decide(fresh(agent), number, actor)


def test_with_steward_only_consent_the_runtime_cannot_approve(agent: Agent) -> None:
    lifecycle.change(agent, ME, is_steward_only=True)
    number = ask(agent).number
    with refused(agent, errors.ConsentRequired):
        grants.approve(fresh(agent), number, ME)
    assert grants.approve(fresh(agent), number, STEWARD).decided_by == "steward"


@pytest.mark.parametrize("address", ["stew@acme.test", "Stew@ACME.test", "stew+work@acme.test"])
def test_a_steward_cannot_approve_their_own_request(agent: Agent, address: str) -> None:
    number = ask(agent, Person(3, address)).number
    with refused(agent, errors.ConsentRequired):
        grants.approve(fresh(agent), number, STEWARD)
    lifecycle.change(agent, ME, is_steward_only=True)
    with refused(agent, errors.ConsentRequired):
        ask(agent, Person(4, address))


def test_addresses_of_the_same_person_are_recognized() -> None:
    same = [
        ("a@x.test", "A@X.TEST"),
        ("a@x.test", " a@x.test. "),
        ("a+b@x.test", "a@x.test"),
        ('"a"@x.test', "a@x.test"),
    ]
    same += [("a.b@gmail.com", "ab@googlemail.com"), ("a.b@pm.me", "ab@protonmail.com"), ("a@me.com", "a@icloud.com")]
    same += [("a@ya.ru", "a@yandex.ru"), ("\uff41@x.test", "a@x.test"), ("a@stra\u00dfe.de", "a@XN--STRAE-OQA.de")]
    same += [("a@b\u00fccher.example", "a@xn--bcher-kva.example")]
    different = [("a.b@x.test", "ab@x.test"), ("a@x.test", "b@x.test"), ("", "")]
    assert [same_address(*pair) for pair in same + different] == [True] * len(same) + [False] * len(different)


def test_a_request_is_decided_once(agent: Agent) -> None:
    number = granted(agent)
    for decide in (grants.approve, grants.deny):
        with refused(agent, errors.NotOpen):
            decide(fresh(agent), number, ME)
    denied = ask(agent).number
    grants.deny(fresh(agent), denied, ME)
    cannot_read(agent, denied, 1)
    ask(agent)


def test_an_undecided_request_lapses_after_72_hours(agent: Agent, time_machine: Any) -> None:
    number = ask(agent).number
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    with pytest.raises(errors.NotOpen):
        grants.approve(fresh(agent), number, ME)
    ask(agent)
    assert state(agent, number) == "lapsed"
    assert problems(agent) == []


# --- reading


def test_each_read_is_recorded_and_one_notice_names_the_reader(agent: Agent) -> None:
    number = granted(agent)
    assert read(agent, number, 1, 3) == ["tea", "brown sugar"]
    first = last_entry(agent)
    assert (first.operation, first.actor_label) == ("content_read", PAT.address)
    assert first.detail == {"request": number, "memories": [1, 3]}
    assert read(agent, number, 2) == ["milk"]
    assert last_entry(agent).detail == {"request": number, "memories": [2]}
    contents = [steps.says(agent, memory).content for memory in steps.active(agent)]
    [notice] = [content for content in contents if PURPOSE in content]
    assert PAT.address in notice
    assert problems(agent) == []


@pytest.mark.parametrize("what", ["entry", "all"])
def test_a_rollback_keeps_the_notice_of_a_read(agent: Agent, what: str) -> None:
    number = granted(agent)
    steps.remember(agent, "bread")
    read(agent, number, 1)
    if what == "entry":
        with refused(agent, errors.NothingToUndo):
            rollback.roll_back(agent, What.entry(last_entry(agent).seq), steps.PERSON)
    else:
        rollback.roll_back(agent, What.since_entry(number), steps.PERSON)
    contents = [steps.says(agent, memory).content for memory in steps.active(agent)]
    assert [PAT.address in content for content in contents].count(True) == 1
    assert ("bread" in contents) == (what == "entry")
    assert problems(agent) == []


def test_a_grant_opens_only_the_memories_of_its_scope(agent: Agent) -> None:
    for scope, numbers, is_allowed in (
        (Scope("silo"), (1, 2, 3), True),
        (Scope("memories", numbers=(1, 3)), (1, 3), True),
        (Scope("memories", numbers=(1, 3)), (1, 2), False),
        (Scope("session", session=7), (3,), False),
        (Scope("entries", first=1, last=4), (1,), False),
    ):
        number = granted(agent, scope)
        if is_allowed:
            assert len(read(agent, number, *numbers)) == len(numbers)
        else:
            cannot_read(agent, number, *numbers)


def test_a_grant_opens_only_the_entries_of_its_scope(agent: Agent) -> None:
    made, revised = (AuditEntry.objects.get(agent_id=agent.pk, operation=name) for name in ("remembered", "revised"))
    readable_by: dict[Scope, dict[int, list[int] | None]] = {
        SILO: {made.seq: [1, 2, 3], revised.seq: [3]},
        Scope("memories", numbers=(1, 2)): {made.seq: [1, 2], revised.seq: None},
        Scope("session", session=7): {made.seq: None, revised.seq: [3]},
        Scope("entries", first=1, last=made.seq): {made.seq: [1, 2, 3], revised.seq: None},
    }
    for scope, readable in readable_by.items():
        number = granted(agent, scope)
        for seq, expected in readable.items():
            if expected is None:
                with refused(agent, errors.NotGranted):
                    granted_reads.entry(fresh(agent), number, PAT, seq)
            else:
                changes = granted_reads.entry(fresh(agent), number, PAT, seq)
                assert [change.number for change in changes] == expected


def test_a_grant_is_for_one_person_and_one_agent(agent: Agent, bob: Agent) -> None:
    number = granted(agent)
    for person in (EVE, Person(PAT.id, EVE.address), Person(EVE.id, PAT.address)):
        cannot_read(agent, number, 1, person=person)
    remember(bob, "coffee")
    cannot_read(bob, number, 1)


@pytest.mark.parametrize(
    ("granted_at", "later", "back"),
    [
        (timedelta(), timedelta(seconds=901), timedelta(seconds=1)),
        (timedelta(days=30), timedelta(days=30, seconds=1), timedelta(days=29)),  # approved while the clock was ahead
    ],
)
def test_a_clock_set_back_does_not_extend_a_grant(
    agent: Agent, time_machine: Any, granted_at: timedelta, later: timedelta, back: timedelta
) -> None:
    now = timezone.now()
    time_machine.move_to(now + granted_at)
    number = granted(agent, seconds=900)
    time_machine.move_to(now + later)
    remember(agent, "honey")
    time_machine.move_to(now + back)
    for _ in range(2):
        with pytest.raises(errors.NotGranted):
            read(agent, number, 1)


@pytest.mark.parametrize("actor", [ME, STEWARD, Actor.person(PAT.address), Actor.person("owner@acme.test")])
def test_a_revoked_grant_ends_at_once(agent: Agent, actor: Actor) -> None:
    number = granted(agent)
    grants.revoke(fresh(agent), number, actor)
    cannot_read(agent, number, 1)
    with refused(agent, errors.NotOpen):
        grants.revoke(fresh(agent), number, actor)


def test_a_grant_works_while_memory_is_off(agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(memory_enabled=False)
    assert read(agent, granted(agent), 1) == ["tea"]


# --- attacks by SQL


def test_a_row_inserted_by_sql_grants_nothing(agent: Agent) -> None:
    number = ask(agent).number
    AccessRequest.objects.filter(number=number).update(state="active", until=timezone.now() + timedelta(hours=1))
    cannot_read(agent, number, 1)
    assert [problem.seq for problem in problems(agent)] == [number]
    forged = AccessRequest.objects.get(number=number)
    forged.pk, forged.number, forged.person_id = None, number + 1, 9
    forged.save()
    cannot_read(agent, number + 1, 1, person=Person(9, PAT.address))


def test_a_new_password_ends_grants_whose_rows_were_altered(agent: Agent, bob: Agent) -> None:
    number, other = granted(agent), ask(bob).number
    AccessRequest.objects.filter(agent_id=agent.pk).update(state="denied")
    AccessRequest.objects.filter(agent_id=bob.pk).update(person_id=9)
    grants.withdraw_all(PAT.id, "password")
    cannot_read(agent, number, 1)
    assert (state(agent, number), state(bob, other)) == ("revoked", "lapsed")


def test_deleting_a_revocation_by_sql_revives_no_grant(agent: Agent) -> None:
    number = granted(agent)
    grants.revoke(fresh(agent), number, ME)
    remember(agent, "honey")
    drop_guards()
    AuditEntry.objects.filter(agent_id=agent.pk, operation="access_revoked").delete()
    cannot_read(agent, number, 1)


def test_a_forged_request_of_a_wrong_form_is_not_found(agent: Agent) -> None:
    number = ask(agent).number
    drop_guards()
    entry = AuditEntry.objects.get(agent_id=agent.pk, seq=number)
    forged: list[dict[str, Any]] = [{"purpose": 7}, {"person": {}}, {"person_id": "1"}, {"seconds": "900"}]
    forged += [{"seconds": True}, {"scope": {}}, {"scope": {"kind": "all"}}, {"scope": {"kind": []}}]
    forged += [{"scope": {"kind": "memories", "numbers": ["1"]}}, {"scope": {"kind": "session", "session": "1"}}]
    for fields in forged:
        AuditEntry.objects.filter(pk=entry.pk).update(detail=entry.detail | fields)
        with pytest.raises(errors.NotFound):
            grants.find(fresh(agent), number)


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("access_requested", {"detail": {}}),
        ("access_requested", {"actor_label": "nobody"}),
        ("access_denied", {"operation": "access_granted"}),
        ("remembered", {"actor_label": "nobody"}),
    ],
)
def test_an_altered_trail_grants_nothing(agent: Agent, operation: str, values: dict[str, Any]) -> None:
    denied = ask(agent).number
    grants.deny(fresh(agent), denied, ME)
    number = granted(agent)
    remember(agent, "honey")
    assert read(agent, number, 1) == ["tea"]
    drop_guards()
    assert AuditEntry.objects.filter(agent_id=agent.pk, operation=operation, seq__gte=denied).update(**values)
    for each in (denied, number):
        if each == denied or operation != "access_denied":
            cannot_read(agent, each, 1)
    assert problems(agent)
