"""import_memories: JSON Lines, files of other systems, pipes, and what is refused."""

import io
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from audit.models import AuditEntry
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.categories import SCOPES
from memory.transfer import importing
from memory.transfer.formats import jsonl
from memory.transfer.formats.parts import Part
from memory.transfer.importing import IMPORTS
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import OPERATOR
from tests.privacy.marker import MARKER
from tests.steps import signed_update
from tests.transfer.test_systems import TREES

pytestmark = pytest.mark.database

GOOD = b'{"content": "good"}'
MARKED = MARKER.encode()


def import_lines(*lines: bytes, options: tuple[str, ...] = (), end: bytes = b"\n") -> Ran:
    return run("import_memories", "acme/ada", "-", *options, stdin=end.join(lines))


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def line(**values: Any) -> bytes:
    return encode({"content": f"{MARKER} likes tea"} | values)


# Bad lines, and words of their errors. tests/unit/test_intake.py has the values that are refused.
BAD = [
    (b'{"content": "' + MARKED, "not valid JSON"),
    (b'{"content": "' + MARKED + b' \xff"}', "not UTF-8"),
    (f'{{"content": "{MARKER}"}}'.encode("utf-16-le").replace(b"\n", b""), "line 2"),
    (encode([MARKER]), "not a JSON object"),
    (encode({"text": MARKER}), "content: is missing"),
    (line(content=7), "content: must be text"),
    (line(content=MARKER * 1_000), "maximum is 10,000"),
    (line(content=f"{MARKER}\ud83e"), "surrogate"),
    (line(created_at=f"yesterday {MARKER}"), "created_at: is not a date"),
    (line(created_at=1_767_225_600), "created_at: is not a date"),
    (line(created_at="9999-12-31T23:59:59-14:00"), "out of range"),
    (line(tags=MARKER), "tags: must be a list"),
    (line(tags=[MARKER * 5]), "tags: must each be text"),
    (line(kind=MARKER), "kind: must be 'core' or 'journal'"),
    (line(category=MARKER), "category: is unknown"),
    (line(project=f"../{MARKER}"), "project:"),
    (b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not valid JSON"),
    (b'{"content": "' + MARKED + b'", "id": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    (line(pad="x" * jsonl.MAX_LINE), "longer than 1,000,000 bytes"),
]


def test_a_bad_line_stops_the_import_and_nothing_is_stored(ada: Agent) -> None:
    before = steps.state(ada)
    for bad, words in BAD:
        ran = import_lines(GOOD, bad, GOOD, options=("--json",))
        assert "line 2" in failed(ran, 2, words, "Nothing was imported")
        assert MARKER not in ran.err
        assert len(ran.err) < 500
    failed(import_lines(*[GOOD] * (importing.BATCH + 1), b"{"), 2, f"line {importing.BATCH + 2}")
    failed(import_lines(b"", GOOD, b"  ", b"{", end=b"\r\n"), 2, "line 4")
    assert steps.state(ada) == before


def test_files_that_other_programs_write_are_read(ada: Agent) -> None:
    files = [
        GOOD + b"\r\n",
        b"\xef\xbb\xbf" + GOOD,
        b"\n\n  \n" + GOOD + b"\n\t\n",
        b'  { "content" :\t"good" }  ',
        b'{"content": "\\u0067ood"}',
        b'{"content": "good", "kind": null, "category": null, "project": null, "tags": null, "origin": null}',
        b'{"content": "bad", "content": "good"}',
    ]
    for file in files:
        assert import_lines(file).code == 0
    assert [steps.says(ada, number).content for number in steps.active(ada)] == ["good"] * len(files)


def test_the_result_is_one_line_of_json_and_an_empty_file_is_no_edit(ada: Agent) -> None:
    ran = import_lines(line(), line(kind="journal"), options=("--json",))
    assert (ran.code, ran.out, ran.err) == (0, '{"imported": 2, "tokens": 12}\n', "")
    before = steps.state(ada)
    for empty in (b"", b"\n \r\n"):
        assert import_lines(empty, options=("--json",)).json == {"imported": 0, "tokens": 0}
    assert steps.state(ada) == before


def test_a_file_that_cannot_be_read_is_a_usage_error(ada: Agent, tmp_path: Path) -> None:
    for file, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        failed(run("import_memories", "acme/ada", str(file)), 2, f"file: {file} cannot be read ({reason}")


def test_unknown_keys_are_ignored_with_one_warning_without_values(ada: Agent) -> None:
    ran = import_lines(line(speaker=MARKER), line(speaker=1, evidence=[MARKER]), line())
    assert (ran.code, ran.err) == (0, "warning: ignored 3 values of unknown keys: evidence, speaker\n")
    ran = import_lines(line(**{f"key{number:02}": 1 for number in range(12)}))
    named = ", ".join(f"key{number:02}" for number in range(10))
    assert ran.err == f"warning: ignored 12 values of unknown keys: {named} and 2 more\n"


def test_constitutional_and_discarded_memories_are_reported(ada: Agent) -> None:
    discarded = line(discarded_at="2026-01-01T00:00:00Z", superseded_by=3)
    ran = import_lines(line(constitutional=True), line(constitutional=False), discarded, line(), options=("--json",))
    assert ran.json["imported"] == 3
    assert ran.err == (
        "warning: 1 memory was constitutional: the agent or an admin can set this mark again\n"
        "warning: 1 discarded memory was left out\n"
    )
    assert not Memory.objects.filter(constitutional=True).exists()


def test_the_origin_is_taken_from_origin_then_created_at(ada: Agent) -> None:
    start = datetime.now(UTC)
    early = line(origin="2020-01-01", created_at="2021-01-01")
    import_lines(early, line(created_at="2021-01-01T01:00:00+01:00"), line())
    first, second, third = (steps.row(ada, number) for number in (1, 2, 3))
    assert [first.origin, second.origin] == [datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021)]
    assert third.origin == third.created_at >= start


def test_nothing_is_imported_while_memory_is_off(ada: Agent) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    before = steps.state(ada)
    failed(import_lines(line()), 1, "Memory is off")
    assert steps.state(ada) == before


def test_each_thousand_memories_are_one_audit_entry(ada: Agent) -> None:
    import_lines(*[line()] * (importing.BATCH + 1))
    entries = AuditEntry.objects.filter(agent_id=ada.pk, operation="imported").order_by("seq")
    assert [(e.changes, e.actor_kind) for e in entries] == [(importing.BATCH, "operator"), (1, "operator")]
    assert steps.problems(ada) == []


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    class Endless(io.RawIOBase):
        read_bytes = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.read_bytes += len(buffer)
            assert self.read_bytes < 4 * jsonl.MAX_LINE
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    with pytest.raises(jsonl.BadLine, match="line 1: is longer"):
        list(jsonl.read(jsonl.lines_of("-", io.BufferedReader(Endless()))))


_NAMES = itertools.count()
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
_TEXT = _TEXT.filter(str.strip)
_MEMORIES = st.fixed_dictionaries(
    {"content": _TEXT | st.just("x y" * 1_000)},
    optional={
        "tags": st.lists(_TEXT.map(lambda text: text.strip()[:30]).filter(str.strip), max_size=4, unique_by=str.strip),
        "kind": st.sampled_from(["core", "journal"]),
        "category": st.sampled_from(sorted(SCOPES)),
        "project": st.sampled_from(["", "site", "org/site-2"]),
        "origin": st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()),
        "is_instruction": st.booleans(),
    },
)


