"""Protect and unprotect."""

from __future__ import annotations

import pytest

from audit.trail import Actor
from memory import errors
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.steps import ME, PERSON, SESSION, SYSTEM, last_entry, refused, remember, row

pytestmark = pytest.mark.database


@pytest.fixture
def law(ada: Agent) -> int:
    return remember(ada, "never on Sundays")[0]


def test_an_agent_protects_during_its_session(ada: Agent, law: int) -> None:
    before = steps.snapshot(row(ada, law))
    edited = operations.protect(ada, [law], ME, session=SESSION)
    [change] = steps.changes(ada, edited.seq or 0)
    assert (bytes(change.before), bytes(change.after)) == (before, steps.snapshot(row(ada, law)))
    assert row(ada, law).constitutional
    agent = steps.fresh(ada)
    assert (agent.constitutional_count, agent.constitutional_tokens, agent.core_tokens) == (1, 4, 4)
    assert (row(ada, law).version, last_entry(ada).operation, last_entry(ada).session) == (
        edited.seq,
        "protected",
        SESSION,
    )


def budget(agent: Agent, tokens: int) -> None:
    Agent.objects.filter(pk=agent.pk).update(budget_tokens=tokens, target_tokens=tokens)


def test_an_agent_may_not_protect_more_than_half_its_budget(ada: Agent) -> None:
    budget(ada, 20)
    remember(ada, "x" * 20, "y" * 20, "z")
    with refused(ada, errors.ProtectionFull):
        operations.protect(ada, [1, 2, 3], ME, session=SESSION)
    operations.protect(ada, [1], ME, session=SESSION)
    assert [m.number for m in operations.protect(ada, [1, 2], ME, session=SESSION).memories] == [2]
    assert steps.fresh(ada).constitutional_tokens == 10
    with refused(ada, errors.ProtectionFull):
        operations.protect(ada, [3], ME, session=SESSION)


def test_a_person_may_protect_beyond_half_the_budget(ada: Agent) -> None:
    budget(ada, 20)
    remember(ada, "x" * 60)
    operations.protect(ada, [1], PERSON)
    assert row(ada, 1).constitutional
    assert operations.protect(ada, [1], ME, session=SESSION).seq is None, "it is protected already"


def test_agents_protect_core_memories_and_people_any(ada: Agent) -> None:
    remember(ada, "log", kind="journal")
    with refused(ada, errors.CoreMemoryRequired):
        operations.protect(ada, [1], ME, session=SESSION)
    operations.protect(ada, [1], PERSON)
    assert row(ada, 1).constitutional


@pytest.mark.parametrize("actor", [PERSON, Actor.operator("op")])
def test_a_person_removes_protection_and_the_reason_is_kept(ada: Agent, law: int, actor: Actor) -> None:
    steps.protect(ada, law)
    edited = operations.unprotect(ada, [law], actor, reason="  asked by the steward ")
    assert not row(ada, law).constitutional
    assert last_entry(ada).detail == {"reason": "asked by the steward"}
    assert (row(ada, law).version, last_entry(ada).operation) == (edited.seq, "unprotected")
    assert steps.fresh(ada).constitutional_tokens == 0
    operations.discard(ada, [law], ME)


@pytest.mark.parametrize("actor", [ME, SYSTEM])
def test_neither_agent_nor_system_removes_protection(ada: Agent, law: int, actor: Actor) -> None:
    steps.protect(ada, law)
    with refused(ada, errors.Invalid):
        operations.unprotect(ada, [law], PERSON, reason=" \n")
    with refused(ada, errors.ProtectionRefused):
        operations.unprotect(ada, [law], actor, reason="tidy")
