"""A folder that took the vault's place is written whole: what another held says nothing of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from memory.errors import FileFault
from memory.models import Agent, Vault
from memory.vault import repair, writer
from memory.vault.disk import LOCK, Disk
from memory.writing import operations
from tests.steps import ME, fresh, remember
from tests.vault.tree import differ, memories


@pytest.fixture
def three(ada: Agent) -> list[int]:
    numbers = remember(ada, "one", "two", "gone", category="technical")
    operations.discard(ada, numbers[2:], ME)
    return numbers


def test_a_folder_that_is_gone_is_written_whole_with_the_next_edit(ada: Agent, three: list[int], vault: Path) -> None:
    vault.rename(vault.with_name("elsewhere"))
    remember(ada, "four", category="technical")
    assert (len(memories(vault)), differ(ada), writer.is_behind(fresh(ada))) == (4, [], False)


def test_a_folder_without_its_mark_is_behind_until_workers_wrote_it(ada: Agent, three: list[int], vault: Path) -> None:
    shutil.rmtree(vault)
    vault.mkdir()
    assert writer.is_behind(fresh(ada))
    writer.catch_up()
    assert (len(memories(vault)), differ(ada), writer.is_behind(fresh(ada))) == (3, [], False)


def test_workers_make_no_folder_that_somebody_took_away(ada: Agent, three: list[int], vault: Path) -> None:
    shutil.rmtree(vault)
    writer.catch_up()
    assert not vault.exists()
    assert writer.is_behind(fresh(ada))


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
    writer.follow(ada.pk)
    assert (len(memories(vault)), differ(ada)) == (4, [])


def test_what_it_wrote_is_counted_as_mended(ada: Agent, three: list[int], vault: Path) -> None:
    with mock.patch.object(Disk, "publish", side_effect=FileFault("denied", "permission denied")):
        remember(ada, "four", category="technical")
    assert differ(ada) == [("behind", 4)]
    done = repair.repair(ada)
    assert (done.repaired, done.left, done.is_done) == (1, (), True)
