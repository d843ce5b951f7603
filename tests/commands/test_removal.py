"""redact and erase_agent: asked for by one side, agreed to by the other, and gone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings

from config import commandline
from config.keyring import keyring
from memory import errors
from memory.consent import redaction, removal_requests
from memory.management import removal
from memory.models import Agent
from memory.silo.keys import wrapping_key_id
from memory.silo.silo import Silo
from memory.writing import operations
from tests import refining, steps
from tests.commands.calling import Installation, Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, last_entry, problems

REDACT, ERASE = ("redact", "acme/ada"), ("erase_agent", "acme/ada")


def redact(*more: str) -> Ran:
    return run(*REDACT, *more)


@pytest.fixture
def past(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} milk", f"{MARKER} sugar")
    operations.consolidate(ada, [1, 2], f"{MARKER} tea with milk", ME)
    return ada


@pytest.fixture
def key(house: House, monkeypatch: pytest.MonkeyPatch) -> str:
    """The agent's own, in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    return house.ada_key


def test_without_the_agents_key_it_is_asked_for(past: Agent) -> None:
    ran = redact("1", "2", "--reason", "request 17", "--asked-by", "jo@acme.test")
    number = last_entry(past).seq
    assert ran.code == 0
    assert ran.out == (
        f"request {number} waits for the agent's side: "
        f"PALIMPSEST_AGENT_KEY=… manage.py redact acme/ada --agree {number}\n"
    )
    [waiting] = redact("--waiting", "--json").json
    assert (waiting["request"], waiting["memories"], waiting["asked_by"]) == (number, [1, 2], "jo@acme.test")
    assert "by jo@acme.test, memories 1, 2: request 17" in redact("--waiting").out
    assert redact("3", "--reason", "x", "--json").json == {"request": number + 1, "entry": None}


def test_the_agents_side_agrees(past: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = redact("1", "--reason", "request 17", "--json").json["request"]
    with refining.untouched(past):
        failed(redact("--agree", str(asked), "--yes"), 2, "PALIMPSEST_AGENT_KEY")
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.bob_key)
        failed(redact("--agree", str(asked), "--yes"), 2, "PALIMPSEST_AGENT_KEY")
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
        failed(redact("--agree", str(asked)), 2, "--yes")
        failed(redact("--agree", str(asked), "--json"), 2, "--yes")
        failed(redact("--agree", str(asked + 1), "--yes"), 1, "There is no open request")
    ran = redact("--agree", str(asked), "--yes", "--json")
    assert (ran.code, ran.json["memories"], ran.json["entry"], ran.json["request"]) == (0, [1], asked + 1, asked)
    assert ran.json["related"] == [{"number": 4, "why": "merged", "state": "active"}]
    assert redact("--waiting").out == "no requests are waiting\n"
    assert problems(past) == []


def test_with_the_agents_key_it_is_asked_and_done_at_once(past: Agent, key: str) -> None:
    ran = redact("1", "4", "--reason", "request 17", "--yes")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"redaction of 1, 4: as entry {last_entry(past).seq}"
    assert "content in the trail: 3 changes, 0 notes; active memories: 1" in ran.out
    assert "backups" in ran.out
    assert MARKER not in ran.out + ran.err
    assert [entry.operation for entry in steps.entries(past)][-2:] == ["redaction_requested", "redacted"]
    assert run("verify_audit", "--all").code == 0


def test_the_agents_side_declines(past: Agent, key: str) -> None:
    asked = _asked(past)
    assert redact("--decline", str(asked)).out == f"request {asked} was declined\n"
    failed(redact("--agree", str(asked), "--yes"), 1, "There is no open request")


def _asked(agent: Agent) -> int:
    return removal_requests.ask_redaction(agent, [1], steps.PERSON, reason="asked").number


def test_a_preview_changes_nothing(past: Agent) -> None:
    with refining.untouched(past):
        ran, told = redact("1", "--preview", "--json"), redact("1", "--preview")
        erased = run(*ERASE, "--preview", "--json")
    assert (ran.json["entry"], ran.json["changes"], ran.json["memories"]) == (None, 2, [1])
    assert (
        "to decide: memory 4 (active) may have the same content: it is the result of a merge with a redacted memory"
        in told.out
    )
    assert (erased.json["entry"], erased.json["memories"], erased.json["others"]) == (None, 4, 1)


def test_a_constitutional_memory_needs_to_be_meant(past: Agent, key: str) -> None:
    steps.protect(past, 3)
    with refining.untouched(past):
        failed(redact("3", "--reason", "asked", "--yes"), 1, "--include-constitutional", "Nothing was removed")
    assert redact("3", "--reason", "asked", "--yes", "--include-constitutional").code == 0


def test_what_is_wrong_is_told(past: Agent) -> None:
    rows: list[tuple[tuple[str, ...], int, str]] = [
        ((), 2, "give the ids"),
        (("1", "--waiting"), 2, "give the ids"),
        (("1", "--agree", "3"), 2, "give the ids"),
        (("1",), 2, "--reason"),
        (("1", "--reason", " "), 2, "--reason"),
        (("9", "--reason", "asked"), 1, "No such memory: 9"),
        (("1", "1", "--reason", "asked"), 1, "more than once: 1"),
        (("one", "--reason", "asked"), 2, "invalid int"),
        (("1", "--reason", "x" * 501), 2, "reason: is longer than 500 characters"),
        (("--agree", "1", "--decline", "1"), 2, "not allowed with"),
        (("--decline", "1"), 2, "PALIMPSEST_AGENT_KEY"),
    ]
    with refining.untouched(past):
        for arguments, code, word in rows:
            failed(redact(*arguments), code, word)


