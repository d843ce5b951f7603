"""The seed's "Memory Storage Process" with a vault, step by step. A confirmed file exists (seed 004)."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.access.authentication import agent_key, new_request
from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.consent import claims
from memory.management import initialization
from memory.models import Agent, VaultFile
from memory.vault import base, disk, writer
from memory.writing import operations
from tests.api.calling import Caller
from tests.commands.calling import run
from tests.conftest import OPERATOR
from tests.rules.recordings import rules
from tests.steps import ME, PERSON, fresh, remember, set_rule, signed_update
from tests.vault.conftest import KEY
from tests.vault.site import PROJECT, agent_without_vault, repository, site_vault  # noqa: F401  fixtures
from tests.vault.tree import memory_files, tree

PROJECT_FOLDER = "projects/git.example.org-acme-site-b6f0312e"
ADVERTISEMENT = "Generated with [Claude Code](https://claude.com/claude-code)"


def store(*args: str) -> Path:
    """Store a memory. Returns the confirmed file."""
    file = rules("store", *args).json["file"]
    assert file, "no file is confirmed"
    return Path(file)


@pytest.mark.parametrize(
    ("path", "folder"),
    [("./memory", "site/memory"), ("../memory", "memory"), ("{root}/else/where", "else/where"), ("~/notes", "notes")],
)
@pytest.mark.parametrize("is_set", [True, False])
def test_files_are_in_the_configured_location(
    ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch, path: str, folder: str, is_set: bool
) -> None:
    """The setting `storage.base_path`, or the option `--vault`: a relative, absolute or home path."""
    monkeypatch.setenv("HOME", str(root))
    path = path.format(root=root)
    if is_set:
        set_rule(ada, PERSON, "storage.base_path", path)
    ran = rules("init", "--yes", "--vault", *([] if is_set else [path]))
    assert ran.code == 0, ran.err
    file = store("Retry three times.", "--category", "technical")
    assert file == root / folder / "common/technical/000001.md"
    assert "Retry three times." in file.read_text()


def test_no_vault_begins_if_only_the_steward_may_consent_meanwhile(
    ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = initialization.agents_side

    def late(agent: Agent) -> Any:
        lifecycle.change(fresh(agent), OPERATOR, steward="sue@acme.test", is_steward_only=True)
        return original(agent)

    monkeypatch.setattr(initialization, "agents_side", late)
    ran = rules("init", "--yes", "--vault", str(root / "vault"))
    assert (ran.code != 0, "steward" in ran.err, fresh(ada).vault_path) == (True, True, "")


def test_a_disk_without_space_is_refused(ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROOM", 10**18)
    ran = rules("init", "--yes", "--json", "--vault", str(root / "vault"))
    assert (ran.code, "are needed" in ran.err, fresh(ada).vault_path) == (1, True, "")


def test_the_storage_process(ada: Agent, vault: Path) -> None:
    """Project, category, routing, version, migration notes, neutrality, path, folders, file, template, confirmation
    and indexes of one memory."""
    set_rule(ada, PERSON, "version", "1.2.0")
    sections = ("--context", "Builds were slow.", "--decision", "Cache them.")
    outcome = ("--outcome", f"Twice as quick.\n{ADVERTISEMENT}")
    ran = rules("store", "Builds repeat.", "--category", "contextual", *sections, *outcome, "--tag", "build")
    path = f"{PROJECT_FOLDER}/contextual/000001.md"
    confirmed = {"id": 1, "category": "contextual", "project": PROJECT, "masked": 0, "file": str(vault / path)}
    assert ran.json == confirmed
    text = (vault / path).read_text()
    head, _, body = text.partition("\n\n## Context\n")
    assert head.splitlines()[2:4] == ["## Metadata", "- **Version**: 1.2.0"]
    assert "- **Category**: contextual" in head
    assert head.endswith(f"- **Project**: {PROJECT}\n- **Not recorded**: Migration Notes")
    assert body == (
        "Builds were slow.\n\n## Understanding\nBuilds repeat.\n\n## Decision/Action\nCache them.\n\n"
        "## Outcome\nTwice as quick.\n\n## Migration Information\n"
        "- **Not recorded**: Source System, Migration Date, Compatibility, Transformations Applied\n"
        "\n## Related Memories\nNot recorded\n\n## Tags\nbuild\n"
    )
    assert "sesame" not in "".join(tree(vault)) + text  # the password in the address of the remote
    assert {"index.md", f"{PROJECT_FOLDER}/index.md"} <= set(tree(vault))
    assert (vault / PROJECT_FOLDER / "index.md").read_text().count("[000001-builds-repeat](contextual/000001.md)") == 1
    assert f"- {PROJECT_FOLDER}: [{PROJECT_FOLDER}/index.md]" in (vault / "index.md").read_text()


def test_missing_folders_are_created(ada: Agent, vault: Path) -> None:
    folders = {"technical": "common/technical", "credentials": "private/credentials"}
    folders |= {"session": f"{PROJECT_FOLDER}/sessions", "git_history": f"{PROJECT_FOLDER}/git_history"}
    for category, folder in folders.items():
        assert not (vault / folder).exists()
        file = store("Something.", "--category", category)
        assert file.parent == vault / folder
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_confirmed_file_can_be_read(ada: Agent, vault: Path) -> None:
    for number in range(1, 4):
        file = store(f"Fact {number} is a fact.", "--category", "technical")
        assert file.suffix == ".md"
        assert f"## Understanding\nFact {number} is a fact.\n" in file.read_text()
        assert str(file.relative_to(vault)) in (vault / "index.md").read_text()


WRONG: list[Callable[[bytes], bytes]] = [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data[::-1]]


@pytest.mark.parametrize("change", WRONG, ids=["half", "nothing", "other text"])
def test_a_file_that_reads_back_differently_is_not_confirmed(
    ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    """The disk writes other bytes without an error. The memory is stored, and its file is repaired."""
    write = disk.write
    with monkeypatch.context() as broken:
        broken.setattr(disk, "write", lambda number, data: write(number, change(data)))
        ran = rules("store", "Retry three times.", "--category", "technical")
    assert (ran.json["id"], ran.json["file"]) == (1, None)
    assert "the file could not be written" in ran.err
    assert "the vault could not be written: changed right after it was written" in rules("status").out
    assert rules("index").code == 0
    assert rules("status", "--json").json["vault"]["fault"] == ""
    [number] = VaultFile.objects.values_list("number", flat=True)
    assert "Retry three times." in Path(writer.files_of(fresh(ada), [number])[number]).read_text()


CREDENTIALS = {
    "000001.md": (),
    "openai-api-key.md": ("--service", "OpenAI", "--credential", "api-key"),
    "openai-api-key-000003.md": ("--service", "OpenAI", "--credential", "api-key"),
    "project-a-aws-key.md": ("--service", "AWS", "--project", "project-a"),
    "common-x-key.md": ("--service", "../../common/x"),
}


@pytest.mark.parametrize("location", ["private", "common"])
def test_a_credential_is_always_private_and_sealed(ada: Agent, vault: Path, location: str) -> None:
    """Also if the database contains rules that no interface accepts."""
    forged = {"memory_rules": {"categories": {"credentials": {"storage_location": location}}}}
    signed_update(Agent.objects.all(), rules=json.dumps(forged))
    for name, args in CREDENTIALS.items():
        file = store("sesame", "--category", "credentials", *args)
        assert file == vault / "private/credentials" / name
        assert not any("sesame" in (vault / path).read_text() for path in tree(vault))
        for path in (file, file.relative_to(vault)):
            assert rules("show", str(path)).out == "sesame\n"


def test_memories_from_every_interface_get_a_file(ada: Agent, vault: Path) -> None:
    """Memories of the store (which the API calls), of an import, and of a recording."""
    remember(fresh(ada), "One.", category="technical")
    line: dict[str, Any] = {"content": "Two.", "category": "technical"}
    assert run("import_memories", "acme/ada", "-", stdin=json.dumps(line).encode()).code == 0
    assert rules("record", "--prompt", "From now on always use tabs.", "--project", "shop").code == 0
    folders = ["common/technical", "common/technical", "projects/shop/interactions"]
    assert [path.rpartition("/")[0] for path in memory_files(vault)] == folders
    operations.discard(fresh(ada), [1], ME)
    assert memory_files(vault)[0] == ".discarded/common/technical/000001.md"


@pytest.mark.database
def test_a_key_that_ended_gets_no_path_with_words_of_a_later_text(
    ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = lifecycle.issue_key(fresh(ada), KEY)
    rule_changes.make(fresh(ada), PERSON, Wanted(rules={"storage": {"readable_names": True}}), side=ME)
    find = writer.files_or_reasons

    def after_a_claim(agent: Agent, numbers: Any) -> Any:
        with new_request():
            claims.exchange(agent_key(key), ME, keep=["vault_path"])
            operations.revise(fresh(ada), numbers[0], ME, content="A merger in May.")
        return find(agent, numbers)

    monkeypatch.setattr(writer, "files_or_reasons", after_a_claim)
    answer = Caller(key).post("memories", {"content": "Milk."})
    assert (answer.status, b"merger" in answer.content.lower()) == (401, False)
