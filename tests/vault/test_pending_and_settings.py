"""A file that cannot be written stays pending, and delays no other. Changed settings change existing files."""

import shutil
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from memory.agents import rule_changes
from memory.errors import SealBroken
from memory.models import Agent, Memory, Vault, VaultFile
from memory.policy.validation import Draft
from memory.silo.silo import Opened, Silo
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.vault import comparing, layout, writer
from memory.vault.files import AT_ONCE
from memory.vault.writer import open_file
from memory.writing import operations
from tests.rules.recordings import settings, talk
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.vault.tree import all_text, differences, edit, erase, memory_files, redact, refuse


def has_file(agent: Agent, *numbers: int) -> list[bool]:
    return [number in writer.files_of(fresh(agent), [number]) for number in numbers]


def store(agent: Agent, content: str, category: str = "technical", project: str = "") -> int:
    [number] = remember(fresh(agent), content, category=category, project=project)
    return number


def fault() -> str:
    return str(Vault.objects.get().fault)


@pytest.fixture
def outside(ada: Agent, vault: Path, root: Path) -> Path:
    """A folder outside the vault. A symlink to it is in the place of a folder of the vault."""
    store(ada, "one")
    folder = root / "outside"
    folder.mkdir()
    shutil.rmtree(vault / "common" / "technical")
    (vault / "common" / "technical").symlink_to(folder)
    return folder


def remove_link(agent: Agent, vault: Path) -> None:
    (vault / "common" / "technical").unlink()
    writer.catch_up()
    assert (fault(), writer.is_behind(fresh(agent))) == ("", False)


def test_a_file_is_pending_until_it_is_written(ada: Agent, vault: Path, outside: Path) -> None:
    bad = store(ada, "two")
    others = [store(ada, "three", each) for each in ("behavioral", "personal", "contextual")]
    others.append(talk(fresh(ada)).number or 0)
    assert has_file(ada, bad, *others) == [False, True, True, True, True]
    assert ("behind", bad) in differences(ada)
    for _ in range(2):
        assert (fault(), writer.is_behind(fresh(ada))) == ("not a directory", True)
        writer.catch_up()
    good = store(ada, "four", "behavioral")
    Path(writer.files_of(fresh(ada), [good])[good]).unlink()
    done = comparing.repair(fresh(ada))
    assert {each.number for each in done.left} == {1, bad}
    assert has_file(ada, bad, good) == [False, True]
    assert list(outside.iterdir()) == []
    remove_link(ada, vault)
    assert has_file(ada, bad) == [True]


def test_an_edit_tries_a_pending_file_again_after_a_minute(ada: Agent, vault: Path, outside: Path) -> None:
    bad = store(ada, "two")
    (vault / "common" / "technical").unlink()
    Vault.objects.update(fault_at=Vault.objects.get().fault_at - timedelta(minutes=2))
    store(ada, "three", "behavioral")
    assert (has_file(ada, bad), fault()) == ([True], "")


def test_a_file_in_the_place_of_the_discarded_folder_delays_no_other(ada: Agent, vault: Path) -> None:
    gone, _ = store(ada, "one"), store(ada, "two")
    (vault / ".discarded").write_text("a person's")
    operations.discard(fresh(ada), [gone], PERSON)
    assert has_file(ada, store(ada, "three", "behavioral"), store(ada, "four")) == [True, True]
    assert ("behind", gone) in differences(ada)
    (vault / ".discarded").unlink()
    writer.catch_up()
    assert (differences(ada), fault()) == ([], "")


def test_half_of_a_large_edit_can_be_pending(ada: Agent, vault: Path, outside: Path) -> None:
    drafts = [Draft(f"note {n}", category=("technical", "behavioral")[n % 2]) for n in range(AT_ONCE + 20)]
    operations.remember(fresh(ada), drafts, ME)
    assert VaultFile.objects.count() == 1 + len(drafts) // 2
    remove_link(ada, vault)
    assert differences(ada) == [("missing", 1)]


def test_an_index_that_cannot_be_written_delays_no_other(ada: Agent, vault: Path) -> None:
    bad = store(ada, "one", "contextual", "site")
    with refuse("append", lambda path: path.parts[0] == "projects"):
        drafts = [Draft("two", category="contextual", project="site"), Draft("three", category="technical")]
        numbers = [each.number for each in operations.remember(fresh(ada), drafts, ME).memories]
    assert VaultFile.objects.filter(number__in=[bad, *numbers]).count() == 2
    writer.catch_up()
    assert differences(ada) == []


