"""Commands as separate processes: signals, a missing database, encodings, a closed pipe, the demo."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import comparing
from tests.commands.calling import ROOT, Installation, failed, run
from tests.conftest import House
from tests.model_server import YES, Action, ModelServer, Slow, Turn, is_check, tidy
from tests.privacy.marker import MARKER
from tests.refining import filler

pytestmark = pytest.mark.slow


def create_agent(service: Installation, model: str, *contents: str) -> str:
    """Create acme/ada with these memories. Returns its key."""
    created = service.manage("create_agent", "acme/ada", "--model", model)
    lines = "\n".join(json.dumps({"content": content}) for content in contents)
    imported = service.manage("import_memories", "acme/ada", "-", "--json", stdin=lines.encode())
    assert imported.json["imported"] == len(contents)
    return str(created.json["key"])


def test_a_signal_closes_the_session_so_that_the_next_one_starts_at_once(service: Installation) -> None:
    create_agent(service, "openai/scripted", *(f"{MARKER} saw {n} gulls" for n in range(10)))
    called = threading.Event()

    def wait(turn: Turn) -> Action:
        if is_check(turn):
            return YES
        called.set()
        return Slow(60)

    refine = [sys.executable, "manage.py", "refine", "acme/ada", "--json"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        called.clear()
        with ModelServer(wait) as server:
            variables = service.environment | {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
            pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(refine, cwd=ROOT, env=variables, text=True, **pipes)
            assert called.wait(60)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (1, "", "error: interrupted\n"), number
    with ModelServer(tidy) as server:
        model = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        ran = service.manage("refine", "acme/ada", "--json", **model)
    assert (ran.code, ran.json["session"], ran.json["outcome"]) == (0, 4, "completed")
    assert service.manage("verify_audit", "acme/ada").code == 0


def test_a_service_without_keys_or_tables_says_how_to_make_them(tmp_path: Path) -> None:
    service = Installation(tmp_path)
    failed(service.manage("verify_audit", "--all"), 2, "create_keys")
    assert service.manage("create_keys").code == 0
    failed(service.manage("verify_audit", "--all"), 2, "manage.py migrate")


def test_output_is_utf8_and_a_closed_pipe_is_no_error(service: Installation) -> None:
    text = f"{MARKER} 日本 – naïve 🦓"
    key = {
        "PALIMPSEST_AGENT_KEY": create_agent(
            service, "builtin/dedupe", text, *(f"{n} {'long ' * 1_900}" for n in range(60))
        )
    }
    ran = service.manage("export_memories", "acme/ada", **key, PYTHONIOENCODING="latin-1")
    assert (ran.code, json.loads(ran.out.splitlines()[0])["content"]) == (0, text)
    ran = service.shell("$manage export_memories acme/ada | head -c 10", **key)
    assert (ran.out, ran.err) == ('{"id": 1, ', "")


def test_an_argument_that_is_not_utf8_is_a_usage_error(service: Installation) -> None:
    failed(service.shell("$manage refine \"$(printf 'acme/\\377')\""), 2, "error:")


def test_a_runtime_over_http_and_the_service_refine_alike(service: Installation, tmp_path: Path) -> None:
    """With the same decisions, in several batches; tests/api/test_sessions.py has sessions of one batch."""
    ledger = tmp_path / "ledger.jsonl"
    with ledger.open("w") as file:
        for number in range(60):
            fact = f"{'Ann' if number % 2 else 'Ben'}  said on day {number % 50} that {filler(20, number % 50)}."
            tags = ["said", f"t{number % 3}"] if number % 4 == 0 else []
            date = f"2025-03-{number % 27 + 1:02}T09:30:00Z"
            file.write(json.dumps({"content": fact, "created_at": date, "tags": tags}) + "\n")
    done = comparing.compare(ledger, service.environment | {"DATABASE_URL": "", "BATCH_TOKENS": "700"})
    assert done.differences == []
    assert (done.memories, done.served["outcome"]) == (60, "completed")
    counts = ("duplicates_removed", "merged", "updated", "protected")
    assert min(done.refused, *(done.served[name] for name in counts)) > 0
    assert done.served["tokens_after"] < done.served["tokens_before"]
    assert service.manage("verify_audit", "--all").code == 0


DEMO_LEDGER = [json.loads(line) for line in (ROOT / "refinement/demo/ledger.jsonl").read_text("utf-8").splitlines()]


def test_the_demo_prints_the_same_report_each_time(tmp_path: Path) -> None:
    def demo(name: str) -> str:
        ran = Installation(tmp_path / name).manage("demo")
        assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
        return re.sub(r"Done in [\d.]+ seconds|(?<=VAR_DIR=)\S+|(?<=password ).*|(?<=app's key ).*", "", ran.out)

    text = demo("first")
    assert demo("second") == text
    for words in ("target", "floor", "exact duplicates removed", "near-duplicates merged", "constitutional"):
        assert words in text
    numbers = {
        name: [int(n.replace(",", "")) for n in re.findall(rf"{name}\D+([\d,]+)\D+([\d,]+)", text)[0]]
        for name in ("core memory, tokens", "core memories")
    }
    before, after = numbers["core memory, tokens"]
    assert before > after > 0
    assert numbers["core memories"][0] == sum(row.get("kind") != "journal" for row in DEMO_LEDGER)
    assert f"has {len(DEMO_LEDGER):,} memories" in text
    assert re.search(r"Audit trail \d+ entries, valid", text)
    assert len(re.findall(r"^  \+ #\d+ \d{4}-\d\d-\d\d ", text, re.M)) == 2


def test_the_demo_refuses_a_database_that_has_agents(house: House) -> None:
    failed(run("demo"), 1, "already has agents")
