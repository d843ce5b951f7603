"""A person or a tenant proposes another model or steward. The agent's side accepts or declines."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.consent import Request
from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import approval, requests
from memory.mail import letters
from memory.models import Agent
from memory.writing import edits
from tests.conftest import drop_guards
from tests.queueing import work
from tests.steps import ME, fresh, last_entry, problems, refused, remember, signed_update
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


def propose(agent: Agent, actor: Actor = ADMIN, **settings: Any) -> Request:
    return requests.propose(fresh(agent), actor, **settings)


def state(agent: Agent, number: int) -> str:
    return requests.find(fresh(agent), number).state


def accept(agent: Agent, number: int, actor: Actor = ME) -> Request:
    return approval.approve(fresh(agent), number, actor)


def decline(agent: Agent, number: int, actor: Actor = ME) -> Request:
    return requests.deny(fresh(agent), number, actor)


def check_refused(agent: Agent, number: int, actor: Actor = ME, error: type[Exception] = errors.NotOpen) -> None:
    with refused(agent, error):
        accept(agent, number, actor)


def closing_detail(agent: Agent) -> Any:
    return AuditEntry.objects.get(agent_id=agent.pk, operation="change_declined", actor_kind="system").detail


@pytest.mark.parametrize("actor", [ADMIN, TENANT])
def test_a_proposal_is_recorded_and_changes_nothing(led: Agent, actor: Actor) -> None:
    made = propose(led, actor, model=MODEL, steward="tom@acme.test")
    now = fresh(led)
    assert (now.model, now.steward) == ("builtin/dedupe", STEWARD.label)
    entry = last_entry(led)
    assert (entry.operation, entry.actor_label, entry.seq) == ("change_proposed", actor.label, made.number)
    assert entry.detail == {"proposed": {"model": MODEL, "steward": "tom@acme.test"}}
    assert requests.open_proposal(now) == made
    assert problems(led) == []


@pytest.mark.parametrize("actor", [ME, STEWARD, Actor.system("sweep")])
def test_the_agents_side_and_the_system_cannot_propose(led: Agent, actor: Actor) -> None:
    with refused(led, errors.AgentConsentRequired):
        propose(led, actor, model=MODEL)


INVALID: list[dict[str, Any]] = [
    {},
    *({"model": model} for model in ("builtin/dedupe", "", "x" * 201, "openai/gpt\n", 5)),
    *({"steward": steward} for steward in ("nobody", None)),
    *({"is_steward_only": value} for value in ("perhaps", "1", None)),
    {"budget_tokens": 9_000},
    {"model": MODEL, "wrapped_key": b""},
    {"memory_enabled": False},
]


@pytest.mark.parametrize("settings", INVALID, ids=str)
def test_an_invalid_proposal_is_refused(led: Agent, settings: dict[str, Any]) -> None:
    with refused(led, errors.Invalid):
        propose(led, **settings)


def test_a_new_proposal_replaces_the_open_one(led: Agent) -> None:
    first, second = propose(led, model=MODEL), propose(led, model="openai/gpt-4.1-mini")
    assert (state(led, first.number), state(led, second.number)) == ("replaced", "open")
    assert closing_detail(led) == {"proposal": first.number, "why": "replaced"}
    check_refused(led, first.number)


def test_a_lapsed_proposal_is_closed_by_the_next_one(led: Agent, time_machine: Any) -> None:
    first = propose(led, model=MODEL)
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert requests.open_proposal(fresh(led)) is None
    for verb in (accept, decline):
        with refused(led, errors.NotOpen):
            verb(led, first.number)
    propose(led, model=MODEL)
    assert closing_detail(led) == {"proposal": first.number, "why": "lapsed"}
    assert state(led, first.number) == "lapsed"
    assert problems(led) == []


def test_for_an_erased_silo_nothing_is_proposed_or_accepted(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    signed_update(Agent.objects.filter(pk=led.pk), wrapped_key=b"")
    with pytest.raises(errors.Erased):
        propose(led, model="openai/gpt-4.1-mini")
    with pytest.raises(errors.Erased):
        accept(led, number)


@pytest.mark.parametrize("actor", [ME, STEWARD, Actor.steward("Stew+agents@ACME.test")])
def test_the_agents_side_accepts(led: Agent, actor: Actor) -> None:
    number = propose(led, model=MODEL, is_steward_only=True).number
    accepted = accept(led, number, actor)
    now, entry = fresh(led), last_entry(led)
    assert (now.model, now.is_steward_only) == (MODEL, True)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("agent_changed", actor.kind, actor.label)
    assert entry.detail == {"changed": {"model": MODEL, "is_steward_only": True}, "proposal": number}
    assert (accepted.state, accepted.decided_by, accepted.settled_by) == ("accepted", actor.kind, entry.seq)
    assert problems(led) == []
    for verb in (accept, decline):
        with refused(led, errors.NotOpen):
            verb(led, number)


def test_only_the_agents_side_accepts_or_declines(led: Agent) -> None:
    others = TENANT, Actor.person(STEWARD.label), Actor.system("sweep"), Actor.operator("shell")
    others += Actor.steward("another@acme.test"), Actor.steward("")
    for settings in ({"model": MODEL}, {"steward": ADMIN.label}):
        number = propose(led, **settings).number
        check_refused(led, number, ADMIN, errors.ConsentRequired)  # who proposed it may decline it
        for actor in others:
            for verb in (accept, decline):
                with refused(led, errors.ConsentRequired):
                    verb(led, number, actor)


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
def test_a_steward_cannot_accept_their_own_proposal(ada: Agent, steward: str, person: str) -> None:
    lifecycle.change(ada, ME, steward=steward)
    for settings in ({"model": MODEL}, {"steward": "friend@acme.test"}):
        number = propose(ada, Actor.person(person), **settings).number
        check_refused(ada, number, Actor.steward(steward), errors.ConsentRequired)
    lifecycle.change(ada, ME, is_steward_only=True)
    with refused(ada, errors.ConsentRequired):
        propose(ada, Actor.person(person), model="openai/gpt-4.1-mini")


def test_is_steward_only_without_a_steward_does_not_lock_the_runtime_out(ada: Agent) -> None:
    lifecycle.change(ada, ME, is_steward_only=True)
    number = propose(ada, steward="tom@acme.test").number
    check_refused(ada, number, Actor.steward(""), errors.ConsentRequired)
    accept(ada, number)
    assert fresh(ada).steward == "tom@acme.test"


def test_a_key_cannot_take_the_consent_from_the_steward(led: Agent) -> None:
    lifecycle.change(led, ME, is_steward_only=True)
    for settings in ({"is_steward_only": False}, {"steward": "thief@acme.test"}):
        with refused(led, errors.ConsentRequired):
            lifecycle.change(fresh(led), ME, **settings)
    lifecycle.change(fresh(led), Actor.steward(led.steward), is_steward_only=False)


def test_a_proposal_of_what_is_set_already_can_be_accepted(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    lifecycle.change(led, ME, model=MODEL)
    accept(led, number)
    assert (state(led, number), last_entry(led).detail) == ("accepted", {"changed": {}, "proposal": number})
    assert problems(led) == []


def test_another_number_or_another_agents_proposal_is_refused(led: Agent, bob: Agent) -> None:
    number = propose(led, model=MODEL).number
    for other in (0, -1, 1, number + 1, 10**25):
        check_refused(led, other)
    check_refused(bob, number)


def test_a_replaced_steward_is_sealed_in_the_trail_and_gets_a_letter(led: Agent) -> None:
    work()
    number = propose(led, steward="tom@acme.test").number
    accept(led, number, STEWARD)
    assert letters.steward_before(fresh(led), last_entry(led).seq) == STEWARD.label
    assert work()[-2:] == [("before", "sent"), ("after", "sent")]


def test_a_refusal_inside_a_transaction_leaves_the_proposal_open(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    with edits.locked(fresh(led)) as row, pytest.raises(errors.ConsentRequired):
        approval.approve(row, number, ADMIN)
    assert state(led, number) == "open"


def test_a_forged_proposal_is_found_and_cannot_be_accepted(led: Agent, bob: Agent) -> None:
    detail = {"proposed": {"steward": ADMIN.label}}
    by = {"actor_kind": "person", "actor_label": "x@acme.test"}
    forged = forge(led, led.audit_seq + 1, operation="change_proposed", detail=detail, **by)
    assert problems(led) != []
    for actor in (ME, STEWARD):
        check_refused(led, forged.seq, actor, errors.AuthorityBroken)
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
def test_an_altered_proposal_is_found_and_cannot_be_accepted(led: Agent, values: dict[str, Any]) -> None:
    number = propose(led, model=MODEL).number
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, seq=number).update(**values)
    assert [problem.seq for problem in problems(led)] == [number]
    check_refused(led, number)
    rechain(led, number, b"another secret")  # MACs under another key than the service's
    assert problems(led) != []
    check_refused(led, number)


@pytest.mark.parametrize("proposed", [{"model": 5}, {"steward": {}}, {"is_steward_only": 1}, ["model"], "model"])
def test_a_proposal_of_a_wrong_form_is_not_listed(led: Agent, proposed: Any) -> None:
    number = propose(led, model=MODEL).number
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, seq=number).update(detail={"proposed": proposed})
    assert requests.open_proposal(led) is None
    with pytest.raises(errors.NotFound):
        requests.find(led, number)


def test_a_declined_proposal_stays_closed_after_the_entry_is_deleted(led: Agent) -> None:
    number = propose(led, model=MODEL).number
    decline(led, number)
    remember(led, "milk")
    drop_guards()
    AuditEntry.objects.filter(agent_id=led.pk, operation="change_declined").delete()
    check_refused(led, number)