def test_a_memory_that_cannot_be_opened_delays_no_other(ada: Agent, vault: Path) -> None:
    broken = store(ada, "one")
    open_memory = Silo.open

    def fail(self: Silo, memory: Memory) -> Opened:
        if memory.number == broken:
            raise SealBroken("broken")
        return open_memory(self, memory)

    VaultFile.objects.update(rules_version="")
    writer.reset(ada)
    with mock.patch.object(Silo, "open", fail):
        assert has_file(ada, store(ada, "two")) == [True]
        assert fault() == "a memory's seal is broken"


def test_a_redacted_file_that_cannot_be_removed_delays_no_other(ada: Agent, vault: Path) -> None:
    numbers = [store(ada, "heather blooms"), store(ada, "heather fades", "behavioral")]
    with refuse("remove", lambda path: path.name.startswith("000001")):
        redact(ada, *numbers)
        assert has_file(ada, store(ada, "moss")) == [True]
        assert [Path(path).name for path in memory_files(vault)] == ["000001.md", "000003.md"]
    writer.catch_up()
    assert [Path(path).name for path in memory_files(vault)] == ["000003.md"]


def test_a_file_that_cannot_be_removed_from_its_old_place_is_removed_later(ada: Agent, vault: Path) -> None:
    number = store(ada, "one")
    with refuse("retire", lambda _: True):
        operations.discard(fresh(ada), [number], PERSON)
    assert fault() == "permission denied"
    writer.catch_up()
    assert memory_files(vault) == [".discarded/common/technical/000001.md"]
    assert differences(ada) == []


def change_during_a_write(ada: Agent, change: Callable[[], Any], text: str = "Moss", category: str = "topic") -> None:
    """Store a memory. Another thread makes the change while the memory's file is written."""
    threads: list[threading.Thread] = []
    waits: list[bool] = []
    real = layout.add

    def change_and_close() -> None:
        try:
            change()
        finally:
            connection.close()

    def add(*args: Any, **values: Any) -> None:
        if not threads:
            before, until = fresh(ada).audit_seq, time.monotonic() + 20
            threads.append(threading.Thread(target=change_and_close))
            threads[0].start()
            while fresh(ada).audit_seq == before and time.monotonic() < until:
                time.sleep(0.01)
            waits.append(fresh(ada).audit_seq == before)
        real(*args, **values)

    with mock.patch.object(layout, "add", side_effect=add):
        remember(fresh(ada), text, category=category)
    threads[0].join()
    assert waits == [False], "the change did not wait for the file"


def store_many(agent: Agent, *texts: str, category: str = "technical", **values: Any) -> None:
    remember(fresh(agent), *texts, category=category, **values)


def make_private(ada: Agent, **more: object) -> Agent:
    return settings(ada, categories__technical__storage_location="private", **more)


def assert_sealed(ada: Agent, vault: Path, expected: list[tuple[str, int]] | None = None) -> None:
    assert ("eather" in all_text(vault), differences(ada)) == (False, expected or [])


