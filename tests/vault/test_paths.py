"""Where a vault may be, and the names of its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import Invalid
from memory.models import Agent
from memory.writing import operations
from tests.steps import ME, PERSON, fresh
from tests.vault.conftest import KEY
from tests.vault.tree import assert_repaired, fault, ferry, memory_files, tree

FIRST_FILE = "common/technical/000001.md"


def move_vault(agent: Agent, path: Path | str) -> str:
    return lifecycle.change(fresh(agent), PERSON, vault_path=str(path)).vault_path


WRONG = {
    "VAULT_ROOTS": ["../outside", "/etc/vault", ".", "link-out/vault"],
    "not a valid path": ["~nobody-here/vault", "x" * 1_001, "/".join(["x" * 300] * 3)],
    "control": ["a\0b", "a\nb", "a\u2028b", "\udc80"],
    "space": [" ", "notes /x"],
    "bytes": ["/".join(["\u00e9" * 100] * 5)],
    "\\.git folder": [".git/notes", "repo/.git"],
}


def test_where_a_vault_may_be(ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "link-out").symlink_to("/tmp")  # noqa: S108
    before = fresh(ada).vault_path
    for path, why in [(path, why) for why, paths in WRONG.items() for path in paths]:
        with pytest.raises(Invalid, match=why) as caught:
            move_vault(ada, path)
        assert (caught.value.field, fresh(ada).vault_path) == ("vault_path", before)
    monkeypatch.setenv("HOME", str(root / "home"))
    assert move_vault(ada, "some/../other//vault/") == str(root / "other" / "vault")
    assert move_vault(ada, "~/vault") == str(root / "home" / "vault")


def test_a_vault_does_not_overlap_another_vault(ada: Agent, root: Path, settings: Settings) -> None:
    """Otherwise a redaction for one agent searches the files of the other."""
    settings.VAULT_ROOTS = [str(root.parent)]
    ferry(ada)
    (root / "link").symlink_to(root / "vault")
    for path in ("vault", "vault/below", ".", "", "link", "link/below", "vault/../vault"):
        with pytest.raises(Invalid, match="overlaps with"):
            lifecycle.create("acme", "eve", model="builtin/dedupe", actor=KEY, vault_path=f"{root}/{path}")
    assert len(memory_files(root / "vault")) == 1


def test_a_vault_does_not_overlap_a_memory_file(ada: Agent, vault: Path, root: Path, settings: Settings) -> None:
    bob = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]
    vault.mkdir(exist_ok=True)
    link = root / "link"
    link.symlink_to(vault)
    for agent in (bob, ada):
        for inside in (vault / "index.md", vault / FIRST_FILE, link / "log.md"):
            with pytest.raises(Invalid, match="memory_path"):
                lifecycle.change(agent, ME, memory_path=str(inside))
    for agent in (bob, ada):
        lifecycle.change(fresh(agent), ME, memory_path=str(root / agent.slug / "log.md"))
        with pytest.raises(Invalid, match="vault_path"):
            move_vault(ada, root / agent.slug)
    settings.MEMORY_FILE_ROOTS = settings.MEMORY_ROOTS = [str(root)]
    Agent.objects.filter(pk=bob.pk).update(memory_path=str(root / "eve" / "MEMORY.md"))
    with pytest.raises(Invalid, match="overlaps with"):
        move_vault(ada, root / "eve")
    assert fresh(ada).vault_path == ada.vault_path


# --- names


HOSTILE = [
    *("../../../etc/passwd", "/etc/passwd", "..", "CON", "aux.md", "a\\b:c*d?e|f<g>h", "a\x00b", "\x1b[31mred\x07"),
    *("a\u2028b\u2029c\x85d", "\u202egnp.exe", "\N{SNOWMAN}" * 300, "İstanbul", "ı"),
    *("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"),
    *(".palimpsest", ".hidden", "index", "~root", "-rf", "$(reboot)", "]( javascript:alert(1)"),
    "a very long title " * 20,
]


@pytest.mark.parametrize("readable", [False, True])
def test_hostile_texts_make_safe_file_names(ada: Agent, root: Path, vault: Path, readable: bool) -> None:
    rule_changes.make(ada, PERSON, Wanted(rules={"storage": {"readable_names": readable}}), side=ME)
    texts = [text.replace("\0", "") for text in HOSTILE]
    for category in ("technical", "topic", "credentials"):
        for text in texts:
            tag = text[:50]
            tags = [f"topic:{tag}", f"service:{tag}", f"credential:{tag}"]
            first = ferry(fresh(ada), text, category=category, tags=tags)
            ferry(ada, text, category=category, tags=[f"topic:{tag.upper()}", f"service:{tag.upper()}"])
            operations.revise(ada, first, ME, content=f"{text} again")
    assert fault(ada) == ""
    assert [path.name for path in root.iterdir()] == ["vault"]
    for name in (Path(path).name for path in memory_files(vault)):
        assert name.isprintable()
        assert len(name.encode()) <= 120
        assert name.endswith(".md")
        assert not name.startswith((".", "-"))
    assert len({path.casefold() for path in memory_files(vault)}) == 3 * 2 * len(texts)
    assert_repaired(ada)


def test_each_project_has_its_own_folder(ada: Agent, root: Path, vault: Path) -> None:
    for project in ("..", "../x", "a/../../b", "/etc", "a\nb", "a b", "\0", "x" * 101):
        with pytest.raises(Invalid, match="project"):
            ferry(ada, category="contextual", project=project)
    assert tree(vault) == []
    projects = ["index.md", "A", "x" * 100, "con", "a//b", "a/./b", "host/p.git"]
    for project in (*projects, *(each.swapcase() for each in projects)):
        ferry(ada, f"Of {project}.", category="contextual", project=project)
    assert fault(ada) == ""
    assert [path.name for path in root.iterdir()] == ["vault"]
    folders = [Path(path).parts for path in memory_files(vault)]
    assert {(each[0], each[2], len(each)) for each in folders} == {("projects", "contextual", 4)}
    assert len({each[1].casefold() for each in folders}) == 2 * len(projects)
    assert_repaired(ada)
