"""What differs between a vault and its silo is found, and mended without losing a word of either."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest

from memory.agents import rule_changes
from memory.errors import FileFault, MemoryDisabled
from memory.models import Agent, Vault, VaultFile
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.vault import comparing, writer
from memory.vault.disk import LARGEST, LOCK, Disk
from memory.vault.files import Files, open_file
from memory.writing import operations
from tests.steps import ME, PERSON, fresh, last_entry, remember, set_rule
from tests.vault.tree import differ, memories, the_one, tree

FERRY = "The ferry leaves at 14:30."


@pytest.fixture
def ferry(ada: Agent) -> int:
    [number] = remember(ada, FERRY, category="technical", tags=["times"])
    return number


def edit(path: Path, old: str = "14:30", new: str = "16:45") -> None:
    path.write_text(path.read_text().replace(old, new))


def test_all_of_a_vault_is_written_again(ada: Agent, ferry: int, vault: Path) -> None:
    remember(ada, "two", category="personal")
    comparing.repair(ada)
    before = {path: (vault / path).read_bytes() for path in tree(vault)}
    for path in before:
        (vault / path).unlink()
    comparing.repair(ada)
    assert {path: (vault / path).read_bytes() for path in tree(vault)} == before


def test_a_changed_file_is_kept_by_an_edit_and_by_a_repair(ada: Agent, ferry: int, vault: Path) -> None:
    path = the_one(vault)
    edit(path)
    assert differ(ada) == [("edited", ferry)]
    operations.revise(ada, ferry, ME, content="The ferry leaves at 15:10.")
    assert "15:10" in path.read_text()
    edit(path, "15:10", "17:00")
    comparing.repair(fresh(ada))
    assert "15:10" in path.read_text()
    kept = [(vault / f".discarded/common/technical/000001-found-{nth}.md").read_text() for nth in (1, 2)]
    assert ("16:45" in kept[0], "17:00" in kept[1]) == (True, True)
    assert differ(ada) == [("copy", ferry)] * 2
    assert comparing.repair(fresh(ada)).is_done


def test_a_changed_file_of_a_private_memory_is_kept_sealed(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "sesame", category="personal")
    the_one(vault).write_text("sesame, said by hand")
    [(_, kept)] = comparing.repair(fresh(ada)).aside
    assert kept == ".discarded/private/personal/000001-found-1.md"
    assert not any("sesame" in path.read_text() for path in vault.rglob("*.md"))
    assert open_file(fresh(ada), (vault / kept).read_bytes()).content == "sesame, said by hand"
    assert differ(ada) == [("copy", number)]


def test_somebody_elses_file_keeps_its_name(ada: Agent, vault: Path) -> None:
    taken = vault / "common" / "technical" / "000001.md"
    taken.parent.mkdir(parents=True)
    taken.write_text("mine")
    remember(ada, FERRY, category="technical")
    assert taken.read_text() == "mine"
    assert (taken.parent / "000001.md").exists()
    assert differ(ada) == []


def test_a_file_whose_row_was_not_written_is_its_own(ada: Agent, ferry: int, vault: Path) -> None:
    """A crash between file and row: the same bytes, or those of an earlier version."""
    VaultFile.objects.all().delete()
    Vault.objects.update(seq=0)
    operations.revise(ada, ferry, ME, content="The ferry leaves at 15:10.")
    assert "15:10" in the_one(vault).read_text()
    assert differ(ada) == []


def test_a_persons_own_copy_stays_and_what_a_killed_writer_left_goes(ada: Agent, ferry: int, vault: Path) -> None:
    copy = the_one(vault).with_name("mine.md")
    copy.write_bytes(the_one(vault).read_bytes())
    half = copy.with_name(".palimpsest-new-0123456789abcdef")
    half.write_text("half")
    comparing.repair(ada)
    assert (copy.exists(), half.exists(), differ(ada)) == (True, False, [("copy", ferry)])


def test_a_rewritten_file_whose_row_was_not_is_its_own(ada: Agent, ferry: int, vault: Path) -> None:
    row = VaultFile.objects.get()
    operations.revise(ada, ferry, ME, content="The ferry leaves at 15:10.")
    VaultFile.objects.update(version=row.version, digest=row.digest)
    assert differ(ada) == [("behind", ferry)]
    Vault.objects.update(seq=0)
    operations.revise(ada, ferry, ME, content="The ferry leaves at 16:00.")
    assert "16:00" in the_one(vault).read_text()
    assert differ(ada) == []


def test_a_file_without_its_row_is_set_aside_with_its_memory(ada: Agent, vault: Path) -> None:
    """A killed writer left it, and the memory was discarded before the next writer came."""
    with (
        mock.patch.object(VaultFile.objects, "bulk_create", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        remember(ada, "A ferry leaves at nine.")
    operations.discard(fresh(ada), [1], PERSON)
    assert the_one(vault).relative_to(vault).parts[0] == ".discarded"
    assert differ(fresh(ada)) == []


def test_a_file_that_was_half_moved_is_its_own(ada: Agent, ferry: int, vault: Path) -> None:
    """Set aside without its row, then brought back while nothing of its category is moved."""
    with mock.patch("memory.vault.files.update_many", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        operations.discard(ada, [ferry], PERSON)
    discarded = last_entry(ada).seq
    set_rule(ada, PERSON, "memory_rules.categories.technical.enabled", "false")
    rollback.roll_back(fresh(ada), What.entry(discarded), PERSON)
    assert the_one(vault).relative_to(vault).parts[0] == ".discarded"
    assert differ(fresh(ada)) == []
    set_rule(ada, PERSON, "memory_rules.categories.technical.enabled", "true")
    assert the_one(vault).relative_to(vault).parts[0] == "common"
    assert differ(fresh(ada)) == []


def test_a_file_that_came_back_without_its_line_is_listed(ada: Agent, ferry: int, vault: Path) -> None:
    operations.discard(ada, [ferry], PERSON)
    with (
        mock.patch("memory.vault.files.layout.add", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        operations.restore(ada, [ferry], PERSON)
    assert the_one(vault).relative_to(vault).parts[0] == "common"
    writer.try_sync(ada.pk)
    assert differ(fresh(ada)) == []
    assert (vault / "index.md").read_text().rstrip().endswith(".md)")


def test_an_index_whose_writer_was_killed_is_begun_anew(ada: Agent, vault: Path) -> None:
    vault.mkdir(exist_ok=True)
    (vault / "index.md").write_text("# Mem")
    remember(ada, FERRY, category="technical")
    assert (vault / "index.md").read_text().startswith("# Memory Index\n")
    assert len(tree(vault)) == 2


def test_a_setting_that_moves_a_category_moves_its_files_when_mended(ada: Agent, ferry: int, vault: Path) -> None:
    set_rule(ada, PERSON, "memory_rules.categories.technical.storage_location", "project")
    assert differ(fresh(ada)) == [("misplaced", ferry)]
    comparing.repair(fresh(ada))
    [path] = memories(vault)
    assert path.startswith("projects/")
    assert differ(fresh(ada)) == []


def test_a_vault_that_cannot_be_written_is_told_and_caught_up(ada: Agent, ferry: int, vault: Path) -> None:
    aside = vault.with_name("elsewhere")
    vault.rename(aside)
    vault.write_text("no folder")
    [second] = remember(ada, "Two", category="technical")
    state = Vault.objects.get()
    assert state.fault
    assert state.fault_at is not None
    vault.unlink()
    aside.rename(vault)
    assert writer.is_behind(fresh(ada))
    writer.try_sync(ada.pk)
    assert (len(memories(vault)), Vault.objects.get().fault, second) == (2, "", 2)


def test_a_link_leads_nowhere(ada: Agent, root: Path, vault: Path) -> None:
    outside = root.parent / f"{root.name}-outside"
    outside.mkdir()
    (vault).mkdir(exist_ok=True)
    (vault / "common").symlink_to(outside)
    remember(ada, FERRY, category="technical")
    assert list(outside.iterdir()) == []
    assert Vault.objects.get().fault
    (vault / "common").unlink()
    comparing.repair(fresh(ada))
    assert differ(ada) == []


# --- what else is in the folder, and the indexes


def test_a_deleted_index_is_found_and_made_anew(ada: Agent, ferry: int, vault: Path) -> None:
    remember(ada, "Of a project.", category="contextual", project="shop")
    for path in ("index.md", "projects/shop/index.md"):
        (vault / path).unlink()
        assert differ(ada) == [("index", 0)]
        comparing.repair(ada)
        assert (differ(ada), (vault / path).is_file()) == ([], True)


def test_an_index_that_says_otherwise_is_found(ada: Agent, ferry: int, vault: Path) -> None:
    index = vault / "index.md"
    for old in ("000001-", "technical ", "- 2"):
        index.write_text(index.read_text().replace(old, "x"))
        assert differ(ada) == [("index", 0)]
        comparing.repair(ada)
        assert differ(ada) == []


def test_a_line_too_many_or_not_struck_is_found(ada: Agent, ferry: int, vault: Path) -> None:
    before = (vault / "index.md").read_text()
    operations.discard(ada, [ferry], PERSON)
    assert "~~000001-" in (vault / "index.md").read_text()
    assert differ(ada) == []
    (vault / "index.md").write_text(before)
    remember(ada, "Two", category="technical")
    assert differ(ada) == [("index", 0)]
    comparing.repair(ada)
    assert "~~" not in (vault / "index.md").read_text()
    assert differ(ada) == []


def test_files_of_others_are_counted_and_left_alone(ada: Agent, ferry: int, vault: Path) -> None:
    for name in ("common/notes.md", "shopping.txt", ".discarded/old.md"):
        path = vault / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("tea")
    (vault / "common" / "folder.md").mkdir()
    (vault / "common" / "link.md").symlink_to("notes.md")
    found = comparing.whole(ada)
    assert (found.differences, found.unknown) == ([], 3)
    assert comparing.repair(ada).unknown == 3
    assert (vault / "common" / "notes.md").read_text() == "tea"


def test_one_file_that_cannot_be_read_is_told_and_stops_nothing(ada: Agent, ferry: int, vault: Path) -> None:
    [second] = remember(ada, "Two", category="technical")
    [third] = remember(ada, "Three", category="technical")
    paths = sorted((vault / "common" / "technical").glob("*.md"))
    (paths[0].parent / "mine.md").write_text("mine")
    read = Disk.read
    for number in (second, third):
        paths[number - 1].unlink()

    def refusing(self: Disk, path: PurePosixPath, most: int = LARGEST) -> bytes | None:
        if path.name in (paths[0].name, paths[1].name, "mine.md"):
            raise FileFault("read: permission denied", "permission denied")
        return read(self, path, most)

    with mock.patch.object(Disk, "read", refusing):
        told = [("unreadable", 0), ("unreadable", ferry), ("unreadable", second)]
        assert differ(ada) == [*told, ("missing", third)]
        done = comparing.repair(ada)
        assert (done.repaired, [(each.kind, each.number) for each in done.left]) == (1, told)
    assert paths[2].is_file()
    assert comparing.repair(ada).left == ()


def test_what_stands_in_the_place_of_a_file_stops_no_other(ada: Agent, ferry: int, vault: Path) -> None:
    path = the_one(vault)
    path.unlink()
    path.mkdir()
    (vault / "index.md").unlink()
    (vault / "index.md").mkdir()
    remember(ada, "Two", category="technical")
    assert Vault.objects.get().fault == ""
    assert ("missing", ferry) in differ(ada)
    assert comparing.repair(ada).left == ()
    assert len(memories(vault)) == 2


def test_what_is_on_its_way_is_no_difference(ada: Agent, ferry: int, vault: Path) -> None:
    """An edit is followed between a look at its row and one at its file."""
    edited = [operations.revise]

    def meanwhile(*args: object) -> bytes | None:
        if edited:
            edited.pop()(ada, ferry, ME, content="The ferry leaves at 15:10.")
        return where(*args)

    where = Files.read
    with mock.patch.object(Files, "read", meanwhile):
        assert differ(ada) == []


def test_where_the_folder_is_gone_all_is_missing(ada: Agent, ferry: int, vault: Path) -> None:
    shutil.rmtree(vault)
    assert differ(ada) == [("index", 0), ("missing", ferry)]
    assert not vault.exists()  # which looking at it does not make
    assert comparing.repair(ada).repaired == 2
    assert differ(ada) == []


def test_a_folder_that_is_another_agents_is_not_looked_at(ada: Agent, ferry: int, vault: Path) -> None:
    (vault / ".palimpsest").write_text("f" * 32)
    with pytest.raises(FileFault, match="another agent"):
        comparing.whole(ada)


def test_while_memory_is_off_nothing_is_compared_or_mended(ada: Agent, ferry: int, vault: Path) -> None:
    path = the_one(vault)
    edit(path)
    (vault / "index.md").unlink()
    before = tree(vault)
    rule_changes.change(ada, PERSON, enabled=False)
    for act in (comparing.whole, comparing.repair):
        with pytest.raises(MemoryDisabled):
            act(fresh(ada))
    assert tree(vault) == before


def test_what_was_switched_off_while_the_vault_was_waited_for_stays(ada: Agent, ferry: int, vault: Path) -> None:
    edit(the_one(vault))
    opened = writer.opened

    @contextmanager
    def off_meanwhile(agent: Agent) -> Iterator[Disk]:
        with opened(agent) as disk:
            Agent.objects.filter(pk=agent.pk).update(memory_enabled=False)
            yield disk

    (vault / "index.md").unlink()
    with mock.patch("memory.vault.writer.opened", off_meanwhile), pytest.raises(MemoryDisabled):
        comparing.repair(fresh(ada))
    assert len(tree(vault)) == 1


# --- a folder that took the vault's place is written whole: what another held says nothing of it


@pytest.fixture
def three(ada: Agent) -> list[int]:
    numbers = remember(ada, "one", "two", "gone", category="technical")
    operations.discard(ada, numbers[2:], ME)
    return numbers


def test_a_folder_that_is_gone_is_written_whole(ada: Agent, three: list[int], vault: Path) -> None:
    vault.rename(vault.with_name("elsewhere"))
    remember(ada, "four", category="technical")
    assert (len(memories(vault)), differ(ada), writer.is_behind(fresh(ada))) == (4, [], False)
    shutil.rmtree(vault)
    writer.catch_up()  # workers make no folder that somebody took away
    assert (vault.exists(), writer.is_behind(fresh(ada))) == (False, True)
    vault.mkdir()  # without its mark
    assert writer.is_behind(fresh(ada))
    writer.catch_up()
    assert (len(memories(vault)), differ(ada), writer.is_behind(fresh(ada))) == (4, [], False)


def test_what_somebody_wrote_there_is_kept(ada: Agent, three: list[int], vault: Path) -> None:
    path = memories(vault)[1]  # the first is what was discarded
    (vault / path).write_text((vault / path).read_text().replace("one", "mine"))
    (vault / LOCK).unlink()
    remember(ada, "four", category="technical")
    assert "mine" in (vault / ".discarded" / path).with_stem("000001-found-1").read_text()
    assert "one" in (vault / path).read_text()
    assert differ(ada) == [("copy", three[0])]


def test_what_fails_half_way_stays_owed(ada: Agent, three: list[int], vault: Path) -> None:
    shutil.rmtree(vault)
    with mock.patch.object(Disk, "publish", side_effect=FileFault("no space left", "no space left")):
        remember(ada, "four", category="technical")
    assert Vault.objects.get().seq == 0
    writer.try_sync(ada.pk)
    assert (len(memories(vault)), differ(ada)) == (4, [])


def test_what_it_wrote_is_counted_as_mended(ada: Agent, three: list[int], vault: Path) -> None:
    with mock.patch.object(Disk, "publish", side_effect=FileFault("denied", "permission denied")):
        remember(ada, "four", category="technical")
    assert differ(ada) == [("behind", 4)]
    done = comparing.repair(ada)
    assert (done.repaired, done.left, done.is_done) == (1, (), True)
