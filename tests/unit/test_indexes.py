"""The opened indexes of a process: always as the silo is, never as it was or was about to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from memory.errors import SealBroken
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.search import cache
from memory.silo import keys
from memory.writing import edits, operations
from tests.steps import ME, fresh, remember

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def _nothing_opened() -> Iterator[None]:
    cache.forget()
    yield
    cache.forget()


def found(agent: Agent, query: str) -> list[int]:
    with cache.reader(fresh(agent)) as index:
        return [hit.number for hit in index.search(query)]


def test_every_edit_is_found_at_once(ada: Agent) -> None:
    remember(ada, "a kettle", "a teapot")
    assert found(ada, "kettle") == [1]
    operations.revise(ada, 1, ME, content="a samovar")
    assert (found(ada, "kettle"), found(ada, "samovar")) == ([], [1])
    operations.discard(ada, [1], ME)
    assert found(ada, "samovar") == []
    operations.restore(ada, [1], ME)
    assert found(ada, "samovar") == [1]
    operations.consolidate(ada, [1, 2], "a samovar and a teapot", ME)
    assert found(ada, "samovar") == found(ada, "teapot") == [3]


def test_one_agents_memories_are_in_no_other_agents_index(ada: Agent, bob: Agent) -> None:
    remember(ada, "a kettle")
    remember(bob, "a teapot")
    assert (found(ada, "teapot kettle"), found(bob, "teapot kettle")) == ([1], [1])
    assert (found(ada, "teapot"), found(bob, "kettle")) == ([], [])


def test_an_edit_that_was_rolled_back_was_never_found(ada: Agent) -> None:
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
    remember(ada, "a teapot")  # as memory 2, in the entry that the phantom's would have been
    assert (found(ada, "phantom"), found(ada, "teapot")) == ([], [2])


def test_an_edit_in_a_transaction_that_goes_on_is_found_after_it(ada: Agent) -> None:
    with transaction.atomic():
        operations.remember(ada, [Draft("a kettle")], ME)
        assert found(ada, "kettle") == [1]
    assert found(ada, "kettle") == [1]


def test_under_another_key_another_index_is_made(ada: Agent) -> None:
    remember(ada, "a kettle")
    assert found(ada, "kettle") == [1]
    wrapped = bytes(fresh(ada).wrapped_key)
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=keys.new_wrapped_key(ada.pk))
    with pytest.raises(SealBroken):
        found(ada, "kettle")
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=wrapped)
    assert found(ada, "kettle") == [1]


def test_what_could_not_be_read_is_asked_for_again(ada: Agent) -> None:
    remember(ada, "a kettle", "a teapot", "a samovar")
    whole = bytes(Memory.objects.get(agent=ada, number=2).sealed)
    Memory.objects.filter(agent=ada, number=2).update(sealed=whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SealBroken):
        found(ada, "samovar")
    Memory.objects.filter(agent=ada, number=2).update(sealed=whole)
    assert (found(ada, "samovar"), found(ada, "teapot")) == ([3], [2])


def test_the_least_recently_used_index_goes_first(ada: Agent, bob: Agent, settings: Any) -> None:
    remember(ada, "a kettle")
    remember(bob, "a teapot")
    settings.SEARCH_CACHE_MB = 0
    assert (found(ada, "kettle"), found(bob, "teapot")) == ([1], [1])
    assert [place[0] for place in cache._held] == [bob.pk]
    assert found(ada, "kettle") == [1]
    assert [place[0] for place in cache._held] == [ada.pk]
