"""Memory stores: paths, versions, and what an edit or a rollback does to them."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.signals import post_init
from django.utils import timezone

from audit.models import AuditEntry
from memory import errors
from memory.access import authority
from memory.consent import erasure, requests
from memory.errors import Invalid
from memory.models import Agent, Layer, Memory
from memory.policy.validation import Draft
from memory.search import reading
from memory.search import stores as store_reading
from memory.search.selection import Filters
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import duplicates, operations, stores
from tests.steps import ME, PERSON, fresh, last_entry, problems, row
from tests.tampering import undone

pytestmark = pytest.mark.database


def new(agent: Agent, **files: str) -> int:
    """The number of a new store with these files. In a name, "__" is a slash."""
    store = stores.create(fresh(agent), stores.About("notes"), ME).number
    for name, content in files.items():
        add(agent, store, "/" + name.replace("__", "/"), content)
    return store


def add(agent: Agent, store: int, path: str, content: str = "tea") -> int:
    return stores.add(fresh(agent), store, path, content, ME).memory.number


def tree(agent: Agent, store: int) -> dict[str, str | None]:
    memories = store_reading.page(fresh(agent), store, "/", after_number=0, limit=100)
    return {item.label.path: item.content for item in store_reading.items(fresh(agent), memories, is_full=True)}


def versions(agent: Agent, store: int, **wanted: Any) -> list[tuple[str, str | None]]:
    rows = store_reading.versions(fresh(agent), store, wanted, before=None, limit=100)
    found = store_reading.opened(fresh(agent), rows, is_full=True)
    return [(each.row.operation, each.content) for each in found]


def undo(agent: Agent, seq: int, **options: Any) -> Any:
    return rollback.roll_back(fresh(agent), What("entry", seq), ME, **options)


def test_memories_of_a_store_are_beneath_and_found(ada: Agent) -> None:
    store = new(ada, fruit__quince="A quince is yellow.")
    memory = row(ada, 1)
    assert (memory.layer, fresh(ada).core_tokens) == (Layer.BENEATH, 0)
    [found] = reading.search(fresh(ada), "quince", filters=Filters())
    assert found.to_dict()["path"] == "/fruit/quince"
    assert tree(ada, store) == {"/fruit/quince": "A quince is yellow."}
    assert problems(ada) == []


@pytest.mark.parametrize("path", ["/a", "/a/b", "/a/b/c"])
def test_a_path_is_used_once_and_a_file_is_no_folder(ada: Agent, path: str) -> None:
    store, other = new(ada, a__b="tea"), new(ada)
    number = add(ada, store, "/z")
    with pytest.raises(errors.PathTaken) as refused:
        add(ada, store, path)
    assert refused.value.numbers == (1,)
    with pytest.raises(errors.PathTaken):
        stores.revise(fresh(ada), store, number, ME, path=path)
    add(ada, other, path)
    assert set(tree(ada, store)) == {"/a/b", "/z"}
    assert problems(ada) == []


def test_a_store_counts_its_memories_for_the_limit(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MAX_MEMORIES", 2)
    store = new(ada, a="x", b="x")
    with pytest.raises(Invalid, match="which is the maximum"):
        add(ada, store, "/c")
    stores.discard(fresh(ada), store, 1, ME)
    stores.revise(fresh(ada), store, 2, ME, path="/d")
    assert stores.find(ada, store).memories == 1
    undo(ada, last_entry(ada).seq - 1)
    assert stores.find(ada, store).memories == 2
    stores.change(fresh(ada), store, {"name": "other"}, ME)
    assert stores.find(ada, store).memories == 2


def test_the_database_refuses_a_second_memory_at_a_path(ada: Agent) -> None:
    new(ada, a="tea", b="milk")
    one, other = row(ada, 1), Memory.objects.filter(number=2)
    with pytest.raises(IntegrityError), transaction.atomic():
        other.update(place=one.place)
    with pytest.raises(IntegrityError), transaction.atomic():
        other.update(place=None)


def test_a_place_or_a_store_that_sql_changes_is_found(ada: Agent) -> None:
    new(ada, a="tea")
    new(ada)
    place = bytes(row(ada, 1).place or b"")
    for values in ({"place": place[::-1]}, {"place": place * 2}, {"store": 2}, {"store": None, "place": None}):
        with undone():
            Memory.objects.filter(number=1).update(**values)
            assert [problem.seq for problem in problems(ada)] == [row(ada, 1).version], values


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a", "start"), ("", "start"), ("/", "empty"), ("/a/", "empty"), ("/a//b", "empty"), ("/a/../b", "empty"),
        ("/a\n", "control"), ("/a\u200b", "format"), ("/a\u2028", "line"), ("/e\u0301", "Form C"),
        ("/a" * 21, "20 segments"), ("/" + "é" * 512, "1,024 bytes"), ("/\ud800", "surrogate"), ("/\0", "control"),
    ],
)  # fmt: skip
def test_a_path_that_is_not_valid_is_refused(ada: Agent, path: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        add(ada, new(ada), path)


def test_paths_may_have_all_other_characters(ada: Agent) -> None:
    paths = ["/é/日本", "/a b/.hidden", "/a b/ü.md", "/" + "é" * 511, "/x" * 20]
    store = new(ada)
    for path in paths:
        add(ada, store, path)
    assert list(tree(ada, store)) == paths
    for folder, found in (("/a b/", paths[1:3]), ("/é/", paths[:1]), ("/a/", [])):
        memories = store_reading.page(fresh(ada), store, folder, after_number=0, limit=9)
        assert [item.label.path for item in store_reading.items(fresh(ada), memories, is_full=False)] == found


def test_a_store_is_deleted_without_reading_all_its_memories_at_each_edit(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200,000 memories, other writers waited for up to 12 seconds."""
    monkeypatch.setattr(stores, "MOST_AT_ONCE", 2)
    store = new(ada, **{f"f{number}": "tea" for number in range(12)})
    read: list[Any] = []
    note = lambda **_: read.append(1)  # noqa: E731
    post_init.connect(note, sender=Memory)
    try:
        stores.delete(fresh(ada), store, ME)
    finally:
        post_init.disconnect(note, sender=Memory)
    assert (len(read), tree(ada, store)) == (12, {})


