"""`memory_rules record`, `session` and `topic`: what they do, and how they ask (seed 004)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from memory.agents import rule_changes
from memory.management import agent_command
from memory.models import Agent
from memory.policy.projects import Surroundings, identify
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import unique
from tests.rules.talking import PROMPT, at_a_terminal, of_category, off, rules, said, sessions, settings, talk
from tests.steps import PERSON, active, entries, fresh, last_entry, remember, state


@pytest.fixture(autouse=True)
def key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)


# --- record


def test_an_interaction_is_recorded(ada: Agent) -> None:
    ran = rules("record", "--prompt", "my password is hunter2", "--response", "Noted.", "--session", "monday")
    assert ran.json == {"id": 1, "session": "monday", "masked": 1, "skipped": None, "file": None}
    entry = last_entry(ada)
    assert (entry.actor_kind, entry.actor_label) == ("operator", "remember")


def test_texts_come_from_files_and_standard_input(ada: Agent, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("the prompt\n")
    prompt = ("--prompt-file", str(tmp_path / "prompt"))
    assert rules("record", *prompt, "--response", "-", stdin="the räsponse".encode()).json["id"] == 1
    assert "the prompt\n" in said(ada, 1)
    assert "the räsponse" in said(ada, 1)
    assert rules("record", "--prompt-file", "-", stdin=b"asked").json["id"] == 2
    assert rules("record", *prompt, "--tool", "a", "--tool", "b", "--seconds", "2.5", "--topic", "Tea").json["id"] == 3
    assert "- Response Time: 2.5 s\n- Tools Used: a, b" in said(ada, 3)


def test_what_is_wrong_is_told(ada: Agent) -> None:
    rows: list[tuple[tuple[str, ...], bytes, str]] = [
        ((), b"", "--prompt"),
        (("--prompt", "x", "--prompt-file", "y"), b"", "not allowed"),
        (("--prompt", "-", "--response", "-"), b"x", "standard input"),
        (("--prompt", "-"), b"\xff", "UTF-8"),
        (("--prompt", "-"), b"x" * 200_001, "maximum is 200,000"),
        (("--prompt", ""), b"", "empty"),
        (("--prompt-file", "/nothing/here"), b"", "no such file"),
        (("--prompt", "x", "--session", "a b"), b"", "session"),
        (("--prompt", "a\ud800"), b"", "surrogate"),
    ]
    before = state(ada)
    for args, stdin, word in rows:
        failed(rules("record", *args, stdin=stdin), 2, word)
    assert state(ada) == before


def test_what_was_said_is_not_said_again(ada: Agent) -> None:
    word = unique()
    ran = [
        rules("record", "--prompt", f"{word}\ud800"),
        rules("record", "--prompt", word, "--topic", word, "--session", "x"),
    ]
    ran += [
        rules("session", "list"),
        rules("session", "end", "x", "--goal", word),
        rules("topic", word, "--insight", word),
    ]
    assert [each.code for each in ran] == [2, 0, 0, 0, 0]
    assert not any(word in each.out + each.err for each in ran)


def test_automatically_what_is_off_is_skipped_in_silence(ada: Agent) -> None:
    before = state(ada)
    ran = at_a_terminal("y\n", "record", "--prompt", PROMPT, "--automatic")
    assert (ran.json, ran.err) == (
        {"id": None, "session": None, "masked": 0, "skipped": "recording_off", "file": None},
        "",
    )
    assert state(ada) == before
    settings(ada, auto_recording__enabled=True)
    assert rules("record", "--prompt", PROMPT, "--automatic").json["id"] == 1


# --- a closed switch

DEEDS: dict[str, tuple[str, ...]] = {
    "record": ("--prompt", PROMPT),
    "topic": ("Tea",),
    "session": ("begin", "tuesday"),
}
CATEGORIES = {"record": "user_interaction", "topic": "topic", "session": "session"}


@pytest.fixture(params=DEEDS)
def closed(request: Any, ada: Agent) -> str:
    """A deed, with memory and its category off."""
    off(ada, CATEGORIES[request.param])
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    return str(request.param)


def test_declined_nothing_is_done(closed: str, ada: Agent) -> None:
    before = state(ada)
    for answer in ("n\n", "", "perhaps\n"):
        ran = at_a_terminal(answer, closed, *DEEDS[closed])
        assert (ran.code, ran.out) == (0, "")
        assert rule_changes.QUESTION in ran.err
        assert rule_changes.GOOD_FOR in ran.err
        assert "Nothing was done." in ran.err
    ran = rules(closed, *DEEDS[closed])  # nobody can be asked
    assert (ran.code, ran.out) == (0, "")
    assert "--yes" not in ran.err  # which these have not
    assert (state(ada), sessions(ada)) == (before, [])


def test_agreed_it_is_switched_on_and_done(closed: str, ada: Agent) -> None:
    ran = at_a_terminal("y\ny\n", closed, *DEEDS[closed])
    assert (ran.code, ran.err.count(rule_changes.QUESTION)) == (0, 2)
    assert len(ran.out.splitlines()) == 1
    assert fresh(ada).memory_enabled
    told = [entry.detail for entry in entries(ada) if entry.actor_label == "remember"][:2]
    assert told == [
        {"rules": {"memory_rules.enabled": True}},
        {"rules": {f"memory_rules.categories.{CATEGORIES[closed]}.enabled": True}},
    ]
    assert active(ada) or sessions(ada)


def test_one_yes_is_for_one_switch(closed: str, ada: Agent) -> None:
    ran = at_a_terminal("y\nn\n", closed, *DEEDS[closed])
    assert (ran.code, ran.out, fresh(ada).memory_enabled) == (0, "", True)
    assert (active(ada), sessions(ada)) == ([], [])


# --- session and topic


def test_sessions_are_begun_listed_and_ended(ada: Agent) -> None:
    assert rules("session", "begin", "monday", "--project", "site").json == {"session": "monday", "project": "site"}
    talk(ada, session="monday", project="site")
    assert rules("session", "end", "monday", "--goal", "one style", "--follow-up", "ask Bob").json == {
        "id": 2,
        "session": "monday",
        "file": None,
    }
    assert "- Follow-up Needed: ask Bob" in said(ada, 2)
    failed(rules("session", "end", "monday"), 1, "This session ended at")
    [listed] = rules("session", "list").json
    assert {name: listed[name] for name in ("session", "project", "recordings", "id")} == {
        "session": "monday",
        "project": "site",
        "recordings": 1,
        "id": 2,
    }
    assert set(listed) == {"session", "project", "began_at", "last_at", "ended_at", "recordings", "id"}
    failed(rules("session", "end", "nobody"), 2, "No recorded session has")
    failed(rules("session", "begin", "monday", "--project", "site"), 1, "with this name")
    failed(rules("session", "end"), 2, "No recorded session is open")
    failed(rules("session", "end", "monday", "--goal", "more"), 1, "This session ended at")
    failed(rules("session", "pause"), 2, "begin|end|list")


def test_without_a_name_the_open_session_is_ended(ada: Agent) -> None:
    talk(ada, session="monday", project="site")
    assert rules("session", "end", "--goal", "one style").json["session"] == "monday"
    for project in ("a", "b"):
        talk(ada, session="tuesday", project=project)
    failed(rules("session", "end"), 2, "tuesday of a, tuesday of b")
    failed(rules("session", "end", "tuesday"), 2, "project")
    assert rules("session", "end", "tuesday", "--project", "b").json["session"] == "tuesday"


def test_while_memory_is_off_no_sessions_are_listed(ada: Agent) -> None:
    talk(ada, session="monday")
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    ran = rules("session", "list")
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)


def test_a_topic_is_made_and_goes_on(ada: Agent) -> None:
    assert rules("topic", "Tea", "--definition", "A drink.", "--insight", "hot", "--insight", "green").json == {
        "id": 1,
        "changed": True,
        "file": None,
    }
    assert rules("topic", "TEA", "--pitfall", "boiling", "--resource", "a book", "--related", "Cups").json["id"] == 1
    assert rules("topic", "Tea", "--insight", "hot").json == {"id": 1, "changed": False, "file": None}
    [memory] = of_category(ada, "topic")
    text = said(ada, memory.number)
    assert "- Important Concepts:\n  - hot\n  - green" in text
    assert "- Pitfalls to Avoid:\n  - boiling" in text


def test_what_a_topic_says_cannot_be_guessed_without_the_key(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    rules("topic", "Tea", "--insight", "green")
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    before = state(ada)
    guesses = (("--insight", "green"), ("--insight", "black"), ())
    ran = [rules("topic", name, *guess) for name in ("Tea", "Coffee") for guess in guesses]
    assert len({failed(each, 2, "PALIMPSEST_AGENT_KEY") for each in ran}) == 1
    assert state(ada) == before


# --- recall: for the agent's key, seen from the project it is run in


@pytest.fixture
def tea(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    monkeypatch.setenv("MEMORY_PROJECT", "a")
    remember(house.ada, "tea of a", category="contextual", project="a", tags=["hot"])
    remember(house.ada, "tea of b", category="contextual", project="b")
    return house.ada


def retrieve(*args: str) -> Ran:
    return run("recall", "acme/ada", *args)


def test_the_block_is_printed(tea: Agent) -> None:
    ran = retrieve("tea")
    assert (ran.code, ran.out) == (0, "# What you remember of this\n- tea of a\n")
    assert "1 memory, 2 tokens, visible from project a." in ran.err


def test_the_project_may_be_said(tea: Agent) -> None:
    assert retrieve("tea", "--project", "b").out.endswith("- tea of b\n")
    assert retrieve("tea", "--project", "").out == ""


def test_as_json(tea: Agent) -> None:
    told = retrieve("tea", "--json", "--limit", "5", "--max-tokens", "9", "--tag", "hot").json
    assert [(each["id"], each["recalled"]) for each in told["results"]] == [(1, 1)]
    assert (told["project"], told["tokens"], told["left_out"]) == ("a", 2, 0)


@pytest.mark.parametrize("whose", ["", "bob", "nonsense"])
def test_without_the_agents_key_nothing_is_shown(
    tea: Agent, house: House, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.bob_key if whose == "bob" else whose)
    failed(retrieve("tea"), 2, "PALIMPSEST_AGENT_KEY")


def test_while_memory_is_off_it_is_asked_about(tea: Agent) -> None:
    rule_changes.change(tea, PERSON, enabled=False)
    ran = retrieve("tea")
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        ran = run("recall", "acme/ada", "tea", stdin=b"y\n")
    assert (rule_changes.QUESTION in ran.err, ran.out) == (True, "# What you remember of this\n- tea of a\n")


# --- where it is run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a repository, where the process is."""
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    inner = tmp_path / "shop" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def with_remote(git: Path, name: str = "origin") -> None:
    git.mkdir(parents=True, exist_ok=True)
    text = (
        f'[core]\n\tbare = false\n[remote "{name}"]\n\turl = https://me:secret@git.test/acme/shop.git\n\tfetch = +x\n'
    )
    (git / "config").write_text(text + '[branch "main"]\n\turl = no\n')