@pytest.mark.django_db
@given(rows=st.lists(_MEMORIES, min_size=1, max_size=5))
def test_an_export_is_imported_without_changes(rows: list[dict[str, Any]]) -> None:
    name = next(_NAMES)
    ada, _ = lifecycle.create("acme", f"a-{name}", model="builtin/dedupe", actor=OPERATOR)
    bob, _ = lifecycle.create("globex", f"b-{name}", model="builtin/dedupe", actor=OPERATOR)
    importing.check_lines([encode(row) for row in rows]).store(ada, OPERATOR)
    done = importing.check_lines([text.encode() for text in steps.exported(ada)]).store(bob, OPERATOR)
    first, second = (
        [
            {key: value for key, value in json.loads(text).items() if key != "created_at"}
            for text in steps.exported(agent)
        ]
        for agent in (ada, bob)
    )
    assert first == second
    assert [row["content"] for row in second] == [row["content"] for row in rows]
    apart = [row.get("is_instruction") is True and row.get("kind") != "journal" for row in rows]
    assert ["is_instruction" in row for row in second] == apart
    assert list(done.warnings()) == []


def test_a_pipe_is_read_to_its_end_before_anything_is_locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stdin = io.BytesIO(b"one\ntwo\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    with jsonl.opened("-") as lines:
        assert stdin.tell() == 8
        assert list(lines) == [b"one\n", b"two\n"]
    fifo, content = tmp_path / "fifo", (b"x" * 99 + b"\n") * 10_000
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(content,), daemon=True)
    writer.start()
    with jsonl.opened(str(fifo)) as lines:
        writer.join(10)
        assert not writer.is_alive()
        assert b"".join(lines) == content


