"""The commands `index` and `status`, and the index pages."""

import os
import shutil
from pathlib import Path

import pytest

from memory.agents import rule_changes
from memory.models import Agent
from tests.commands.calling import failed
from tests.rules.recordings import at_a_terminal, rules
from tests.steps import PERSON, fresh, says
from tests.vault.site import agent_without_vault, repository, site_vault  # noqa: F401  fixtures
from tests.vault.tree import edit, memory_files, refuse


def store(text: str, *args: str) -> Path:
    """Store a memory. Returns its file."""
    return Path(rules("store", text, *(args or ("--category", "technical"))).json["file"])


def test_index_lists_repairs_and_keeps_differences(ada: Agent, vault: Path) -> None:
    one, two = store("The ferry leaves at 14:30."), store("The ferry is blue.")
    edit(one, "14:30", "16:45")
    two.unlink()
    found = rules("index", "--check", "--json").json["differences"]
    assert [(each["id"], each["kind"]) for each in found] == [(1, "edited"), (2, "missing")]
    assert "common/technical/000001.md  was changed by hand; --repair keeps it" in rules("index", "--check").out
    ran = rules("index", "--json").json
    assert (ran["mended"], ran["indexed"], two.exists()) == (2, 2, True)
    kept = ".discarded/common/technical/000001-found-1.md"
    assert ran["kept"] == [{"from": "common/technical/000001.md", "to": kept}]
    assert "16:45" in (vault / kept).read_text()
    assert "14:30" in one.read_text()
    assert says(ada, 1).content == "The ferry leaves at 14:30."
    one.write_text(one.read_text() + "\nscribbled")
    assert "is kept as .discarded/common/technical/000001-found-2.md" in rules("index").err
    ran = rules("index", "--check")
    assert (ran.code, ran.out.count("is a copy that the vault does not need")) == (0, 2)


def test_files_of_another_version_are_listed_and_repaired(ada: Agent, vault: Path) -> None:
    path = store("The ferry")
    assert "1 file, in sync with its silo" in rules("status").out
    assert rules("settings", "version", "1.1.0").code == 0
    older = "1 file of another version: 'manage.py vault index acme/ada' writes it again"
    assert rules("status").out.splitlines()[-1] == older
    assert "- **Version**: 1.0.0" in path.read_text()
    assert rules("index", "--repair", "--json").json["mended"] == 1
    assert "- **Version**: 1.1.0" in path.read_text()
    assert rules("index", "--check", "--json").json == {"differences": [], "unknown": 0}


