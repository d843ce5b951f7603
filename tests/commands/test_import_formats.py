"""Files of other systems at the command line: what came in, and what was left out, told to whoever asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import pytest
from django.db import transaction

from memory.models import Agent
from memory.transfer.formats.parts import Part
from memory.transfer.importing import IMPORTS
from tests import steps
from tests.commands.calling import failed, run
from tests.moving.test_systems import TREES
from tests.privacy.marker import MARKER

FILES = {
    "jsonl": "own/tree/exports/ada.jsonl",
    "axe": "axe/tree/axe/memory/pilot.md",
    "mem0": "mem0/tree/exports/get-all.json",
    "letta": "letta/tree/agents/desk.af",
    "memory-store": "anthropic/tree/memory_store.json",
}


def put(name: str, stdin: bytes, *more: str) -> object:
    return run("import_memories", "acme/ada", "-", "--format", name, *more, stdin=stdin)


@pytest.mark.parametrize("name", FILES)
def test_a_file_or_a_pipe(ada: Agent, name: str) -> None:
    path = TREES / FILES[name]
    of_file = run("import_memories", "acme/ada", str(path), "--format", name, "--json")
    of_pipe = run("import_memories", "acme/ada", "-", "--format", name, "--json", stdin=path.read_bytes())
    assert of_file.code == of_pipe.code == 0
    assert of_file.json == of_pipe.json
    assert of_file.json["imported"] > 0
    assert len(steps.active(ada)) == 2 * of_file.json["imported"]


def test_what_was_left_out_and_what_was_done_is_told(ada: Agent) -> None:
    ran = run("import_memories", "acme/ada", str(TREES / FILES["mem0"]), "--format", "mem0", "--project", "desk")
    assert ran.code == 0
    assert ran.out == "imported 7 memories, 76 tokens\n"
    assert "warning: left out: number has no text\n" in ran.err
    assert "warning: 1 memory: not kept: updated_at\n" in ran.err
    assert {"desk"} == {row.project for row in (steps.row(ada, n) for n in steps.active(ada)) if row.project}


def test_a_file_of_another_format_stops_it(ada: Agent) -> None:
    before = steps.state(ada)
    ran = run("import_memories", "acme/ada", "-", "--format", "letta", stdin=MARKER.encode())
    failed(ran, 2, "error: file:", "Nothing was imported")
    assert MARKER not in ran.err + ran.out
    assert steps.state(ada) == before


def test_a_file_is_looked_through_before_the_transaction(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    read = IMPORTS["mem0"].read

    def noting(file: IO[bytes], path: str) -> Iterator[Part]:
        told.append("read")
        yield from read(file, path)
        told.append("read to its end")

    begun = transaction.atomic

    def beginning(*given: Any, **named: Any) -> Any:
        told.append("begun")
        return begun(*given, **named)

    monkeypatch.setitem(IMPORTS, "mem0", replace(IMPORTS["mem0"], read=noting))
    monkeypatch.setattr(transaction, "atomic", beginning)
    put("mem0", b'[{"memory": "x"}]')
    assert told[:3] == ["read", "read to its end", "begun"]


def test_a_project_is_for_formats_without(ada: Agent) -> None:
    failed(put("jsonl", b'{"content": "x"}', "--project", "desk"), 2, "project")  # type: ignore[arg-type]
    failed(put("letta", b'[{"text": "x"}]', "--project", "../x"), 2, "project")  # type: ignore[arg-type]