def test_a_pipe_that_is_too_large_is_refused(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_HELD", 2**20)
    failed(import_lines(line(), b" " * 2**20), 2, "file: is larger than 1 MB", "use a regular file")
    failed(run("import_memories", "acme/ada", "/dev/zero"), 2, "file: is larger than 1 MB")


FILES = {
    "jsonl": "own/tree/exports/ada.jsonl",
    "axe": "axe/tree/axe/memory/pilot.md",
    "mem0": "mem0/tree/exports/get-all.json",
    "letta": "letta/tree/agents/desk.af",
    "memory-store": "anthropic/tree/memory_store.json",
}


@pytest.mark.parametrize("name", FILES)
def test_each_format_is_imported_from_a_file_or_a_pipe(ada: Agent, name: str) -> None:
    path, options = TREES / FILES[name], ("--format", name, "--json")
    file = run("import_memories", "acme/ada", str(path), *options)
    pipe = run("import_memories", "acme/ada", "-", *options, stdin=path.read_bytes())
    assert file.code == pipe.code == 0
    assert file.json == pipe.json
    assert len(steps.active(ada)) == 2 * file.json["imported"] > 0


def test_the_output_says_what_was_imported_and_left_out(ada: Agent) -> None:
    ran = run("import_memories", "acme/ada", str(TREES / FILES["mem0"]), "--format", "mem0", "--project", "desk")
    assert (ran.code, ran.out) == (0, "imported 7 memories, 76 tokens\n")
    assert "warning: left out: number has no text\n" in ran.err
    assert "warning: 1 memory: not kept: updated_at\n" in ran.err
    assert {steps.row(ada, number).project for number in steps.active(ada)} - {""} == {"desk"}


def test_a_file_of_another_format_is_refused(ada: Agent) -> None:
    before = steps.state(ada)
    ran = import_lines(MARKED, options=("--format", "letta"))
    failed(ran, 2, "error: file:", "Nothing was imported")
    assert MARKER not in ran.err
    assert steps.state(ada) == before


def test_a_file_is_read_before_the_transaction_starts(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    read, atomic = IMPORTS["mem0"].read, transaction.atomic

    def record_read(file: IO[bytes], path: str) -> Iterator[Part]:
        events.append("read")
        yield from read(file, path)
        events.append("read to its end")

    def record_atomic(*args: Any, **named: Any) -> Any:
        events.append("transaction")
        return atomic(*args, **named)

    monkeypatch.setitem(IMPORTS, "mem0", replace(IMPORTS["mem0"], read=record_read))
    monkeypatch.setattr(transaction, "atomic", record_atomic)
    import_lines(b'[{"memory": "x"}]', options=("--format", "mem0"))
    assert events[events.index("read") :][:3] == ["read", "read to its end", "transaction"]


def test_only_a_format_without_projects_takes_a_valid_project(ada: Agent) -> None:
    failed(import_lines(b'{"content": "x"}', options=("--format", "jsonl", "--project", "desk")), 2, "project")
    failed(import_lines(b'[{"text": "x"}]', options=("--format", "letta", "--project", "../x")), 2, "project")
