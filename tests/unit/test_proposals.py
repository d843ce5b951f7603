"""What an admin may not do alone: a model and a steward are proposed, and the agent's side makes the change, or not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.models import AuditEntry
from audit.proposals import Proposal
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import links, proposals
from memory.models import Agent
from memory.time_machine import trail_view
from memory.writing import edits
from tests.conftest import drop_guards
from tests.queueing import work
from tests.steps import ME, fresh, last_entry, problems, refused, remember
from tests.tampering import forge, rechain

ADMIN = Actor.person("admin@acme.test")
TENANT = Actor.operator("k3v9x1m7q2aa")
STEWARD = Actor.steward("stew@acme.test")
MODEL = "openai/gpt-4.1"


@pytest.fixture
def led(ada: Agent) -> Agent:
    """An agent with memories and a steward."""
    remember(ada, "tea")
    lifecycle.change(ada, ME, steward=STEWARD.label)
    return fresh(ada)


def propose(agent: Agent, actor: Actor = ADMIN, **settings: Any) -> Proposal:
    return proposals.propose(fresh(agent), actor, **settings)


def state(agent: Agent, number: int) -> str:
    return proposals.find(fresh(agent), number).state


# --- proposing


@pytest.mark.parametrize("actor", [ADMIN, TENANT])
def test_a_proposal_changes_nothing_by_itself(led: Agent, actor: Actor) -> None:
    made = propose(led, actor, model=MODEL, steward="tom@acme.test")
    now = fresh(led)
    assert (now.model, now.steward) == ("builtin/dedupe", STEWARD.label)
    entry = last_entry(led)
    assert (entry.operation, entry.actor_label, entry.seq) == ("change_proposed", actor.label, made.number)
    assert entry.detail == {"proposed": {"model": MODEL, "steward": "tom@acme.test"}}
    assert proposals.open_one(now) == made
    assert problems(led) == []


def test_the_agents_side_proposes_nothing(led: Agent) -> None:
    for actor in (ME, STEWARD, Actor.system("sweep")):
        with refused(led, errors.AgentConsentRequired):
            propose(led, actor, model=MODEL)


def test_what_cannot_be_proposed(led: Agent) -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"model": "builtin/dedupe"},
        {"model": ""},
        {"model": "x" * 201},
        {"model": "openai/gpt\n"},
        {"steward": "nobody"},
        {"steward": None},
        {"model": 5},
        {"is_steward_only": "perhaps"},
        {"is_steward_only": "1"},
        {"is_steward_only": None},
        {"budget_tokens": 9_000},
        {"model": MODEL, "wrapped_key": b""},
        {"memory_enabled": False},
    ]
    for settings in rows:
        with refused(led, errors.Invalid):
            propose(led, **settings)


def test_a_new_proposal_takes_the_place_of_the_one_before(led: Agent) -> None:
    first, second = propose(led, model=MODEL), propose(led, model="openai/gpt-4.1-mini")
    assert (state(led, first.number), state(led, second.number)) == ("replaced", "open")
    told = AuditEntry.objects.get(agent_id=led.pk, operation="change_declined")
    assert (told.actor_kind, told.detail) == ("system", {"proposal": first.number, "why": "replaced"})
    with refused(led, errors.NotOpen):
        proposals.accept(fresh(led), first.number, ME)


def test_one_that_lapsed_is_closed_by_the_next(led: Agent, time_machine: Any) -> None:
    first = propose(led, model=MODEL)
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert proposals.open_one(fresh(led)) is None
    for verb in (proposals.accept, proposals.decline):
        with refused(led, errors.NotOpen):
            verb(fresh(led), first.number, ME)
    propose(led, model=MODEL)
    told = AuditEntry.objects.get(agent_id=led.pk, operation="change_declined")
    assert told.detail == {"proposal": first.number, "why": "lapsed"}
    assert state(led, first.number) == "lapsed"
    assert problems(led) == []


def test_of_an_erased_silo_nothing_is_proposed(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    Agent.objects.filter(pk=led.pk).update(wrapped_key=b"")
    with pytest.raises(errors.Erased):
        propose(led, model="openai/gpt-4.1-mini")
    with pytest.raises(errors.Erased):
        proposals.accept(fresh(led), number, ME)


# --- deciding


@pytest.mark.parametrize("actor", [ME, STEWARD, Actor.steward("Stew+agents@ACME.test")])
def test_the_agents_side_accepts(led: Agent, actor: Actor) -> None:
    number = propose(led, model=MODEL, is_steward_only=True).number
    accepted = proposals.accept(fresh(led), number, actor)
    now, entry = fresh(led), last_entry(led)
    assert (now.model, now.is_steward_only) == (MODEL, True)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("agent_changed", actor.kind, actor.label)
    assert entry.detail == {"changed": {"model": MODEL, "is_steward_only": True}, "proposal": number}
    assert (accepted.state, accepted.decided_by, accepted.settled_by) == ("accepted", actor.kind, entry.seq)
    assert problems(led) == []


def test_nobody_else_does(led: Agent) -> None:
    others = ADMIN, TENANT, Actor.person(STEWARD.label), Actor.system("sweep"), Actor.operator("shell")
    for settings in ({"model": MODEL}, {"steward": "admin@acme.test"}):
        number = propose(led, **settings).number
        for actor in (*others, Actor.steward("another@acme.test"), Actor.steward("")):
            for decide in (proposals.accept, proposals.decline)[: 1 if actor == ADMIN else 2]:  # whose it is
                with refused(led, errors.ConsentRequired):
                    decide(fresh(led), number, actor)


@pytest.mark.parametrize(
    ("steward", "person"),
    [
        ("stew@acme.test", "stew@acme.test"),
        ("stew@acme.test", "STEW@Acme.Test"),
        ("stew@acme.test", "stew+admin@acme.test"),
        ("stew.art@gmail.com", "s.tewart@googlemail.com"),
        ("stewart@gmail.com", "stewart+x@gmail.com"),
    ],
)
def test_nobody_accepts_what_they_proposed(ada: Agent, steward: str, person: str) -> None:
    lifecycle.change(ada, ME, steward=steward)
    for settings in ({"model": MODEL}, {"steward": "friend@acme.test"}):
        number = propose(ada, Actor.person(person), **settings).number
        with refused(ada, errors.ConsentRequired):
            proposals.accept(fresh(ada), number, Actor.steward(steward))
    lifecycle.change(ada, ME, is_steward_only=True)
    with refused(ada, errors.ConsentRequired):
        propose(ada, Actor.person(person), model="openai/gpt-4.1-mini")


def test_who_proposes_to_become_the_steward_waits_for_the_agents_side(led: Agent) -> None:
    number = propose(led, steward=ADMIN.label).number
    for actor in (ADMIN, Actor.steward(ADMIN.label), Actor.operator(ADMIN.label)):
        with refused(led, errors.ConsentRequired):
            proposals.accept(fresh(led), number, actor)
    proposals.accept(fresh(led), number, ME)
    assert fresh(led).steward == ADMIN.label


@pytest.mark.parametrize("alone", [False, True])
def test_without_a_steward_the_runtime_decides_alone(ada: Agent, alone: bool) -> None:
    lifecycle.change(ada, ME, is_steward_only=alone)
    number = propose(ada, steward="tom@acme.test").number
    with refused(ada, errors.ConsentRequired):
        proposals.accept(fresh(ada), number, Actor.steward(""))
    proposals.accept(fresh(ada), number, ME)
    assert fresh(ada).steward == "tom@acme.test"


def test_who_proposed_may_take_it_back(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    for other in (Actor.person("other@acme.test"), Actor.operator(ADMIN.label)):
        with refused(led, errors.ConsentRequired):
            proposals.decline(fresh(led), number, other)
    assert proposals.decline(fresh(led), number, ADMIN).decided_by == "person"
    with refused(led, errors.NotOpen):
        proposals.accept(fresh(led), number, ME)


@pytest.mark.parametrize("verb", [proposals.accept, proposals.decline])
def test_it_is_decided_once(led: Agent, verb: Any) -> None:
    number = propose(led, model=MODEL).number
    verb(fresh(led), number, ME)
    for again in (proposals.accept, proposals.decline):
        with refused(led, errors.NotOpen):
            again(fresh(led), number, ME)


def test_what_is_so_already_is_accepted_all_the_same(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    lifecycle.change(led, ME, model=MODEL)
    proposals.accept(fresh(led), number, ME)
    assert (state(led, number), last_entry(led).detail) == ("accepted", {"changed": {}, "proposal": number})
    assert problems(led) == []


def test_a_number_of_something_else_is_no_proposal(led: Agent, bob: Agent) -> None:
    number = propose(led, model=MODEL).number
    for other in (0, -1, 1, number + 1, 10**25):
        with refused(led, errors.NotOpen):
            proposals.accept(fresh(led), other, ME)
    with refused(bob, errors.NotOpen):
        proposals.accept(fresh(bob), number, ME)


def test_the_steward_who_is_replaced_is_sealed_and_told(led: Agent) -> None:
    work()
    number = propose(led, steward="tom@acme.test").number
    proposals.accept(fresh(led), number, STEWARD)
    assert trail_view.note(fresh(led), last_entry(led)) == STEWARD.label
    assert work().count(("tell_steward", "sent")) == 2


# --- SQL


def test_a_proposal_put_in_by_sql_is_found_and_opens_nothing(led: Agent, bob: Agent) -> None:
    made_up = forge(
        led,
        led.audit_seq + 1,
        operation="change_proposed",
        actor_kind="person",
        actor_label="x@acme.test",
        detail={"proposed": {"steward": ADMIN.label}},
    )
    assert problems(led) != []
    for actor in (ME, STEWARD):
        with refused(led, errors.NotOpen):
            proposals.accept(fresh(led), made_up.seq, actor)
    assert fresh(led).steward == STEWARD.label


@pytest.mark.parametrize(
    "values",
    [
        {"detail": {"proposed": {"steward": ADMIN.label}}},
        {"actor_label": "somebody@acme.test"},
        {"detail": {"proposed": {"wrapped_key": ""}}},
        {"detail": {}},
        {"detail": []},
    ],
)
def test_a_proposal_altered_by_sql_is_found_and_opens_nothing(led: Agent, values: dict[str, Any]) -> None:
    number = propose(led, model=MODEL).number
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, seq=number).update(**values)
    assert [problem.seq for problem in problems(led)] == [number]
    with refused(led, errors.NotOpen):
        proposals.accept(fresh(led), number, ME)


@pytest.mark.parametrize("proposed", [{"model": 5}, {"steward": {}}, {"is_steward_only": 1}, ["model"], "model"])
def test_a_proposal_that_is_not_of_the_form_is_none(led: Agent, proposed: Any) -> None:
    number = propose(led, model=MODEL).number
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, seq=number).update(detail={"proposed": proposed})
    assert proposals.open_one(led) is None
    with pytest.raises(errors.NotFound):
        proposals.find(led, number)


def test_nor_does_one_under_another_key(led: Agent) -> None:
    """Whoever owns the database can chain what they make up, but not under the audit key."""
    number = propose(led, model=MODEL).number
    drop_guards()
    entries = AuditEntry.objects.filter(agent_id=led.pk, seq=number)
    entries.update(detail={"proposed": {"steward": ADMIN.label}})
    rechain(led, number, b"another secret")
    assert problems(led) != []
    with refused(led, errors.NotOpen):
        proposals.accept(fresh(led), number, ME)


def test_a_decline_taken_out_by_sql_revives_nothing(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    proposals.decline(fresh(led), number, ME)
    remember(led, "milk")
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, operation="change_declined").delete()
    with refused(led, errors.NotOpen):
        proposals.accept(fresh(led), number, ME)


# --- links


def test_a_steward_who_was_replaced_by_a_link_still_sees_that(led: Agent) -> None:
    number = propose(led, steward="tom@acme.test").number
    token, other = (links.make(fresh(led), number) for _ in range(2))
    links.decide(token, approve=True)
    for each in (token, other):
        assert links.look(each).state == "accepted"
        with refused(led, errors.InvalidLink):
            links.decide(each, approve=True)
    later = propose(led, steward="third@acme.test").number
    of_tom = links.make(fresh(led), later)
    lifecycle.change(led, ME, steward="fourth@acme.test")
    proposals.accept(fresh(led), later, ME)
    with refused(led, errors.InvalidLink):  # he was one no more when it was decided
        links.look(of_tom)


def test_a_refusal_within_a_transaction_leaves_the_proposal_open(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    with edits.locked(fresh(led)) as row, pytest.raises(errors.ConsentRequired):
        proposals.accept(row, number, ADMIN)
    assert state(led, number) == "open"
