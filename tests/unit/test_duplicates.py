"""Exact duplicates: found by digest, never by reading (seed 003, Content-blind infra cleanup)."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.bulk import rows_among
from memory import errors
from memory.models import Agent, Memory, Store
from memory.policy.validation import MAX_TAGS, Draft
from memory.silo.silo import Silo
from memory.writing import counters, duplicates, edits, operations
from refinement import scheduling
from refinement import session as sessions
from tests import steps
from tests.plans import plans
from tests.steps import ME, SESSION, active, fresh, last_entry, problems, remember, row, says, signed_update

pytestmark = pytest.mark.database

OLD, MIDDLE, NEW = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))


def test_of_exact_duplicates_the_one_of_earliest_origin_is_kept(ada: Agent) -> None:
    for origin, tags in ((NEW, ("a", "b")), (OLD, ("b",)), (MIDDLE, ("c", "a"))):
        remember(ada, "tea", origin=origin, tags=tags)
    edit = duplicates.remove(ada)
    assert active(ada) == [2]
    assert [row(ada, n).superseded_by for n in (1, 2, 3)] == [2, None, 2]
    assert {row(ada, n).version for n in (1, 3)} == {edit.seq}
    assert (says(ada, 2).content, says(ada, 2).tags) == ("tea", ("b", "a", "c"))


@pytest.mark.sqlite
def test_reads_under_the_lock_use_an_index(ada: Agent) -> None:
    """With another index, each write read all core memories, and each session all memories, under SQLite's lock."""
    remember(ada, "tea", "tea")
    shop, site = (counters.Group(b"1" * 32, "topic", "project", name) for name in ("shop", "site"))
    with CaptureQueriesContext(connection) as captured:
        for count in (1, 2):
            counters.duplicates(ada, {bytes([n]) * 32 for n in range(count)})
        counters.duplicates(ada, rows_among(counters._GROUP, {shop, site}))
        assert [len(extra) for _, extra in duplicates._groups(ada, [1, 2])] == [1]
    with CaptureQueriesContext(connection) as kept:
        assert Store.objects.filter(agent_id=ada.pk, deleted_at=None).count() == 0
    assert "store_kept" in plans(kept)[0], "an agent can delete very many stores"
    whole = "digest=? AND category=? AND scope=? AND project=?"
    for plan, used in zip(plans(captured), ["digest=?", "digest=?", whole, "number=?"], strict=True):
        assert (f"(agent_id=? AND {used})" in plan, "TEMP B-TREE" in plan) == (True, used == whole)


def test_a_write_reads_no_equal_memories_of_other_projects(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal memories in 80,000 projects, a write of the same text took two seconds, under SQLite's lock."""
    for project in ("one", "two"):
        remember(ada, "tea", "tea", project=project)
    find, found = counters.duplicates, list[Any]()
    monkeypatch.setattr(counters, "duplicates", lambda *a, **k: found.append(find(*a, **k)) or found[-1])
    remember(ada, "tea", project="two")
    assert [(group.project, sizes.total()) for group, sizes in found[0].items()] == [("two", 3)]
    assert (fresh(ada).duplicate_tokens, problems(ada)) == (3 * row(ada, 1).tokens, [])


def test_a_write_to_many_projects_counts_equal_memories_in_one_query(
    ada: Agent, django_assert_max_num_queries: Any
) -> None:
    """With a query for each, an import of equal texts in 1,000 projects locked SQLite for three seconds."""
    remember(ada, "tea", project="p1")
    drafts = [Draft(content, project=f"p{n}", category="topic") for n in range(30) for content in ("tea", "milk")]
    with django_assert_max_num_queries(30):
        operations.remember(fresh(ada), drafts, ME)
    operations.remember(fresh(ada), drafts[:7], ME)
    assert (fresh(ada).duplicate_tokens, problems(ada)) == (7 * row(ada, 1).tokens, [])


def test_all_duplicates_are_removed_in_one_entry_of_the_system(ada: Agent) -> None:
    remember(ada, "tea", "tea", "milk", "milk", "milk", origin=OLD)
    operations.revise(ada, remember(ada, "coffee", origin=OLD)[0], ME, content="tea")
    assert steps.fresh(ada).duplicate_tokens == 4
    before = last_entry(ada).seq
    assert sorted(m.number for m in duplicates.removable(ada)) == [2, 4, 5, 6]
    duplicates.remove(ada, session=SESSION)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.actor_kind) == (before + 1, "deduplicated", "system")
    assert (entry.session, entry.detail, entry.changes) == (SESSION, {"removed": 4}, 4)
    agent = steps.fresh(ada)
    assert (agent.core_tokens, agent.duplicate_tokens, agent.high_water_tokens) == (2, 0, 4)
    assert active(ada) == [1, 3], "of equal origins the lowest number stays"
    assert duplicates.remove(ada).seq is None
    operations.restore(ada, [2], steps.PERSON)
    assert (active(ada), says(ada, 2).content, row(ada, 2).superseded_by) == ([1, 2, 3], "tea", None)
    assert problems(ada) == []


