"""An agent's run log over the API: runs come in, and reports go only to the agent."""

import fcntl
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from memory.agents import rule_changes
from memory.errors import MemoryDisabled
from memory.models import Agent, Memory
from memory.run_log import files
from memory.writing import operations
from refinement import gc_reports
from refinement.models import GcReport
from tests.api.calling import Answer, Caller
from tests.conftest import House
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.steps import PERSON, fresh, says, signed_update

REPORT = f"## Patterns Found\n{MARKER} tea.\n\n## Recommendations\nMore {MARKER} tea.\n"


def log(runtime: Caller, key: str = "", **body: Any) -> Answer:
    headers = {"idempotency_key": key} if key else {}
    return runtime.post("runs", {"task": "Brew\ntea", "result": "done"} | body, **headers)


def keep(agent: Agent, text: str = REPORT) -> None:
    gc_reports.keep(fresh(agent), text, model="openai/gpt", entries=7)


@pytest.fixture
def memory_file(house: House, tmp_path: Path, settings: Any) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    path = tmp_path / "ada.md"
    signed_update(Agent.objects.filter(pk=house.ada.pk), memory_path=str(path))
    return path


def test_a_run_is_a_journal_memory(runtime: Caller, house: House) -> None:
    answer = log(runtime, result="one\n## two\n" + "x" * 2_000)
    assert answer.status == 201
    row = Memory.objects.get(agent=house.ada, number=answer.json["id"])
    assert (row.kind, row.source) == ("journal", "run")
    content = says(house.ada, row.number).content
    assert content.startswith("**Task:** Brew tea\n**Result:** one\n\\## two\nxxx")
    assert len(content) == len("**Task:** Brew tea\n**Result:** \\") + 1_000
    blank = log(runtime, result=" " * 1_000 + "the answer").json["id"]
    assert says(house.ada, blank).content == "**Task:** Brew tea\n**Result:** "


def test_a_run_goes_to_the_memory_file_if_there_is_one(runtime: Caller, house: House, memory_file: Path) -> None:
    memory_file.write_text("## before\nno newline at its end")
    assert log(runtime).json == {"id": None}
    text = memory_file.read_text()
    assert text.startswith("## before\nno newline at its end\n## 20")
    assert text.endswith("Z\n**Task:** Brew tea\n**Result:** done\n\n")
    assert operations.runs(fresh(house.ada)).count() == 0


def test_an_error_of_the_memory_file_does_not_name_its_path(
    runtime: Caller, house: House, memory_file: Path, settings: Any
) -> None:
    settings.VAULT_ROOTS = [str(memory_file.with_name("elsewhere"))]
    with logbook.kept() as lines:
        answer = log(runtime)
    assert (answer.status, str(memory_file.parent).encode() in answer.content) == (503, False)
    [fault] = [line for line in lines.text.splitlines() if '"logger": "palimpsest.api"' in line]  # and no traceback
    assert f'"agent": {house.ada.pk}, "code": "memory_file_elsewhere"' in fault


def test_an_idempotency_key_logs_once(runtime: Caller, house: House) -> None:
    assert log(runtime, "one").json == log(runtime, "one").json
    assert operations.runs(fresh(house.ada)).count() == 1


def test_an_invalid_run_is_refused(runtime: Caller) -> None:
    for body in ({"task": ""}, {"task": " \n "}, {"task": 5}, {"result": None}, {"more": "x"}):
        assert log(runtime, **body).status == 422, body


def test_only_the_agent_reads_its_reports(runtime: Caller, stranger: Caller, acme: Caller, house: House) -> None:
    keep(house.ada)
    [report] = runtime.get("gc-reports").json["results"]
    assert report == runtime.get("gc-reports/1").json
    assert (report["patterns_found"], report["repeated_work"]) == (f"{MARKER} tea.", "")
    assert (report["recommendations"], report["missing"]) == (f"More {MARKER} tea.", ["Repeated Work"])
    assert report["text"] == REPORT
    assert stranger.get("gc-reports").json["results"] == []
    assert (stranger.get("gc-reports/1").status, acme.get("gc-reports").status) == (404, 403)


def test_no_report_is_stored_while_memory_is_off(house: House) -> None:
    rule_changes.change(fresh(house.ada), PERSON, enabled=False)
    with pytest.raises(MemoryDisabled):
        keep(house.ada)
    assert not GcReport.objects.exists()


def test_reports_are_paginated(runtime: Caller, house: House) -> None:
    for number in range(1, 6):
        keep(house.ada, f"report {number}")
    first = runtime.get("gc-reports?limit=2")
    rest = runtime.get(f"gc-reports?limit=3&cursor={first.json['next']}")
    assert (first.ids, rest.ids) == ([5, 4], [3, 2, 1])
    assert rest.json["results"][0]["missing"] == ["Patterns Found", "Repeated Work", "Recommendations"]


def test_the_agents_side_sets_the_log_but_not_its_path(runtime: Caller) -> None:
    answer = runtime.patch("agent", {"last_n": 5, "max_entries": 9, "context_tokens": 1_000})
    assert answer.json["log"] == {"file": None, "last_n": 5, "max_entries": 9, "context_tokens": 1_000}
    assert runtime.patch("agent", {"memory_path": "/etc/passwd"}).status == 422


def test_a_run_waits_for_the_file_outside_a_transaction(
    runtime: Caller, memory_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` locks the file first and then writes to the trail. The other order would be a deadlock."""
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    memory_file.touch()
    before = transaction.get_connection().savepoint_ids[:]
    in_transaction: list[bool] = []
    lock = files.lock

    def noting(number: int) -> None:
        in_transaction.append(transaction.get_connection().savepoint_ids != before)
        lock(number)

    monkeypatch.setattr("memory.run_log.files.lock", noting)
    with memory_file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        answer = log(runtime, "one")
    assert (answer.status, answer.codes, in_transaction) == (503, ["memory_file"], [False])
    assert log(runtime, "one").status == 201
    assert memory_file.read_text().count("## ") == 1
