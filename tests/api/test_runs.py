"""An agent's log over the API: runs come in, reports go out, to the agent alone."""

from __future__ import annotations

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
from tests.api.calling import Caller
from tests.conftest import House
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.steps import PERSON, fresh, says

REPORT = f"## Patterns Found\n{MARKER} tea.\n\n## Recommendations\nMore {MARKER} tea.\n"


def log(runtime: Caller, **body: Any) -> Any:
    return runtime.post("runs", {"task": "Brew\ntea", "result": "done"} | body)


def test_a_run_is_a_journal_memory(runtime: Caller, house: House) -> None:
    answer = log(runtime, result="one\n## two\n" + "x" * 2_000)
    assert answer.status == 201
    row = Memory.objects.get(agent=house.ada, number=answer.json["id"])
    assert (row.kind, row.source) == ("journal", "run")
    said = says(house.ada, row.number).content
    assert said.startswith("**Task:** Brew tea\n**Result:** one\n\\## two\nxxx")
    assert len(said) == len("**Task:** Brew tea\n**Result:** \\") + 1_000
    blank = log(runtime, result=" " * 1_000 + "the answer").json["id"]
    assert says(house.ada, blank).content == "**Task:** Brew tea\n**Result:** "


def test_a_run_goes_to_the_memory_file_where_there_is_one(
    runtime: Caller, house: House, tmp_path: Path, settings: Any
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    path = tmp_path / "ada.md"
    path.write_text("## before\nno newline at its end")
    Agent.objects.filter(pk=house.ada.pk).update(memory_path=str(path))
    assert log(runtime).json == {"id": None}
    assert path.read_text().startswith("## before\nno newline at its end\n## 20")
    assert path.read_text().endswith("Z\n**Task:** Brew tea\n**Result:** done\n\n")
    assert operations.runs(fresh(house.ada)).count() == 0


def test_a_file_that_cannot_be_written_is_told_without_its_place(
    runtime: Caller, house: House, tmp_path: Path, settings: Any
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    Agent.objects.filter(pk=house.ada.pk).update(memory_path=str(tmp_path))
    with logbook.kept() as lines:
        answer = log(runtime)
    assert answer.status == 503
    assert str(tmp_path).encode() not in answer.content
    [fault] = [line for line in lines.text.splitlines() if '"logger": "palimpsest.api"' in line]  # and no traceback
    assert f'"agent": {house.ada.pk}, "code": "memory_file_elsewhere"' in fault


def test_a_run_is_logged_once_for_each_key(runtime: Caller, house: House) -> None:
    first = runtime.post("runs", {"task": "Brew", "result": "tea"}, idempotency_key="one")
    again = runtime.post("runs", {"task": "Brew", "result": "tea"}, idempotency_key="one")
    assert first.json == again.json
    assert operations.runs(fresh(house.ada)).count() == 1


def test_what_is_no_run_is_refused(runtime: Caller) -> None:
    for body in ({"task": ""}, {"task": " \n "}, {"task": 5}, {"result": None}, {"more": "x"}):
        assert log(runtime, **body).status == 422, body


def test_reports_are_the_agents_own(runtime: Caller, stranger: Caller, acme: Caller, house: House) -> None:
    gc_reports.keep(fresh(house.ada), REPORT, model="openai/gpt", entries=7)
    [report] = runtime.get("gc-reports").json["results"]
    assert report == runtime.get("gc-reports/1").json
    assert (report["patterns_found"], report["repeated_work"], report["recommendations"], report["missing"]) == (
        f"{MARKER} tea.",
        "",
        f"More {MARKER} tea.",
        ["Repeated Work"],
    )
    assert report["text"] == REPORT
    assert stranger.get("gc-reports").json["results"] == []
    assert stranger.get("gc-reports/1").status == 404
    assert acme.get("gc-reports").status == 403


def test_reports_come_in_pages(runtime: Caller, house: House) -> None:
    for number in range(5):
        gc_reports.keep(fresh(house.ada), f"report {number + 1}", model="openai/gpt", entries=1)
    first = runtime.get("gc-reports?limit=2").json
    assert [each["id"] for each in first["results"]] == [5, 4]
    rest = runtime.get(f"gc-reports?limit=3&cursor={first['next']}").json
    assert [each["id"] for each in rest["results"]] == [3, 2, 1]
    assert rest["results"][0]["missing"] == ["Patterns Found", "Repeated Work", "Recommendations"]


def test_with_memory_off_no_report_is_read_and_none_is_kept(runtime: Caller, house: House) -> None:
    gc_reports.keep(fresh(house.ada), REPORT, model="openai/gpt", entries=7)
    rule_changes.change(fresh(house.ada), PERSON, enabled=False)
    for path in ("gc-reports", "gc-reports/1", "gc-reports/2"):
        answer = runtime.get(path)
        assert (answer.status, answer.codes) == (409, ["memory_disabled"])
    with pytest.raises(MemoryDisabled):
        gc_reports.keep(house.ada, REPORT, model="openai/gpt", entries=7)
    assert GcReport.objects.count() == 1


def test_settings_of_the_log_are_the_agents_sides(runtime: Caller, house: House) -> None:
    answer = runtime.patch("agent", {"last_n": 5, "max_entries": 9, "context_tokens": 1_000})
    assert answer.json["log"] == {"file": None, "last_n": 5, "max_entries": 9, "context_tokens": 1_000}
    assert runtime.patch("agent", {"memory_path": "/etc/passwd"}).status == 422


def test_a_run_waits_for_a_file_without_holding_the_database(
    runtime: Caller, house: House, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` locks the file first, and writes to the trail then: the other way round, both would wait for ever."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    Agent.objects.filter(pk=house.ada.pk).update(memory_path=str(tmp_path / "ada.md"))
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    (tmp_path / "ada.md").touch()
    before = transaction.get_connection().savepoint_ids[:]
    locked: list[bool] = []
    plainly = files.lock

    def noting(number: int) -> None:
        locked.append(transaction.get_connection().savepoint_ids != before)
        plainly(number)

    monkeypatch.setattr("memory.run_log.files.lock", noting)
    with (tmp_path / "ada.md").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        answer = runtime.post("runs", {"task": "Brew", "result": "tea"}, idempotency_key="one")
    assert (answer.status, answer.codes, locked) == (503, ["memory_file"], [False])
    assert runtime.post("runs", {"task": "Brew", "result": "tea"}, idempotency_key="one").status == 201
    assert (tmp_path / "ada.md").read_text().count("## ") == 1
