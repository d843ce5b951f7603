"""Whose a vault's folder is: one agent's, wherever links lead and whoever asks at once; and no other's ever after."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier, Thread
from unittest import mock

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from memory.agents import lifecycle
from memory.consent import erasure, proposals, removal_requests
from memory.errors import FileFault, Invalid
from memory.models import Agent, Vault
from memory.vault import base, comparing, writer
from memory.vault.disk import LOCK
from tests.steps import ME, fresh, last_entry, remember
from tests.vault.test_removing import OWNER
from tests.vault.tree import memories


def mark(vault: Path) -> str:
    return (vault / LOCK).read_text()


@pytest.fixture
def bob(ada: Agent) -> Agent:
    return lifecycle.create("globex", "bob", model="builtin/dedupe", actor=ME)[0]


def test_a_folder_is_marked_as_its_agents_and_says_nothing_else(ada: Agent, vault: Path) -> None:
    remember(ada, "heather", category="technical")
    assert mark(vault) == base.mark_of(ada)
    assert len(mark(vault)) == 32


def test_the_folder_of_another_service_is_not_written_to(ada: Agent, vault: Path) -> None:
    vault.mkdir(exist_ok=True)
    (vault / LOCK).write_text("f" * 32)
    remember(ada, "heather", category="technical")
    assert memories(vault) == []
    assert Vault.objects.get(agent_id=ada.pk).fault == "is another agent's vault"
    with pytest.raises(FileFault, match="is another agent's vault"):
        base.require_usable(str(vault), ada)
    (vault / LOCK).write_text(base.mark_of(ada)[:7])  # by a crash while it was marked: nobody's
    writer.catch_up()
    assert len(memories(vault)) == 1


def test_what_is_no_mark_is_somebodys(ada: Agent, bob: Agent, vault: Path) -> None:
    refusal = r"is another agent's vault|is not the mark of a vault"
    remember(ada, "heather", category="technical")
    marks = ("f" * 32 + "\n", "f" * 33, "settings of another program\n" * 90, "torn", "\x00" * 32)
    for said in marks:
        (vault / LOCK).write_text(said)
        remember(fresh(ada), "moss", category="technical")
        assert ((vault / LOCK).read_text(), len(memories(vault))) == (said, 1)
        for agent in (fresh(ada), bob):
            with pytest.raises(FileFault, match=refusal):
                base.require_usable(str(vault), agent)
    lifecycle.change(fresh(ada), ME, vault_path="")
    for said in marks:
        (vault / LOCK).write_text(said)
        with pytest.raises(Invalid, match=refusal):
            lifecycle.change(bob, ME, vault_path=str(vault))
        with pytest.raises(Invalid, match=refusal):
            lifecycle.create("globex", "eve", model="builtin/dedupe", actor=ME, vault_path=str(vault))


def test_a_mark_that_an_editor_saved_is_still_ones_own(ada: Agent, vault: Path) -> None:
    (vault / LOCK).write_text(f"{base.mark_of(ada)}\n")
    remember(fresh(ada), "moss", category="technical")
    assert len(memories(vault)) == 1


def test_a_mark_that_has_another_name_is_not_written_to(ada: Agent, vault: Path, root: Path) -> None:
    other = root / "theirs.sqlite3"
    other.write_text("")
    vault.mkdir(exist_ok=True)
    (vault / LOCK).unlink(missing_ok=True)
    (vault / LOCK).hardlink_to(other)
    remember(fresh(ada), "moss", category="technical")
    assert (other.read_text(), memories(vault)) == ("", [])
    assert Vault.objects.get(agent_id=ada.pk).fault == "its mark has a second hard link"
    with pytest.raises(FileFault, match="has a second hard link"):
        base.require_usable(str(vault), ada)


def test_a_disk_that_takes_no_mark_is_told(ada: Agent, vault: Path) -> None:
    (vault / LOCK).unlink(missing_ok=True)
    with mock.patch("os.pwrite", side_effect=OSError(28, "No space left on device")):
        remember(fresh(ada), "moss", category="technical")
        with pytest.raises(FileFault, match="no space left on device"):
            comparing.repair(fresh(ada))
    assert Vault.objects.get(agent_id=ada.pk).fault == "no space left on device"


def test_a_former_vault_is_still_its_own_and_nobody_elses(ada: Agent, bob: Agent, vault: Path, root: Path) -> None:
    remember(ada, "heather", category="technical")
    lifecycle.change(ada, ME, vault_path=str(root / "second"))
    with pytest.raises(Invalid, match="is another agent's vault"):
        lifecycle.change(bob, ME, vault_path=str(vault))
    lifecycle.change(fresh(ada), ME, vault_path=str(vault))
    assert comparing.repair(fresh(ada)).left == ()


def test_after_an_erasure_it_is_nobodys_and_gone(ada: Agent, bob: Agent, vault: Path) -> None:
    remember(ada, "heather", category="technical")
    erasure.erase(ada, removal_requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    assert not vault.exists()
    assert not Vault.objects.exclude(fault="").exists()
    lifecycle.change(bob, ME, vault_path=str(vault))
    remember(fresh(bob), "moss", category="technical")
    assert len(memories(vault)) == 1


def test_what_is_tried_out_leaves_nothing(ada: Agent, root: Path) -> None:
    (root / "mine").mkdir()
    there = sorted(root.rglob("*"))
    base.require_usable(str(root / "a" / "b"), ada)
    assert base.alternatives(ada) == [str(root / "acme" / "ada")]
    base.require_usable(str(root / "mine"), ada)
    assert sorted(root.rglob("*")) == there


def test_a_path_is_kept_and_told_without_links(ada: Agent, root: Path) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to(root / "real")
    after = lifecycle.change(ada, ME, vault_path=str(root / "link" / "notes"))
    assert after.vault_path == last_entry(ada).detail["changed"]["vault_path"] == str(root / "real" / "notes")
    again = lifecycle.change(after, ME, vault_path=str(root / "link" / "notes"))
    assert again.audit_seq == after.audit_seq


def test_what_is_agreed_to_is_what_was_proposed(ada: Agent, root: Path) -> None:
    made = proposals.propose(ada, OWNER, vault_path=str(root / "acme" / "notes"))
    (root / "acme").mkdir()
    (root / "other").mkdir()
    (root / "acme" / "notes").symlink_to(root / "other")
    with pytest.raises(Invalid, match="leads to another folder"):
        proposals.accept(fresh(ada), made.number, ME)


def test_a_link_put_in_its_place_leads_nowhere(ada: Agent, vault: Path, root: Path) -> None:
    remember(ada, "heather", category="technical")
    (root / "other").mkdir()
    vault.rename(root / "aside")
    vault.symlink_to(root / "other")
    remember(fresh(ada), "moss", category="technical")
    assert list((root / "other").iterdir()) == []
    assert Vault.objects.get(agent_id=ada.pk).fault == "a symlink points elsewhere"


@pytest.mark.database
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.django_db(transaction=True)
def test_of_agents_who_want_one_place_at_once_one_has_it(root: Path, settings: Settings, below: bool) -> None:
    """On SQLite transactions are alone; PostgreSQL would let both look first, and then both write."""
    made = [lifecycle.create("acme", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(4)]
    paths = [root / "shared" / "in" if below and n % 2 else root / "shared" for n in range(4)]
    start, refused = Barrier(4), []

    def take(agent: Agent, path: Path) -> None:
        try:
            start.wait(20)
            lifecycle.change(agent, ME, vault_path=str(path))
        except Invalid as problem:
            refused.append(problem.field)
        finally:
            connections.close_all()

    threads = [Thread(target=take, args=each) for each in zip(made, paths, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert refused == ["vault_path"] * 3
    assert Agent.objects.exclude(vault_path="").count() == 1


def test_a_link_in_the_place_of_its_mark_leads_nowhere_either(ada: Agent, vault: Path, root: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    (root / "other").mkdir()
    (vault / ".palimpsest").unlink()
    (vault / ".palimpsest").symlink_to(root / "other" / "mark")
    remember(fresh(ada), "Moss is green.", category="technical")
    assert list((root / "other").iterdir()) == []
    assert "link" in Vault.objects.get(agent=ada).fault
    (vault / ".palimpsest").unlink()
    writer.catch_up()
    assert len(list(vault.rglob("0*.md"))) == 2


def test_its_mark_is_a_file_or_nothing_is_done(ada: Agent, vault: Path) -> None:
    (vault / ".palimpsest").unlink(missing_ok=True)
    os.mkfifo(vault / ".palimpsest")
    remember(fresh(ada), "Moss is green.", category="technical")
    assert Vault.objects.get(agent=ada).fault == "its mark is not a file"
    with pytest.raises(FileFault, match="is not a file"):
        comparing.repair(fresh(ada))