# --- erase_agent


def test_a_silo_is_erased(past: Agent, key: str) -> None:
    silo_key = wrapping_key_id(bytes(fresh(past).wrapped_key))
    ran = run(*ERASE, "--reason", "request 18", "--yes")
    assert ran.code == 0
    assert f"wrapped by silo key {silo_key}; it can be opened until the backup is deleted" in ran.out
    failed(run("export_memories", "acme/ada"), 2, "erased")
    failed(run("refine", "acme/ada"), 2, "erased")
    failed(run("import_memories", "acme/ada", "-", stdin=b'{"content": "x"}'), 2, "erased")
    failed(run(*ERASE, "--reason", "again", "--yes"), 2, "erased")
    assert run("verify_audit", "--all").code == 0


def test_without_the_agents_key_an_erasure_is_asked_for(past: Agent, house: House, monkeypatch: Any) -> None:
    asked = run(*ERASE, "--reason", "request 18", "--json").json["request"]
    assert "the whole silo: request 18" in run(*ERASE, "--waiting").out
    failed(run(*ERASE, "--agree", str(asked), "--yes"), 2, "PALIMPSEST_AGENT_KEY")
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert run(*ERASE, "--agree", str(asked), "--yes", "--json").json["entry"] == asked + 1


def test_rotation_is_started(past: Agent, house: House, key: str, settings: Any, tmp_path: Path) -> None:
    for name in ("django", "silo", "audit", "pepper", "heads"):
        shutil.copy(Path(django_settings.KEYS_DIR) / name, tmp_path / name)
    settings.KEYS_DIR = tmp_path
    old = keyring().silo[0].id
    ran = run(*ERASE, "--reason", "asked", "--yes", "--start-rotation", "--json")
    assert (ran.code, ran.json["silo_key"]) == (0, old)
    newest = keyring().silo[0].id
    assert newest != old
    assert wrapping_key_id(bytes(fresh(house.bob).wrapped_key)) == newest
    assert Silo.for_agent(fresh(house.bob))
    assert run("verify_audit", "--all").code == 0


def test_a_rotation_that_cannot_be_started_is_told_before_anything_is_erased(
    past: Agent, key: str, settings: Any
) -> None:
    settings.SILO_KEYS = (Path(django_settings.KEYS_DIR) / "silo").read_text().strip()
    failed(run(*ERASE, "--reason", "asked", "--yes", "--start-rotation"), 2, "SILO_KEYS")
    assert fresh(past).wrapped_key


# --- in processes of their own


def made(service: Installation) -> str:
    """An agent with memories; its key."""
    created = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe")
    lines = "".join(json.dumps({"content": f"{MARKER} {text} {'x' * 5_000}"}) + "\n" for text in ("tea", "milk"))
    assert service.manage("import_memories", "acme/ada", "-", stdin=lines.encode()).code == 0
    return str(created.json["key"])


def on_disk(service: Installation) -> bytes:
    return b"".join(path.read_bytes() for path in service.folder.rglob("*sqlite3*"))


@pytest.mark.sqlite
def test_what_is_removed_does_not_stay_in_the_databases_files(service: Installation) -> None:
    key = made(service)
    [database] = service.folder.rglob("*.sqlite3")
    with closing(sqlite3.connect(database)) as client:
        rows = client.execute("SELECT sealed FROM memory_memory ORDER BY number").fetchall()
        [[wrapped]] = client.execute("SELECT wrapped_key FROM memory_agent").fetchall()
    (first,), (second,) = rows
    middle = first[1000:1100]
    assert middle in on_disk(service)
    assert service.manage("redact", "acme/ada", "1", "--reason", "x", "--yes", PALIMPSEST_AGENT_KEY=key).code == 0
    assert middle not in on_disk(service)
    assert second[1000:1100] in on_disk(service)
    assert wrapped in on_disk(service)
    assert service.manage("erase_agent", "acme/ada", "--reason", "x", "--yes", PALIMPSEST_AGENT_KEY=key).code == 0
    assert wrapped not in on_disk(service)
    assert service.manage("verify_audit", "--all").code == 0


ASKING = (
    ("redact", "acme/ada", "1", "--reason", "x"),
    ("rollback", "acme/ada", "--to-entry", "0"),
    ("erase_agent", "acme/ada", "--reason", "x"),
)


def was_asked(ran: Ran, code: int) -> None:
    assert ran.code == code
    assert "Do it? [y/N]" in ran.out + ran.err
    assert ran.out.count("not done") + ran.out.count("preview of") == 1
    assert ("Nothing was" in ran.out + ran.err) == (code == 1)


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_at_a_terminal_it_is_shown_and_asked(past: Agent, key: str, answer: str, code: int) -> None:
    asks = [mock.patch.object(module, "is_attended", return_value=True) for module in (commandline, removal)]
    with asks[0], asks[1]:
        for command in ASKING:
            was_asked(run(*command, stdin=answer.encode()), code)


def test_so_it_is_at_a_real_terminal(service: Installation) -> None:
    key = made(service)
    for command, (answer, code) in zip(ASKING, (("n", 1), ("y", 0), ("y", 0)), strict=True):
        was_asked(service.typed(*command, answer=answer, PALIMPSEST_AGENT_KEY=key), code)


def test_a_memory_gone_meanwhile_is_told(past: Agent, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the question and the answer somebody else redacted it."""

    def late(*_: Any, **__: Any) -> Any:
        raise errors.Redacted([1])

    monkeypatch.setattr(redaction, "redact", late)
    failed(redact("1", "--reason", "asked", "--yes"), 1, "Redacted permanently: 1.")
