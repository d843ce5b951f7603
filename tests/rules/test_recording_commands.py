"""The commands `record`, `session`, `topic` and `recall`: results, refusals and questions (seed 004)."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configuration

from memory.agents import rule_changes
from memory.management import agent_command
from memory.models import Agent
from memory.search import cache
from memory.writing import operations
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.rules.recordings import PROMPT, at_a_terminal, of_category, off, rules, sessions, settings, talk, text_of
from tests.steps import ME, PERSON, active, entries, fresh, last_entry, remember, state


@pytest.fixture(autouse=True)
def key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)


def test_record_masks_and_prints_the_result(ada: Agent) -> None:
    ran = rules("record", "--prompt", "my password is hunter2", "--response", "Noted.", "--session", "monday")
    assert ran.json == {"id": 1, "session": "monday", "masked": 1, "skipped": None, "file": None}
    assert (last_entry(ada).actor_kind, last_entry(ada).actor_label) == ("operator", "remember")


def test_record_reads_files_and_standard_input(ada: Agent, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("the prompt\n")
    prompt = ("--prompt-file", str(tmp_path / "prompt"))
    assert rules("record", *prompt, "--response", "-", stdin="the räsponse".encode()).json["id"] == 1
    assert "the prompt\n" in text_of(ada, 1)
    assert "the räsponse" in text_of(ada, 1)
    assert rules("record", "--prompt-file", "-", stdin=b"asked").json["id"] == 2
    assert rules("record", *prompt, "--tool", "a", "--tool", "b", "--seconds", "2.5", "--topic", "Tea").json["id"] == 3
    assert "- Response Time: 2.5 s\n- Tools Used: a, b" in text_of(ada, 3)


REFUSED: list[tuple[tuple[str, ...], bytes, str]] = [
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


def test_record_refuses_invalid_arguments(ada: Agent) -> None:
    before = state(ada)
    for args, stdin, word in REFUSED:
        failed(rules("record", *args, stdin=stdin), 2, word)
    assert state(ada) == before


def test_automatic_recording_is_skipped_silently_while_it_is_off(ada: Agent) -> None:
    before = state(ada)
    ran = at_a_terminal("y\n", "record", "--prompt", PROMPT, "--automatic")
    assert ran.json == {"id": None, "session": None, "masked": 0, "skipped": "recording_off", "file": None}
    assert (ran.err, state(ada)) == ("", before)
    settings(ada, auto_recording__enabled=True)
    assert rules("record", "--prompt", PROMPT, "--automatic").json["id"] == 1


COMMANDS = {"record": ("--prompt", PROMPT), "topic": ("Tea",), "session": ("begin", "tuesday")}
CATEGORIES = {"record": "user_interaction", "topic": "topic", "session": "session"}


@pytest.fixture(params=COMMANDS)
def closed(request: Any, ada: Agent) -> str:
    """A command. Memory and the command's category are off."""
    off(ada, CATEGORIES[request.param])
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    return str(request.param)


def test_a_command_runs_only_with_consent_for_each_switch_that_is_off(closed: str, ada: Agent) -> None:
    before = state(ada)
    for answer in ("n\n", "", "perhaps\n"):
        ran = at_a_terminal(answer, closed, *COMMANDS[closed])
        assert (ran.code, ran.out) == (0, "")
        for text in (rule_changes.QUESTION, rule_changes.GOOD_FOR, "Nothing was done."):
            assert text in ran.err
    ran = rules(closed, *COMMANDS[closed])  # not at a terminal
    assert (ran.code, ran.out) == (0, "")
    assert "--yes" not in ran.err  # these commands have no such option
    assert (state(ada), sessions(ada)) == (before, [])
    ran = at_a_terminal("y\nn\n", closed, *COMMANDS[closed])  # each switch needs its own yes
    assert (ran.out, fresh(ada).memory_enabled, active(ada), sessions(ada)) == ("", True, [], [])
    ran = at_a_terminal("y\n", closed, *COMMANDS[closed])
    assert (ran.code, ran.err.count(rule_changes.QUESTION), len(ran.out.splitlines())) == (0, 1, 1)
    details = [entry.detail for entry in entries(ada) if entry.actor_label == "remember"][:2]
    switches = ("memory_rules.enabled", f"memory_rules.categories.{CATEGORIES[closed]}.enabled")
    assert details == [{"rules": {switch: True}} for switch in switches]
    assert active(ada) or sessions(ada)


def test_a_session_is_begun_listed_and_ended(ada: Agent) -> None:
    assert rules("session", "begin", "monday", "--project", "site").json == {"session": "monday", "project": "site"}
    talk(ada, session="monday", project="site")
    ended = rules("session", "end", "monday", "--goal", "one style", "--follow-up", "ask Bob").json
    assert ended == {"id": 2, "session": "monday", "file": None}
    assert "- Follow-up Needed: ask Bob" in text_of(ada, 2)
    [listed] = rules("session", "list").json
    times = {"began_at", "last_at", "ended_at"}
    others = {name: value for name, value in listed.items() if name not in times}
    assert others == {"session": "monday", "project": "site", "recordings": 1, "id": 2}
    assert times < set(listed)
    failed(rules("session", "end", "monday", "--goal", "more"), 1, "This session ended at")
    failed(rules("session", "end", "nobody"), 2, "No recorded session has")
    failed(rules("session", "begin", "monday", "--project", "site"), 1, "with this name")
    failed(rules("session", "end"), 2, "No recorded session is open")
    failed(rules("session", "pause"), 2, "begin|end|list")
    for project in ("a", "b"):
        talk(ada, session="tuesday", project=project)
    failed(rules("session", "end"), 2, "tuesday of a, tuesday of b")
    failed(rules("session", "end", "tuesday"), 2, "project")
    assert rules("session", "end", "tuesday", "--project", "b").json["session"] == "tuesday"
    assert rules("session", "end").json["session"] == "tuesday"  # the open one
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    ran = rules("session", "list")
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)