@pytest.mark.parametrize(("limit", "most"), [("MOST", 4), ("MOST_BYTES", 300)])
def test_very_many_or_large_duplicates_are_removed_in_parts(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """So that a session, which a key may request, does not hold SQLite's writer for long."""
    monkeypatch.setattr(duplicates, limit, most)
    remember(ada, *["tea", "milk"] * 4, tags=("a",))
    remember(ada, "tea", tags=("b",))
    removed = []
    while duplicates.remove(ada).seq:
        removed.append(last_entry(ada).detail["removed"])
    assert (sum(removed), max(removed)) == (7, 3)
    assert {says(ada, number).content for number in active(ada)} == {"tea", "milk"}
    assert {tag for number in active(ada) for tag in says(ada, number).tags} == {"a", "b"}
    assert (steps.fresh(ada).duplicate_tokens, problems(ada)) == (0, [])


def test_constitutional_duplicates_all_stay(ada: Agent) -> None:
    remember(ada, "law", "law", "law")
    steps.protect(ada, 2, 3)
    duplicates.remove(ada)
    assert (active(ada), row(ada, 1).superseded_by) == ([2, 3], 2)
    assert duplicates.remove(ada).seq is None


def test_a_constitutional_memory_replaces_an_earlier_duplicate_and_stays_unchanged(ada: Agent) -> None:
    remember(ada, "law", origin=NEW, tags=("a",))
    steps.protect(ada, 1)
    before = steps.snapshot(row(ada, 1))
    remember(ada, "law", origin=OLD, tags=("b",))
    duplicates.remove(ada)
    assert (active(ada), steps.snapshot(row(ada, 1))) == ([1], before)


def test_memories_of_another_place_agent_or_spelling_are_no_duplicates(ada: Agent, bob: Agent) -> None:
    remember(bob, "tea", "tea")
    before = steps.state(bob)
    remember(ada, "tea", "Tea", "tea ", "tea\n", "te\u0301a")
    places: list[dict[str, Any]] = [{"kind": "journal"}, {"category": "technical"}, {"category": "personal"}]
    for values in (*places, {"project": "site"}, {"project": "shop"}):
        remember(ada, "tea", **values)
    operations.discard(ada, remember(ada, "tea"), ME)
    for _ in range(2):
        steps.tell(ada, "equal notices stay")
    assert duplicates.find(ada) == []
    assert duplicates.remove(ada).seq is None
    assert steps.state(bob) == before


def test_while_memory_is_off_no_duplicate_is_removed(ada: Agent) -> None:
    remember(ada, "tea", "tea")
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    with steps.refused(ada, errors.MemoryDisabled):
        duplicates.remove(ada)


def test_no_content_is_decrypted(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag in ("a", "b"):
        remember(ada, "tea", tags=(tag,))
    opened: list[str] = []
    open_data = Silo.open_data

    def watched(silo: Silo, field: str, number: int, sealed: bytes) -> bytes:
        opened.append(field)
        return open_data(silo, field, number, sealed)

    monkeypatch.setattr(Silo, "open_data", watched)
    for name in ("open", "open_sealed"):
        monkeypatch.setattr(Silo, name, lambda *_: pytest.fail("content was opened"))
    duplicates.find(ada)
    duplicates.removable(ada)
    assert opened == []
    duplicates.remove(ada)
    assert set(opened) == {"tags"}


def test_a_write_does_not_load_the_memories_that_equal_it(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may have thousands of them, and the write holds SQLite's lock."""
    remember(ada, *["tea"] * 3)
    monkeypatch.setattr(Memory, "from_db", None)
    remember(ada, "tea")
    assert steps.fresh(ada).duplicate_tokens == 3


def test_the_tags_of_many_duplicates_are_limited(ada: Agent) -> None:
    for first in (0, 200):
        remember(ada, "tea", tags=tuple(f"tag {number}" for number in range(first, first + 200)))
    duplicates.remove(ada)
    assert [len(says(ada, number).tags) for number in active(ada)] == [MAX_TAGS]


@pytest.mark.parametrize("opens", ["request", "worker"])
def test_duplicates_are_searched_before_the_agent_is_locked(
    opens: str, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search reads all memories."""
    remember(ada, "Tea.", "Tea.", "Coffee.")
    Agent.objects.filter(pk=ada.pk).update(due_at=OLD)
    locked, find = list[bool](), duplicates.find
    monkeypatch.setattr(duplicates, "find", lambda agent: locked.append(bool(edits._locked_here.get())) or find(agent))
    agent = steps.fresh(ada)
    session = sessions.open_session(agent, trigger="manual") if opens == "request" else scheduling.open_due(agent)
    assert session is not None
    assert (session.duplicates_removed, locked) == (1, [False])


def test_an_agent_has_a_limited_number_of_memories(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some statements under the lock read all memories with the same text."""
    first, second, _ = remember(ada, "Tea.", "Coffee.", "Milk.")
    monkeypatch.setattr(edits, "MOST_MEMORIES", 3)
    with steps.refused(ada, errors.Invalid):
        remember(ada, "Water.")
    with edits.locked(steps.fresh(ada)) as locked, pytest.raises(errors.Invalid):
        remember(locked, "Water.")
    assert locked.core_count == 3
    operations.discard(steps.fresh(ada), [3], ME)
    remember(ada, "Water.")
    assert operations.consolidate(steps.fresh(ada), [first, second], "Tea and coffee.", ME).seq
    assert operations.restore(steps.fresh(ada), [3], ME).seq
