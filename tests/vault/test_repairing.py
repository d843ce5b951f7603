"""Differences between a vault and its silo: each is found and repaired, and no text of either is lost."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

import pytest

from memory.errors import AuthorityBroken, FileFault, MemoryDisabled
from memory.models import Agent, Vault, VaultFile
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.vault import comparing, writer
from memory.vault.disk import LARGEST, LOCK, Disk
from memory.vault.files import AgentChanged, Files
from memory.vault.writer import open_file
from memory.writing import operations
from tests.claiming import claim
from tests.steps import ME, PERSON, fresh, last_entry, remember, set_rule, signed_update
from tests.vault.tree import all_text, differences, edit, memory_files, only_file, refuse, tree
from tests.vault.tree import ferry as store


@pytest.fixture
def ferry(ada: Agent) -> int:
    return store(ada, tags=["times"])


def revise(agent: Agent, number: int, time: str) -> None:
    operations.revise(fresh(agent), number, ME, content=f"The ferry leaves at {time}.")


def repair(agent: Agent) -> comparing.Repaired:
    return comparing.repair(fresh(agent))


def test_a_vault_that_a_claim_cleared_meanwhile_gets_no_file(ada: Agent, ferry: int, vault: Path) -> None:
    def claimed_while_this_waits_for_the_lock() -> None:
        claim(ada)
        remember(ada, "salary of 9000")

    meanwhile = mock.patch.object(comparing, "require_valid_key", claimed_while_this_waits_for_the_lock)
    with meanwhile, pytest.raises(FileFault, match="vault was changed"):
        comparing.repair(fresh(ada))
    assert "salary" not in str([file.read_text() for file in vault.rglob("*.md")])


def test_a_file_that_is_tried_again_after_a_claim_is_not_written(ada: Agent, ferry: int, vault: Path) -> None:
    """Somebody kept the file open, so its first write was refused."""
    real, claimed = Disk.publish, []

    def publish(disk: Disk) -> list[PurePosixPath]:
        if claimed:
            return real(disk)
        claimed.append(claim(ada))
        revise(ada, ferry, "9000")
        disk.drop_staged()
        return [PurePosixPath(only_file(vault).relative_to(vault))]

    with mock.patch.object(Disk, "publish", publish):
        revise(ada, ferry, "15:10")
    assert claimed
    assert not [file for file in vault.rglob("*.md") if "9000" in file.read_text()]


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_sync_that_read_after_a_claim_writes_nothing(is_put_back: bool, ada: Agent, ferry: int, vault: Path) -> None:
    """Not even a temporary file, also if SQL shows the former owner again. It does not go on with other files."""
    others = remember(ada, *(f"tea {number}" for number in range(3)), category="technical")
    seen: list[str] = []
    stage = Disk.stage

    def noted(disk: Disk, path: PurePosixPath, data: bytes, **options: Any) -> None:
        seen.append(data.decode())
        stage(disk, path, data, **options)

    with writer.opened(fresh(ada)) as disk:
        files = Files(fresh(ada), disk)
        former = {"vault_path": str(vault), "claimed_at": fresh(ada).claimed_at}
        claim(ada)
        operations.revise(fresh(ada), ferry, ME, content="a secret that came later")
        if is_put_back:
            Agent.objects.filter(pk=ada.pk).update(**former)
        with mock.patch.object(Disk, "stage", noted), pytest.raises((AgentChanged, AuthorityBroken)):
            files.sync([ferry, *others])
    assert (seen, files.fault) == ([], None)
    assert "secret" not in all_text(vault)


def test_a_page_that_is_written_again_after_a_claim_does_not_change(ada: Agent, ferry: int, vault: Path) -> None:
    before = (vault / "index.md").read_bytes()
    with writer.opened(fresh(ada)) as disk:
        files = Files(fresh(ada), disk)
        claim(ada)
        assert (files.rebuild(), str(files.fault)) == (0, "The agent, its vault or its rules have changed. Try again.")
    assert (vault / "index.md").read_bytes() == before


def test_a_changed_file_is_kept_by_an_edit_and_by_a_repair(ada: Agent, ferry: int, vault: Path) -> None:
    path = only_file(vault)
    edit(path, "14:30", "16:45")
    assert differences(ada) == [("edited", ferry)]
    revise(ada, ferry, "15:10")
    assert "15:10" in path.read_text()
    edit(path, "15:10", "17:00")
    repair(ada)
    assert "15:10" in path.read_text()
    kept = [(vault / f".discarded/common/technical/000001-found-{nth}.md").read_text() for nth in (1, 2)]
    assert ("16:45" in kept[0], "17:00" in kept[1]) == (True, True)
    assert differences(ada) == [("copy", ferry)] * 2
    assert repair(ada).is_done


def test_a_changed_file_of_a_private_memory_is_kept_sealed(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "sesame", category="personal")
    only_file(vault).write_text("sesame, said by hand")
    [(_, kept)] = repair(ada).aside
    assert kept == ".discarded/private/personal/000001-found-1.md"
    assert "sesame" not in all_text(vault)
    assert open_file(fresh(ada), (vault / kept).read_bytes()).content == "sesame, said by hand"
    assert differences(ada) == [("copy", number)]


def test_a_repair_keeps_a_persons_copy_and_removes_an_unfinished_file(ada: Agent, ferry: int, vault: Path) -> None:
    copy = only_file(vault).with_name("mine.md")
    copy.write_bytes(only_file(vault).read_bytes())
    half = copy.with_name(".palimpsest-new-0123456789abcdef")
    half.write_text("half")
    repair(ada)
    assert (copy.exists(), half.exists(), differences(ada)) == (True, False, [("copy", ferry)])


def test_a_file_whose_row_was_not_written_is_recognized(ada: Agent, ferry: int, vault: Path) -> None:
    VaultFile.objects.all().delete()
    Vault.objects.update(seq=0)
    revise(ada, ferry, "15:10")
    assert ("15:10" in only_file(vault).read_text(), differences(ada)) == (True, [])
    row = VaultFile.objects.get()
    revise(ada, ferry, "16:00")
    VaultFile.objects.update(version=row.version, digest=row.digest)
    assert differences(ada) == [("behind", ferry)]
    Vault.objects.update(seq=0)
    revise(ada, ferry, "17:00")
    assert ("17:00" in only_file(vault).read_text(), differences(ada)) == (True, [])


def test_a_file_without_a_row_moves_with_its_discarded_memory(ada: Agent, vault: Path) -> None:
    killed = mock.patch.object(VaultFile.objects, "bulk_create", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        remember(ada, "A ferry leaves at nine.")
    operations.discard(fresh(ada), [1], PERSON)
    assert only_file(vault).relative_to(vault).parts[0] == ".discarded"
    assert differences(ada) == []


def test_a_file_that_was_moved_without_its_row_is_recognized(ada: Agent, ferry: int, vault: Path) -> None:
    """The memory is restored while its category is off, so its file does not move until the category is on."""
    with mock.patch("memory.vault.files.update_many", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        operations.discard(ada, [ferry], PERSON)
    discarded = last_entry(ada).seq
    set_rule(ada, PERSON, "memory_rules.categories.technical.enabled", "false")
    rollback.roll_back(fresh(ada), What("entry", discarded), PERSON)
    for is_on, folder in (("false", ".discarded"), ("true", "common")):
        set_rule(ada, PERSON, "memory_rules.categories.technical.enabled", is_on)
        assert only_file(vault).relative_to(vault).parts[0] == folder
        assert differences(ada) == []


def test_a_restored_file_whose_line_was_not_written_is_listed(ada: Agent, ferry: int, vault: Path) -> None:
    operations.discard(ada, [ferry], PERSON)
    killed = mock.patch("memory.vault.files.layout.add", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        operations.restore(ada, [ferry], PERSON)
    assert only_file(vault).relative_to(vault).parts[0] == "common"
    writer.try_sync(ada.pk)
    assert differences(ada) == []
    assert (vault / "index.md").read_text().rstrip().endswith(".md)")


def test_an_unfinished_index_is_written_again(ada: Agent, vault: Path) -> None:
    vault.mkdir(exist_ok=True)
    (vault / "index.md").write_text("# Mem")
    store(ada)
    assert (vault / "index.md").read_text().startswith("# Memory Index\n")
    assert len(tree(vault)) == 2


def test_a_missing_or_changed_index_is_repaired(ada: Agent, ferry: int, vault: Path) -> None:
    index, other = vault / "index.md", vault / "projects/shop/index.md"
    remember(ada, "Of a project.", category="contextual", project="shop")

    def assert_found_and_repaired() -> None:
        assert differences(ada) == [("index", 0)]
        repair(ada)
        assert (differences(ada), other.is_file()) == ([], True)

    for page in (index, other):
        page.unlink()
        assert_found_and_repaired()
    for old in ("000001-", "technical ", "- 2"):
        edit(index, old, "x")
        assert_found_and_repaired()
    before = index.read_text()
    operations.discard(ada, [ferry], PERSON)
    assert ("~~000001-" in index.read_text(), differences(ada)) == (True, [])
    index.write_text(before)
    assert_found_and_repaired()
    assert "~~" not in index.read_text()


def test_a_far_too_long_index_is_a_difference_and_is_repaired(ada: Agent, ferry: int, vault: Path) -> None:
    os.truncate(vault / "index.md", LARGEST + 1_000)
    assert differences(ada) == [("index", 0)]
    assert repair(ada).left == ()
    assert (vault / "index.md").stat().st_size < 1_000


def test_a_folder_in_the_place_of_an_index_stops_no_write(ada: Agent, ferry: int, vault: Path) -> None:
    (vault / "index.md").unlink()
    (vault / "index.md").mkdir()
    store(ada, "Two")
    assert Vault.objects.get().fault == ""
    assert repair(ada).left == ()
    assert len(memory_files(vault)) == 2


def test_other_files_are_counted_and_not_touched(ada: Agent, ferry: int, vault: Path) -> None:
    for name in ("common/notes.md", "shopping.txt", ".discarded/old.md"):
        path = vault / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("tea")
    (vault / "common" / "folder.md").mkdir()
    (vault / "common" / "link.md").symlink_to("notes.md")
    found = comparing.whole(ada)
    assert (found.differences, found.unknown, repair(ada).unknown) == ([], 3, 3)
    assert (vault / "common" / "notes.md").read_text() == "tea"


def test_a_folder_that_is_too_deep_stops_no_repair(ada: Agent, ferry: int, vault: Path) -> None:
    vault.joinpath(*["deep"] * 80).mkdir(parents=True)
    only_file(vault).unlink()
    assert (repair(ada).unknown, only_file(vault).exists()) == (1, True)


def test_an_unreadable_file_is_reported_and_stops_nothing(ada: Agent, ferry: int, vault: Path) -> None:
    second, third = store(ada, "Two"), store(ada, "Three")
    paths = sorted((vault / "common" / "technical").glob("*.md"))
    (paths[0].parent / "mine.md").write_text("mine")
    for number in (second, third):
        paths[number - 1].unlink()
    with refuse("read", lambda path: path.name in (paths[0].name, paths[1].name, "mine.md")):
        unreadable = [("unreadable", 0), ("unreadable", ferry), ("unreadable", second)]
        assert differences(ada) == [*unreadable, ("missing", third)]
        done = repair(ada)
        assert (done.repaired, [(each.kind, each.number) for each in done.left]) == (1, unreadable)
    assert paths[2].is_file()
    assert repair(ada).left == ()


def test_an_edit_during_a_comparison_is_no_difference(ada: Agent, ferry: int, vault: Path) -> None:
    """The edit comes after the row was read, and before the file is read."""
    edits = ["15:10"]
    read = Files.read

    def edit_and_read(*args: object) -> bytes | None:
        if edits:
            revise(ada, ferry, edits.pop())
        return read(*args)  # type: ignore[arg-type]

    with mock.patch.object(Files, "read", edit_and_read):
        assert differences(ada) == []


def test_a_repair_that_waited_for_the_lock_stops_if_memory_is_off(ada: Agent, ferry: int, vault: Path) -> None:
    edit(only_file(vault), "14:30", "16:45")
    opened = writer.opened

    @contextmanager
    def open_and_turn_off(agent: Agent) -> Iterator[Disk]:
        with opened(agent) as disk:
            signed_update(Agent.objects.filter(pk=agent.pk), memory_enabled=False)
            yield disk

    (vault / "index.md").unlink()
    with mock.patch("memory.vault.writer.opened", open_and_turn_off), pytest.raises(MemoryDisabled):
        repair(ada)
    assert len(tree(vault)) == 1


@pytest.fixture
def three(ada: Agent) -> list[int]:
    """The numbers of three memories. The last is discarded."""
    numbers = remember(ada, "one", "two", "gone", category="technical")
    operations.discard(ada, numbers[2:], ME)
    return numbers


def test_a_repair_writes_a_removed_vault_again(ada: Agent, three: list[int], vault: Path) -> None:
    remember(ada, "sesame", category="personal")
    repair(ada)
    before = {path: (vault / path).read_bytes() for path in tree(vault)}
    shutil.rmtree(vault)
    assert differences(ada) == [("index", 0), ("index", 0), *(("missing", number) for number in (1, 2, 4))]
    assert not vault.exists()  # a comparison does not create it
    repair(ada)
    assert {path: (vault / path).read_bytes() for path in tree(vault)} == before


def test_an_edit_writes_a_removed_vault_again_and_a_worker_does_not(ada: Agent, three: list[int], vault: Path) -> None:
    def state() -> object:
        return len(memory_files(vault)), differences(ada), writer.is_behind(fresh(ada))

    vault.rename(vault.with_name("elsewhere"))
    store(ada, "four")
    assert state() == (4, [], False)
    shutil.rmtree(vault)
    writer.catch_up()
    assert (vault.exists(), writer.is_behind(fresh(ada))) == (False, True)
    vault.mkdir()  # without the agent's mark
    assert writer.is_behind(fresh(ada))
    writer.catch_up()
    assert state() == (4, [], False)


def test_a_folder_without_its_mark_keeps_a_persons_changes(ada: Agent, three: list[int], vault: Path) -> None:
    path = memory_files(vault)[1]  # the first is discarded
    edit(vault / path, "one", "mine")
    (vault / LOCK).unlink()
    store(ada, "four")
    assert "mine" in (vault / ".discarded" / path).with_stem("000001-found-1").read_text()
    assert "one" in (vault / path).read_text()
    assert differences(ada) == [("copy", three[0])]


def test_a_vault_that_was_written_by_half_is_finished_later(ada: Agent, three: list[int], vault: Path) -> None:
    shutil.rmtree(vault)
    with mock.patch.object(Disk, "publish", side_effect=FileFault("no space left", "no space left")):
        store(ada, "four")
    assert Vault.objects.get().seq == 0
    writer.try_sync(ada.pk)
    assert (len(memory_files(vault)), differences(ada)) == (4, [])
    with mock.patch.object(Disk, "publish", side_effect=FileFault("denied", "permission denied")):
        store(ada, "five")
    assert differences(ada) == [("behind", 5)]
    done = repair(ada)
    assert (done.repaired, done.left, done.is_done) == (1, (), True)