def test_readable_names_need_the_agents_key(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store("Green tea")
    store("sesame", "--category", "personal")
    store("x", "--category", "keys", "--service", "Mail")
    private = ["private/keys/mail-key.md", "private/personal/000002.md"]
    key = os.environ["PALIMPSEST_AGENT_KEY"]
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    failed(rules("settings", "storage.readable_names", "true"), 1, "Only the agent's side")
    assert rules("init", "--readable-names").code == 2
    assert memory_files(vault) == ["common/technical/000001.md", *private]
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    assert rules("init", "--readable-names").code == 0
    assert memory_files(vault) == ["common/technical/000001-green-tea.md", *private]
    assert "[000001-green-tea](common/technical/000001" in (vault / "index.md").read_text()
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    assert rules("settings", "storage.readable_names", "false").code == 0
    assert memory_files(vault) == ["common/technical/000001.md", *private]
    assert rules("index", "--check").code == 0


def test_without_a_vault_commands_say_how_to_create_one(ada: Agent, site: Path) -> None:
    ran = rules("store", "The ferry", "--category", "technical")
    assert ran.json["file"] is None
    assert "has no file: the agent has no vault. To create one, run manage.py project init acme/ada --vault" in ran.err
    assert "no vault. To create one" in rules("record", "--prompt", "Which tea?").err
    assert "'manage.py project init acme/ada --vault' creates a vault" in rules("status").out
    failed(rules("index"), 2, "has no vault")


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_the_exit_code_of_index_reports_differences(ada: Agent, vault: Path, args: list[str]) -> None:
    store("The ferry").unlink()
    ran = rules("index", "--check", *args)
    assert (ran.code, len(ran.out.splitlines()), "error" in ran.err) == (1, 1, False)
    with refuse("stage", lambda path: path.name != "index.md"):
        assert rules("index", *args).code == 1
    assert [rules("index", *args).code, rules("index", "--check").code] == [0, 0]


def test_names_of_files_need_the_agents_key(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (["Heather blooms", "--category", "technical"], ["x", "--category", "keys", "--service", "Heather"]):
        path = store(*args)
        path.with_name("heather.md").write_bytes(path.read_bytes())
        path.write_text(path.read_text() + "\nmore")
    names = (["index", "--check"], ["index"], ["init"])
    commands = [(*name, *args) for name in names for args in ([], ["--json"])]
    (vault / "private" / "index.md").write_text("mine")
    for command in commands:
        assert "heather" in rules(*command).out or command[0] == "init"
    (vault / "private" / "index.md").write_text("mine")
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    for command in commands:
        ran = rules(*command)
        assert "heather" not in ran.out + ran.err
        assert "common/technical/…" in ran.out or command[0] == "init"


@pytest.mark.parametrize("args", [[], ["--check"], ["--repair"]])
def test_index_asks_to_turn_memory_on(ada: Agent, vault: Path, args: list[str]) -> None:
    edit(store("The ferry"), "ferry", "boat")
    (vault / "index.md").unlink()
    rule_changes.change(ada, PERSON, enabled=False)

    def state() -> object:
        return fresh(ada).audit_seq, {path: path.read_bytes() for path in vault.rglob("*.md")}

    before = state()
    ran = rules("index", *args)
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    declined = at_a_terminal("n\n", "index", *args)
    assert (declined.code, rule_changes.QUESTION in declined.err) == (0, True)
    assert state() == before
    agreed = at_a_terminal("y\n", "index", *args)
    assert (bool(agreed.out), fresh(ada).memory_enabled) == (True, True)


def test_index_writes_a_removed_vault_again(ada: Agent, vault: Path) -> None:
    store("The ferry")
    assert rules("status", "--json").json["vault"]["is_there"] is True
    shutil.rmtree(vault)
    gone = f"vault {vault}: the folder is gone; 'manage.py vault index acme/ada' writes 1 file again"
    assert gone in rules("status").out
    assert rules("status", "--json").json["vault"]["is_there"] is False
    assert not vault.exists()
    rules("index")
    assert "the folder is gone" not in rules("status").out


def test_commands_that_record_report_the_file(ada: Agent, vault: Path) -> None:
    recorded = [
        rules("record", "--prompt", "Which tea?", "--session", "monday").json,
        rules("session", "end").json,
        rules("topic", "Tea", "--insight", "hot").json,
    ]
    assert [each["id"] for each in recorded] == [1, 2, 3]
    for each in recorded:
        assert f": {each['id']}\n" in Path(each["file"]).read_text()
        assert Path(each["file"]).is_relative_to(vault)


@pytest.mark.parametrize("command", [("index",), ("index", "--repair"), ("init",)])
def test_duplicate_lines_of_an_index_are_removed(ada: Agent, vault: Path, command: tuple[str, ...]) -> None:
    store("Green tea")
    store("Black tea", "--category", "contextual")
    pages = [vault / "index.md", *vault.glob("projects/*/index.md")]
    before = [page.read_text() for page in pages]
    for page, text in zip(pages, before, strict=True):
        page.write_text(text + text.splitlines(keepends=True)[-1] * 2)
    assert rules(*command).code == 0
    after = [sorted(page.read_text().splitlines()) for page in pages]
    assert (len(pages), after) == (2, [sorted(text.splitlines()) for text in before])
