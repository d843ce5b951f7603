"""What each verb refuses. A refusal changes nothing. tests/property/test_store.py tries random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory import errors
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import operations
from tests import steps
from tests.steps import ME, PERSON, SESSION, refused, remember, row

pytestmark = pytest.mark.database

# Each edits memory `number`, where the agent has another core memory 1.
VERBS: dict[str, Callable[..., Any]] = {
    "consolidate": lambda agent, number, **more: operations.consolidate(agent, [1, number], "both", ME, **more),
    "discard": lambda agent, number, **more: operations.discard(agent, [1, number], ME, **more),
    "promote": lambda agent, number, **more: operations.promote(agent, number, ME, **more),
    "protect": lambda agent, number, **more: operations.protect(agent, [1, number], ME, session=SESSION, **more),
    "revise": lambda agent, number, **more: operations.revise(agent, number, ME, content="other", **more),
}


@pytest.fixture
def other(ada: Agent) -> int:
    return remember(ada, "tea", "coffee")[1]


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_a_verb_names_a_memory_it_cannot_edit(ada: Agent, bob: Agent, other: int, verb: Callable[..., Any]) -> None:
    remember(bob, "beer")
    with refused(bob, errors.UnknownMemory):
        verb(bob, other)
    notice, [gone] = steps.tell(ada), remember(ada, "milk")
    operations.discard(ada, [gone], ME)
    for number, error in ((99, errors.UnknownMemory), (notice, errors.Notice), (gone, errors.Discarded)):
        with refused(ada, error) as caught:
            verb(ada, number)
        assert caught.value.numbers == (number,)


@pytest.mark.parametrize("verb", ["discard", "revise"])
def test_a_version_that_is_not_the_present_one_is_refused(ada: Agent, other: int, verb: str) -> None:
    seen = row(ada, other).version
    operations.revise(ada, other, ME, content="mocha")
    with refused(ada, errors.Stale) as caught:
        VERBS[verb](ada, other, expect={other: seen, 1: seen})
    assert caught.value.numbers == (other,)


def test_a_constitutional_memory_is_neither_merged_nor_discarded_nor_rewritten(ada: Agent, other: int) -> None:
    steps.protect(ada, other)
    for name in ("consolidate", "discard", "revise"):
        with refused(ada, errors.Constitutional) as caught:
            VERBS[name](ada, other)
        assert caught.value.numbers == (other,)
    with refused(ada, errors.Constitutional):
        operations.discard(ada, [other], PERSON)
    with refused(ada, errors.Constitutional):
        operations.revise(ada, other, PERSON, tags=["other"])


@pytest.mark.parametrize(
    "edit",
    [
        *(lambda agent, verb=verb: verb(agent, 2) for verb in VERBS.values()),
        lambda agent: operations.remember(agent, [Draft("milk")], ME),
        lambda agent: operations.restore(agent, [2], ME),
        lambda agent: operations.trim(agent, 0, ME),
        lambda agent: operations.unprotect(agent, [2], PERSON, reason="tidy"),
    ],
    ids=[*VERBS, "remember", "restore", "trim", "unprotect"],
)
def test_while_memory_is_off_nothing_is_edited(ada: Agent, other: int, edit: Callable[[Agent], Any]) -> None:
    """The switch is read from the database, not from the caller."""
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    ada.memory_enabled = True
    with refused(ada, errors.MemoryDisabled):
        edit(ada)


def test_texts_and_tags_that_cannot_be_stored_are_refused(ada: Agent, other: int) -> None:
    bad: list[dict[str, Any]] = [{"content": " "}, {"content": "x" * 10_001}, {"tags": ["x" * 65]}, {"tags": "drink"}]
    for values in bad:
        with refused(ada, errors.Invalid):
            operations.revise(ada, other, ME, **values)
    with refused(ada, errors.Invalid) as caught:
        operations.consolidate(ada, [1, other], "x" * 10_001, ME)
    assert caught.value.field == "new_content"
    with refused(ada, errors.Invalid):
        steps.tell(ada, "")
    with refused(ada, errors.Invalid):
        operations.remember(ada, [Draft("good"), Draft(" ")], ME)


def test_an_edit_without_effect_writes_no_entry(ada: Agent, other: int) -> None:
    steps.protect(ada, other)
    before = steps.state(ada)
    edits = [
        operations.remember(ada, [], ME),
        operations.discard(ada, [], ME),
        operations.restore(ada, [1, 2], PERSON),
        operations.promote(ada, 1, ME),
        operations.protect(ada, [other], ME, session=SESSION),
        operations.unprotect(ada, [1], PERSON, reason="tidy"),
        operations.revise(ada, 1, ME, content="tea", tags=[], dropping=["milk"]),
        operations.trim(ada, 2, ME),
    ]
    assert [edit.seq for edit in edits] == [None] * len(edits)
    assert steps.state(ada) == before
