"""A vault and memory files keep out of one another's way, whichever comes first, and whoever's they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.agents import lifecycle, rule_changes
from memory.errors import CategoryDisabled, Invalid, MemoryDisabled
from memory.models import Agent, Vault
from memory.vault import sealed, writer
from tests.steps import ME, PERSON, fresh, remember, says
from tests.vault.tree import the_one

pytestmark = pytest.mark.database


@pytest.fixture
def bob(ada: Agent) -> Agent:
    return lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]


@pytest.mark.parametrize("inside", ["index.md", "common/technical/000001.md"])
def test_no_memory_file_lies_in_anothers_vault(bob: Agent, vault: Path, inside: str) -> None:
    with pytest.raises(Invalid, match="memory_path"):
        lifecycle.change(bob, ME, memory_path=str(vault / inside))
    assert fresh(bob).memory_path == ""


def test_nor_by_a_link(bob: Agent, vault: Path) -> None:
    vault.mkdir(exist_ok=True)
    link = vault.with_name("link")
    link.symlink_to(vault)
    with pytest.raises(Invalid, match="memory_path"):
        lifecycle.change(bob, ME, memory_path=str(link / "log.md"))


def test_nor_in_its_own(ada: Agent, vault: Path) -> None:
    with pytest.raises(Invalid, match="memory_path"):
        lifecycle.change(ada, ME, memory_path=str(vault / "index.md"))


@pytest.mark.parametrize("whose", ["bob", "ada"])
def test_nor_does_a_vault_take_one_in(ada: Agent, bob: Agent, root: Path, whose: str) -> None:
    lifecycle.change({"ada": ada, "bob": bob}[whose], ME, memory_path=str(root / "logs" / "log.md"))
    with pytest.raises(Invalid, match="vault_path"):
        lifecycle.change(fresh(ada), ME, vault_path=str(root / "logs"))
    assert fresh(ada).vault_path == ada.vault_path


def test_a_fault_nobody_foresaw_is_noted_and_the_edit_stands(
    ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(writer.Files, "take", fails)
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    assert says(ada, number).content == "The ferry leaves at 14:30."
    assert Vault.objects.get().fault == "RuntimeError"
    monkeypatch.undo()
    writer.catch_up()
    assert (the_one(vault).exists(), Vault.objects.get().fault) == (True, "")


def test_what_is_off_is_not_opened(ada: Agent, vault: Path) -> None:
    remember(ada, "sesame", category="personal")
    data = the_one(vault).read_bytes()
    rule_changes.set_one(ada, PERSON, "memory_rules.categories.personal.enabled", "false")
    with pytest.raises(CategoryDisabled):
        sealed.open_file(fresh(ada), data)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    with pytest.raises(MemoryDisabled):
        sealed.open_file(fresh(ada), data)
