"""`memory_rules init`, `store`, `show` and `index`, as an operator and as the agent's side runs them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.consent import erasure, proposals, removal_requests
from memory.errors import FileFault
from memory.models import Agent
from memory.vault.disk import Disk
from memory.writing import operations
from tests.commands.calling import Ran, failed
from tests.conftest import OPERATOR
from tests.rules.talking import at_a_terminal, rules
from tests.steps import ME, PERSON, fresh, last_entry, remember, says
from tests.vault.tree import memories

STEPS = [
    "Settings",
    "Switch",
    "Storage path",
    "Folders",
    "Repository",
    "Memories",
    "Git history",
    "Other systems",
    "Migration",
    "Migrated",
    "Git memories",
    "Index",
]


@pytest.fixture
def site(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository, under a folder where vaults may be; one is in it."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    folder = tmp_path / "site"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", "git@git.test:acme/site.git"], check=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    return folder


@pytest.fixture
def key(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> str:
    _, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return key


@pytest.fixture
def ada(key: str) -> Agent:
    return Agent.objects.select_related("tenant").get(slug="ada")


def found(ran: Ran) -> dict[str, str]:
    return {each["step"]: each["found"] for each in ran.json["steps"]}


# --- init


def test_each_of_the_twelve_steps_is_reported(ada: Agent, site: Path) -> None:
    ran = rules("init", "--vault")
    assert ran.code == 0, ran.err
    assert [line.split(". ", 1)[1].split(":")[0] for line in ran.out.splitlines()] == STEPS
    told = found(rules("init", "--json"))
    assert list(told) == STEPS
    assert "git.test/acme/site" in told["Repository"]
    assert ".gitignore" in told["Repository"]
    assert told["Storage path"] == f"{site / 'memory'}, which can be written to"


def test_a_vault_begins_with_what_is_remembered_already(ada: Agent, site: Path) -> None:
    rules("store", "The ferry leaves at 14:30.", "--category", "technical")
    assert found(rules("init", "--vault", "--json"))["Index"].startswith("1 file listed")
    assert memories(site / "memory") == ["common/technical/000001.md"]
    entry = last_entry(ada)
    assert (entry.actor_kind, entry.detail["changed"]) == ("agent", {"vault_path": str(site / "memory")})


def test_without_the_agents_key_a_vault_is_proposed(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, other = lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", other)
    assert rules("init", "--vault").code == 2  # somebody else's key is no consent
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    first, second = (found(rules("init", "--vault", "--json"))["Storage path"] for _ in range(2))
    number = proposals.open_one(fresh(ada)).number  # type: ignore[union-attr]
    assert "is proposed to the agent's side" in first
    assert "already" in second
    assert all(f"/api/v1/proposals/{number}/accept" in each for each in (first, second))
    assert (fresh(ada).vault_path, (site / "memory").exists()) == ("", False)
    proposals.accept(fresh(ada), number, ME)
    assert fresh(ada).vault_path == str(site / "memory")


def test_a_folder_that_will_not_do_names_one_that_would(ada: Agent, site: Path) -> None:
    ran = rules("init", "--vault", "/etc/memory")
    assert ran.code == 2
    assert "must be inside" in ran.err
    assert str(site.parent / "acme" / "ada") in ran.err
    assert fresh(ada).vault_path == ""


def test_with_its_key_an_agent_is_not_asked_and_so_not_too_often(ada: Agent, site: Path, settings: Settings) -> None:
    settings.ASKS_PER_PERSON = settings.ASKS_PER_AGENT = 1
    for name in ("a", "b", "c"):
        assert rules("init", "--vault", name, "--yes").code == 0
    assert fresh(ada).vault_path == str(site / "c")


def test_another_vault_is_asked_about(ada: Agent, site: Path) -> None:
    """As when init is run in a second project."""
    rules("init", "--vault")
    assert "as before" in found(rules("init", "--vault", "second", "--json"))["Storage path"]  # nobody can be asked
    for answer, folder in (("n\n", "memory"), ("", "memory"), ("y\n", "second")):
        ran = at_a_terminal(answer, "init", "--vault", "second", "--json")
        assert ran.code == 0
        assert f"create one in {site / 'second'}? (y/n)" in ran.err
        assert fresh(ada).vault_path == str(site / folder)
        assert (site / "second").exists() is (folder == "second")


def test_an_index_of_somebody_elses_is_kept_and_told(ada: Agent, site: Path) -> None:
    (site / "memory").mkdir()
    (site / "memory" / "index.md").write_text("# Mine")
    told = found(rules("init", "--vault", "--json"))["Index"]
    assert "index.md is not of the vault, and is kept as .discarded/index-found-1.md" in told
    assert (site / "memory" / ".discarded" / "index-found-1.md").read_text() == "# Mine"


def test_the_project_that_the_environment_names_is_told_so(
    ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "other")
    assert "the project is other, as MEMORY_PROJECT says" in found(rules("init", "--json"))["Repository"]
    monkeypatch.setenv("MEMORY_PROJECT", "..")
    assert failed(rules("record", "--prompt", "x"), 2).startswith("error: MEMORY_PROJECT: ")


def test_of_an_erased_agent_nothing_is_done(ada: Agent, site: Path) -> None:
    erasure.erase(ada, removal_requests.ask_erasure(ada, PERSON, reason="request 18").number, ME)
    for deed in ("status", "init", "settings", "index", "disable"):
        failed(rules(deed), 2, "erased")


def test_who_is_asked_reads_what_would_be_switched_on_in_no_color_of_errors(ada: Agent, site: Path) -> None:
    rules("disable", "--category", "topic")
    ran = at_a_terminal("y\n", "enable", "--category", "topic")
    assert "The category topic is currently off. Turn on? (y/n)" in ran.err
    assert "\x1b" not in ran.err


def test_where_nobody_can_be_asked_nothing_is_switched_on(ada: Agent, site: Path) -> None:
    rule_changes.change(ada, PERSON, enabled=False)
    ran = rules("init", "--json")
    assert (ran.code, ran.json["initialized"], fresh(ada).memory_enabled) == (0, False, False)
    assert found(rules("init", "--yes", "--json"))["Switch"] == "memory is on now"


# --- store, show, index


@pytest.fixture
def vault(ada: Agent, site: Path) -> Path:
    assert rules("init", "--vault").code == 0
    return site / "memory"


def test_a_category_of_a_project_takes_this_folders(ada: Agent, vault: Path) -> None:
    ran = rules("store", "-", "--category", "contextual", stdin=b"By standard input")
    assert (ran.json["project"], says(ada, 1).content) == ("git.test/acme/site", "By standard input")
    for args, category, project in (
        (("--project", "shop"), "contextual", "shop"),
        (("--category", "topic"), "topic", "git.test/acme/site"),
        ((), "behavioral", ""),
    ):
        told = rules("store", "Or another", *args).json
        assert (told["category"], told["project"]) == (category, project)


def test_a_section_goes_where_its_category_has_it(ada: Agent, vault: Path) -> None:
    assert rules("store", "--category", "user_interaction", "--context", "why").code == 0
    assert says(ada, 1).content == "## Context\nwhy"
    ran = rules("store", "a", "--category", "topic", "--context", "b")
    assert "Topic Definition, Evolution History" in ran.err


def test_a_secret_is_masked_but_where_it_is_stored_as_one(ada: Agent, vault: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    ran = rules("store", f"The token is {secret}", "--category", "technical")
    assert (ran.json["masked"], secret in says(ada, 1).content) == (1, False)
    ran = rules("store", secret, "--category", "credentials", "--service", "GitHub", "--credential", "token")
    assert (ran.json["masked"], says(ada, 2).content) == (0, secret)
    assert Path(ran.json["file"]).name == "github-token.md"
    ran = rules("store", f"The token is {secret}", "--category", "technical", "--tag", secret)
    assert (ran.json["masked"], any(secret in tag for tag in says(ada, 3).tags)) == (2, False)
    assert all(secret not in path.read_text() for path in vault.rglob("*.md"))


def test_what_cannot_be_stored_names_the_field(ada: Agent, vault: Path) -> None:
    rows = [
        ((), "content"),
        (("a", "--understanding", "b"), "content"),
        (("a", "--project", "../b"), "project"),
        (("a", "--project", "ghp_" + "a1B2" * 9), "project"),
        (("a", "--category", "keys", "--service", "ghp_" + "a1B2" * 9), "service"),
        (("a", "--category", "keys", "--credential", "ghp_" + "a1B2" * 9), "credential"),
        (("a", "--category", "keys", "--tag", "service:ghp_" + "a1B2" * 9), "tags"),
        (("a", "--service", "aws"), "service"),
        (("a", "--category", "personal", "--credential", "token"), "credential"),
        (("a", "--category", "topic", "--context", "b"), "context"),
        (("a", "--category", "session", "--decision", "b"), "decision"),
        (("a", "--category", "git_history", "--related", "b"), "related"),
        (("a", "--category", "user_interaction", "--outcome", "b"), "outcome"),
        (("a", "--category", "user_interaction", "--context", "b"), "content"),
        (("a", "--tag", "x" * 65), "tags"),
        (("a" * 10_001,), "content"),
    ]
    for args, field in rows:
        assert failed(rules("store", *args), 2).startswith(f"error: {field}: "), args
    assert memories(vault) == []


def test_a_vault_that_cannot_be_written_is_said_and_the_memory_stands(ada: Agent, vault: Path) -> None:
    vault.rename(vault.with_name("elsewhere"))
    vault.write_text("no folder")
    ran = rules("store", "The ferry", "--category", "technical")
    assert (ran.code, ran.json["file"], says(ada, 1).content) == (0, None, "The ferry")
    assert "could not be written" in ran.err
    told = rules("status", "--json").json["vault"]
    assert (told["is_behind"], bool(told["fault"])) == (True, True)
    assert "the vault could not be written" in rules("status").out


def test_what_is_sealed_is_shown_to_the_agent_alone(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules("store", "sesame", "--category", "personal")
    assert rules("show", "private/personal/000001.md").out == "sesame\n"
    assert rules("show", str(vault / "index.md")).code == 2
    assert rules("show", "none.md").code == 2
    rule_changes.change(ada, PERSON, enabled=False)
    ran = rules("show", "private/personal/000001.md")
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    ran = rules("show", "private/personal/000001.md")
    assert (ran.code, "sesame" in ran.out + ran.err) == (2, False)


def test_what_is_private_is_shown_as_it_is_but_to_a_terminal(ada: Agent, vault: Path) -> None:
    turned = "gnp\u202e.exe\x1b[31m"
    remember(ada, turned, category="personal")
    for is_terminal in (False, True):
        with mock.patch("memory.management.commands.vault.is_shown", return_value=is_terminal):
            assert (turned in rules("show", "private/personal/000001.md").out) is not is_terminal


def test_what_differs_is_listed_mended_and_decided(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Path(rules("store", "The ferry leaves at 14:30.", "--category", "technical").json["file"])
    two = Path(rules("store", "The ferry is blue.", "--category", "technical").json["file"])
    one.write_text(one.read_text().replace("14:30", "16:45"))
    two.unlink()
    told = rules("index", "--check", "--json").json["differences"]
    assert [(each["id"], each["kind"]) for each in told] == [(1, "edited"), (2, "missing")]
    assert "common/technical/000001.md  was changed by hand; --repair keeps it" in rules("index", "--check").out
    ran = rules("index", "--json").json
    assert (ran["mended"], ran["indexed"], two.exists()) == (2, 2, True)
    assert ran["kept"] == [
        {"from": "common/technical/000001.md", "to": ".discarded/common/technical/000001-found-1.md"}
    ]
    assert "16:45" in (vault / ran["kept"][0]["to"]).read_text()
    assert "14:30" in one.read_text()
    assert says(ada, 1).content == "The ferry leaves at 14:30."
    one.write_text(one.read_text() + "\nscribbled")
    ran = rules("index")
    assert "is kept as .discarded/common/technical/000001-found-2.md" in ran.err
    checked = rules("index", "--check")
    assert (checked.code, checked.out.count("is a copy that the vault does not need")) == (0, 2)


def test_files_of_another_version_are_told_and_repaired(ada: Agent, vault: Path) -> None:
    path = Path(rules("store", "The ferry", "--category", "technical").json["file"])
    assert rules("settings", "version", "1.1.0").code == 0
    older = "1 file of another version: 'manage.py vault index acme/ada' writes it again"
    assert rules("status").out.splitlines()[-1] == older
    assert "- **Version**: 1.0.0" in path.read_text()
    assert rules("index", "--repair", "--json").json["mended"] == 1
    assert "- **Version**: 1.1.0" in path.read_text()
    assert rules("index", "--check", "--json").json == {"differences": [], "unknown": 0}


@pytest.mark.parametrize("switches", [[], ["--readable-names"]])
def test_names_of_files_have_words_if_the_agents_side_asks(ada: Agent, site: Path, switches: list[str]) -> None:
    assert rules("init", "--vault", *switches).code == 0
    rules("store", "Green tea", "--category", "technical")
    rules("store", "sesame", "--category", "personal")
    rules("store", "x", "--category", "keys", "--service", "Mail")
    title = "-green-tea" if switches else ""
    assert memories(site / "memory") == [
        f"common/technical/000001{title}.md",
        "private/keys/mail-key.md",
        "private/personal/000002.md",
    ]
    assert "[000001-green-tea](common/technical/000001" in (site / "memory/index.md").read_text()


def test_names_change_with_the_setting(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules("store", "Green tea", "--category", "technical")
    key = os.environ["PALIMPSEST_AGENT_KEY"]
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    refused = rules("settings", "storage.readable_names", "true")
    assert (refused.code, "Only the agent's side" in refused.err) == (1, True)
    assert rules("init", "--readable-names").code == 2
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    assert rules("init", "--readable-names").code == 0
    assert memories(vault) == ["common/technical/000001-green-tea.md"]
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    assert rules("settings", "storage.readable_names", "false").code == 0
    assert memories(vault) == ["common/technical/000001.md"]
    assert rules("index", "--check").code == 0


def test_without_a_vault_a_store_says_why_there_is_no_file(ada: Agent, site: Path) -> None:
    ran = rules("store", "The ferry", "--category", "technical")
    assert (ran.json["file"], "has no file: no vault: run manage.py project init acme/ada --vault" in ran.err) == (
        None,
        True,
    )
    assert "no vault: run" in rules("record", "--prompt", "Which tea?").err


def test_a_vault_in_which_nothing_differs_is_said_so(ada: Agent, vault: Path) -> None:
    rules("store", "The ferry", "--category", "technical")
    ran = rules("index", "--check")
    assert (ran.code, ran.out, ran.err) == (0, "No differences.\n", "")
    (vault / "mine.txt").write_text("tea")
    ran = rules("index")
    assert (ran.code, ran.err) == (0, "1 other file, not touched.\n")
    assert ran.out == "0 differences repaired, 1 file listed in the index pages.\nNo differences.\n"


def test_what_differs_or_could_not_be_mended_is_an_exit_code(ada: Agent, vault: Path) -> None:
    file = Path(rules("store", "The ferry", "--category", "technical").json["file"])
    stage = Disk.stage

    def refusing(self: Disk, path: PurePosixPath, data: bytes, *, expected: bytes | None, **options: bool) -> None:
        if path.name != "index.md":
            raise FileFault("denied", "permission denied")
        stage(self, path, data, expected=expected, **options)

    for args in ([], ["--json"]):
        file.unlink()
        ran = rules("index", "--check", *args)
        assert (ran.code, len(ran.out.splitlines()), "error" in ran.err) == (1, 1, False)
        with mock.patch.object(Disk, "stage", refusing):
            assert rules("index", *args).code == 1
        assert rules("index", *args).code == 0
        assert rules("index", "--check").code == 0


def test_names_of_files_are_told_to_the_agent_alone(ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (["Heather blooms", "--category", "technical"], ["x", "--category", "keys", "--service", "Heather"]):
        path = Path(rules("store", *args).json["file"])
        path.with_name("heather.md").write_bytes(path.read_bytes())
        path.write_text(path.read_text() + "\nmore")
    (vault / "private" / "index.md").write_text("mine")
    runs = [(deed, *args) for deed in (["index", "--check"], ["index"], ["init"]) for args in ([], ["--json"])]
    for args in runs:
        assert "heather" in rules(*args[0], *args[1:]).out or args[0] == ["init"]
    (vault / "private" / "index.md").write_text("mine")
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    for args in runs:
        ran = rules(*args[0], *args[1:])
        assert "heather" not in ran.out + ran.err
        assert "common/technical/…" in ran.out or args[0] == ["init"]


@pytest.mark.parametrize("args", [[], ["--check"], ["--repair"]])
def test_while_memory_is_off_index_asks_and_does_nothing(ada: Agent, vault: Path, args: list[str]) -> None:
    path = Path(rules("store", "The ferry", "--category", "technical").json["file"])
    path.write_text(path.read_text().replace("ferry", "boat"))
    (vault / "index.md").unlink()
    rule_changes.change(ada, PERSON, enabled=False)
    before, seq = {each: (vault / each).read_bytes() for each in memories(vault)}, fresh(ada).audit_seq
    ran = rules("index", *args)
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    declined = at_a_terminal("n\n", "index", *args)
    assert (declined.code, rule_changes.QUESTION in declined.err) == (0, True)
    assert {each: (vault / each).read_bytes() for each in memories(vault)} == before
    assert (fresh(ada).audit_seq, (vault / "index.md").exists()) == (seq, False)
    agreed = at_a_terminal("y\n", "index", *args)
    assert (bool(agreed.out), fresh(ada).memory_enabled) == (True, True)


def test_a_vault_whose_folder_is_gone_is_told(ada: Agent, vault: Path) -> None:
    rules("store", "The ferry", "--category", "technical")
    assert rules("status", "--json").json["vault"]["is_there"] is True
    shutil.rmtree(vault)
    told = rules("status")
    assert f"vault {vault}: the folder is gone; 'manage.py vault index acme/ada' writes its 1 file again" in told.out
    assert rules("status", "--json").json["vault"]["is_there"] is False
    assert not vault.exists()
    rules("index")
    assert "the folder is gone" not in rules("status").out


def test_a_vault_that_somebody_holds_is_told_within_seconds(ada: Agent, vault: Path) -> None:
    path = Path(rules("store", "The ferry", "--category", "technical").json["file"])
    path.write_text(path.read_text().replace("ferry", "boat"))
    with (vault / ".palimpsest").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        began = time.monotonic()
        ran = rules("index")
        assert (ran.code, "Try again" in ran.err) == (1, True)
        stored = rules("store", "Tea is hot", "--category", "technical")
        assert (stored.code, stored.json["file"], "retries" in stored.err) == (0, None, True)
        assert rules("index", "--check").code == 1
        assert time.monotonic() - began < 9
    assert rules("index").code == 0


def test_what_is_recorded_is_told_with_its_file(ada: Agent, vault: Path) -> None:
    told = [
        rules("record", "--prompt", "Which tea?", "--session", "monday").json,
        rules("session", "end").json,
        rules("topic", "Tea", "--insight", "hot").json,
    ]
    assert [each["id"] for each in told] == [1, 2, 3]
    for each in told:
        assert f": {each['id']}\n" in Path(each["file"]).read_text()
        assert Path(each["file"]).is_relative_to(vault)


# --- what init says of categories that are off, and of a vault that would be committed

PARTS = ["/memory/common/", "/memory/private/", "/memory/projects/", "/memory/.discarded/", "/memory/index.md"]


def step(name: str) -> str:
    return found(rules("init", "--json"))[name]


def test_what_is_off_is_counted_as_that(ada: Agent, site: Path) -> None:
    remember(ada, "a", category="technical")
    remember(ada, "b", "c", category="topic", project="git.test/acme/site")
    rules("disable", "--category", "topic")
    assert step("Memories") == "technical 1, topic (off) 2; 0 of this project"
    rules("enable", "--category", "topic", "--yes")
    assert step("Memories") == "technical 1, topic 2; 2 of this project"


def test_a_vault_that_would_be_committed_is_told(ada: Agent, vault: Path, site: Path) -> None:
    assert step("Repository").endswith("add to .gitignore: /memory/")
    for line in ("memory", "memory/", "/memory/", "memory/*", "memory/**"):
        (site / ".gitignore").write_text(f"{line}\n")
        assert ".gitignore" not in step("Repository")
        shutil.rmtree(vault)
        assert ".gitignore" not in step("Repository")


def test_beside_a_package_of_the_project_its_own_files_are_named(ada: Agent, vault: Path, site: Path) -> None:
    (vault / "__init__.py").write_text("")
    subprocess.run(["git", "-C", str(site), "add", "memory/__init__.py"], check=True)
    lines = step("Repository").partition("add to .gitignore: ")[2].split()
    assert lines == [*PARTS, "/memory/.palimpsest"]
    (site / ".gitignore").write_text("\n".join(lines))
    rules("store", "The ferry", "--category", "technical")
    assert ".gitignore" not in step("Repository")
    told = subprocess.run(["git", "-C", str(site), "status", "-s", "-uall"], check=True, capture_output=True, text=True)
    assert told.stdout.splitlines() == ["A  memory/__init__.py", "?? .gitignore"]


def test_a_vault_that_is_the_repository_itself(ada: Agent, site: Path) -> None:
    rules("init", "--vault", ".")
    assert "add to .gitignore: /common/ /private/" in step("Repository")


# --- the index pages, and the state of the vault


def test_the_page_says_what_it_is_and_what_is_struck(ada: Agent, vault: Path) -> None:
    remember(ada, "Green tea", "Black tea", category="technical")
    operations.discard(ada, [2], ME)
    title, blank, about, *lines = (vault / "index.md").read_text().splitlines()
    assert (title, blank) == ("# Memory Index", "")
    assert about.startswith(
        "One line per file, in the order in which the files were written. A struck line names a file "
    )
    assert "`manage.py vault index` writes this page again" in about
    assert lines[-3:] == [
        f"- {lines[-3][2:12]} technical [000001-green-tea](common/technical/000001.md)",
        f"- {lines[-3][2:12]} technical [000002-black-tea](common/technical/000002.md)",
        f"- {lines[-3][2:12]} technical ~~000002-black-tea~~",
    ]


@pytest.mark.parametrize("deed", [("index",), ("index", "--repair"), ("init",)])
def test_a_line_that_is_there_twice_is_there_once_when_the_index_is_mended(
    ada: Agent, vault: Path, deed: tuple[str, ...]
) -> None:
    rules("store", "Green tea", "--category", "technical")
    rules("store", "Black tea", "--category", "contextual")
    pages = [vault / "index.md", *vault.glob("projects/*/index.md")]
    before = [page.read_text() for page in pages]
    for page, text in zip(pages, before, strict=True):
        page.write_text(text + text.splitlines(keepends=True)[-1] * 2)
    assert rules(*deed).code == 0
    after = [sorted(page.read_text().splitlines()) for page in pages]
    assert (len(pages), after) == (2, [sorted(text.splitlines()) for text in before])


def test_status_says_what_is_on_and_how_the_vault_is(ada: Agent, site: Path) -> None:
    lines = rules("status").out.splitlines()
    assert lines[0].endswith("memory is on, rules 1.0.0")
    assert lines[1:3] == ["automatic recording is off", "git history analysis is off"]
    assert lines[-1] == "no vault, so no files; 'manage.py project init acme/ada --vault' creates one"
    assert "has no vault" in failed(rules("index"), 2)
    rules("enable", "--recording", "--yes")
    assert "automatic recording is on" in rules("status").out
    assert rules("init", "--vault").code == 0
    rules("store", "Green tea", "--category", "technical")
    assert rules("status").out.splitlines()[-1] == (
        f"vault {site / 'memory'}, 1 file, in sync with its silo; "
        "'manage.py vault index acme/ada --check' compares each"
    )


# --- errors


def test_an_error_names_the_field(ada: Agent, site: Path) -> None:
    rows = [
        (("init", "--vault", "/etc/memory"), "vault: must be inside"),
        (("init", "--project-dir", "nowhere"), "project-dir: is not a folder"),
        (("record", "--prompt", "x", "--seconds", "-1"), "response_seconds: must be a number"),
        (("record", "--prompt-file", "/dev/null"), "prompt: is empty"),
        (("record", "--prompt", "x", "--tool", "y" * 65), "tools: has 65 characters"),
        (("record", "--prompt", "x", "--session", "a b"), "session: must be 1 to 64 characters"),
        (("topic", "Tea", "--question", "x" * 1_001), "questions: "),
        (("store", "x" * 10_001), "content: has 10,001 characters"),
        (("store", "x", "--tag", "y" * 65), "tags: must each be"),
        (("store",), "content: is required"),
        (("retrieve", "tea", "--limit", "0"), "limit: must be 1 or more"),
        (("retrieve", "tea", "--max-tokens", "-1"), "max_tokens: must be 0 or more"),
        (("cleanup", "--discard", "all"), "discard: must be memories"),
        (("analyze_git", "--project-dir", "nowhere"), "project-dir: is not a folder"),
    ]
    for args, told in rows:
        ran = rules(*args)
        assert (ran.code, ran.err.startswith(f"error: {told}")) == (2, True), ran
