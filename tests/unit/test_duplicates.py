"""Exact duplicates: found by digest, never by reading (seed 003, Content-blind infra cleanup)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from audit.models import AuditEntry
from memory import errors
from memory.models import Agent
from memory.silo.cipher import Cipher
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


def test_of_equal_origins_the_lowest_number_stays(ada: Agent) -> None:
    remember(ada, "tea", "tea", "tea", origin=OLD)
    duplicates.remove(ada)
    assert active(ada) == [1]


def test_the_tags_are_united(ada: Agent) -> None:
    for origin, tags in ((NEW, ("a", "b")), (OLD, ("b",)), (MIDDLE, ("c", "a"))):
        remember(ada, "tea", origin=origin, tags=tags)
    duplicates.remove(ada)
    assert says(ada, 2).tags == ("b", "a", "c")
    assert says(ada, 2).content == "tea"


def test_it_is_one_operation_of_the_system(ada: Agent) -> None:
    remember(ada, "tea", "tea", "milk", "milk", "milk")
    before = last_entry(ada).seq
    duplicates.remove(ada, session=SESSION)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.actor_kind, entry.session) == (
        before + 1,
        "deduplicated",
        "system",
        SESSION,
    )
    assert (entry.detail, entry.changes) == ({"removed": 3}, 3)
    assert problems(ada) == []


def test_the_weight_of_repeats_is_gone_and_the_high_water_mark_stays(ada: Agent) -> None:
    remember(ada, "x" * 40, "x" * 40, "y" * 40)
    duplicates.remove(ada)
    agent = steps.fresh(ada)
    assert (agent.core_tokens, agent.duplicate_tokens, agent.high_water_tokens) == (20, 0, 20)


def test_constitutional_repeats_all_stay(ada: Agent) -> None:
    remember(ada, "law", "law", "law")
    steps.protect(ada, 2, 3)
    duplicates.remove(ada)
    assert active(ada) == [2, 3]
    assert row(ada, 1).superseded_by == 2


def test_a_constitutional_survivor_stays_to_the_letter(ada: Agent) -> None:
    remember(ada, "law", origin=NEW, tags=("a",))
    steps.protect(ada, 1)
    before = steps.snapshot(row(ada, 1))
    remember(ada, "law", origin=OLD, tags=("b",))
    duplicates.remove(ada)
    assert active(ada) == [1]
    assert steps.snapshot(row(ada, 1)) == before


def test_constitutional_repeats_alone_are_nothing_to_do(ada: Agent) -> None:
    remember(ada, "law", "law")
    steps.protect(ada, 1, 2)
    before = steps.state(ada)
    assert duplicates.remove(ada).seq is None
    assert steps.state(ada) == before


@pytest.mark.parametrize(
    "values", [{"kind": "journal"}, {"category": "technical"}, {"category": "personal"}, {"project": "site"}]
)
def test_the_same_text_elsewhere_is_no_duplicate(ada: Agent, values: dict[str, Any]) -> None:
    remember(ada, "tea")
    remember(ada, "tea", **values)
    assert duplicates.find(ada) == []
    assert duplicates.remove(ada).seq is None


def test_the_same_text_in_two_projects_is_no_duplicate(ada: Agent) -> None:
    remember(ada, "tea", project="site")
    remember(ada, "tea", project="shop")
    assert duplicates.find(ada) == []


@pytest.mark.parametrize("other", ["Tea", "tea ", "tea\n", "te\u0301a"])
def test_nearly_the_same_text_is_no_duplicate(ada: Agent, other: str) -> None:
    remember(ada, "tea", other)
    assert duplicates.find(ada) == []


def test_the_same_text_of_two_agents_is_no_duplicate(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea")
    remember(bob, "tea")
    assert duplicates.remove(ada).seq is duplicates.remove(bob).seq is None


def test_another_agents_duplicates_are_left_alone(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea", "tea")
    remember(bob, "tea", "tea")
    before = steps.state(bob)
    duplicates.remove(ada)
    assert steps.state(bob) == before


def test_discarded_repeats_do_not_count(ada: Agent) -> None:
    remember(ada, "tea", "tea")
    operations.discard(ada, [1], ME)
    assert duplicates.find(ada) == []


def test_equal_notices_all_stay(ada: Agent) -> None:
    steps.tell(ada, "closed")
    steps.tell(ada, "closed")
    assert duplicates.remove(ada).seq is None


def test_a_text_revised_into_a_repeat_is_one(ada: Agent) -> None:
    remember(ada, "tea", "milk")
    operations.revise(ada, 2, ME, content="tea")
    assert [m.number for m in duplicates.removable(ada)] == [2]


def test_what_is_removable_is_what_is_removed(ada: Agent) -> None:
    remember(ada, "tea", "tea", "milk", "law", "law", "law")
    steps.protect(ada, 5)
    told = [m.number for m in duplicates.removable(ada)]
    duplicates.remove(ada)
    assert told == [2, 4, 6]
    assert active(ada) == [1, 3, 5]


def test_running_twice_removes_once(ada: Agent) -> None:
    remember(ada, "tea", "tea")
    duplicates.remove(ada)
    before = AuditEntry.objects.count()
    assert duplicates.remove(ada).seq is None
    assert AuditEntry.objects.count() == before


def test_removed_repeats_can_be_restored(ada: Agent) -> None:
    remember(ada, "tea", "tea", tags=("a",))
    duplicates.remove(ada)
    operations.restore(ada, [2], steps.PERSON)
    assert (active(ada), says(ada, 2).content, row(ada, 2).superseded_by) == ([1, 2], "tea", None)


def test_memory_switched_off_refuses(ada: Agent) -> None:
    remember(ada, "tea", "tea")
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    with steps.refused(ada, errors.MemoryDisabled):
        duplicates.remove(ada)


def test_no_content_is_opened(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "tea", tags=("a",))
    remember(ada, "tea", tags=("b",))
    opened: list[bytes] = []
    _spy(monkeypatch, opened)
    duplicates.find(ada)
    duplicates.removable(ada)
    assert opened == []
    duplicates.remove(ada)
    assert set(opened) == {b"tags"}


def _spy(monkeypatch: pytest.MonkeyPatch, opened: list[bytes]) -> None:
    real: Callable[[Cipher, bytes, bytes], bytes] = Cipher.open

    def watched(cipher: Cipher, associated: bytes, sealed: bytes) -> bytes:
        opened.append(associated[17:])  # version, agent and number come before the field
        return real(cipher, associated, sealed)

    def never(*_: Any) -> Any:
        raise AssertionError("content was opened")

    monkeypatch.setattr(Cipher, "open", watched)
    monkeypatch.setattr(Silo, "open", never)
    monkeypatch.setattr(Silo, "open_sealed", never)