def test_a_memory_is_listed_while_its_agent_is_erased(ada: Agent) -> None:
    store = new(ada, a="tea")
    stale = fresh(ada)
    authority.require(stale)  # as at the beginning of a request
    memories = store_reading.page(stale, store, "/", after_number=0, limit=9)
    erasure.erase(fresh(ada), requests.ask_erasure(fresh(ada), PERSON, reason="x").number, ME)
    [item] = store_reading.items(stale, memories, is_full=False)
    assert (item.label.path, item.version) == ("/a", memories[0].version)


def test_a_content_has_at_most_102_400_bytes(ada: Agent) -> None:
    store = new(ada)
    add(ada, store, "/a", "é" * 51_200)
    for content in ("é" * 51_200 + "a", "a" * 102_401):
        with pytest.raises(Invalid, match="102,400"):
            add(ada, store, "/b", content)
    add(ada, store, "/empty", "")
    assert tree(ada, store)["/empty"] == ""


def test_each_change_is_a_version(ada: Agent) -> None:
    store = new(ada, a="one")
    before = last_entry(ada).seq
    stores.revise(fresh(ada), store, 1, ME, content="one", path="/a")
    assert last_entry(ada).seq == before
    stores.revise(fresh(ada), store, 1, ME, content="two")
    stores.revise(fresh(ada), store, 1, ME, path="/b")
    operations.promote(fresh(ada), 1, ME)
    stores.discard(fresh(ada), store, 1, ME)
    expected = [("deleted", None), ("modified", "two"), ("modified", "two"), ("created", "one")]
    assert versions(ada, store) == expected
    assert versions(ada, store, operation="created") == expected[-1:]
    assert tree(ada, store) == {}
    assert problems(ada) == []


