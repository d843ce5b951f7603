"""The rows of the tables in seed 001, section 5, that neither the 81 cases nor test_gc.py hold: with a memory file."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.run_log import log_file, runs
from memory.run_log.files import Folder, Place
from tests.commands.calling import run
from tests.commands.gc.logs import ME, REPORT, Make, log_of, separators, told
from tests.model_server import ModelServer, Say, Slow, Status, Turn
from tests.unit.test_memory_file import entry, of


def entries(agent: Agent) -> int:
    return log_of(agent).count(b"## ")


# --- 5.1 the memory file


def test_it_has_50_and_5_are_kept(make: Make) -> None:
    agent = make(entries=50, last_n=5)
    assert told(run("gc", "ada"))[-1] == "Trimmed: 45 entries removed, 5 entries kept."
    assert log_of(agent) == b"".join(entry(number) for number in range(46, 51))


def test_it_is_not_readable(make: Make, server: ModelServer, request: pytest.FixtureRequest) -> None:
    agent = make(last_n=3)
    Path(agent.memory_path).chmod(0)
    request.getfixturevalue("as_nobody")
    ran = run("gc", "ada")
    assert (ran.code, ran.out) == (1, "")
    assert "permission denied" in ran.err
    assert server.requests == []


def test_its_folder_is_not_writable(make: Make, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    agent = make(last_n=3)
    request.getfixturevalue("as_nobody")
    tmp_path.chmod(0o555)
    ran = run("gc", "ada")
    tmp_path.chmod(0o755)
    assert ran.code == 1
    folder = re.escape(str(tmp_path))
    told = f"failed to create temp file: open {folder}/.palimpsest-trim-[0-9a-f]{{16}}: permission denied\n"
    assert re.fullmatch(f"Error: {told}{told}", ran.err)
    assert REPORT in ran.out
    assert log_of(agent) == of(10)
    assert [each.name for each in tmp_path.iterdir()] == [Path(agent.memory_path).name]


def test_its_file_system_is_read_only_and_nothing_is_removed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, opened = make(entries=3, last_n=10), Folder.open

    def only_to_read(folder: Folder, name: str, flags: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(folder, name, flags)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Folder, "open", only_to_read)
    for name in ("remove", "replace", "link", "move", "sync"):
        monkeypatch.setattr(Folder, name, refused)
    ran = run("gc", "ada")
    assert (ran.code, ran.err, told(ran)[-1]) == (0, "", "No trimming needed: 3 entries within limit (10).")
    Agent.objects.filter(pk=agent.pk).update(last_n=2)
    ran = run("gc", "ada")
    assert ran.code == 1
    assert "failed to create temp file: open " in ran.err
    assert ": read-only file system" in ran.err
    assert log_of(agent) == of(3)


def test_what_is_written_first_lies_in_the_same_folder(make: Make, tmp_path: Path, monkeypatch: Any) -> None:
    """Also where a link leads elsewhere: of the file it leads to."""
    agent = make(last_n=3)
    real = tmp_path / "elsewhere" / "real.md"
    real.parent.mkdir()
    Path(agent.memory_path).rename(real)
    Path(agent.memory_path).symlink_to(real)
    monkeypatch.delattr(os, "O_TMPFILE")  # so that it has a name
    made: list[Path] = []
    plainly = os.open

    def noting(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            made.append(Path(f"/proc/self/fd/{named['dir_fd']}").readlink())
        return plainly(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noting)
    assert run("gc", "ada").code == 0
    assert made == [real.parent]


def test_what_stands_before_the_first_header_goes(make: Make) -> None:
    agent = make(last_n=3)
    Path(agent.memory_path).write_bytes(b"# Notes\nnot an entry\n" + of(10))
    ran = run("gc", "ada")
    assert told(ran)[:2] == ["Agent: ada", "Entries: 10"]
    assert log_of(agent) == entry(8) + entry(9) + entry(10)


def test_a_run_that_is_logged_meanwhile_is_kept(make: Make, server: ModelServer) -> None:
    """The seed accepts that it is lost."""
    agent = make(last_n=3)

    def thinking(_: Turn) -> Say:
        log_file.append(Place(Path(agent.memory_path)), entry(11))
        return Say(REPORT)

    server.script = thinking
    assert told(run("gc", "ada"))[-1] == "Trimmed: 8 entries removed, 3 entries kept."
    assert log_of(agent) == entry(9) + entry(10) + entry(11)


# --- 5.2 the agent


MALFORMED = ["gpt", "/gpt", "openai/"]


@pytest.mark.parametrize("model", MALFORMED)
def test_the_model_given_has_no_such_form(make: Make, server: ModelServer, model: str) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada", "--model", model)
    assert ran.code == 1
    assert f'invalid model format "{model}"' in ran.err
    assert (server.requests, log_of(agent)) == ([], of(10))


def test_its_file_has_a_path_of_its_own(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "notes of ada.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(of(10))
    agent = make(entries=None, memory_path="deep/down/notes of ada.md", last_n=3)
    assert agent.memory_path == str(path)
    assert told(run("gc", "ada"))[-1] == "Trimmed: 7 entries removed, 3 entries kept."
    runs.log_run(agent, "another", "done", ME)
    assert path.read_bytes().startswith(entry(8) + entry(9) + entry(10) + b"## 2")


def test_it_was_made_without_memory(server: ModelServer, db: None) -> None:
    """What an agent without a section of memory is in the seed."""
    assert run("create_agent", "acme/ada", "--model", "openai/gpt", "--memory-off").code == 0
    ran = run("gc", "ada")
    assert (ran.code, ran.out) == (0, "")
    assert "does not have memory enabled" in ran.err
    assert run("gc", "--all").out == "No agents with memory enabled.\n"


# --- 5.3 the call


def test_the_answer_is_empty(make: Make, server: ModelServer) -> None:
    server.script = Say("")
    agent = make(last_n=3)
    assert told(run("gc", "ada"))[2:] == ["--- Analysis ---", "", "Trimmed: 7 entries removed, 3 entries kept."]
    assert entries(agent) == 3


def test_it_takes_too_long(make: Make, server: ModelServer, settings: Any) -> None:
    settings.MODEL_CALL_SECONDS = 0.3
    server.script = Slow(5)
    agent = make(last_n=3)
    ran = run("gc", "ada")
    assert ran.code == 3
    assert ran.err == "timeout: The OpenAI server did not answer in time.\n"
    assert log_of(agent) == of(10)


PROVIDERS = ("anthropic", "openai", "ollama")
CLASSES = {  # status: the class for each of the PROVIDERS, as the original program has it
    400: ("bad_request", "bad_request", "bad_request"),
    401: ("auth", "auth", "server"),
    403: ("server", "auth", "server"),
    404: ("server", "bad_request", "bad_request"),
    408: ("server", "server", "server"),
    413: ("server", "server", "server"),
    429: ("rate_limit", "rate_limit", "server"),
    500: ("server", "server", "server"),
    502: ("server", "server", "server"),
    503: ("server", "server", "server"),
    529: ("overloaded", "server", "server"),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", CLASSES)
def test_an_error_of_the_provider_has_the_class_of_its_status(
    make: Make, server: ModelServer, provider: str, status: int
) -> None:
    server.script = Status(status)
    agent = make(model=f"{provider}/any", last_n=3)
    ran = run("gc", "ada")
    kind = CLASSES[status][PROVIDERS.index(provider)]
    assert (ran.code, ran.err) == (1 if kind == "bad_request" else 3, f"{kind}: no\n")
    assert (len(server.requests), log_of(agent)) == (1, of(10))


@pytest.mark.parametrize("model", ["acme/gpt", "OpenAI/gpt"])
def test_a_provider_that_is_not_supported(make: Make, server: ModelServer, model: str) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada", "--model", model)
    provider = model.partition("/")[0]
    assert (ran.code, ran.err) == (
        1,
        f'unsupported provider "{provider}": supported providers are anthropic, openai, ollama\n',
    )
    assert (server.requests, log_of(agent)) == ([], of(10))


# --- 5.4 --all


def test_there_are_no_agents(server: ModelServer, db: None) -> None:
    ran = run("gc", "--all")
    assert (ran.code, ran.out, ran.err) == (0, "No agents with memory enabled.\n", "")


def test_1_of_5_fails(make: Make, server: ModelServer) -> None:
    made = [make(f"a{number}", last_n=3) for number in range(5)]
    server.script = lambda turn: Status(500) if turn.number == 2 else Say(REPORT)
    ran = run("gc", "--all")
    assert ran.code == 1
    assert ran.err == ('Error: gc failed for agent "a2": server: no\ngc completed with errors: 1 of 5 agents failed\n')
    assert [entries(agent) for agent in made] == [3, 3, 10, 3, 3]
    assert len(separators(ran)) == 5


# --- 5.5 how many are kept


@pytest.mark.parametrize(
    ("last_n", "max_entries", "kept"), [(5, 100, 5), (5, 0, 5), (0, 100, 100), (0, 0, 120), (10, 5, 10)]
)
def test_the_trim_target(make: Make, last_n: int, max_entries: int, kept: int) -> None:
    agent = make(entries=120, last_n=last_n, max_entries=max_entries)
    assert run("gc", "ada").code == 0
    assert entries(agent) == kept
