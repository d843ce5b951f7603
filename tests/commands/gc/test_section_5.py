"""The rows of the tables in seed 001, section 5, that neither the 81 cases nor test_gc.py hold: with a memory file."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.run_log import runs
from memory.run_log.files import Folder
from tests.commands.calling import run
from tests.commands.gc.logs import ME, REPORT, Make, log_of, separators, told
from tests.model_server import ModelServer, Say, Slow, Status
from tests.unit.test_memory_file import entry, of


def entries(agent: Agent) -> int:
    return log_of(agent).count(b"## ")


# --- 5.1 the memory file


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


# --- 5.2 the agent


def test_the_model_given_has_no_such_form(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)
    for model in ("gpt", "/gpt", "openai/"):
        ran = run("gc", "ada", "--model", model)
        assert ran.code == 1
        assert f'invalid model format "{model}"' in ran.err
    for provider in ("acme", "OpenAI"):
        ran = run("gc", "ada", "--model", f"{provider}/gpt")
        told = f'unsupported provider "{provider}": supported providers are anthropic, openai, ollama\n'
        assert (ran.code, ran.err) == (1, told)
    for model in ("openai/gpt\n", "open\nai/gpt"):
        assert run("gc", "ada", "--model", model).code == 1
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
def test_an_error_of_the_provider_has_the_class_of_its_status(make: Make, server: ModelServer, provider: str) -> None:
    agent = make(model=f"{provider}/any", last_n=3)
    for status, kinds in CLASSES.items():
        server.script = Status(status)
        ran = run("gc", "ada")
        kind = kinds[PROVIDERS.index(provider)]
        assert (ran.code, ran.err) == (1 if kind == "bad_request" else 3, f"{kind}: no\n"), status
    assert (len(server.requests), log_of(agent)) == (len(CLASSES), of(10))


# --- 5.4 --all


def test_1_of_5_fails(make: Make, server: ModelServer) -> None:
    made = [make(f"a{number}", last_n=3) for number in range(5)]
    server.script = lambda turn: Status(500) if turn.number == 2 else Say(REPORT)
    ran = run("gc", "--all")
    assert ran.code == 1
    assert ran.err == ('Error: gc failed for agent "a2": server: no\ngc completed with errors: 1 of 5 agents failed\n')
    assert [entries(agent) for agent in made] == [3, 3, 10, 3, 3]
    assert len(separators(ran)) == 5
