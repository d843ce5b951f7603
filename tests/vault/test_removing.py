"""What is removed for good is in no file of the vault either."""

from __future__ import annotations

from pathlib import Path

from audit.trail import Actor
from memory import erasure, redaction, requests, store
from memory.models import Agent
from memory.rules import switches
from memory.rules.rows import Vault, VaultFile
from memory.vault import following
from tests.steps import ME, PERSON, fresh, problems, remember
from tests.vault.tree import differ, memories, tree

OWNER = Actor.person("owner@acme.test")


def redact(agent: Agent, *numbers: int) -> None:
    asked = requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number
    redaction.redact(agent, asked, ME)


def words(vault: Path) -> str:
    return "".join(path + (vault / path).read_text() for path in tree(vault))


def test_what_is_redacted_is_in_no_file(ada: Agent, vault: Path) -> None:
    one, two, three = remember(ada, "heather blooms", "heather fades", "moss grows", category="technical")
    store.discard(ada, [two], PERSON)
    copy = vault / "common" / "copy.md"
    copy.write_bytes((vault / memories(vault)[1]).read_bytes())
    redact(ada, one, two)
    assert "heather" not in words(vault)
    assert [path.split("/")[-1] for path in memories(vault)] == ["000003-moss-grows.md"]
    assert list(VaultFile.objects.values_list("number", flat=True)) == [three]
    assert differ(ada) == []


def test_also_while_memory_is_off(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    switches.change(ada, PERSON, enabled=False)
    redact(fresh(ada), number)
    assert "heather" not in words(vault)


def test_also_what_somebody_wrote_to(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    path = vault / memories(vault)[0]
    path.write_text(path.read_text() + "more heather")
    redact(ada, number)
    assert "heather" not in words(vault)


def test_an_erased_agents_files_are_removed_and_others_stay(ada: Agent, vault: Path) -> None:
    remember(ada, "heather blooms", category="technical")
    remember(ada, "heather fades", category="topic", project="site")
    (vault / "common" / "mine.md").write_text("mine")
    assert erasure.preview(ada).vault == str(vault)
    erasure.erase(ada, requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    assert tree(vault) == ["common/mine.md"]
    assert (fresh(ada).vault_path, Vault.objects.count(), VaultFile.objects.count()) == ("", 0, 0)
    assert problems(ada) == []


def test_an_erasure_that_finds_no_disk_is_made_up_for(ada: Agent, vault: Path) -> None:
    remember(ada, "heather blooms", category="technical")
    aside = vault.with_name("elsewhere")
    vault.rename(aside)
    vault.write_text("no folder")
    erasure.erase(ada, requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    vault.unlink()
    aside.rename(vault)
    following.catch_up()
    assert tree(vault) == []
    assert fresh(ada).vault_path == ""


def test_an_erasure_removes_what_somebody_made_of_its_files(ada: Agent, vault: Path, as_nobody: None) -> None:
    remember(ada, "heather blooms", "heather fades", category="technical")
    one, two = (vault / path for path in memories(vault))
    one.write_bytes(one.read_text().replace("heather", "h\xe9ather").encode("latin-1"))
    two.write_text("heather, and no word of whose")
    (vault / ".palimpsest-new-0123456789abcdef").write_bytes("heather \xe9".encode()[:-1])
    dated = vault / "common" / "technical" / "20261123-notes.md"
    dated.write_text("mine as well")
    closed = vault / "common" / "mine.txt"
    closed.write_text("mine")
    closed.chmod(0)
    erasure.erase(ada, requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    assert tree(vault) == ["common/mine.txt", "common/technical/20261123-notes.md"]
    assert fresh(ada).vault_path == ""
