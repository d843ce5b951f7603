from __future__ import annotations

import io
import itertools
import json
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.models import AuditEntry
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.categories import SCOPES
from memory.transfer import importing
from memory.transfer.formats import jsonl
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database

GOOD = b'{"content": "good"}'
SAID = MARKER.encode()


def put(*lines: bytes, more: tuple[str, ...] = (), end: bytes = b"\n") -> Ran:
    return run("import_memories", "acme/ada", "-", *more, stdin=end.join(lines))


def told(value: Any) -> bytes:
    return json.dumps(value).encode()


def line(**values: Any) -> bytes:
    return told({"content": f"{MARKER} likes tea"} | values)


# What is wrong with a line, and the word that says so. tests/unit/test_intake.py has the values that are refused.
BAD = [
    (b'{"content": "' + SAID, "not valid JSON"),
    (b'{"content": "' + SAID + b' \xff"}', "not UTF-8"),
    (f'{{"content": "{MARKER}"}}'.encode("utf-16-le").replace(b"\n", b""), "line 2"),
    (told([MARKER]), "not a JSON object"),
    (told({"text": MARKER}), "content: is missing"),
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
    (b'{"content": "' + SAID + b'", "id": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    (line(pad="x" * jsonl.MAX_LINE), "longer than 1,000,000 bytes"),
]


def test_a_bad_line_stops_the_import_and_nothing_is_stored(ada: Agent) -> None:
    before = steps.state(ada)
    for bad, word in BAD:
        ran = put(GOOD, bad, GOOD, more=("--json",))
        assert "line 2" in failed(ran, 2, word, "Nothing was imported")
        assert MARKER not in ran.err
        assert len(ran.err) < 500
    assert steps.state(ada) == before


def test_a_bad_line_far_behind_undoes_the_batches_before_it(ada: Agent) -> None:
    before = steps.state(ada)
    failed(put(*[GOOD] * (importing.BATCH + 1), b"{"), 2, f"line {importing.BATCH + 2}")
    failed(put(b"", GOOD, b"  ", b"{", end=b"\r\n"), 2, "line 4")
    assert steps.state(ada) == before


def test_what_other_programs_write_is_read(ada: Agent) -> None:
    written = [
        GOOD + b"\r\n",
        b"\xef\xbb\xbf" + GOOD,
        b"\n\n  \n" + GOOD + b"\n\t\n",
        b'  { "content" :\t"good" }  ',
        b'{"content": "\\u0067ood"}',
        b'{"content": "good", "kind": null, "category": null, "project": null, "tags": null, "origin": null}',
        b'{"content": "bad", "content": "good"}',
    ]
    for each in written:
        assert put(each).code == 0
    assert [steps.says(ada, number).content for number in steps.active(ada)] == ["good"] * len(written)


def test_the_result_is_one_line_of_json(ada: Agent) -> None:
    ran = put(line(), line(kind="journal"), more=("--json",))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == '{"imported": 2, "tokens": 12}\n'


def test_nothing_to_import_is_no_edit(ada: Agent) -> None:
    before = steps.state(ada)
    for nothing in (b"", b"\n \r\n"):
        assert put(nothing, more=("--json",)).json == {"imported": 0, "tokens": 0}
    assert steps.state(ada) == before


def test_a_file_that_cannot_be_read_is_a_usage_error(ada: Agent, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    failed(run("import_memories", "acme/ada", str(missing)), 2, f"file: {missing} cannot be read (No such file")
    failed(run("import_memories", "acme/ada", str(tmp_path)), 2, f"file: {tmp_path} cannot be read (Is a directory)")


def test_unknown_keys_are_ignored_with_one_warning_that_names_them_and_quotes_no_value(ada: Agent) -> None:
    ran = put(line(speaker=MARKER), line(speaker=1, evidence=[MARKER]), line())
    assert ran.code == 0
    assert ran.err == "warning: ignored 3 values of unknown keys: evidence, speaker\n"


def test_at_most_ten_unknown_keys_are_named(ada: Agent) -> None:
    ran = put(line(**{f"key{number:02}": 1 for number in range(12)}))
    named = ", ".join(f"key{number:02}" for number in range(10))
    assert ran.err == f"warning: ignored 12 values of unknown keys: {named} and 2 more\n"


def test_what_was_constitutional_or_discarded_is_reported_and_not_so_here(ada: Agent) -> None:
    gone = line(discarded_at="2026-01-01T00:00:00Z", superseded_by=3)
    ran = put(line(constitutional=True), line(constitutional=False), gone, line(), more=("--json",))
    assert ran.json["imported"] == 3
    assert ran.err == (
        "warning: 1 memory was constitutional: the agent or an admin can set this mark again\n"
        "warning: 1 discarded memory was left out\n"
    )
    assert not Memory.objects.filter(constitutional=True).exists()


def test_origin_goes_before_created_at_and_the_row_keeps_its_own(ada: Agent) -> None:
    start = datetime.now(UTC)
    put(line(origin="2020-01-01", created_at="2021-01-01"), line(created_at="2021-01-01T01:00:00+01:00"), line())
    first, second, third = (steps.row(ada, number) for number in (1, 2, 3))
    assert first.origin == datetime(2020, 1, 1, tzinfo=UTC)
    assert second.origin == datetime(2021, 1, 1, tzinfo=UTC)
    assert third.origin == third.created_at >= start


def test_while_memory_is_off_nothing_is_imported(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    before = steps.state(ada)
    failed(put(line()), 1, "Memory is off")
    assert steps.state(ada) == before


def test_each_thousand_is_one_audited_edit(ada: Agent) -> None:
    put(*[line()] * (importing.BATCH + 1))
    entries = AuditEntry.objects.filter(agent_id=ada.pk, operation="imported").order_by("seq")
    assert [(e.changes, e.actor_kind) for e in entries] == [(importing.BATCH, "operator"), (1, "operator")]
    assert steps.problems(ada) == []


def test_a_line_without_end_is_not_taken_into_memory() -> None:
    class Endless(io.RawIOBase):
        asked = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.asked += len(buffer)
            assert self.asked < 4 * jsonl.MAX_LINE, "the whole line is read before it is refused"
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    with pytest.raises(jsonl.BadLine, match="line 1: is longer"):
        list(jsonl.read(jsonl.lines_of("-", io.BufferedReader(Endless()))))


_NAMES = itertools.count()
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60).filter(
    lambda text: text.strip()
)
_TAG = _TEXT.map(lambda text: text.strip()[:30]).filter(str.strip)
_MEMORIES = st.fixed_dictionaries(
    {"content": _TEXT | st.just("x y" * 1_000)},
    optional={
        "tags": st.lists(_TAG, max_size=4, unique_by=str.strip),
        "kind": st.sampled_from(["core", "journal"]),
        "category": st.sampled_from(sorted(SCOPES)),
        "project": st.sampled_from(["", "site", "org/site-2"]),
        "origin": st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()),
    },
)


@pytest.mark.django_db
@given(rows=st.lists(_MEMORIES, min_size=1, max_size=5))
def test_what_is_exported_is_imported_as_it_was(rows: list[dict[str, Any]]) -> None:
    name = next(_NAMES)
    ada, _ = lifecycle.create("acme", f"a-{name}", model="builtin/dedupe", actor=OPERATOR)
    bob, _ = lifecycle.create("globex", f"b-{name}", model="builtin/dedupe", actor=OPERATOR)
    importing.check_lines([told(row) for row in rows]).store(ada, OPERATOR)
    exported = steps.exported(ada)
    done = importing.check_lines([text.encode() for text in exported]).store(bob, OPERATOR)
    again = [json.loads(text) for text in steps.exported(bob)]
    gone = {"created_at"}
    assert [{k: v for k, v in json.loads(text).items() if k not in gone} for text in exported] == [
        {k: v for k, v in row.items() if k not in gone} for row in again
    ]
    assert [row["content"] for row in again] == [row["content"] for row in rows]
    assert list(done.warnings()) == []


def test_a_pipe_is_read_to_its_end_before_anything_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.BytesIO(b"one\ntwo\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    with jsonl.opened("-") as lines:
        assert given.tell() == 8
        assert list(lines) == [b"one\n", b"two\n"]


def test_a_named_pipe_is_read_to_its_end_too(tmp_path: Path) -> None:
    fifo, sent = tmp_path / "fifo", (b"x" * 99 + b"\n") * 10_000
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(sent,), daemon=True)
    writer.start()
    with jsonl.opened(str(fifo)) as lines:
        writer.join(10)
        assert not writer.is_alive()
        assert b"".join(lines) == sent


def test_more_than_can_be_held_is_to_come_as_a_file(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_HELD", 2**20)
    failed(put(line(), b" " * 2**20), 2, "file: is larger than 1 MB", "use a regular file")
    failed(run("import_memories", "acme/ada", "/dev/zero"), 2, "file: is larger than 1 MB")