def test_a_change_needs_the_expected_content(ada: Agent) -> None:
    store = new(ada, a="one")
    old = store_reading.items(fresh(ada), [row(ada, 1)], is_full=False)[0].label.sha256
    stores.revise(fresh(ada), store, 1, ME, content="two", expected=old)
    for change in (
        lambda: stores.revise(fresh(ada), store, 1, ME, content="three", expected=old),
        lambda: stores.revise(fresh(ada), store, 1, ME, path="/b", expected=old),
        lambda: stores.discard(fresh(ada), store, 1, ME, expected=old),
    ):
        with pytest.raises(errors.ContentChanged):
            change()
    assert tree(ada, store) == {"/a": "two"}


def test_a_rollback_restores_content_and_path_to_the_byte(ada: Agent) -> None:
    store = new(ada, a="one", b="two")
    before, since = [bytes(row(ada, n).sealed) for n in (1, 2)], last_entry(ada).seq
    stores.revise(fresh(ada), store, 1, ME, path="/c", content="three")
    stores.revise(fresh(ada), store, 2, ME, path="/a")
    add(ada, store, "/d")
    rollback.roll_back(fresh(ada), What("since_entry", since), ME)
    assert [bytes(row(ada, n).sealed) for n in (1, 2)] == before
    assert tree(ada, store) == {"/a": "one", "/b": "two"}
    assert problems(ada) == []


@pytest.mark.parametrize(
    ("taken", "restored"),
    [("/a/b", "/a/b (restored {})"), ("/a", "/a (restored {})/b"), ("/a/b/c", "/a/b (restored {})")],
)
def test_a_path_that_is_taken_meanwhile_is_a_conflict(ada: Agent, taken: str, restored: str) -> None:
    store = new(ada, a__b="one")
    stores.discard(fresh(ada), store, 1, ME)
    seq = last_entry(ada).seq
    other = add(ada, store, taken, "two")
    with pytest.raises(errors.PathTaken):
        operations.restore(fresh(ada), [1], ME)
    preview = rollback.preview(fresh(ada), What("entry", seq))
    assert (preview.refused, preview.conflicts) == ("conflict", ((1, (row(ada, other).version,)),))
    with pytest.raises(errors.Conflict):
        undo(ada, seq)
    figures = undo(ada, seq, force=True)
    assert tree(ada, store) == {restored.format(figures.entry): "one", taken: "two"}
    assert problems(ada) == []


def test_a_deleted_store_comes_back_with_a_rollback(ada: Agent) -> None:
    store = new(ada, a="one", b__c="two")
    before = tree(ada, store)
    stores.delete(fresh(ada), store, ME)
    with pytest.raises(errors.NotFound):
        stores.find(fresh(ada), store)
    assert reading.search(fresh(ada), "one", filters=Filters()) == []
    undo(ada, last_entry(ada).seq)
    assert (stores.about(fresh(ada), stores.find(fresh(ada), store)).name, tree(ada, store)) == ("notes", before)
    assert problems(ada) == []