@pytest.mark.parametrize("category", ["topic", "technical"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_category_that_becomes_private_during_a_write_is_sealed(
    ada: Agent, vault: Path, is_whole: bool, category: str
) -> None:
    """Also the files that this write stores, and those of a sync that begins with the first entry."""
    store_many(ada, "Heather blooms.")
    assert "eather" in all_text(vault)
    if is_whole:
        writer.reset(ada)
    change_during_a_write(ada, lambda: make_private(ada), "Heather" if category == "technical" else "Moss", category)
    writer.catch_up()
    assert_sealed(ada, vault)


@pytest.mark.parametrize("end", [lambda ada: rule_changes.change(fresh(ada), PERSON, enabled=False), erase])
def test_a_sync_ends_when_memory_is_turned_off_or_erased(
    ada: Agent, vault: Path, end: Callable[[Agent], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.vault.files.AT_ONCE", 1)
    store_many(ada, "one", "two", "three")
    for path in memory_files(vault):
        (vault / path).unlink()
    writer.rewrite(ada)
    change_during_a_write(ada, lambda: end(ada))
    assert len(memory_files(vault)) <= 1


def test_a_category_that_is_turned_on_during_a_write_is_updated(ada: Agent, vault: Path) -> None:
    store_many(ada, "Heather blooms.")
    operations.discard(fresh(ada), [1], ME)
    discarded = last_entry(ada).seq
    settings(ada, categories__technical__enabled=False)
    rollback.roll_back(fresh(ada), What("entry", discarded), PERSON)
    change_during_a_write(ada, lambda: settings(ada))
    writer.catch_up()
    assert differences(ada) == []


def test_an_index_does_not_name_memories_of_a_category_that_is_off(ada: Agent, vault: Path) -> None:
    store_many(ada, "Heather blooms.")
    store_many(ada, "Moss is green.", category="behavioral")
    store_many(ada, "Ferns fade.", category="topic", project="secret-garden")

    def named() -> list[str]:
        pages = "".join(path.read_text() for path in vault.rglob("index.md"))
        return [word for word in ("heather", "ferns", "garden", "moss") if word in pages]

    settings(ada, categories__technical__enabled=False, categories__topic__enabled=False)
    for page in vault.rglob("index.md"):
        page.unlink()
    assert comparing.repair(fresh(ada)).indexed == 1
    assert (named(), differences(ada)) == (["moss"], [])
    settings(ada)
    assert (named(), differences(ada)) == (["heather", "ferns", "garden", "moss"], [])


def test_a_category_that_becomes_private_is_sealed_with_its_discarded_files(ada: Agent, vault: Path) -> None:
    store_many(ada, "Heather blooms.", "Heather fades.", tags=["heather"])
    operations.discard(fresh(ada), [1], ME)
    operations.discard(fresh(ada), [2], ME)
    with mock.patch.object(writer, "rewrite"):  # an older version did not seal discarded files
        make_private(ada)
    assert differences(ada) == [("misplaced", 1), ("misplaced", 2)]
    assert comparing.repair(fresh(ada)).left == ()
    assert_sealed(ada, vault)
    settings(ada)
    assert memory_files(vault) == [f".discarded/common/technical/00000{n}.md" for n in (1, 2)]
    assert "Heather blooms." in all_text(vault)
    make_private(ada)
    assert memory_files(vault) == [f".discarded/private/technical/00000{n}.md" for n in (1, 2)]
    assert_sealed(ada, vault)
    operations.restore(fresh(ada), [1], ME)
    assert memory_files(vault) == [".discarded/private/technical/000002.md", "private/technical/000001.md"]
    assert "000001.md" in (vault / "private/index.md").read_text()
    assert_sealed(ada, vault)


@pytest.mark.parametrize("is_discarded", [False, True])
def test_masking_that_is_turned_on_masks_existing_files(ada: Agent, vault: Path, is_discarded: bool) -> None:
    settings(ada, capture_settings__sensitive_data_masking=False)
    store_many(ada, "The ferry is blue, and its password is hunter2-Kj81-zz.")
    if is_discarded:
        operations.discard(fresh(ada), [1], ME)
    assert "hunter2-Kj81-zz" in all_text(vault)
    settings(ada)
    assert "hunter2-Kj81" not in all_text(vault)
    assert "[masked: password]" in all_text(vault)
    assert differences(ada) == []


def test_files_that_become_private_while_off_are_removed_until_they_are_on(ada: Agent, vault: Path) -> None:
    store_many(ada, "Heather blooms.", "Heather fades.")
    store_many(ada, "Moss is green.", category="behavioral")
    operations.discard(fresh(ada), [2], ME)
    settings(ada, categories__technical__enabled=False)
    make_private(ada, categories__technical__enabled=False)
    assert ("eather" in all_text(vault), len(memory_files(vault))) == (False, 1)
    settings(ada)
    assert "Heather blooms." in all_text(vault)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    make_private(ada)
    assert "eather" not in all_text(vault)
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    sealed = [".discarded/private/technical/000002.md", "private/technical/000001.md"]
    assert memory_files(vault) == [sealed[0], "common/behavioral/000003.md", sealed[1]]
    assert_sealed(ada, vault)


def test_a_changed_file_that_becomes_private_is_kept_sealed(ada: Agent, vault: Path) -> None:
    store_many(ada, "Heather blooms.", "Heather fades.")
    one, two = (vault / path for path in memory_files(vault))
    edit(one, "Heather blooms.", "Heather blooms by hand.")
    two.unlink()
    make_private(ada)
    assert_sealed(ada, vault, [("copy", 1)])
    kept = vault / ".discarded/private/technical/000001-found-1.md"
    assert "Heather blooms by hand." in open_file(fresh(ada), kept.read_bytes()).content
    assert (vault / "private/technical/000001.md").exists()
