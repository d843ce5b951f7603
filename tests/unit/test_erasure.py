"""The erasure of a silo: its data key is destroyed, and its trail still verifies."""

from typing import Any

import pytest
from django.utils import timezone

from audit.trail import Actor
from config import keyfiles
from memory import errors
from memory.agents import lifecycle
from memory.consent import erasure, redaction, requests
from memory.models import Agent, DueReason
from memory.policy.validation import Draft
from memory.search import cache
from memory.silo import keys, silo
from memory.silo.silo import Silo, forget_unwrapped
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from refinement import schedule
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import refining, steps
from tests.steps import ME, PERSON, exported, fresh, last_entry, problems, refused, remember, signed_update

OWNER = Actor.person("owner@acme.test")


def ask(agent: Agent) -> int:
    return requests.ask_erasure(agent, OWNER, reason="request 18").number


def ask_redaction(agent: Agent) -> int:
    return requests.ask_redaction(agent, [1], OWNER, reason="asked").number


@pytest.fixture
def agent(ada: Agent) -> Agent:
    remember(ada, "tea", "milk")
    operations.discard(ada, [2], ME)
    return ada


@pytest.fixture
def erased(agent: Agent) -> Agent:
    """An erased agent with a second request to erase it."""
    _, number = ask(agent), ask(agent)
    erasure.erase(agent, number, ME)
    return fresh(agent)


def test_an_erased_silo_cannot_be_opened_and_its_trail_verifies(agent: Agent, bob: Agent) -> None:
    wrapped, preview = bytes(fresh(agent).wrapped_key), erasure.preview(agent)
    result = erasure.erase(agent, ask(agent), ME)
    assert (preview.memories, preview.silo_key, preview.others) == (result.memories, result.silo_key, result.others)
    assert (result.memories, result.entries) == (2, fresh(agent).audit_seq - 1)
    assert (result.silo_key, fresh(agent).wrapped_key) == (keys.wrapping_key_id(wrapped), b"")
    for do in (Silo.for_agent, exported):
        with pytest.raises(errors.Erased):
            do(fresh(agent))
    entry = last_entry(agent)
    assert (entry.operation, entry.actor_kind) == ("erased", "agent")
    assert entry.detail == {"request": entry.seq - 1, "silo_key": keys.wrapping_key_id(bytes(bob.wrapped_key))}
    assert problems(agent) == problems(bob) == []
    remember(bob, "tea")
    assert steps.says(bob, 1).content == "tea"


def test_the_preview_counts_agents_under_the_same_silo_key(agent: Agent, bob: Agent, settings: Any) -> None:
    assert erasure.preview(agent).others == 1
    settings.SILO_KEYS = keyfiles.new_key()
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=PERSON)
    assert erasure.preview(lifecycle.create("acme", "moe", model="builtin/dedupe", actor=PERSON)[0]).others == 1


OPERATIONS = {
    "remember": lambda agent: operations.remember(agent, [Draft("sugar")], ME),
    "revise": lambda agent: operations.revise(agent, 1, ME, content="green tea"),
    "discard": lambda agent: operations.discard(agent, [1], ME),
    "restore": lambda agent: operations.restore(agent, [2], PERSON),
    "protect": lambda agent: operations.protect(agent, [1], PERSON),
    "trim": lambda agent: operations.trim(agent, 0, ME),
    "open a session": lambda agent: sessions.open_session(agent, trigger="manual"),
    "ask for a redaction": ask_redaction,
    "ask for an erasure": ask,
    "erase again": lambda agent: erasure.erase(agent, fresh(agent).audit_seq - 2, ME),
    "preview an erasure": erasure.preview,
    "roll back": lambda agent: rollback.roll_back(agent, What("entry", 4), PERSON),
    "preview a rollback": lambda agent: rollback.preview(agent, What("entry", 4)),
}


def test_an_erased_silo_cannot_be_changed(erased: Agent) -> None:
    for operation in OPERATIONS.values():
        with refused(erased, errors.Erased):
            operation(erased)


def test_an_earlier_redaction_request_can_be_carried_out_without_the_key(agent: Agent) -> None:
    number = ask_redaction(agent)
    erasure.erase(agent, ask(agent), ME)
    assert (redaction.redact(fresh(agent), number, ME).memories, problems(agent)) == ((1,), [])


@pytest.mark.parametrize("actor", [OWNER, Actor.operator("erase_agent"), Actor.system("erase")])
def test_only_the_agents_side_can_erase(agent: Agent, actor: Actor) -> None:
    number = ask(agent)
    with refused(agent, errors.ConsentRequired):
        erasure.erase(agent, number, actor)


def test_an_erased_agent_is_never_due(agent: Agent) -> None:
    number = ask_redaction(agent)
    refining.change(agent, due_at=timezone.now(), due_reason=DueReason.MANUAL)
    erasure.erase(agent, ask(agent), ME)
    assert list(schedule.due()) == []
    refining.change(agent, budget_tokens=0, target_tokens=0)
    redaction.redact(fresh(agent), number, ME)
    assert list(schedule.due()) == []


def test_an_erasure_ends_an_open_session(agent: Agent) -> None:
    session = sessions.open_session(agent, trigger="manual")
    erasure.erase(agent, ask(agent), ME)
    closed = RefinementSession.objects.get(pk=session.pk)
    assert (closed.outcome, closed.reason, list(schedule.due())) == (Outcome.INCOMPLETE, "erasure", [])
    assert problems(agent) == []


def test_the_process_forgets_the_key_and_the_index(agent: Agent, django_capture_on_commit_callbacks: Any) -> None:
    cache.forget()
    forget_unwrapped()
    with cache.reader(fresh(agent)) as index:
        assert index.search("tea")

    def held() -> list[int]:
        return [place[0] for place in (*cache._held, *silo._silos)]

    assert held().count(agent.pk) == 2
    with django_capture_on_commit_callbacks(execute=True):
        erasure.erase(agent, ask(agent), ME)
    assert agent.pk not in held()


def test_a_key_restored_from_a_backup_is_found(agent: Agent) -> None:
    wrapped = bytes(fresh(agent).wrapped_key)
    erasure.erase(agent, ask(agent), ME)
    signed_update(Agent.objects.filter(pk=agent.pk), wrapped_key=wrapped)
    [problem] = problems(agent)
    assert problem.seq == last_entry(agent).seq
    assert problem.problem == "inserted: the data key exists again, but this entry destroyed it"
