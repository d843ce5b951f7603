"""redact and erase_agent: one side requests, the other agrees, and the content is gone."""

import json
import os
import pty
import shutil
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings

from config import commandline
from config.keyring import keyring
from memory import errors
from memory.consent import redaction
from memory.management import removal
from memory.models import Agent, Memory
from memory.silo.keys import wrapping_key_id
from memory.silo.silo import Silo
from memory.writing import operations
from tests import refining, steps
from tests.commands.calling import MANAGE, ROOT, Installation, Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, last_entry, problems

AGENT_KEY = "PALIMPSEST_AGENT_KEY"


def redact(*more: str) -> Ran:
    return run("redact", "acme/ada", *more)


def erase(*more: str) -> Ran:
    return run("erase_agent", "acme/ada", *more)


@pytest.fixture
def past(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} milk", f"{MARKER} sugar")
    operations.consolidate(ada, [1, 2], f"{MARKER} tea with milk", ME)
    return ada


@pytest.fixture
def key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is in the environment."""
    monkeypatch.setenv(AGENT_KEY, house.ada_key)


def test_without_the_agents_key_a_redaction_is_requested(past: Agent) -> None:
    ran = redact("1", "2", "--reason", "request 17", "--asked-by", "jo@acme.test")
    number = last_entry(past).seq
    agree = f"{AGENT_KEY}=… manage.py redact acme/ada --agree {number}"
    assert (ran.code, ran.out) == (0, f"request {number} waits for the agent's side: {agree}\n")
    [waiting] = redact("--waiting", "--json").json
    assert (waiting["request"], waiting["memories"], waiting["asked_by"]) == (number, [1, 2], "jo@acme.test")
    assert "by jo@acme.test, memories 1, 2: request 17" in redact("--waiting").out
    assert redact("3", "--reason", "x", "--json").json == {"request": number + 1, "entry": None}


def test_only_the_agents_side_agrees(past: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    request = redact("1", "--reason", "request 17", "--json").json["request"]
    with refining.untouched(past):
        failed(redact("--agree", str(request), "--yes"), 2, AGENT_KEY)
        monkeypatch.setenv(AGENT_KEY, house.bob_key)
        failed(redact("--agree", str(request), "--yes"), 2, AGENT_KEY)
        monkeypatch.setenv(AGENT_KEY, house.ada_key)
        failed(redact("--agree", str(request)), 2, "--yes")
        failed(redact("--agree", str(request), "--json"), 2, "--yes")
        failed(redact("--agree", str(request + 1), "--yes"), 1, "There is no open request")
    ran = redact("--agree", str(request), "--yes", "--json")
    assert (ran.code, ran.json["memories"], ran.json["entry"]) == (0, [1, 4], request + 1)
    assert ran.json["request"] == request
    assert ran.json["lineage"] == [{"number": 4, "why": "merged", "state": "core"}]
    assert redact("--waiting").out == "no requests are waiting\n"
    assert problems(past) == []


def test_with_the_agents_key_a_redaction_is_done_at_once(past: Agent, key: None) -> None:
    ran = redact("1", "4", "--exclude", "2", "--reason", "request 17", "--yes")
    assert (ran.code, MARKER in ran.out + ran.err) == (0, False)
    assert ran.out.splitlines()[0] == f"redaction of 1, 4: as entry {last_entry(past).seq}"
    assert "content in the trail: 3 changes, 0 notes; active memories: 1" in ran.out
    assert "backups" in ran.out
    assert [entry.operation for entry in steps.entries(past)][-2:] == ["redaction_requested", "redacted"]
    assert run("verify_audit", "--all").code == 0


def test_nothing_is_removed_that_the_preview_did_not_show(past: Agent, house: House, monkeypatch: Any) -> None:
    """SQL could show the preview another request."""
    request = redact("1", "--reason", "request 17", "--json").json["request"]
    monkeypatch.setenv(AGENT_KEY, house.ada_key)
    seen = redaction.preview
    monkeypatch.setattr(redaction, "preview", lambda agent, *_: seen(agent, [3]))
    failed(redact("--agree", str(request), "--yes"), 1, "Something changed after the preview")
    assert all(memory.sealed for memory in Memory.objects.all())


def test_a_declined_request_is_closed(past: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    request = redact("1", "--reason", "request 17", "--json").json["request"]
    monkeypatch.setenv(AGENT_KEY, house.ada_key)
    assert redact("--decline", str(request)).out == f"request {request} was declined\n"
    failed(redact("--agree", str(request), "--yes"), 1, "There is no open request")


def test_a_preview_changes_nothing(past: Agent) -> None:
    with refining.untouched(past):
        ran, text = redact("1", "--preview", "--json"), redact("1", "--preview").out
        erased = erase("--preview", "--json")
    assert (ran.json["entry"], ran.json["changes"], ran.json["memories"]) == (None, 3, [1, 4])
    assert "lineage: memory 4 (core), too: it is the result of a merge with a redacted memory" in text
    assert (erased.json["entry"], erased.json["memories"], erased.json["others"]) == (None, 4, 1)


def test_a_constitutional_memory_needs_an_option(past: Agent, key: None) -> None:
    steps.protect(past, 3)
    with refining.untouched(past):
        failed(redact("3", "--reason", "x", "--yes"), 1, "--include-constitutional", "Nothing was removed")
    assert redact("3", "--reason", "x", "--yes", "--include-constitutional").code == 0


def test_invalid_arguments_change_nothing(past: Agent) -> None:
    rows: list[tuple[tuple[str, ...], int, str]] = [
        ((), 2, "give the ids"),
        (("1", "--waiting"), 2, "give the ids"),
        (("1", "--agree", "3"), 2, "give the ids"),
        (("1",), 2, "--reason"),
        (("1", "--reason", " "), 2, "--reason"),
        (("9", "--reason", "x"), 1, "No such memory: 9"),
        (("1", "1", "--reason", "x"), 1, "more than once: 1"),
        (("one", "--reason", "x"), 2, "invalid int"),
        (("1", "--reason", "x" * 501), 2, "reason: is longer than 500 characters"),
        (("--agree", "1", "--decline", "1"), 2, "not allowed with"),
        (("--decline", "1"), 2, AGENT_KEY),
    ]
    with refining.untouched(past):
        for arguments, code, words in rows:
            failed(redact(*arguments), code, words)


def test_an_erased_silo_cannot_be_used(past: Agent, key: None) -> None:
    silo_key = wrapping_key_id(bytes(fresh(past).wrapped_key))
    ran = erase("--reason", "request 18", "--yes")
    assert ran.code == 0
    assert f"wrapped by silo key {silo_key}; the backup can be opened until it is deleted" in ran.out
    failed(run("export_memories", "acme/ada"), 2, "erased")
    failed(run("refine", "acme/ada"), 2, "erased")
    failed(run("gc", "ada"), 2, "erased")
    assert run("gc", "--all", "--tenant", "acme").out == "No agents with memory enabled.\n"
    failed(run("import_memories", "acme/ada", "-", stdin=b'{"content": "x"}'), 2, "erased")
    failed(erase("--reason", "again", "--yes"), 2, "erased")
    assert run("verify_audit", "--all").code == 0


def test_without_the_agents_key_an_erasure_is_requested(past: Agent, house: House, monkeypatch: Any) -> None:
    request = erase("--reason", "request 18", "--json").json["request"]
    assert "the whole silo: request 18" in erase("--waiting").out
    failed(erase("--agree", str(request), "--yes"), 2, AGENT_KEY)
    monkeypatch.setenv(AGENT_KEY, house.ada_key)
    assert erase("--agree", str(request), "--yes", "--json").json["entry"] == request + 1


def test_an_erasure_can_start_a_rotation(past: Agent, house: House, key: None, settings: Any, tmp_path: Path) -> None:
    for name in ("django", "silo", "audit", "pepper", "heads"):
        shutil.copy(Path(django_settings.KEYS_DIR) / name, tmp_path / name)
    settings.SILO_KEYS = (tmp_path / "silo").read_text().strip()
    failed(erase("--reason", "x", "--yes", "--start-rotation"), 2, "SILO_KEYS")
    assert fresh(past).wrapped_key, "nothing is erased"
    settings.SILO_KEYS, settings.KEYS_DIR = "", tmp_path
    old = keyring().silo[0].id
    ran = erase("--reason", "x", "--yes", "--start-rotation", "--json")
    assert (ran.code, ran.json["silo_key"]) == (0, old)
    assert wrapping_key_id(bytes(fresh(house.bob).wrapped_key)) == keyring().silo[0].id != old
    assert Silo.for_agent(fresh(house.bob))
    assert run("verify_audit", "--all").code == 0


def with_two_memories(service: Installation) -> dict[str, str]:
    """Create an agent with two memories. Returns the environment variable with its key."""
    key = {AGENT_KEY: service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe").json["key"]}
    lines = "".join(json.dumps({"content": f"{MARKER} {text} {'x' * 5_000}"}) + "\n" for text in ("tea", "milk"))
    assert service.manage("import_memories", "acme/ada", "-", stdin=lines.encode()).code == 0
    return key


@pytest.mark.sqlite
def test_removed_content_does_not_stay_in_the_files_of_the_database(service: Installation) -> None:
    key = with_two_memories(service)
    [database] = service.folder.rglob("*.sqlite3")

    def is_on_disk(content: bytes) -> bool:
        return content in b"".join(path.read_bytes() for path in service.folder.rglob("*sqlite3*"))

    with closing(sqlite3.connect(database)) as client:
        rows = client.execute("SELECT sealed FROM memory_memory ORDER BY number").fetchall()
        [[wrapped]] = client.execute("SELECT wrapped_key FROM memory_agent").fetchall()
    redacted, other = (sealed[1000:1100] for (sealed,) in rows)
    assert is_on_disk(redacted)
    assert service.manage("redact", "acme/ada", "1", "--reason", "x", "--yes", **key).code == 0
    assert [is_on_disk(each) for each in (redacted, other, wrapped)] == [False, True, True]
    assert service.manage("erase_agent", "acme/ada", "--reason", "x", "--yes", **key).code == 0
    assert not is_on_disk(wrapped)
    assert service.manage("verify_audit", "--all").code == 0


COMMANDS = [("redact", "1", "--reason", "x"), ("rollback", "--to-entry", "0"), ("erase_agent", "--reason", "x")]


def assert_asked(ran: Ran, code: int) -> None:
    assert (ran.code, "Do it? [y/N]" in ran.out + ran.err) == (code, True)
    assert ran.out.count("not done") + ran.out.count("preview of") == 1
    assert ("Nothing was" in ran.out + ran.err) == (code == 1)


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_a_command_at_a_terminal_shows_a_preview_and_asks(past: Agent, key: None, answer: str, code: int) -> None:
    first, second = (mock.patch.object(module, "is_attended", return_value=True) for module in (commandline, removal))
    with first, second:
        for name, *arguments in COMMANDS:
            assert_asked(run(name, "acme/ada", *arguments, stdin=answer.encode()), code)


def test_a_command_asks_at_a_real_terminal(service: Installation) -> None:
    environment = service.environment | with_two_memories(service)
    for (name, *arguments), answer, code in zip(COMMANDS, (b"n\n", b"y\n", b"y\n"), (1, 0, 0), strict=True):
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as terminal, os.fdopen(theirs, "r+b", buffering=0) as other:
            command = [*MANAGE, name, "acme/ada", *arguments]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=other, stdout=other, stderr=other)
            other.close()
            terminal.write(answer)
            shown = b""
            with suppress(OSError):  # when the process ends, its side of the terminal is closed
                while received := terminal.read(4_096):
                    shown += received
        assert_asked(Ran(process.wait(60), shown.decode(), ""), code)


def test_a_memory_that_was_redacted_before_the_answer_is_reported(past: Agent, key: None) -> None:
    with mock.patch.object(redaction, "redact", side_effect=errors.Redacted([1])):
        failed(redact("1", "--reason", "x", "--yes"), 1, "Redacted permanently: 1.")
