"""The Mechanic's Exception: who asks for what, who decides, what is read, what is written down, what SQL cannot do."""

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
def past(ada: Agent) -> Agent:
    return with_a_past(ada)


# --- asking


def test_what_is_asked_has_bounds(past: Agent) -> None:
    rows: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"purpose": "because I want to"}, errors.Invalid),
        ({"purpose": "x" * 1_001}, errors.Invalid),
        ({"purpose": "\u200b" * 30}, errors.Invalid),
        ({"purpose": "\u202e\u3164" * 15}, errors.Invalid),
        ({"purpose": f"{PURPOSE}\0"}, errors.Invalid),
        ({"seconds": 14 * 60}, errors.Invalid),
        ({"seconds": 4 * 3600 + 1}, errors.Invalid),
        ({"scope": Scope("memories")}, errors.Invalid),
        ({"scope": Scope("memories", numbers=(1, 9))}, errors.UnknownMemory),
        ({"scope": Scope("memories", numbers=tuple(range(1, 1_003)))}, errors.Invalid),
        ({"scope": Scope("session", session=8)}, errors.UnknownEntry),
        ({"scope": Scope("entries", first=3, last=2)}, errors.Invalid),
        ({"scope": Scope("entries", first=1, last=999)}, errors.Invalid),
        ({"scope": Scope("all")}, errors.Invalid),
    ]
    for more, error in rows:
        with refused(past, error):
            ask(past, **more)
        assert not AccessRequest.objects.exists()


def test_what_was_asked_stands_in_the_trail(past: Agent) -> None:
    asked = ask(past, scope=Scope("memories", numbers=(1, 2)), seconds=900)
    entry = last_entry(past)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("access_requested", "person", PAT.address)
    assert (entry.seq, entry.detail["purpose"], entry.detail["seconds"]) == (asked.number, PURPOSE, 900)
    assert state(past, asked.number) == "requested"
    assert problems(past) == []


def test_a_person_has_one_open_request_to_an_agent(past: Agent, bob: Agent) -> None:
    ask(past)
    with refused(past, errors.AlreadyRequested):
        ask(past)
    ask(past, EVE)
    ask(bob)


def test_a_silo_that_was_erased_is_not_asked_for(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"")
    with pytest.raises(errors.Erased):
        ask(past)


# --- deciding


def test_the_agents_side_alone_decides(past: Agent) -> None:
    number = ask(past).number
    people = Actor.person(PAT.address), Actor.person(STEWARD.label), Actor.steward("another@acme.test")
    for actor in (*people, Actor.operator("shell"), Actor.system("sweep")):
        for decide in (grants.approve, grants.deny):
            with refused(past, errors.ConsentRequired):
                decide(fresh(past), number, actor)


def test_where_the_steward_alone_consents_the_runtime_does_not(past: Agent) -> None:
    lifecycle.change(past, ME, is_steward_only=True)
    number = ask(past).number
    with refused(past, errors.ConsentRequired):
        grants.approve(fresh(past), number, ME)
    assert grants.approve(fresh(past), number, STEWARD).decided_by == "steward"


@pytest.mark.parametrize("address", ["stew@acme.test", "Stew@ACME.test", "stew+work@acme.test"])
def test_a_steward_never_decides_for_themselves(past: Agent, address: str) -> None:
    number = ask(past, Person(3, address)).number
    with refused(past, errors.ConsentRequired):
        grants.approve(fresh(past), number, STEWARD)
    lifecycle.change(past, ME, is_steward_only=True)
    with refused(past, errors.ConsentRequired):
        ask(past, Person(4, address))


def test_addresses_that_reach_the_same_person() -> None:
    rows = [
        ("a@x.test", "A@X.TEST", True),
        ("a@x.test", " a@x.test. ", True),
        ("a+b@x.test", "a@x.test", True),
        ("a.b@gmail.com", "ab@googlemail.com", True),
        ("a.b@x.test", "ab@x.test", False),
        ("\uff41@x.test", "a@x.test", True),
        ('"a"@x.test', "a@x.test", True),
        ("a@b\u00fccher.example", "a@xn--bcher-kva.example", True),
        ("a@stra\u00dfe.de", "a@XN--STRAE-OQA.de", True),
        ("a.b@pm.me", "ab@protonmail.com", True),
        ("a@me.com", "a@icloud.com", True),
        ("a@ya.ru", "a@yandex.ru", True),
        ("a@x.test", "b@x.test", False),
        ("", "", False),
    ]
    for one, other, same in rows:
        assert same_address(one, other) is same


