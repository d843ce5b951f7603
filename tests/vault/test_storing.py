"""Storing with a vault: seed 004's "Memory Storage Process", step by step; what is confirmed is there."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory.agents import lifecycle
from memory.models import Agent, VaultFile
from memory.vault import base, disk, writer
from memory.writing import operations
from tests.commands.calling import failed, run
from tests.rules.talking import rules as command
from tests.steps import ME, PERSON, fresh, remember, set_rule
from tests.vault.conftest import KEY
from tests.vault.tree import memories, tree

REMOTE = "https://jo:sesame@git.example.org/acme/site.git"
BRAND = "Generated with [Claude Code](https://claude.com/claude-code)"
OF_SITE = "projects/git.example.org-acme-site-b6f0312e"


@dataclass(frozen=True)
class Begun:
    """An agent without a vault, its key at hand, and the folder of a git repository that one stands in."""

    agent: Agent
    site: Path


@pytest.fixture
def begun(root: Path, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Begun:
    made, key = lifecycle.create("acme", "bea", model="builtin/dedupe", actor=KEY)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    site = root / "site"
    site.mkdir()
    for args in (["init", "-q"], ["remote", "add", "origin", REMOTE]):
        subprocess.run(["git", *args], cwd=site, check=True, capture_output=True)
    monkeypatch.chdir(site)
    return Begun(made, site)


rules = partial(command, agent="acme/bea")


def stored(*args: str) -> Path:
    """The file that is confirmed."""
    file = rules("store", *args).json["file"]
    assert file, "no file is confirmed"
    return Path(file)


# --- where it is


@pytest.mark.parametrize(
    ("given", "where"),
    [("./memory", "site/memory"), ("../memory", "memory"), ("{root}/else/where", "else/where"), ("~/notes", "notes")],
)
@pytest.mark.parametrize("is_set", [True, False])
def test_files_are_in_the_configured_location(
    begun: Begun, root: Path, monkeypatch: pytest.MonkeyPatch, given: str, where: str, is_set: bool
) -> None:
    """`storage.base_path`, or what `--vault` says: relative to the project, absolute, or in the home."""
    monkeypatch.setenv("HOME", str(root))
    path = given.format(root=root)
    if is_set:
        set_rule(begun.agent, PERSON, "storage.base_path", path)
    ran = rules("init", "--vault", *([] if is_set else [path]))
    assert ran.code == 0, ran.err
    file = stored("Retry three times.", "--category", "technical")
    assert file == root / where / "common/technical/000001.md"
    assert "Retry three times." in file.read_text()


def test_a_place_without_room_is_told(begun: Begun, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROOM", 10**18)
    failed(rules("init", "--json", "--vault", str(root / "vault")), 1, "are needed")
    assert fresh(begun.agent).vault_path == ""


# --- storing, step by step


def test_the_storage_process(begun: Begun, root: Path) -> None:
    """Project, category, routing, version, migration notes, neutrality, path, folders, file, template, confirmation
    and indexes of one memory."""
    assert rules("init", "--vault").code == 0
    vault = begun.site / "memory"
    set_rule(begun.agent, PERSON, "version", "1.2.0")
    said = ("--context", "Builds were slow.", "--decision", "Cache them.", "--outcome", f"Twice as quick.\n{BRAND}")
    ran = rules("store", "Builds repeat themselves.", "--category", "contextual", *said, "--tag", "build")
    path = f"{OF_SITE}/contextual/000001.md"
    assert ran.json == {
        "id": 1,
        "category": "contextual",
        "project": "git.example.org/acme/site",
        "masked": 0,
        "file": str(vault / path),
    }
    text = (vault / path).read_text()
    head, _, body = text.partition("\n\n## Context\n")
    assert head.splitlines()[2:4] == ["## Metadata", "- **Version**: 1.2.0"]
    assert "- **Category**: contextual" in head
    assert head.endswith("- **Project**: git.example.org/acme/site\n- **Not recorded**: Migration Notes")
    assert body == (
        "Builds were slow.\n\n## Understanding\nBuilds repeat themselves.\n\n## Decision/Action\nCache them.\n\n"
        "## Outcome\nTwice as quick.\n\n## Migration Information\n"
        "- **Not recorded**: Source System, Migration Date, Compatibility, Transformations Applied\n"
        "\n## Related Memories\nNot recorded\n\n## Tags\nbuild\n"
    )
    assert "sesame" not in "".join(map(str, tree(vault))) + text  # the remote's password
    line = "[000001-builds-repeat-themselves](contextual/000001.md)"
    assert {"index.md", f"{OF_SITE}/index.md"} <= set(tree(vault))
    assert (vault / OF_SITE / "index.md").read_text().count(line) == 1
    assert f"- {OF_SITE}: [{OF_SITE}/index.md]" in (vault / "index.md").read_text()


CATEGORIES = {
    "technical": "common/technical",
    "credentials": "private/credentials",
    "session": f"{OF_SITE}/sessions",
    "git_history": f"{OF_SITE}/git_history",
}


def test_folders_are_made_where_there_are_none(begun: Begun) -> None:
    assert rules("init", "--vault").code == 0
    vault = begun.site / "memory"
    for category, folder in CATEGORIES.items():
        assert not (vault / folder).exists()
        file = stored("Something.", "--category", category)
        assert file.parent == vault / folder
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_what_is_confirmed_is_there_to_be_read(begun: Begun) -> None:
    assert rules("init", "--vault").code == 0
    for number in range(1, 4):
        file = stored(f"Fact {number} is a fact.", "--category", "technical")
        assert file.is_file()
        assert file.suffix == ".md"
        assert f"## Understanding\nFact {number} is a fact.\n" in file.read_text()
        assert str(file.relative_to(begun.site / "memory")) in (begun.site / "memory/index.md").read_text()


TAKEN: list[Callable[[bytes], bytes]] = [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data[::-1]]


@pytest.mark.parametrize("writes", TAKEN, ids=["half", "nothing", "other words"])
def test_what_was_not_written_as_it_was_said_is_not_confirmed(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, writes: Callable[[bytes], bytes]
) -> None:
    """A disk that takes less than it says it took; the memory is there, and its file is made up for."""
    assert rules("init", "--vault").code == 0
    write = disk.write
    with monkeypatch.context() as broken:
        broken.setattr(disk, "write", lambda number, data: write(number, writes(data)))
        ran = rules("store", "Retry three times.", "--category", "technical")
    assert (ran.json["id"], ran.json["file"]) == (1, None)
    assert "the file could not be written" in ran.err
    assert "the vault could not be written: changed right after it was written" in rules("status").out
    assert rules("index").code == 0
    assert rules("status", "--json").json["vault"]["fault"] == ""
    [number] = VaultFile.objects.values_list("number", flat=True)
    file = writer.file_of(fresh(begun.agent), number)
    assert file is not None
    assert "Retry three times." in Path(file).read_text()


# --- credentials


NAMES = {
    "000001.md": (),
    "openai-api-key.md": ("--service", "OpenAI", "--credential", "api-key"),
    "openai-api-key-000003.md": ("--service", "OpenAI", "--credential", "api-key"),
    "project-a-aws-key.md": ("--service", "AWS", "--project", "project-a"),
    "common-x-key.md": ("--service", "../../common/x"),
}


@pytest.mark.parametrize("location", ["private", "common"])
def test_a_credential_is_always_private_and_sealed(begun: Begun, location: str) -> None:
    """Also where another place stands in the rules, which no road leads to."""
    forged = {"memory_rules": {"categories": {"credentials": {"storage_location": location}}}}
    Agent.objects.update(rules=json.dumps(forged))
    assert rules("init", "--vault").code == 0
    vault = begun.site / "memory"
    for name, args in NAMES.items():
        file = stored("sesame", "--category", "credentials", *args)
        assert file == vault / "private/credentials" / name
        assert not any("sesame" in (vault / path).read_text() for path in tree(vault))
        assert rules("show", str(file)).out == "sesame\n"
        assert rules("show", str(file.relative_to(vault))).out == "sesame\n"


# --- by other roads


def test_a_memory_of_another_road_is_a_file_too(begun: Begun) -> None:
    """By the store, as the API has it; by an import; by a recording."""
    assert rules("init", "--vault").code == 0
    remember(fresh(begun.agent), "One.", category="technical")
    line: dict[str, Any] = {"content": "Two.", "category": "technical"}
    assert run("import_memories", "acme/bea", "-", stdin=json.dumps(line).encode()).code == 0
    assert rules("record", "--prompt", "From now on always use tabs.", "--project", "shop").code == 0
    vault = begun.site / "memory"
    assert [path.rpartition("/")[0] for path in memories(vault)] == ["common/technical"] * 2 + [
        "projects/shop/interactions"
    ]
    operations.discard(fresh(begun.agent), [1], ME)
    assert memories(vault)[0] == ".discarded/common/technical/000001.md"