def test_a_large_store_is_deleted_in_several_edits(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new(ada, **{f"f{n}": "x" * n for n in range(7)})
    before = last_entry(ada).seq
    monkeypatch.setattr(stores, "MOST_AT_ONCE", 3)
    stores.delete(fresh(ada), store, ME)
    entries = AuditEntry.objects.filter(agent_id=ada.pk, seq__gt=before).order_by("seq")
    parts = [(each.changes, each.detail["change"]) for each in entries]
    assert parts == [(3, "emptied"), (3, "emptied"), (1, "deleted")]
    with pytest.raises(errors.NotFound):
        stores.find(fresh(ada), store)
    for entry in reversed(entries):
        undo(ada, entry.seq)
    assert len(tree(ada, store)) == 7
    assert problems(ada) == []


def test_an_edit_takes_as_many_memories_as_have_room(ada: Agent) -> None:
    new(ada, a="x" * 1_000, b="x" * 1_000, c="x" * 1_000)
    rows = Memory.objects.of(ada).order_by("number")
    assert [len(rows.fitting(*most)) for most in ((9, 2_900), (9, 10), (2, 10_000), (9, 10_000))] == [2, 1, 2, 3]


def test_deleted_stores_count_for_the_daily_limit(ada: Agent) -> None:
    made = [new(ada, **{f"f{n}": f"tea {n}" for n in range(12)}) for _ in range(3)]
    for number in range(1, 37):
        operations.promote(fresh(ada), number, ME)
    rows = Memory.objects.filter(agent_id=ada.pk)
    rows.update(created_at=timezone.now() - timedelta(days=2))
    stores.delete(fresh(ada), made[0], ME)
    with pytest.raises(errors.DiscardShare):
        stores.delete(fresh(ada), made[1], ME)


def test_a_memory_that_is_too_large_or_empty_does_not_become_core(ada: Agent) -> None:
    store = new(ada, a="x" * 10_001, b="", c="tea")
    for number in (1, 2):
        with pytest.raises(Invalid):
            operations.promote(fresh(ada), number, ME)
    operations.promote(fresh(ada), 3, ME)
    for content in ("", "x" * 10_001):
        with pytest.raises(Invalid):
            stores.revise(fresh(ada), store, 3, ME, content=content)
    assert fresh(ada).core_tokens == 1


def test_an_archived_store_is_read_only_except_for_deletions(ada: Agent) -> None:
    store = new(ada, a="one")
    stores.archive(fresh(ada), store, ME)
    for change in (
        lambda: add(ada, store, "/b"),
        lambda: stores.revise(fresh(ada), store, 1, ME, content="two"),
        lambda: stores.change(fresh(ada), store, {"name": "x"}, ME),
    ):
        with pytest.raises(errors.StoreArchived):
            change()
    entry = last_entry(ada).seq
    stores.archive(fresh(ada), store, ME)
    assert last_entry(ada).seq == entry
    stores.discard(fresh(ada), store, 1, ME)
    stores.delete(fresh(ada), store, ME)


def test_memories_of_a_store_are_not_removed_as_duplicates(ada: Agent) -> None:
    new(ada, a="tea", b="tea")
    operations.promote(fresh(ada), 1, ME)
    operations.remember(fresh(ada), [Draft("tea", category="behavioral")], ME)
    duplicates.remove(fresh(ada))
    assert all(row(ada, number).discarded_at is None for number in (1, 2, 3))


def test_what_a_client_writes_about_a_store_is_checked_and_sealed(ada: Agent) -> None:
    for about in (
        stores.About(""), stores.About("a\n"), stores.About("x" * 256), stores.About("a", "x" * 1_025),
        stores.About("a", metadata={f"k{n}": "v" for n in range(17)}), stores.About("a", metadata={"": "v"}),
        stores.About("a", metadata={"k": "v" * 513}), stores.About("a", metadata={"k" * 65: "v"}),
    ):  # fmt: skip
        with pytest.raises(Invalid):
            stores.create(fresh(ada), about, ME)
    store = stores.create(fresh(ada), stores.About("Quince", "About quinces", {"a": "b"}), ME)
    changed = stores.change(fresh(ada), store.number, {"metadata": {"a": None, "c": "d"}, "description": ""}, ME)
    assert stores.about(fresh(ada), changed) == stores.About("Quince", "", {"c": "d"})
    assert b"uince" not in bytes(changed.sealed)
    assert last_entry(ada).detail == {"store": 1, "change": "updated"}