def test_a_request_is_decided_once(past: Agent) -> None:
    number = granted(past)
    for decide in (grants.approve, grants.deny):
        with refused(past, errors.NotOpen):
            decide(fresh(past), number, ME)
    denied = ask(past).number
    grants.deny(fresh(past), denied, ME)
    with refused(past, errors.NotGranted):
        read(past, denied, 1)
    ask(past)


def test_a_request_nobody_decides_about_lapses(past: Agent, time_machine: Any) -> None:
    number = ask(past).number
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    with pytest.raises(errors.NotOpen):
        grants.approve(fresh(past), number, ME)
    ask(past)
    assert state(past, number) == "lapsed"
    assert problems(past) == []


# --- reading


def test_a_read_is_written_down_before_it_is_made_and_told_once(past: Agent) -> None:
    number = granted(past)
    assert read(past, number, 1, 3) == ["tea", "brown sugar"]
    first = last_entry(past)
    assert (first.operation, first.actor_label) == ("content_read", PAT.address)
    assert first.detail == {"request": number, "memories": [1, 3]}
    assert read(past, number, 2) == ["milk"]
    assert last_entry(past).detail == {"request": number, "memories": [2]}
    [notice] = [said for memory in steps.active(past) if PURPOSE in (said := steps.says(past, memory).content)]
    assert PAT.address in notice
    assert problems(past) == []


@pytest.mark.parametrize("what", ["entry", "all"])
def test_that_somebody_read_is_taken_back_by_nobody(past: Agent, what: str) -> None:
    """The agent is told by a notice, which a rollback would discard like whatever else was made since."""
    number = granted(past)
    steps.remember(past, "bread")
    read(past, number, 1)
    told = last_entry(past)
    if what == "entry":
        with refused(past, errors.NothingToUndo):
            rollback.roll_back(past, What.entry(told.seq), steps.PERSON)
    else:
        rollback.roll_back(past, What.since_entry(number), steps.PERSON)
    said = [steps.says(past, memory).content for memory in steps.active(past)]
    assert [PAT.address in each for each in said].count(True) == 1
    assert ("bread" in said) == (what == "entry")
    assert problems(past) == []


def test_memories_are_read_within_the_scope(past: Agent) -> None:
    for scope, numbers, may in (
        (Scope("silo"), (1, 2, 3), True),
        (Scope("memories", numbers=(1, 3)), (1, 3), True),
        (Scope("memories", numbers=(1, 3)), (1, 2), False),
        (Scope("session", session=7), (3,), False),
        (Scope("entries", first=1, last=4), (1,), False),
    ):
        number = granted(past, scope)
        if may:
            assert len(read(past, number, *numbers)) == len(numbers)
            continue
        with refused(past, errors.NotGranted):
            read(past, number, *numbers)


def test_what_an_entry_did_is_read_within_the_scope(past: Agent) -> None:
    made, revised = (AuditEntry.objects.get(agent_id=past.pk, operation=name) for name in ("remembered", "revised"))
    readable_by: dict[Scope, dict[int, list[int] | None]] = {
        SILO: {made.seq: [1, 2, 3], revised.seq: [3]},
        Scope("memories", numbers=(1, 2)): {made.seq: [1, 2], revised.seq: None},
        Scope("session", session=7): {made.seq: None, revised.seq: [3]},
        Scope("entries", first=1, last=made.seq): {made.seq: [1, 2, 3], revised.seq: None},
    }
    for scope, readable in readable_by.items():
        number = granted(past, scope)
        for seq, expected in readable.items():
            if expected is None:
                with refused(past, errors.NotGranted):
                    granted_reads.entry(fresh(past), number, PAT, seq)
            else:
                found = granted_reads.entry(fresh(past), number, PAT, seq)
                assert [step.number for step in found] == expected


def test_nobody_else_reads_by_it(past: Agent, bob: Agent) -> None:
    number = granted(past)
    for person in (EVE, Person(PAT.id, EVE.address), Person(EVE.id, PAT.address)):
        with refused(past, errors.NotGranted):
            read(past, number, 1, person=person)
    remember(bob, "coffee")
    with refused(bob, errors.NotGranted):
        read(bob, number, 1)


