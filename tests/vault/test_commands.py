"""The commands `init`, `store` and `show`, run by an operator or with the agent's key."""

import fcntl
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.consent import approval, requests
from memory.models import Agent
from tests.commands.calling import failed, run
from tests.conftest import OPERATOR
from tests.rules.recordings import at_a_terminal, rules
from tests.steps import ME, PERSON, fresh, last_entry, remember, says
from tests.vault.site import agent_without_vault, repository, site_vault  # noqa: F401  fixtures
from tests.vault.tree import block, erase, memory_files

STEPS = [
    *("Settings", "Switch", "Storage path", "Folders", "Repository", "Memories", "Git history", "Other systems"),
    *("Migration", "Migrated", "Git memories", "Index"),
]
TOKEN = "ghp_" + "a1B2" * 9
KEYS = ("a", "--category", "keys")
USER_INTERACTION = ("a", "--category", "user_interaction")


def init_steps(*args: str) -> dict[str, str]:
    return {each["step"]: each["found"] for each in rules("init", "--json", *args).json["steps"]}


def test_each_of_the_twelve_steps_is_reported(ada: Agent, site: Path) -> None:
    ran = rules("init", "--vault", "--yes")
    assert ran.code == 0, ran.err
    assert [line.split(". ", 1)[1].split(":")[0] for line in ran.out.splitlines()] == STEPS
    steps = init_steps()
    assert list(steps) == STEPS
    assert "git.example.org/acme/site" in steps["Repository"]
    assert ".gitignore" in steps["Repository"]
    assert steps["Storage path"] == f"{site / 'memory'}, which can be written to"


def test_a_new_vault_contains_existing_memories(ada: Agent, site: Path) -> None:
    rules("store", "The ferry leaves at 14:30.", "--category", "technical")
    assert init_steps("--vault", "--yes")["Index"].startswith("1 file listed")
    assert memory_files(site / "memory") == ["common/technical/000001.md"]
    entry = last_entry(ada)
    assert (entry.actor_kind, entry.detail["changed"]) == ("agent", {"vault_path": str(site / "memory")})


def test_without_the_agents_key_a_vault_is_proposed(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, other_key = lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", other_key)
    assert rules("init", "--vault", "--yes").code == 2
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    first, second = (init_steps("--vault", "--yes")["Storage path"] for _ in range(2))
    number = requests.open_proposal(fresh(ada)).number  # type: ignore[union-attr]
    assert "proposed to the agent's side" in first
    assert "already" in second
    assert all(f"/api/v1/proposals/{number}/accept" in text for text in (first, second))
    assert (fresh(ada).vault_path, (site / "memory").exists()) == ("", False)
    approval.approve(fresh(ada), number, ME)
    assert fresh(ada).vault_path == str(site / "memory")


def test_a_refused_vault_folder_suggests_another(ada: Agent, site: Path) -> None:
    ran = rules("init", "--vault", "/etc/memory", "--yes")
    assert (ran.code, ran.err.startswith("error: vault: must be inside")) == (2, True)
    assert str(site.parent / "acme" / "ada") in ran.err
    assert fresh(ada).vault_path == ""


def test_a_vault_without_a_folder_is_made_in_a_vault_root(
    ada: Agent, site: Path, settings: Settings, tmp_path: Path
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path / "vaults")]
    assert rules("init", "--vault", "--yes").code == 0
    assert fresh(ada).vault_path == str(tmp_path / "vaults" / "acme" / "ada")


def test_limits_of_requests_do_not_apply_to_the_agents_key(ada: Agent, site: Path, settings: Settings) -> None:
    settings.ASKS_PER_PERSON = settings.ASKS_PER_AGENT = 1
    for name in ("a", "b", "c"):
        assert rules("init", "--vault", name, "--yes").code == 0
    assert fresh(ada).vault_path == str(site / "c")


def test_a_vault_begins_only_after_the_question(ada: Agent, site: Path) -> None:
    question = f"This writes every memory in clear to {site / 'memory'}. Continue? (y/n)"
    assert "no vault was created" in init_steps("--vault")["Storage path"]  # the input is not a terminal
    for answer, folder in (("n\n", ""), ("", ""), ("y\n", str(site / "memory"))):
        assert fresh(ada).vault_path == ""
        assert question in at_a_terminal(answer, "init", "--vault").err
        assert fresh(ada).vault_path == folder
    create = ("create_agent", "acme/eve", "--model", "builtin/dedupe", "--vault", str(site / "eve"))
    assert run(*create).code == 2
    assert not Agent.objects.filter(slug="eve").exists()
    assert run(*create, "--yes").code == 0


