"""The SQL statements of every verb: the same few for 2 memories as for 200."""

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
    """The statements, as verb and table, without savepoints."""
    with CaptureQueriesContext(connection) as captured:
        verb()
    short = []
    for sql in (re.sub(r"^\d+ times: ", "", query["sql"]) for query in captured):
        table = re.search(r'\b(?:FROM|INTO|UPDATE)\s+"?((?:memory|audit|refinement)_\w+)"?', sql)
        short.append(f"{sql.lstrip('(').split()[0]} {table[1]}" if table else sql)
    return [sql for sql in short if not sql.startswith(("SAVEPOINT", "RELEASE"))]


LOCK = ["SELECT memory_agent", "SELECT audit_auditentry"]  # the agent's row, and that no entry is later
TAKE = ["SELECT memory_memory"]  # the memories named
REPEATS = ["SELECT memory_memory"]  # which of their texts are duplicates
ADD = ["INSERT memory_memory"]  # the new rows
CHANGE = ["UPDATE memory_memory"]  # the changed rows
RECORD = ["INSERT audit_auditentry", "INSERT audit_change", "UPDATE memory_agent"]  # entry, changes, counters and head


def several(agent: Agent, count: int) -> list[int]:
    return remember(agent, *(f"text {i}" for i in range(count)))


def runs(agent: Agent, count: int) -> list[int]:
    return remember(agent, *(f"run {i}" for i in range(count)), kind="journal", source="run")


def discarded(agent: Agent, count: int) -> list[int]:
    return [memory.number for memory in operations.discard(agent, several(agent, count), ME).memories]


def protected(agent: Agent, count: int) -> list[int]:
    return [memory.number for memory in operations.protect(agent, several(agent, count), PERSON).memories]


def equal(agent: Agent, count: int) -> list[int]:
    return remember(agent, *(f"text {i % (count // 2)}" for i in range(count)), tags=("a",))


def nothing(agent: Agent, count: int) -> list[int]:
    return list(range(count))


TOUCH = [*LOCK, *TAKE, *CHANGE, *RECORD]
EDIT = [*LOCK, *TAKE, *REPEATS, *CHANGE, *RECORD]
MERGE = [*LOCK, *TAKE, *REPEATS, *ADD, *CHANGE, *RECORD]
CASES: dict[str, tuple[Callable[[Agent, int], list[int]], Verb, list[str]]] = {
    "remember": (
        nothing,
        lambda agent, numbers: operations.remember(agent, [Draft(f"new {n}") for n in numbers], ME),
        [*LOCK, *REPEATS, *ADD, *RECORD],
    ),
    "discard": (several, lambda agent, numbers: operations.discard(agent, numbers, ME), EDIT),
    "restore": (discarded, lambda agent, numbers: operations.restore(agent, numbers, PERSON), EDIT),
    "protect": (several, lambda agent, numbers: operations.protect(agent, numbers, ME, session=SESSION), TOUCH),
    "unprotect": (protected, lambda agent, numbers: operations.unprotect(agent, numbers, PERSON, reason="x"), TOUCH),
    "consolidate": (several, lambda agent, numbers: operations.consolidate(agent, numbers, "all", ME), MERGE),
    "trim": (runs, lambda agent, _: operations.trim(agent, 0, SYSTEM), TOUCH),  # a journal counts no duplicates
    "deduplicate": (equal, lambda agent, _: duplicates.remove(agent), [*TAKE, *TAKE, *EDIT]),
}


@pytest.mark.parametrize("verb", CASES)
@pytest.mark.parametrize("count", [4, 200])
def test_a_verb_needs_the_same_statements_for_few_and_for_many(ada: Agent, verb: str, count: int) -> None:
    prepare, act, expected = CASES[verb]
    numbers = prepare(ada, count)
    assert asked(lambda: act(ada, numbers)) == expected


def test_statements_of_verbs_for_one_memory_and_of_an_edit_without_effect(ada: Agent) -> None:
    several(ada, 2)
    [run] = runs(ada, 1)
    assert asked(lambda: operations.revise(ada, 1, ME, content="other")) == EDIT
    assert asked(lambda: operations.promote(ada, run, ME)) == EDIT
    assert asked(lambda: operations.restore(ada, [1, 2], ME)) == [*LOCK, *TAKE]
    closed: Any = {"operation": "session_closed", "actor": SYSTEM, "detail": {}}
    assert asked(lambda: operations.notify(ada, "told", **closed)) == [*LOCK, *ADD, *RECORD]


class Watched(int):
    """A number that counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Watched.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_repeated_numbers_are_found_in_linear_time(ada: Agent) -> None:
    numbers = [Watched(number) for number in range(1, 2_001)]
    with pytest.raises(errors.UnknownMemory):
        edits.fetch(ada, numbers)
    assert Watched.compared < 10 * len(numbers)  # each pair would be two million


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_many_changes_update_the_statistics(ada: Agent) -> None:
    def statistics() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT reltuples FROM pg_class WHERE relname = 'memory_memory'")
            return int(cursor.fetchone()[0])

    remember(ada, "tea")
    before = statistics()
    remember(ada, *(f"number {number}" for number in range(1_000)))
    assert statistics() != before
    assert statistics() >= 1_001
