"""Whole roads in processes of their own, with keys, database and environment of their own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.commands import scripted
from tests.commands.calling import ROOT, Installation, Ran, failed
from tests.model_server import Action, ModelServer, Slow, Turn, tidy
from tests.privacy.marker import MARKER


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def made(service: Installation, model: str, ledger: bytes) -> str:
    """An agent acme/ada with these memories; its key."""
    created = service.manage("create_agent", "acme/ada", "--model", model)
    assert created.code == 0, created
    imported = service.manage("import_memories", "acme/ada", "-", "--json", stdin=ledger)
    assert imported.code == 0, imported
    assert imported.json["imported"] == len(ledger.splitlines())
    return str(created.json["key"])


def exported(service: Installation, key: str, *more: str) -> list[dict[str, Any]]:
    ran = service.manage("export_memories", "acme/ada", *more, PALIMPSEST_AGENT_KEY=key)
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_an_agent_refines_its_memory_with_its_own_model(service: Installation) -> None:
    key = made(service, "openai/scripted", lines(*scripted.LEDGER))
    with ModelServer(tidy) as server:
        address = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        ran = service.manage("refine", "acme/ada", "--json", **address)
        assert (len(server.requests), server.refused) == (2, [])
    assert (ran.code, ran.err) == (0, "")
    assert MARKER not in ran.out
    scripted.figures(ran.json)
    scripted.outcome(exported(service, key, "--with-discarded"))
    verified = service.manage("verify_audit", "acme/ada", "--json")
    assert (verified.code, verified.json["valid"], verified.json["problems"]) == (0, True, [])


def test_a_session_that_is_asked_to_stop_is_closed_at_once(service: Installation) -> None:
    """Nobody waits for its lease: each of the next ones begins."""
    made(service, "openai/scripted", lines(*scripted.LEDGER))
    asked = threading.Event()

    def thinks(_: Turn) -> Action:
        asked.set()
        return Slow(60)

    for by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asked.clear()
        with ModelServer(thinks) as server:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "refine", "acme/ada", "--json"],
                cwd=ROOT,
                env=service.environment | {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert asked.wait(60)
            process.send_signal(by)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (1, "", "error: interrupted\n"), by
    with ModelServer(tidy) as server:
        address = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        again = service.manage("refine", "acme/ada", "--json", **address)
    assert (again.code, again.json["session"], again.json["outcome"]) == (0, 4, "completed")
    assert service.manage("verify_audit", "acme/ada").code == 0


def test_a_service_without_tables_says_how_they_are_made(tmp_path: Path) -> None:
    service = Installation(tmp_path)
    failed(service.manage("verify_audit", "--all"), 2, "create_keys")
    assert service.manage("create_keys").code == 0
    failed(service.manage("verify_audit", "--all"), 2, "manage.py migrate")


def test_results_are_utf8_and_their_reader_may_go_away(service: Installation) -> None:
    said = f"{MARKER} 日本 – naïve 🦓"
    more = ({"content": f"{n} {'long ' * 1_900}"} for n in range(60))
    key = made(service, "builtin/dedupe", lines({"content": said}, *more))
    ran = service.manage("export_memories", "acme/ada", PALIMPSEST_AGENT_KEY=key, PYTHONIOENCODING="latin-1")
    assert (ran.code, json.loads(ran.out.splitlines()[0])["content"]) == (0, said)
    ran = shell(service, f"{sys.executable} manage.py export_memories acme/ada | head -c 10", key)
    assert (ran.out, ran.err) == ('{"id": 1, ', "")


def test_an_argument_that_is_no_text_is_a_usage_error(service: Installation) -> None:
    failed(shell(service, f"{sys.executable} manage.py refine \"$(printf 'acme/\\377')\""), 2, "error:")


def test_keys_stay_outside_the_data_and_are_for_their_owner_alone(service: Installation) -> None:
    keys = service.folder / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir()} == {0o600}
    assert not list((service.folder / "data").rglob("silo*"))


def shell(service: Installation, line: str, key: str = "") -> Ran:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    folders = {"VAR_DIR": str(service.folder), "KEYS_DIR": str(service.folder / "keys")}
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=ROOT,
        env=environment | folders | {"PALIMPSEST_AGENT_KEY": key},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
