"""A file that cannot be written does not delay other files. It stays pending, and is reported and tried again."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest

from memory.errors import FileFault, SealBroken
from memory.models import Agent, Memory, Vault, VaultFile
from memory.policy.validation import Draft
from memory.silo.silo import Opened, Silo
from memory.vault import comparing, writer
from memory.vault.disk import Disk
from memory.vault.files import AT_ONCE
from memory.writing import operations
from tests.rules.talking import talk
from tests.steps import ME, PERSON, fresh, remember
from tests.vault.tree import differences, memory_files, redact

DENIED = FileFault("denied", "permission denied")


def has_file(agent: Agent, *numbers: int) -> list[bool]:
    return [writer.file_of(fresh(agent), number) is not None for number in numbers]


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
    Path(str(writer.file_of(fresh(ada), good))).unlink()
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
    append = Disk.append

    def refuse(self: Disk, path: PurePosixPath, data: bytes) -> None:
        if path.parts[0] == "projects":
            raise DENIED
        append(self, path, data)

    with mock.patch.object(Disk, "append", refuse):
        drafts = [Draft("two", category="contextual", project="site"), Draft("three", category="technical")]
        numbers = [each.number for each in operations.remember(fresh(ada), drafts, ME).memories]
    assert VaultFile.objects.filter(number__in=[bad, *numbers]).count() == 2
    writer.catch_up()
    assert differences(ada) == []


def test_a_memory_that_cannot_be_opened_delays_no_other(ada: Agent, vault: Path) -> None:
    broken = store(ada, "one")
    opened = Silo.open

    def refuse(self: Silo, memory: Memory) -> Opened:
        if memory.number == broken:
            raise SealBroken("broken")
        return opened(self, memory)

    VaultFile.objects.update(rules_version="")
    writer.reset(ada)
    with mock.patch.object(Silo, "open", refuse):
        assert has_file(ada, store(ada, "two")) == [True]
        assert fault() == "a memory's seal is broken"


def test_a_redacted_file_that_cannot_be_removed_delays_no_other(ada: Agent, vault: Path) -> None:
    numbers = [store(ada, "heather blooms"), store(ada, "heather fades", "behavioral")]
    remove = Disk.remove

    def refuse(self: Disk, path: PurePosixPath) -> None:
        if path.name.startswith("000001"):
            raise DENIED
        remove(self, path)

    with mock.patch.object(Disk, "remove", refuse):
        redact(ada, *numbers)
        assert has_file(ada, store(ada, "moss")) == [True]
        assert [Path(path).name for path in memory_files(vault)] == ["000001.md", "000003.md"]
    writer.catch_up()
    assert [Path(path).name for path in memory_files(vault)] == ["000003.md"]


def test_a_file_that_cannot_be_removed_from_its_old_place_is_removed_later(ada: Agent, vault: Path) -> None:
    number = store(ada, "one")
    with mock.patch.object(Disk, "retire", side_effect=DENIED):
        operations.discard(fresh(ada), [number], PERSON)
    assert fault() == "permission denied"
    writer.catch_up()
    assert memory_files(vault) == [".discarded/common/technical/000001.md"]
    assert differences(ada) == []
