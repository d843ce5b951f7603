"""What every verb asks of the database: the same few statements for 2 memories as for 200."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import duplicates, edits, operations
from tests.steps import ME, PERSON, SESSION, SYSTEM, remember

pytestmark = pytest.mark.database

Verb = Callable[[Agent, list[int]], Any]


def asked(verb: Callable[[], object]) -> list[str]:
    """The statements, as verb and table; savepoints left out. One statement may run over many rows."""
    with CaptureQueriesContext(connection) as captured:
        verb()
    short = []
    for sql in (re.sub(r"^\d+ times: ", "", query["sql"]) for query in captured):
        table = re.search(r'\b(?:FROM|INTO|UPDATE)\s+"?((?:memory|audit|refinement)_\w+)"?', sql)
        short.append(f"{sql.lstrip('(').split()[0]} {table[1]}" if table else sql)
    return [sql for sql in short if not sql.startswith(("SAVEPOINT", "RELEASE"))]


LOCK = ["SELECT memory_agent"]  # the agent's row, locked; it names the head of the trail
TAKE = ["SELECT memory_memory"]  # the memories named
REPEATS = ["SELECT memory_memory"]  # which of their texts are there more than once
ADD = ["INSERT memory_memory"]  # the new rows
CHANGE = ["UPDATE memory_memory"]  # the changed rows
RECORD = ["INSERT audit_auditentry", "INSERT audit_change", "UPDATE memory_agent"]  # entry, changes, counters and head


def several(agent: Agent, many: int) -> list[int]:
    return remember(agent, *(f"text {i}" for i in range(many)))


def runs(agent: Agent, many: int) -> list[int]:
    return remember(agent, *(f"run {i}" for i in range(many)), kind="journal", source="run")


def gone(agent: Agent, many: int) -> list[int]:
    numbers = several(agent, many)
    operations.discard(agent, numbers, ME)
    return numbers


def protected(agent: Agent, many: int) -> list[int]:
    numbers = several(agent, many)
    operations.protect(agent, numbers, PERSON)
    return numbers


def equal(agent: Agent, many: int) -> list[int]:
    return remember(agent, *(f"text {i % (many // 2)}" for i in range(many)), tags=("a",))


def nothing(agent: Agent, many: int) -> list[int]:
    return list(range(many))


CASES: dict[str, tuple[Callable[[Agent, int], list[int]], Verb, list[str]]] = {
    "remember": (
        nothing,
        lambda agent, numbers: operations.remember(agent, [Draft(f"new {n}") for n in numbers], ME),
        [*LOCK, *REPEATS, *ADD, *RECORD],
    ),
    "discard": (
        several,
        lambda agent, numbers: operations.discard(agent, numbers, ME),
        [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD],
    ),
    "restore": (
        gone,
        lambda agent, numbers: operations.restore(agent, numbers, PERSON),
        [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD],
    ),
    "protect": (
        several,
        lambda agent, numbers: operations.protect(agent, numbers, ME, session=SESSION),
        [*LOCK, *TAKE, *CHANGE, *RECORD],
    ),
    "unprotect": (
        protected,
        lambda agent, numbers: operations.unprotect(agent, numbers, PERSON, reason="asked"),
        [*LOCK, *TAKE, *CHANGE, *RECORD],
    ),
    "consolidate": (
        several,
        lambda agent, numbers: operations.consolidate(agent, numbers, "all of it", ME),
        [*LOCK, *TAKE, *REPEATS, *ADD, *CHANGE, *RECORD],
    ),
    "trim": (
        runs,
        lambda agent, _: operations.trim(agent, 0, SYSTEM),
        [*LOCK, *TAKE, *CHANGE, *RECORD],  # a journal has no repeats that count
    ),
    "deduplicate": (
        equal,
        lambda agent, _: duplicates.remove(agent),
        [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD],
    ),
}


@pytest.mark.parametrize("verb", CASES)
@pytest.mark.parametrize("many", [4, 200])
def test_a_verb_asks_the_same_for_few_and_for_many(ada: Agent, verb: str, many: int) -> None:
    prepare, act, expected = CASES[verb]
    numbers = prepare(ada, many)
    assert asked(lambda: act(ada, numbers)) == expected


def test_revise_asks_for_one_memory(ada: Agent) -> None:
    several(ada, 2)
    statements = asked(lambda: operations.revise(ada, 1, ME, content="other"))
    assert statements == [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD]


def test_promote_asks_for_one_memory(ada: Agent) -> None:
    runs(ada, 2)
    assert asked(lambda: operations.promote(ada, 1, ME)) == [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD]


def test_a_notice_asks_for_no_memory(ada: Agent) -> None:
    told = lambda: operations.notify(ada, "told", operation="session_closed", actor=SYSTEM, detail={})  # noqa: E731
    assert asked(told) == [*LOCK, *ADD, *RECORD]


def test_an_edit_that_changes_nothing_only_reads(ada: Agent) -> None:
    several(ada, 2)
    assert asked(lambda: operations.restore(ada, [1, 2], ME)) == [*LOCK, *TAKE]


class Watched(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Watched.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_thousands_of_numbers_are_checked_for_repeats_at_once(ada: Agent) -> None:
    numbers = [Watched(number) for number in range(1, 2_001)]
    with pytest.raises(errors.UnknownMemory):
        edits.fetch(ada, numbers)
    assert Watched.compared < 10 * len(numbers)  # each with each would be two million