def test_init_asks_before_it_moves_the_vault(ada: Agent, vault: Path, site: Path) -> None:
    assert "as before" in init_steps("--vault", "second")["Storage path"]  # the input is not a terminal
    for answer, folder in (("n\n", "memory"), ("y\n", "second")):
        assert "Its files stay" in at_a_terminal(answer, "init", "--vault", "second", "--json").err
        assert fresh(ada).vault_path == str(site / folder)
        assert (site / "second").exists() is (folder == "second")


def test_init_keeps_an_index_that_is_not_of_the_vault(ada: Agent, site: Path) -> None:
    (site / "memory").mkdir()
    (site / "memory" / "index.md").write_text("# Mine")
    kept = ".discarded/index-found-1.md"
    assert f"index.md does not belong to the vault, and is kept as {kept}" in init_steps("--vault", "--yes")["Index"]
    assert (site / "memory" / kept).read_text() == "# Mine"


def test_the_environment_can_name_the_project(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "other")
    assert "the project is other, as MEMORY_PROJECT says" in init_steps()["Repository"]
    monkeypatch.setenv("MEMORY_PROJECT", "..")
    assert failed(rules("record", "--prompt", "x"), 2).startswith("error: MEMORY_PROJECT: ")


def test_commands_refuse_an_erased_agent(ada: Agent, site: Path) -> None:
    erase(ada)
    for command in ("status", "init", "settings", "index", "disable"):
        failed(rules(command), 2, "erased")


def test_init_turns_memory_on_only_after_a_yes(ada: Agent, site: Path) -> None:
    rule_changes.change(ada, PERSON, enabled=False)
    ran = rules("init", "--json")
    assert (ran.code, ran.json["initialized"], fresh(ada).memory_enabled) == (0, False, False)
    assert init_steps("--yes")["Switch"] == "memory is on now"


def test_a_memory_of_a_project_category_gets_the_current_project(ada: Agent, vault: Path) -> None:
    ran = rules("store", "-", "--category", "contextual", stdin=b"By standard input")
    assert (ran.json["project"], says(ada, 1).content) == ("git.example.org/acme/site", "By standard input")
    for args, category, project in (
        (("--project", "shop"), "contextual", "shop"),
        (("--category", "topic"), "topic", "git.example.org/acme/site"),
        ((), "behavioral", ""),
    ):
        stored = rules("store", "Or another", *args).json
        assert (stored["category"], stored["project"]) == (category, project)
    assert rules("store", "--category", "user_interaction", "--context", "why").code == 0
    assert says(ada, 5).content == "## Context\nwhy"
    failed(rules("store", "a", "--category", "topic", "--context", "b"), 2, "Topic Definition, Evolution History")


def test_store_masks_secrets_except_in_private_categories(ada: Agent, vault: Path) -> None:
    ran = rules("store", f"The token is {TOKEN}", "--category", "technical")
    assert (ran.json["masked"], TOKEN in says(ada, 1).content) == (1, False)
    ran = rules("store", TOKEN, "--category", "credentials", "--service", "GitHub", "--credential", "token")
    assert (ran.json["masked"], says(ada, 2).content) == (0, TOKEN)
    assert Path(ran.json["file"]).name == "github-token.md"
    ran = rules("store", f"The token is {TOKEN}", "--category", "technical", "--tag", TOKEN)
    assert (ran.json["masked"], any(TOKEN in tag for tag in says(ada, 3).tags)) == (2, False)
    assert all(TOKEN not in path.read_text() for path in vault.rglob("*.md"))


def test_an_error_names_the_field(ada: Agent, vault: Path) -> None:
    rows = [
        (("store",), "content"),
        (("store", "a", "--understanding", "b"), "content"),
        (("store", "a", "--project", "../b"), "project"),
        (("store", "a", "--project", TOKEN), "project"),
        (("store", *KEYS, "--service", TOKEN), "service"),
        (("store", *KEYS, "--credential", TOKEN), "credential"),
        (("store", *KEYS, "--tag", f"service:{TOKEN}"), "tags"),
        (("store", "a", "--service", "aws"), "service"),
        (("store", "a", "--category", "personal", "--credential", "token"), "credential"),
        (("store", "a", "--category", "topic", "--context", "b"), "context"),
        (("store", "a", "--category", "session", "--decision", "b"), "decision"),
        (("store", "a", "--category", "git_history", "--related", "b"), "related"),
        (("store", *USER_INTERACTION, "--outcome", "b"), "outcome"),
        (("store", *USER_INTERACTION, "--context", "b"), "content"),
        (("store", "a", "--tag", "x" * 65), "tags"),
        (("store", "a" * 10_001), "content"),
        (("init", "--project-dir", "nowhere"), "project-dir"),
        (("record", "--prompt", "x", "--seconds", "-1"), "response_seconds"),
        (("record", "--prompt", "x", "--tool", "y" * 65), "tools"),
        (("topic", "Tea", "--question", "x" * 1_001), "questions"),
        (("retrieve", "tea", "--limit", "0"), "limit"),
        (("retrieve", "tea", "--max-tokens", "-1"), "max_tokens"),
        (("analyze_git", "--project-dir", "nowhere"), "project-dir"),
    ]
    for args, field in rows:
        assert failed(rules(*args), 2).startswith(f"error: {field}: "), args
    assert memory_files(vault) == []


