"""What cannot be written keeps no other file waiting; it is owed, tried again, and told."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest

from memory.consent import redaction, removal_requests
from memory.errors import FileFault, SealBroken
from memory.models import Agent, Vault, VaultFile
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.vault import comparing, writer
from memory.vault.disk import Disk
from memory.vault.files import AT_ONCE
from memory.writing import operations
from tests.rules.talking import talk
from tests.steps import ME, PERSON, fresh, remember
from tests.vault.tree import differ, memories


def has_file(agent: Agent, *numbers: int) -> list[bool]:
    return [writer.file_of(fresh(agent), number) is not None for number in numbers]


def stored(agent: Agent, content: str, category: str, project: str = "") -> int:
    [number] = remember(fresh(agent), content, category=category, project=project)
    return number


@pytest.fixture
def lost(ada: Agent, vault: Path, root: Path) -> Path:
    """Where somebody's link in the place of a folder leads."""
    stored(ada, "one", "technical")
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(vault / "common" / "technical")
    (vault / "common" / "technical").symlink_to(elsewhere)
    return elsewhere


def mended(agent: Agent, vault: Path) -> None:
    (vault / "common" / "technical").unlink()
    writer.catch_up()
    assert (Vault.objects.get().fault, writer.is_behind(fresh(agent))) == ("", False)


def test_a_folder_that_takes_no_file_keeps_no_other_waiting(ada: Agent, vault: Path, lost: Path) -> None:
    bad = stored(ada, "two", "technical")
    others = [stored(ada, "three", each) for each in ("behavioral", "personal", "contextual")]
    others.append(talk(fresh(ada)).number)
    assert has_file(ada, bad, *others) == [False, True, True, True, True]
    assert list(lost.iterdir()) == []


def test_it_is_owed_and_shown_until_it_is_written(ada: Agent, vault: Path, lost: Path) -> None:
    bad = stored(ada, "two", "technical")
    stored(ada, "three", "behavioral")
    assert ("behind", bad) in differ(fresh(ada))
    assert Vault.objects.get().fault == "not a directory"
    assert writer.is_behind(fresh(ada))
    writer.catch_up()
    assert Vault.objects.get().fault == "not a directory"
    good = stored(ada, "four", "behavioral")
    Path(str(writer.file_of(fresh(ada), good))).unlink()
    done = comparing.repair(fresh(ada))  # which writes the others
    assert {each.number for each in done.left} == {1, bad}
    assert has_file(ada, bad, good) == [False, True]
    mended(ada, vault)
    assert has_file(ada, bad) == [True]


def test_whoever_edits_tries_it_again_now_and_then(ada: Agent, vault: Path, lost: Path) -> None:
    bad = stored(ada, "two", "technical")
    (vault / "common" / "technical").unlink()
    Vault.objects.update(fault_at=Vault.objects.get().fault_at - timedelta(minutes=2))
    stored(ada, "three", "behavioral")
    assert has_file(ada, bad) == [True]
    assert Vault.objects.get().fault == ""


def test_a_file_in_the_place_of_the_folder_of_what_was_discarded(ada: Agent, vault: Path) -> None:
    gone, _ = stored(ada, "one", "technical"), stored(ada, "two", "technical")
    (vault / ".discarded").write_text("somebody's")
    operations.discard(fresh(ada), [gone], PERSON)
    assert has_file(ada, stored(ada, "three", "behavioral"), stored(ada, "four", "technical")) == [True, True]
    assert ("behind", gone) in differ(fresh(ada))
    (vault / ".discarded").unlink()
    writer.catch_up()
    assert (differ(fresh(ada)), Vault.objects.get().fault) == ([], "")


def test_an_edit_of_many(ada: Agent, vault: Path, lost: Path) -> None:
    drafts = [Draft(f"note {nth}", category=("technical", "behavioral")[nth % 2]) for nth in range(AT_ONCE + 20)]
    operations.remember(fresh(ada), drafts, ME)
    assert VaultFile.objects.count() == 1 + len(drafts) // 2
    mended(ada, vault)
    assert differ(fresh(ada)) == [("missing", 1)]


def test_a_page_that_takes_no_line_keeps_no_other_waiting(ada: Agent, vault: Path) -> None:
    bad = stored(ada, "one", "contextual", "site")
    append = Disk.append

    def refusing(self: Disk, path: PurePosixPath, data: bytes) -> None:
        if path.parts[0] == "projects":
            raise FileFault("denied", "permission denied")
        append(self, path, data)

    with mock.patch.object(Disk, "append", refusing):
        drafts = [Draft("two", category="contextual", project="site"), Draft("three", category="technical")]
        numbers = [each.number for each in operations.remember(fresh(ada), drafts, ME).memories]
    assert VaultFile.objects.filter(number__in=[bad, *numbers]).count() == 2
    writer.catch_up()
    assert differ(fresh(ada)) == []


def test_a_memory_that_cannot_be_opened_keeps_no_other_waiting(ada: Agent, vault: Path) -> None:
    broken = stored(ada, "one", "technical")
    opened = Silo.open

    def breaking(self: Silo, memory: object) -> object:
        if memory.number == broken:
            raise SealBroken("broken")
        return opened(self, memory)

    VaultFile.objects.update(rules_version="")
    writer.reset(ada)
    with mock.patch.object(Silo, "open", breaking):
        other = stored(ada, "two", "technical")
        assert has_file(ada, other) == [True]
        assert Vault.objects.get().fault == "a memory's seal is broken"


def test_what_was_redacted_is_removed_as_far_as_can_be_and_keeps_nothing_waiting(ada: Agent, vault: Path) -> None:
    one, two = stored(ada, "heather blooms", "technical"), stored(ada, "heather fades", "behavioral")
    remove = Disk.remove

    def refusing(self: Disk, path: PurePosixPath) -> None:
        if path.name.startswith("000001"):
            raise FileFault("denied", "permission denied")
        remove(self, path)

    asked = removal_requests.ask_redaction(fresh(ada), [one, two], PERSON, reason="request 17").number
    with mock.patch.object(Disk, "remove", refusing):
        redaction.redact(fresh(ada), asked, ME)
        three = stored(ada, "moss", "technical")
        assert has_file(ada, three) == [True]
        assert [Path(path).name[:6] for path in memories(vault)] == ["000001", "000003"]
    writer.catch_up()
    assert [Path(path).name[:6] for path in memories(vault)] == ["000003"]


def test_a_file_that_cannot_be_removed_from_its_old_place_is_removed_later(ada: Agent, vault: Path) -> None:
    number = stored(ada, "one", "technical")
    with mock.patch.object(Disk, "retire", side_effect=FileFault("denied", "permission denied")):
        operations.discard(fresh(ada), [number], PERSON)
    assert Vault.objects.get().fault == "permission denied"
    writer.catch_up()
    assert memories(vault) == [".discarded/common/technical/000001.md"]
    assert differ(fresh(ada)) == []
