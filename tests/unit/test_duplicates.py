"""Exact duplicates: found by digest, never by reading (seed 003, Content-blind infra cleanup)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from memory import errors
from memory.models import Agent
from memory.silo.silo import Silo
from memory.writing import duplicates, operations
from tests import steps
from tests.steps import ME, SESSION, active, last_entry, problems, remember, row, says

pytestmark = pytest.mark.database

OLD, MIDDLE, NEW = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))


def test_repeats_are_discarded_for_the_one_of_earliest_origin(ada: Agent) -> None:
    for origin in (MIDDLE, OLD, NEW):
        remember(ada, "tea", origin=origin)
    edited = duplicates.remove(ada)
    assert active(ada) == [2]
    assert [row(ada, n).superseded_by for n in (1, 2, 3)] == [2, None, 2]
    assert {row(ada, n).version for n in (1, 3)} == {edited.seq}


def test_the_tags_are_united(ada: Agent) -> None:
    for origin, tags in ((NEW, ("a", "b")), (OLD, ("b",)), (MIDDLE, ("c", "a"))):
        remember(ada, "tea", origin=origin, tags=tags)
    duplicates.remove(ada)
    assert says(ada, 2).tags == ("b", "a", "c")
    assert says(ada, 2).content == "tea"


def test_what_is_removable_is_removed_once_in_one_operation_of_the_system(ada: Agent) -> None:
    remember(ada, "tea", "tea", "milk", "milk", "milk", origin=OLD)
    operations.revise(ada, remember(ada, "coffee", origin=OLD)[0], ME, content="tea")
    assert steps.fresh(ada).duplicate_tokens == 4
    before = last_entry(ada).seq
    assert [m.number for m in duplicates.removable(ada)] == [2, 6, 4, 5]
    duplicates.remove(ada, session=SESSION)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.actor_kind, entry.session) == (
        before + 1,
        "deduplicated",
        "system",
        SESSION,
    )
    assert (entry.detail, entry.changes) == ({"removed": 4}, 4)
    agent = steps.fresh(ada)
    assert (agent.core_tokens, agent.duplicate_tokens, agent.high_water_tokens) == (2, 0, 4)
    assert active(ada) == [1, 3], "of equal origins the lowest number stays"
    assert duplicates.remove(ada).seq is None
    operations.restore(ada, [2], steps.PERSON)
    assert (active(ada), says(ada, 2).content, row(ada, 2).superseded_by) == ([1, 2, 3], "tea", None)
    assert problems(ada) == []


def test_constitutional_repeats_all_stay(ada: Agent) -> None:
    remember(ada, "law", "law", "law")
    steps.protect(ada, 2, 3)
    duplicates.remove(ada)
    assert active(ada) == [2, 3]
    assert row(ada, 1).superseded_by == 2
    assert duplicates.remove(ada).seq is None


def test_a_constitutional_survivor_stays_to_the_letter(ada: Agent) -> None:
    remember(ada, "law", origin=NEW, tags=("a",))
    steps.protect(ada, 1)
    before = steps.snapshot(row(ada, 1))
    remember(ada, "law", origin=OLD, tags=("b",))
    duplicates.remove(ada)
    assert active(ada) == [1]
    assert steps.snapshot(row(ada, 1)) == before


def test_the_same_text_elsewhere_or_nearly_the_same_is_no_duplicate(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea")
    remember(bob, "tea")
    remember(ada, "Tea", "tea ", "tea\n", "te\u0301a")
    elsewhere: list[dict[str, Any]] = [{"kind": "journal"}, {"category": "technical"}, {"category": "personal"}]
    for values in (*elsewhere, {"project": "site"}, {"project": "shop"}):
        remember(ada, "tea", **values)
    operations.discard(ada, remember(ada, "tea"), ME)
    for _ in range(2):
        steps.tell(ada, "equal notices all stay")
    assert duplicates.find(ada) == []
    assert duplicates.remove(ada).seq is None


def test_another_agents_duplicates_are_left_alone(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea", "tea")
    remember(bob, "tea", "tea")
    before = steps.state(bob)
    duplicates.remove(ada)
    assert steps.state(bob) == before


def test_memory_switched_off_refuses(ada: Agent) -> None:
    remember(ada, "tea", "tea")
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    with steps.refused(ada, errors.MemoryDisabled):
        duplicates.remove(ada)


def test_no_content_is_opened(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "tea", tags=("a",))
    remember(ada, "tea", tags=("b",))
    opened: list[str] = []
    _spy(monkeypatch, opened)
    duplicates.find(ada)
    duplicates.removable(ada)
    assert opened == []
    duplicates.remove(ada)
    assert set(opened) == {"tags"}


def _spy(monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    real: Callable[[Silo, str, int, bytes], bytes] = Silo.open_data

    def watched(silo: Silo, field: str, number: int, sealed: bytes) -> bytes:
        opened.append(field)
        return real(silo, field, number, sealed)

    def never(*_: Any) -> Any:
        raise AssertionError("content was opened")

    monkeypatch.setattr(Silo, "open_data", watched)
    monkeypatch.setattr(Silo, "open", never)
    monkeypatch.setattr(Silo, "open_sealed", never)