def test_a_memory_is_stored_although_its_vault_cannot_be_written(ada: Agent, vault: Path) -> None:
    block(vault)
    ran = rules("store", "The ferry", "--category", "technical")
    assert (ran.code, ran.json["file"], says(ada, 1).content) == (0, None, "The ferry")
    assert "could not be written" in ran.err
    status = rules("status", "--json").json["vault"]
    assert (status["is_behind"], bool(status["fault"])) == (True, True)
    assert "the vault could not be written" in rules("status").out


def test_a_locked_vault_is_reported_and_the_memory_is_stored(ada: Agent, vault: Path) -> None:
    path = Path(rules("store", "The ferry", "--category", "technical").json["file"])
    path.write_text(path.read_text().replace("ferry", "boat"))
    with (vault / ".palimpsest").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        index, stored = rules("index"), rules("store", "Tea is hot", "--category", "technical")
        assert (index.code, "Try again" in index.err, rules("index", "--check").code) == (1, True, 1)
        assert (stored.code, stored.json["file"], "retries" in stored.err) == (0, None, True)
    assert rules("index").code == 0


def test_show_needs_the_agents_key(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules("store", "sesame", "--category", "personal")
    path = "private/personal/000001.md"
    assert rules("show", path).out == "sesame\n"
    assert [rules("show", other).code for other in (str(vault / "index.md"), "none.md")] == [2, 2]
    rule_changes.change(ada, PERSON, enabled=False)
    ran = rules("show", path)
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    ran = rules("show", path)
    assert (ran.code, "sesame" in ran.out + ran.err) == (2, False)


def test_show_escapes_control_characters_on_a_terminal_alone(ada: Agent, vault: Path) -> None:
    hostile = "gnp\u202e.exe\x1b[31m"
    remember(ada, hostile, category="personal")
    for is_terminal in (False, True):
        with mock.patch("memory.management.commands.vault.is_shown", return_value=is_terminal):
            assert (hostile in rules("show", "private/personal/000001.md").out) is not is_terminal


def test_init_marks_categories_that_are_off(ada: Agent, site: Path) -> None:
    remember(ada, "a", category="technical")
    remember(ada, "b", "c", category="topic", project="git.example.org/acme/site")
    rules("disable", "--category", "topic")
    assert init_steps()["Memories"] == "technical 1, topic (off) 2; 0 of this project"
    rules("enable", "--category", "topic", "--yes")
    assert init_steps()["Memories"] == "technical 1, topic 2; 2 of this project"


def test_init_warns_of_a_vault_that_git_does_not_ignore(ada: Agent, vault: Path, site: Path) -> None:
    assert init_steps()["Repository"].endswith("add to .gitignore: /memory/")
    for line in ("memory", "memory/", "/memory/", "memory/*", "memory/**"):
        (site / ".gitignore").write_text(f"{line}\n")
        assert ".gitignore" not in init_steps()["Repository"]
        shutil.rmtree(vault)
        assert ".gitignore" not in init_steps()["Repository"]


def test_in_a_folder_with_source_code_init_names_the_vaults_files(ada: Agent, vault: Path, site: Path) -> None:
    (vault / "__init__.py").write_text("")
    subprocess.run(["git", "-C", str(site), "add", "memory/__init__.py"], check=True)
    lines = init_steps()["Repository"].partition("add to .gitignore: ")[2].split()
    names = ("common/", "private/", "projects/", ".discarded/", "index.md", ".palimpsest")
    assert lines == [f"/memory/{name}" for name in names]
    (site / ".gitignore").write_text("\n".join(lines))
    rules("store", "The ferry", "--category", "technical")
    assert ".gitignore" not in init_steps()["Repository"]
    status = ["git", "-C", str(site), "status", "-s", "-uall"]
    listed = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert listed.splitlines() == ["A  memory/__init__.py", "?? .gitignore"]
    assert "add to .gitignore: /common/ /private/" in init_steps("--vault", ".", "--yes")["Repository"]