def test_topic_creates_a_memory_and_adds_to_it(ada: Agent) -> None:
    created = rules("topic", "Tea", "--definition", "A drink.", "--insight", "hot", "--insight", "green").json
    assert created == {"id": 1, "changed": True, "file": None}
    assert rules("topic", "TEA", "--pitfall", "boiling", "--resource", "a book", "--related", "Cups").json["id"] == 1
    assert rules("topic", "Tea", "--insight", "hot").json == created | {"changed": False}
    [memory] = of_category(ada, "topic")
    text = text_of(ada, memory.number)
    assert "- Important Concepts:\n  - hot\n  - green" in text
    assert "- Pitfalls to Avoid:\n  - boiling" in text


def test_without_the_key_topic_does_not_reveal_content(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same for a right guess and a wrong guess."""
    rules("topic", "Tea", "--insight", "green")
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    before = state(ada)
    guesses = (("--insight", "green"), ("--insight", "black"), ())
    ran = [rules("topic", name, *guess) for name in ("Tea", "Coffee") for guess in guesses]
    assert len({failed(each, 2, "PALIMPSEST_AGENT_KEY") for each in ran}) == 1
    assert state(ada) == before


@pytest.fixture
def tea(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """A memory in each of two projects. The command runs in project a."""
    monkeypatch.setenv("MEMORY_PROJECT", "a")
    remember(ada, "tea of a", category="contextual", project="a", tags=["hot"])
    remember(ada, "tea of b", category="contextual", project="b")
    return ada


def recall(*args: str) -> Ran:
    return run("recall", "acme/ada", *args)


def test_recall_prints_the_block_of_the_project(tea: Agent) -> None:
    ran = recall("tea")
    assert (ran.code, ran.out) == (0, "# What you remember of this\n- tea of a\n")
    assert "1 memory, 2 tokens, visible from project a." in ran.err
    assert recall("tea", "--project", "b").out.endswith("- tea of b\n")
    assert recall("tea", "--project", "").out == ""


def test_recall_prints_json(tea: Agent) -> None:
    found = recall("tea", "--json", "--limit", "5", "--max-tokens", "9", "--tag", "hot").json
    assert [(each["id"], each["recalled"]) for each in found["results"]] == [(1, 1)]
    assert (found["project"], found["tokens"], found["left_out"]) == ("a", 2, 0)


def test_recall_searches_a_period_and_shows_repetitions_on_request(tea: Agent) -> None:
    assert [each["id"] for each in recall("tea", "--json", "--until", "2001-01-01").json["results"]] == []
    failed(recall("tea", "--since", "yesterday"), 2, "since", "ISO 8601")
    remember(tea, "a green cup", "the green cup", category="contextual", project="a")
    operations.consolidate(fresh(tea), [3, 4], "one green cup", ME)
    shown, whole = (recall("cup", "--json", *more).json["results"] for more in ((), ("--duplicates",)))
    assert ([each["id"] for each in shown], sorted(each["id"] for each in whole)) == ([5], [3, 4, 5])


def test_recall_names_the_date_from_which_memories_beneath_were_searched(
    tea: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations.demote(fresh(tea), [1, 2], ME)
    monkeypatch.setattr(configuration, "SEARCH_LAYER_MAX", 1)
    cache.forget()
    assert "was searched: use --until" in recall("tea").err
    assert recall("tea", "--json").json["searched_since"]


@pytest.mark.parametrize("key_of", ["", "bob", "nonsense"])
def test_recall_needs_the_agents_key(tea: Agent, house: House, key_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.bob_key if key_of == "bob" else key_of)
    failed(recall("tea"), 2, "PALIMPSEST_AGENT_KEY")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: `src` in the folder `shop`."""
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    inner = tmp_path / "shop" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def add_remote(git: Path, name: str = "origin") -> None:
    git.mkdir(parents=True, exist_ok=True)
    url = "https://me:secret@git.test/acme/shop.git"
    config = f'[core]\n\tbare = false\n[remote "{name}"]\n\turl = {url}\n\tfetch = +x\n[branch "main"]\n\turl = no\n'
    (git / "config").write_text(config)


def found_project() -> str:
    return agent_command.project_of(Path.cwd(), {})


def test_the_project_is_the_remote_unless_the_environment_overrides_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_remote(folder.parent / ".git")
    assert agent_command.repository(Path.cwd()) == folder.parent
    assert found_project() == "git.test/acme/shop"
    monkeypatch.setenv("MEMORY_PROJECT", "mine")
    assert found_project() == "mine"


def test_a_worktree_has_the_remote_of_its_repository(folder: Path) -> None:
    git = folder.parent.parent / "main" / ".git"
    add_remote(git)
    (git / "worktrees" / "shop").mkdir(parents=True)
    (git / "worktrees" / "shop" / "commondir").write_text("../..\n")
    (folder.parent / ".git").write_text(f"gitdir: {git / 'worktrees' / 'shop'}\n")
    assert found_project() == "git.test/acme/shop"


@pytest.mark.parametrize("is_repository", [True, False])
def test_without_a_remote_the_project_is_the_folder(folder: Path, is_repository: bool) -> None:
    if is_repository:
        add_remote(folder.parent / ".git", "upstream")
    else:
        (folder.parent / ".git").write_bytes(b"\xff\0")
    assert found_project() == "shop"