def test_a_clock_that_is_set_back_revives_nothing(past: Agent, time_machine: Any) -> None:
    now = timezone.now()
    number = granted(past, seconds=900)
    time_machine.move_to(now + timedelta(seconds=901))
    remember(past, "honey")
    time_machine.move_to(now + timedelta(seconds=1))
    for _ in range(2):
        with pytest.raises(errors.NotGranted):
            read(past, number, 1)


def test_a_grant_given_while_the_clock_was_ahead_is_not_longer(past: Agent, time_machine: Any) -> None:
    now = timezone.now()
    time_machine.move_to(now + timedelta(days=30))
    number = granted(past, seconds=900)
    time_machine.move_to(now + timedelta(days=29))
    with refused(past, errors.NotGranted):
        read(past, number, 1)


@pytest.mark.parametrize("actor", [ME, STEWARD, Actor.person(PAT.address), Actor.person("owner@acme.test")])
def test_it_is_revoked_at_once(past: Agent, actor: Actor) -> None:
    number = granted(past)
    grants.revoke(fresh(past), number, actor)
    with refused(past, errors.NotGranted):
        read(past, number, 1)
    with refused(past, errors.NotOpen):
        grants.revoke(fresh(past), number, actor)


def test_it_works_while_memory_is_switched_off(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(memory_enabled=False)
    assert read(past, granted(past), 1) == ["tea"]


# --- SQL


def test_a_row_put_in_by_sql_opens_nothing(past: Agent) -> None:
    number = ask(past).number
    AccessRequest.objects.filter(number=number).update(state="active", until=timezone.now() + timedelta(hours=1))
    with refused(past, errors.NotGranted):
        read(past, number, 1)
    assert [problem.seq for problem in problems(past)] == [number]
    made_up = AccessRequest.objects.get(number=number)
    made_up.pk, made_up.number, made_up.person_id = None, number + 1, 9
    made_up.save()
    with refused(past, errors.NotGranted):
        read(past, number + 1, 1, person=Person(9, PAT.address))


def test_another_password_ends_what_the_rows_do_not_tell(past: Agent, bob: Agent) -> None:
    number, other = granted(past), ask(bob).number
    AccessRequest.objects.filter(agent_id=past.pk).update(state="denied")
    AccessRequest.objects.filter(agent_id=bob.pk).update(person_id=9)
    grants.withdraw_all(PAT.id, "password")
    with refused(past, errors.NotGranted):
        read(past, number, 1)
    assert (state(past, number), state(bob, other)) == ("revoked", "lapsed")


def test_a_revocation_taken_out_by_sql_revives_nothing(past: Agent) -> None:
    number = granted(past)
    grants.revoke(fresh(past), number, ME)
    remember(past, "honey")
    drop_guards()
    AuditEntry.objects.filter(agent_id=past.pk, operation="access_revoked").delete()
    with refused(past, errors.NotGranted):
        read(past, number, 1)


@pytest.mark.parametrize(
    "forged",
    [
        {"purpose": 7},
        {"person": {}},
        {"person_id": "1"},
        {"seconds": "900"},
        {"seconds": True},
        {"scope": {}},
        {"scope": {"kind": "all"}},
        {"scope": {"kind": []}},
        {"scope": {"kind": "memories", "numbers": ["1"]}},
        {"scope": {"kind": "session", "session": "1"}},
    ],
)
def test_a_request_that_is_not_of_the_form_is_none(past: Agent, forged: dict[str, Any]) -> None:
    number = ask(past).number
    drop_guards()
    entry = AuditEntry.objects.get(agent_id=past.pk, seq=number)
    AuditEntry.objects.filter(pk=entry.pk).update(detail=entry.detail | forged)
    with pytest.raises(errors.NotFound):
        grants.find(fresh(past), number)


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("access_requested", {"detail": {}}),
        ("access_requested", {"actor_label": "nobody"}),
        ("access_denied", {"operation": "access_granted"}),
        ("remembered", {"actor_label": "nobody"}),
    ],
)
def test_an_altered_trail_opens_nothing(past: Agent, operation: str, values: dict[str, Any]) -> None:
    denied = ask(past).number
    grants.deny(fresh(past), denied, ME)
    number = granted(past)
    remember(past, "honey")
    assert read(past, number, 1) == ["tea"]
    drop_guards()
    changed = AuditEntry.objects.filter(agent_id=past.pk, operation=operation, seq__gte=denied).update(**values)
    assert changed
    for each in (denied, number):
        if each == denied or operation != "access_denied":
            with refused(past, errors.NotGranted):
                read(past, each, 1)
    assert problems(past)
