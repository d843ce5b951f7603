"""Faults of the disk, and strange files: edits stand, faults are reported, and a repair fixes the vault."""

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import time_machine
from django.db import OperationalError
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.agents import rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import FileFault, SiloKeyMissing
from memory.models import Agent, Vault
from memory.run_log.files import lock, write
from memory.vault import comparing, files, writer
from memory.writing import operations
from tests.commands.calling import run
from tests.privacy.marker import unique
from tests.steps import ME, PERSON, fresh, says, set_rule
from tests.vault.tree import FERRY, assert_repaired, differences, fault, ferry, memory_files, only_file, redact, tree

LATER = "It leaves at 15:10."


@pytest.fixture
def closed(ada: Agent, vault: Path, as_nobody: None) -> Iterator[Path]:
    """A vault with one file, in which nobody may write."""
    ferry(ada)
    vault.chmod(0o500)
    for path in vault.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield vault
    open_folder(vault)


def open_folder(vault: Path) -> None:
    vault.chmod(0o700)
    for path in sorted(vault.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


REFUSED = [("write", errno.ENOSPC), ("link", errno.EROFS), ("fsync", errno.EIO), ("mkdir", errno.EROFS)]


@pytest.mark.parametrize(("call", "number"), REFUSED, ids=[f"{call}-{errno.errorcode[n]}" for call, n in REFUSED])
def test_a_fault_of_the_disk_is_reported_and_the_edit_stands(ada: Agent, vault: Path, call: str, number: int) -> None:
    first = ferry(ada)
    with mock.patch(f"os.{call}", side_effect=OSError(number, os.strerror(number))):
        operations.revise(ada, first, ME, content=LATER)
        second = ferry(ada, "The ferry is blue.", category="behavioral")
    assert (says(ada, first).content, says(ada, second).content) == (LATER, "The ferry is blue.")
    assert fault(ada) == os.strerror(number).lower()
    assert not [path for path in tree(vault) if ".palimpsest-new" in path]
    assert_repaired(ada)
    assert len(memory_files(vault)) == 2


def test_a_file_that_was_written_by_half_is_not_used(ada: Agent, vault: Path) -> None:
    """The system's limit on the size of a file acts as a full disk: the first half is written."""
    number = ferry(ada)
    before = only_file(vault).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_half(descriptor: int, data: bytes) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(data) // 2, hard))
        try:
            write(descriptor, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with mock.patch("memory.vault.disk.write", write_half):
        operations.revise(ada, number, ME, content="It leaves at 15:10. " * 200)
    assert only_file(vault).read_bytes() == before
    assert fault(ada) == os.strerror(errno.EFBIG).lower()
    assert_repaired(ada)


def test_a_folder_without_permissions(ada: Agent, closed: Path) -> None:
    operations.revise(ada, 1, ME, content=LATER)
    assert fault(ada) == "permission denied"
    with pytest.raises(FileFault, match="permission denied"):
        comparing.repair(fresh(ada))
    open_folder(closed)
    assert_repaired(ada)
    assert LATER in only_file(closed).read_text()
    closed.chmod(0o000)
    assert writer.files_of(fresh(ada), [1]) == {}
    operations.discard(ada, [1], PERSON)
    assert fault(ada) == "permission denied"
    open_folder(closed)
    assert_repaired(ada)


def test_a_file_without_read_permission(ada: Agent, vault: Path, as_nobody: None) -> None:
    number = ferry(ada)
    only_file(vault).chmod(0o000)
    operations.revise(ada, number, ME, content=LATER)
    assert fault(ada) == "permission denied"
    only_file(vault).chmod(0o600)
    assert_repaired(ada)


def test_a_vault_that_is_removed_during_a_write(ada: Agent, vault: Path) -> None:
    ferry(ada)
    sync = os.fsync

    def sync_and_remove(number: int) -> None:
        sync(number)
        shutil.rmtree(vault, ignore_errors=True)

    with mock.patch("os.fsync", sync_and_remove):
        operations.revise(ada, 1, ME, content=LATER)
    assert (says(ada, 1).content, fault(ada)) == (LATER, "no such file or directory")
    assert_repaired(ada)
    assert LATER in only_file(vault).read_text()


def test_a_lock_file_that_is_removed_while_a_writer_waits_is_locked_again(ada: Agent, vault: Path) -> None:
    """Otherwise the writer holds a lock that no other writer sees."""
    ferry(ada)
    locked: list[bool] = []

    def lock_and_remove(number: int, patience: float) -> None:
        lock(number, patience)
        if not locked:
            (vault / ".palimpsest").unlink()
        locked.append(True)

    with mock.patch("memory.vault.base.lock", lock_and_remove), writer.opened(fresh(ada)):
        assert (vault / ".palimpsest").exists()
    assert len(locked) == 2


def test_a_vault_outside_the_roots_is_not_written(ada: Agent, vault: Path, settings: Settings, root: Path) -> None:
    ferry(ada)
    before, roots = only_file(vault).read_bytes(), settings.VAULT_ROOTS
    settings.VAULT_ROOTS = [str(root / "elsewhere")]
    operations.revise(ada, 1, ME, content=LATER)
    assert (only_file(vault).read_bytes(), says(ada, 1).content) == (before, LATER)
    assert "VAULT_ROOTS" in fault(ada)
    settings.VAULT_ROOTS = roots
    assert_repaired(ada)


ERRORS = [("__init__", SiloKeyMissing("no key")), ("take", RuntimeError("can't start new thread"))]


@pytest.mark.parametrize(("method", "error"), ERRORS)
def test_an_unexpected_error_is_reported(ada: Agent, vault: Path, method: str, error: Exception) -> None:
    with mock.patch.object(files.Files, method, side_effect=error):
        number = ferry(ada)
    assert (says(ada, number).content, fault(ada)) == (FERRY, type(error).__name__)
    writer.catch_up()
    assert only_file(vault).exists()
    assert_repaired(ada)


def test_a_database_error_after_the_commit_does_not_undo_the_edit(ada: Agent, vault: Path) -> None:
    locked = OperationalError("database is locked")
    with mock.patch.object(writer, "sync", side_effect=locked), mock.patch.object(Vault, "objects") as rows:
        rows.filter.side_effect = rows.update_or_create.side_effect = locked
        assert ferry(ada) == 1
    writer.catch_up()
    assert_repaired(ada)


def test_a_clock_that_goes_back(ada: Agent, vault: Path) -> None:
    ferry(ada, category="topic", tags=["topic:ferries"])
    with time_machine.travel(timezone.now() - timedelta(days=400)):
        operations.revise(ada, 1, ME, content=LATER)
        ferry(ada, "The ferry is blue.")
        assert differences(ada) == []
    assert_repaired(ada)
    assert len(memory_files(vault)) == 2


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def open_files(vault: Path) -> list[str]:
    """The files of a vault that this process has open."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            targets.append(str(link.readlink()))
    return [target for target in targets if target.startswith(str(vault))]


STRANGE = [a_folder, a_pipe, a_link, a_broken_link]


@pytest.mark.parametrize("make", STRANGE)
def test_a_strange_file_in_the_place_of_a_memorys(ada: Agent, vault: Path, make: Callable[[Path], None]) -> None:
    ferry(ada)
    path = only_file(vault)
    path.unlink()
    make(path)
    assert differences(ada) == [("missing", 1)]
    for nth in range(3):
        operations.revise(ada, 1, ME, content=f"It leaves at 15:1{nth}.")
    ferry(ada, "After it")
    assert open_files(vault) == []
    assert_repaired(ada)
    assert not path.is_file() or path.is_symlink()
    [own] = [each for each in path.parent.glob("000001-*.md") if each != path]
    assert "15:12" in own.read_text()


@pytest.mark.parametrize("make", STRANGE)
def test_a_strange_file_does_not_stop_a_redaction(ada: Agent, vault: Path, make: Callable[[Path], None]) -> None:
    ferry(ada)
    make(vault / "common" / "mine.md")
    assert differences(ada) == []
    redact(ada, 1)
    assert memory_files(vault) in ([], ["common/mine.md"])
    assert fault(ada) == ""
    assert_repaired(ada)


def test_a_redaction_reports_what_it_cannot_read_and_removes_the_rest(ada: Agent, vault: Path, as_nobody: None) -> None:
    """An unreadable file or folder may contain a copy."""
    ferry(ada)
    path, mine, folder = only_file(vault), vault / "aaa.md", vault / "mine"
    mine.write_text("mine")
    mine.chmod(0o000)
    redact(ada, 1)
    assert (path.exists(), fault(ada)) == (False, "permission denied")
    mine.chmod(0o600)
    assert_repaired(ada)
    assert mine.read_text() == "mine"
    ferry(ada)
    folder.mkdir()
    (folder / "copy.md").write_bytes((vault / memory_files(vault)[1]).read_bytes())
    folder.chmod(0o000)
    redact(ada, 2)
    assert fault(ada) == "permission denied"
    folder.chmod(0o700)
    assert_repaired(ada)
    assert memory_files(vault) == ["aaa.md"]


@pytest.mark.parametrize("has_its_number", [True, False])
def test_ten_megabytes_in_the_place_of_a_memorys_file_are_kept(ada: Agent, vault: Path, has_its_number: bool) -> None:
    ferry(ada)
    path = only_file(vault)
    big = (path.read_bytes() if has_its_number else b"") + "\N{SNOWMAN}\n".encode() * 2_500_000
    path.write_bytes(big)
    for act in (lambda: operations.revise(ada, 1, ME, content=LATER), lambda: comparing.repair(fresh(ada))):
        act()
        assert any((vault / each).read_bytes() == big for each in tree(vault))
    assert says(ada, 1).content == LATER


def test_a_persons_file_keeps_its_name(ada: Agent, vault: Path) -> None:
    taken = [vault / f"{folder}/technical/000001.md" for folder in ("common", "projects/default-project")]
    for path in taken:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    ferry(ada)
    assert differences(ada) == []
    set_rule(ada, PERSON, "memory_rules.categories.technical.storage_location", "project")
    assert_repaired(ada)
    assert ([path.read_text() for path in taken], len(memory_files(vault))) == (["mine", "mine"], 3)


def test_many_projects_do_not_need_many_open_files(ada: Agent, vault: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 150, hard))
    try:
        with mock.patch.object(writer, "try_sync"):
            for n in range(300):
                ferry(ada, f"Of project {n}.", category="contextual", project=f"p{n}")
        writer.try_sync(ada.pk)
        assert fault(ada) == ""
        assert_repaired(ada)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(memory_files(vault)) == 300


@pytest.mark.parametrize("make", STRANGE)
def test_a_fault_does_not_contain_a_memorys_words(
    ada: Agent, vault: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A readable file name contains words of its memory."""
    word = unique()
    rule_changes.make(ada, PERSON, Wanted(rules={"storage": {"readable_names": True}}), side=ME)
    ferry(fresh(ada), f"{word} blooms")
    path = only_file(vault)
    assert word.lower() in path.name
    path.unlink()
    make(path)
    operations.revise(ada, 1, ME, content=f"{word} fades")
    ran = run("vault", "index", ada.label)
    check = run("vault", "index", ada.label, "--check", "--json")
    for text in (fault(ada), caplog.text, ran.err, ran.out, check.err, json.dumps(check.out)):
        assert word.lower() not in text.lower()
