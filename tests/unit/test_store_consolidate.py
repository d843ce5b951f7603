from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memory import errors
from memory.models import Agent
from memory.silo.silo import Silo
from memory.writing import operations
from tests import steps
from tests.steps import ME, SESSION, active, last_entry, refused, remember, row, says

pytestmark = pytest.mark.database

OLD, NEW = datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)


@pytest.fixture
def pair(ada: Agent) -> list[int]:
    return remember(ada, "x" * 20, tags=("a", "b"), origin=NEW) + remember(ada, "y" * 20, tags=("b", "c"), origin=OLD)


def test_one_memory_takes_the_place_of_its_sources(ada: Agent, pair: list[int]) -> None:
    before = [steps.snapshot(row(ada, n)) for n in pair]
    edited = operations.consolidate(ada, pair, "both", ME, session=SESSION)
    assert active(ada) == [3]
    assert says(ada, 3).content == "both"
    assert [row(ada, n).superseded_by for n in pair] == [3, 3]
    assert {row(ada, n).discarded_at for n in pair} == {last_entry(ada).at}
    assert {row(ada, n).version for n in (1, 2, 3)} == {edited.seq}
    agent = steps.fresh(ada)
    assert (agent.core_count, agent.core_tokens, agent.high_water_tokens, agent.next_number) == (1, 1, 10, 4)
    touched = steps.changes(ada, edited.seq or 0)
    assert (last_entry(ada).operation, last_entry(ada).session, last_entry(ada).changes) == ("consolidated", SESSION, 3)
    assert [change.before and bytes(change.before) for change in touched] == [*before, None]
    assert [bytes(change.after) for change in touched] == [steps.snapshot(row(ada, n)) for n in (1, 2, 3)]


def test_the_result_has_the_earliest_origin_and_all_tags_in_order(ada: Agent, pair: list[int]) -> None:
    operations.consolidate(ada, pair, "both", ME)
    assert row(ada, 3).origin == OLD
    assert row(ada, 3).created_at == last_entry(ada).at
    assert says(ada, 3).tags == ("a", "b", "c")
    operations.consolidate(ada, [3, *remember(ada, "z", origin=NEW)], "all", ME, category="technical")
    assert (row(ada, 5).origin, row(ada, 5).category) == (OLD, "behavioral"), "as its sources"


def test_what_is_dropped_is_kept_sealed_in_the_entry(ada: Agent, pair: list[int]) -> None:
    edited = operations.consolidate(ada, pair, "both", ME, dropping=["42"])
    assert Silo.for_agent(ada).open_text("note", edited.seq or 0, bytes(last_entry(ada).sealed)) == "42"


def test_the_tags_of_the_result_are_united_however_many(ada: Agent) -> None:
    remember(ada, "one", tags=[f"a{i}" for i in range(32)])
    remember(ada, "two", tags=[f"b{i}" for i in range(32)])
    operations.consolidate(ada, [1, 2], "both", ME)
    assert len(says(ada, 3).tags) == 64  # united, as seed and design say; the limit is for what is given


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"kind": "journal"}, errors.CoreMemoryRequired),
        ({"project": "site"}, errors.MixedScope),
        ({"category": "personal"}, errors.MixedScope),
        ({"category": "credentials"}, errors.Private),
        ({"category": "keys"}, errors.Private),
        ({"category": "sensitive"}, errors.Private),
    ],
)
def test_a_source_that_does_not_belong_is_named(
    ada: Agent, pair: list[int], values: dict[str, Any], error: type[errors.NumbersError]
) -> None:
    [odd] = remember(ada, "odd one", **values)
    with refused(ada, error) as caught:
        operations.consolidate(ada, [*pair, odd], "all", ME)
    assert caught.value.numbers == (odd,)


def test_the_result_stays_in_its_project(ada: Agent) -> None:
    remember(ada, "one", "two", project="site", category="topic")
    operations.consolidate(ada, [1, 2], "both", ME)
    assert (row(ada, 3).project, row(ada, 3).category, row(ada, 3).scope) == ("site", "topic", "project")


def test_sources_of_two_categories_need_one_given(ada: Agent, pair: list[int]) -> None:
    remember(ada, "tech", category="technical")
    with refused(ada, errors.Invalid) as caught:
        operations.consolidate(ada, [1, 3], "both", ME)
    assert caught.value.field == "category"
    for elsewhere in ("topic", "personal", "credentials", "no such"):
        with refused(ada, errors.Invalid):
            operations.consolidate(ada, [1, 3], "both", ME, category=elsewhere)
    operations.consolidate(ada, [1, 3], "both", ME, category="technical")
    assert row(ada, 4).category == "technical"
