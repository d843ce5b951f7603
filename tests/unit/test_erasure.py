"""Erasing a silo: its data key is destroyed, its trail goes on telling the truth."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from audit.trail import Actor
from config import keyfiles
from memory import errors
from memory.agents import lifecycle
from memory.consent import erasure, redaction, removal_requests
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
from tests.steps import ME, PERSON, exported, fresh, last_entry, problems, refused, remember

OWNER = Actor.person("owner@acme.test")


def ask(agent: Agent) -> int:
    return removal_requests.ask_erasure(agent, OWNER, reason="request 18").number


@pytest.fixture
def past(ada: Agent) -> Agent:
    remember(ada, "tea", "milk")
    operations.discard(ada, [2], ME)
    return ada


@pytest.fixture
def erased(past: Agent) -> Agent:
    erasure.erase(past, ask(past), ME)
    return fresh(past)


def test_nothing_of_it_opens_again(past: Agent) -> None:
    before = fresh(past)
    wrapped, told = bytes(before.wrapped_key), erasure.preview(past)
    did = erasure.erase(past, ask(past), ME)
    assert (told.memories, told.silo_key, told.others) == (did.memories, did.silo_key, did.others)
    assert (did.memories, did.entries, did.silo_key) == (2, fresh(past).audit_seq - 1, keys.wrapping_key_id(wrapped))
    assert fresh(past).wrapped_key == b""
    with pytest.raises(errors.Erased):
        Silo.for_agent(fresh(past))
    with pytest.raises(errors.Erased):
        exported(fresh(past))


def test_its_trail_verifies_and_says_under_which_key_a_backup_opens(erased: Agent, bob: Agent) -> None:
    entry = last_entry(erased)
    assert (entry.operation, entry.actor_kind) == ("erased", "agent")
    assert entry.detail == {"request": entry.seq - 1, "silo_key": keys.wrapping_key_id(bytes(bob.wrapped_key))}
    assert problems(erased) == problems(bob) == []


def test_agents_under_the_same_silo_key_are_counted(past: Agent, bob: Agent, settings: Any) -> None:
    assert erasure.preview(past).others == 1
    settings.SILO_KEYS = keyfiles.new_key()
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=PERSON)
    assert erasure.preview(lifecycle.create("acme", "moe", model="builtin/dedupe", actor=PERSON)[0]).others == 1


EDITS = {
    "remember": lambda agent: operations.remember(agent, [Draft("sugar")], ME),
    "revise": lambda agent: operations.revise(agent, 1, ME, content="green tea"),
    "discard": lambda agent: operations.discard(agent, [1], ME),
    "restore": lambda agent: operations.restore(agent, [2], PERSON),
    "protect": lambda agent: operations.protect(agent, [1], PERSON),
    "trim": lambda agent: operations.trim(agent, 0, ME),
    "open a session": lambda agent: sessions.open_session(agent, trigger="manual"),
    "ask for a redaction": lambda agent: removal_requests.ask_redaction(agent, [1], OWNER, reason="asked"),
    "ask for an erasure": lambda agent: removal_requests.ask_erasure(agent, OWNER, reason="asked"),
    "preview an erasure": erasure.preview,
}


def test_nothing_of_it_is_changed_again(erased: Agent) -> None:
    for edit in EDITS.values():
        with refused(erased, errors.Erased):
            edit(erased)


def test_what_was_asked_before_can_still_be_settled(past: Agent) -> None:
    """Opening nothing, a redaction needs no key."""
    asked = removal_requests.ask_redaction(past, [1], OWNER, reason="asked").number
    erasure.erase(past, ask(past), ME)
    assert redaction.redact(fresh(past), asked, ME).memories == (1,)
    assert problems(past) == []


def test_nothing_of_it_is_rolled_back(erased: Agent) -> None:
    with refused(erased, errors.Erased):
        rollback.roll_back(erased, What.entry(4), PERSON)
    with refused(erased, errors.Erased):
        rollback.preview(erased, What.entry(4))


@pytest.mark.parametrize("actor", [OWNER, Actor.operator("erase_agent"), Actor.system("erase")])
def test_the_agents_side_alone_agrees(past: Agent, actor: Actor) -> None:
    asked = ask(past)
    with refused(past, errors.ConsentRequired):
        erasure.erase(past, asked, actor)


def test_it_is_erased_once(past: Agent) -> None:
    first, second = ask(past), ask(past)
    erasure.erase(past, first, ME)
    with refused(past, errors.Erased):
        erasure.erase(past, second, ME)


def test_it_is_never_due_again(past: Agent) -> None:
    asked = removal_requests.ask_redaction(past, [1], OWNER, reason="asked").number
    Agent.objects.filter(pk=past.pk).update(due_at=timezone.now(), due_reason=DueReason.MANUAL)
    erasure.erase(past, ask(past), ME)
    assert list(schedule.due()) == []
    refining.change(past, budget_tokens=0, target_tokens=0)
    redaction.redact(fresh(past), asked, ME)
    assert list(schedule.due()) == []


def test_an_open_session_ends(past: Agent) -> None:
    opened = sessions.open_session(past, trigger="manual")
    erasure.erase(past, ask(past), ME)
    ended = RefinementSession.objects.get(pk=opened.pk)
    assert (ended.outcome, ended.reason) == (Outcome.INCOMPLETE, "erasure")
    assert list(schedule.due()) == []
    assert problems(past) == []


def test_this_process_forgets_its_key_and_its_words(past: Agent, django_capture_on_commit_callbacks: Any) -> None:
    cache.forget()
    forget_unwrapped()
    with cache.reader(fresh(past)) as index:
        assert index.search("tea")
    places = (*cache._held, *silo._silos)
    assert [place[0] for place in places].count(past.pk) == 2
    with django_capture_on_commit_callbacks(execute=True):
        erasure.erase(past, ask(past), ME)
    assert past.pk not in [place[0] for place in (*cache._held, *silo._silos)]


def test_a_key_put_back_out_of_a_backup_is_found(past: Agent) -> None:
    wrapped = bytes(fresh(past).wrapped_key)
    erasure.erase(past, ask(past), ME)
    Agent.objects.filter(pk=past.pk).update(wrapped_key=wrapped)
    [problem] = problems(past)
    assert problem.seq == last_entry(past).seq
    assert problem.problem == "inserted: the data key that this entry destroyed is there again"


def test_another_agent_is_left_alone(erased: Agent, bob: Agent) -> None:
    remember(bob, "tea")
    assert steps.says(bob, 1).content == "tea"