def test_the_project_is_that_of_the_repository(folder: Path) -> None:
    with_remote(folder.parent / ".git")
    assert agent_command.surroundings(Path.cwd()).directory == str(folder.parent)
    assert identify(agent_command.surroundings(Path.cwd())) == "git.test/acme/shop"


def test_a_worktree_has_its_repositorys_remote(folder: Path) -> None:
    git = folder.parent.parent / "main" / ".git"
    with_remote(git)
    (git / "worktrees" / "shop").mkdir(parents=True)
    (git / "worktrees" / "shop" / "commondir").write_text("../..\n")
    (folder.parent / ".git").write_text(f"gitdir: {git / 'worktrees' / 'shop'}\n")
    assert identify(agent_command.surroundings(Path.cwd())) == "git.test/acme/shop"


def test_without_a_remote_it_is_the_repositorys_folder(folder: Path) -> None:
    with_remote(folder.parent / ".git", "upstream")
    assert identify(agent_command.surroundings(Path.cwd())) == "shop"


def test_a_file_that_is_no_repositorys_is_passed_over(folder: Path) -> None:
    (folder.parent / ".git").write_bytes(b"\xff\0")
    assert identify(agent_command.surroundings(Path.cwd())) == "shop"


def test_what_the_environment_says_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "mine")
    assert agent_command.surroundings(Path.cwd()) == Surroundings(override="mine", directory=str(folder))
    assert identify(agent_command.surroundings(Path.cwd())) == "mine"
