"""The search indexes that a process holds: they always show the present silo."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction

from memory.agents import lifecycle
from memory.errors import SealBroken
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.search import cache, reading
from memory.search.selection import Filters
from memory.silo import keys
from memory.writing import edits, operations
from tests.refining import opened
from tests.steps import ME, fresh, remember, signed_update

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    cache.forget()
    yield
    cache.forget()


def found(agent: Agent, query: str) -> list[int]:
    with cache.reader(fresh(agent)) as index:
        return [hit.number for hit in index.search(query)]


def test_every_edit_is_found_at_once(ada: Agent) -> None:
    with transaction.atomic():
        remember(ada, "a kettle", "a teapot")
        assert found(ada, "kettle") == [1]
    assert found(ada, "kettle") == [1]
    operations.revise(ada, 1, ME, content="a samovar")
    assert (found(ada, "kettle"), found(ada, "samovar")) == ([], [1])
    operations.discard(ada, [1], ME)
    assert found(ada, "samovar") == []
    operations.restore(ada, [1], ME)
    assert found(ada, "samovar") == [1]
    operations.consolidate(ada, [1, 2], "a samovar and a teapot", ME)
    assert (found(ada, "samovar"), found(ada, "teapot")) == ([1, 3], [2, 3])


def test_an_edit_is_not_found_after_its_transaction_is_rolled_back(ada: Agent) -> None:
    remember(ada, "a kettle")
    assert found(ada, "kettle") == [1]
    with transaction.atomic():
        with edits.locked(ada) as row:
            operations.remember(row, [Draft("a phantom")], ME)
            operations.discard(row, [1], ME)
            assert (found(ada, "phantom"), found(ada, "kettle")) == ([2], [])
        assert (found(ada, "phantom"), found(ada, "kettle")) == ([2], [])
        transaction.set_rollback(True)
    assert (found(ada, "phantom"), found(ada, "kettle")) == ([], [1])
    remember(ada, "a teapot")  # the same number and entry as the phantom
    assert (found(ada, "phantom"), found(ada, "teapot")) == ([], [2])


def test_another_key_makes_another_index(ada: Agent) -> None:
    remember(ada, "a kettle")
    assert found(ada, "kettle") == [1]
    wrapped = bytes(fresh(ada).wrapped_key)
    signed_update(Agent.objects.filter(pk=ada.pk), wrapped_key=keys.new_wrapped_key(ada.pk))
    with pytest.raises(SealBroken):
        found(ada, "kettle")
    signed_update(Agent.objects.filter(pk=ada.pk), wrapped_key=wrapped)
    assert found(ada, "kettle") == [1]


def test_an_agent_has_one_index_whatever_its_language(ada: Agent) -> None:
    remember(ada, "two parties")
    assert found(ada, "party") == [1]
    lifecycle.change(ada, ME, language="other")
    assert (found(ada, "party"), found(ada, "parties"), len(cache._held)) == ([], [1], 1)


def test_a_failed_read_is_tried_again(ada: Agent) -> None:
    remember(ada, "a kettle", "a teapot", "a samovar")
    teapot = Memory.objects.filter(agent=ada, number=2)
    sealed = bytes(teapot.get().sealed)
    teapot.update(sealed=sealed[:-1] + bytes([sealed[-1] ^ 1]))
    with pytest.raises(SealBroken):
        found(ada, "samovar")
    teapot.update(sealed=sealed)
    assert (found(ada, "samovar"), found(ada, "teapot")) == ([3], [2])


def test_a_full_cache_drops_the_least_recently_used_index(ada: Agent, bob: Agent, settings: Any) -> None:
    remember(ada, "a kettle")
    remember(bob, "a teapot")
    settings.SEARCH_CACHE_MB = 0
    assert (found(ada, "kettle"), found(bob, "teapot")) == ([1], [1])
    assert [place[0] for place in cache._held] == [bob.pk]
    assert found(ada, "kettle") == [1]
    assert [place[0] for place in cache._held] == [ada.pk]


def test_an_index_that_a_transaction_keeps_is_not_dropped(ada: Agent, bob: Agent, settings: Any) -> None:
    """Otherwise `apply` built the index again, for 12 seconds, after its first edit: under SQLite's lock."""
    remember(ada, "a kettle")
    remember(bob, "a teapot")
    settings.SEARCH_CACHE_MB = 0
    with edits.locked(fresh(ada)) as row:
        with cache.reader(row, keeps=True) as index:
            pass
        assert found(bob, "teapot") == [1]
        operations.demote(row, [1], ME)
        with cache.reader(row) as again:
            assert again is index


def test_above_the_limit_only_the_newest_memories_beneath_are_searched(ada: Agent, settings: Any) -> None:
    dates = [datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 6)]
    for date in dates:
        remember(ada, f"a kettle of {date:%B}", origin=date)
    operations.demote(ada, [1, 2, 3], ME)
    settings.SEARCH_LAYER_MAX = 3
    results = reading.search(fresh(ada), "kettle", filters=Filters())
    assert (sorted(each.memory.number for each in results), results.searched_since) == ([3, 4, 5], dates[1])
    past = reading.search(fresh(ada), "kettle", filters=Filters(until=dates[1]))
    assert (sorted(each.memory.number for each in past), past.searched_since) == ([2], dates[0])
    assert opened(ada).call("search_memories", query="kettle")["searched_since"] == "2026-02-01"
    operations.promote(ada, 1, ME)
    assert sorted(found(ada, "kettle")) == [1, 4, 5]
    settings.SEARCH_LAYER_MAX = 5
    cache.forget()
    assert reading.search(fresh(ada), "kettle", filters=Filters()).searched_since is None
