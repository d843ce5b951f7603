"""Import of other systems' files over the API: stored whole or refused, and an error quotes nothing of the file."""

import gzip
import io
import json
import tarfile
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.models import Agent
from memory.transfer import importing
from memory.transfer.formats import json_file, parts, tree
from memory.transfer.importing import IMPORTS
from tests import steps
from tests.api.calling import NDJSON, Answer, Caller
from tests.privacy.marker import MARKER
from tests.rules.recordings import off
from tests.transfer.test_systems import TREES

MARK = MARKER.encode()
TEA = MARK + b" likes tea"
IN = "memory/common/technical/tea.md"
OTHERS = [name for name in IMPORTS if name != "jsonl"]


def put(runtime: Caller, name: str, body: bytes, kind: str = "", **parameters: str) -> Answer:
    query = "&".join(f"{key}={value}" for key, value in {"format": name, **parameters}.items())
    return runtime.post(f"import?{query}", raw=body, kind=kind or IMPORTS[name].media_type)


def archive(*members: tuple[Any, bytes]) -> bytes:
    """A packed folder. A member is a name or a header, and its data."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for member, data in members:
            packed.addfile(header(member, size=len(data)) if isinstance(member, str) else member, io.BytesIO(data))
    return file.getvalue()


def header(name: str, kind: bytes = tarfile.REGTYPE, **values: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in values.items():
        setattr(made, key, value)
    return made


def test_an_import_reports_and_stores_the_memories(runtime: Caller, ada: Agent) -> None:
    answer = put(runtime, "mem0", (TREES / "mem0/tree/exports/get-all.json").read_bytes(), project="harbour-desk")
    result = answer.json
    counts = [result[name] for name in ("imported", "left_out", "constitutional")]
    assert (answer.status, counts) == (201, [7, 6, 0])
    assert {"key": "#number", "why": "has no text"} in result["named"]
    assert {"what": "not kept: updated_at", "memories": 1} in result["transformed"]
    found = [json.loads(line) for line in runtime.get("export").content.splitlines()]
    assert {each["project"] for each in found if each["category"] == "contextual"} == {"harbour-desk"}
    assert sum(each["tokens"] for each in found) == result["tokens"]


def test_a_long_number_in_a_header_is_refused_at_once() -> None:
    started = time.process_time()
    with pytest.raises(parts.Unfit):
        list(tree.members(io.BytesIO(LONG_NUMBER)))
    assert time.process_time() - started < 5  # tarfile of Python 3.11.7 takes 40 seconds, and no other thread runs


def test_an_empty_file_imports_nothing(runtime: Caller, ada: Agent) -> None:
    empty = {"jsonl": b"\n\n", "mem0": b'{"results": []}', "letta": b'{"blocks": []}', "memory-store": b'{"data": []}'}
    for name, body in [*((name, b"") for name in IMPORTS), *empty.items(), ("axe", b"\n")]:
        before = steps.state(ada)
        answer = put(runtime, name, body)
        if name == "markdown":
            assert (answer.status, answer.codes) == (422, ["invalid"]), name
        else:
            assert (answer.status, answer.json["imported"]) == (201, 0), name
        assert steps.state(ada) == before, name


def test_a_body_has_the_content_type_of_its_format(runtime: Caller, ada: Agent) -> None:
    for name in IMPORTS:
        own = IMPORTS[name].media_type
        for kind in {"application/xml", *(each.media_type for each in IMPORTS.values())} - {own}:
            answer = put(runtime, name, b"x", kind)
            assert (answer.status, answer.codes) == (415, ["unsupported_media_type"]), (name, kind)
        assert put(runtime, name, b"x", f"{own}; charset=latin-1").status == 415, name


def test_an_invalid_query_parameter_is_refused(runtime: Caller, ada: Agent) -> None:
    queries = {"format=csv": "format", f"format={MARKER}": "format", "folder=x": "body", "project=x": "project"}
    answers = [(runtime.post(f"import?{query}", raw=b"{}", kind=NDJSON), attr) for query, attr in queries.items()]
    body = b'[{"memory": "x", "categories": ["contextual"]}]'
    for answer, attr in [*answers, (put(runtime, "mem0", body, project=f"../{MARKER}"), "project")]:
        assert (answer.status, answer.attrs) == (422, [attr])
        assert MARK not in answer.content


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


NO_JSON, NO_ARCHIVE = "is not valid JSON", "is not a complete tar archive"
NO_MEM0, NO_LETTA = "expected format: JSON from mem0", "expected format: a Letta agent file"
NO_STORE = "expected format: the memory list of an Anthropic"
ENDLESS_NAME = gzip.compress(header("x", tarfile.XHDTYPE, size=2**33 - 1).tobuf() + b"\0" * 2**19)
LONG_NUMBER = archive((header("x", tarfile.XHDTYPE, size=64_000), b"7" * 64_000), (IN, TEA))
GLOBAL = archive((header("x", tarfile.XGLTYPE, size=5_000), b"5000 k=" + b"x" * 4_992 + b"\n"), (IN, TEA))
NEGATIVE_SIZE = gzip.compress(header("x", size=-5).tobuf(tarfile.GNU_FORMAT) + b"\0" * 2_048)
# Invalid files: name, format, content, and a part of the error message.
INVALID: list[tuple[str, str, bytes, str]] = [
    ("no json", "mem0", MARK, NO_JSON),
    ("incomplete", "mem0", b'{"results": [{"memory": "good"}, {"memory": "' + MARK, NO_JSON),
    ("text after the end", "mem0", b'[{"memory": "good"}] ' + MARK, NO_JSON),
    ("nan", "mem0", b'[{"memory": "' + MARK + b'", "score": NaN}]', NO_JSON),
    ("deep", "mem0", b'[{"memory": "' + MARK + b'", "x": ' + b"[" * 100_000, NO_JSON),
    ("deep and closed", "letta", b"[" * 100_000 + b"]" * 100_000, NO_JSON),
    ("long number", "mem0", b'[{"memory": "' + MARK + b'", "id": ' + b"7" * 5_000 + b"}]", NO_JSON),
    ("utf-16", "mem0", f'[{{"memory": "{MARKER}"}}]'.encode("utf-16"), NO_JSON),
    ("latin-1", "letta", b'{"blocks": [{"value": "caf\xe9 ' + MARK + b'"}]}', NO_JSON),
    ("many global headers", "markdown", GLOBAL, NO_ARCHIVE),
    ("a string", "mem0", as_json(MARKER), "without a list of memories"),
    ("a number", "memory-store", b"7", "store's list of memories"),
    ("unknown keys", "mem0", as_json({MARKER: MARKER}), "without a list of memories"),
    ("no agent", "letta", as_json({MARKER: [MARKER]}), "neither an agent file"),
    ("nested strings", "letta", as_json(json.dumps(json.dumps({"blocks": []}))), "neither an agent file"),
    ("invalid nested string", "letta", as_json('{"blocks": [' + MARKER), NO_JSON),
    ("a list of strings", "mem0", as_json([MARKER]), NO_MEM0),
    ("a list of numbers", "mem0", b'[{"memory": 7}, 7]', NO_MEM0),
    ("list of another system", "letta", as_json([{"memory": MARKER}]), NO_LETTA),
    ("list without text", "memory-store", b'{"data": [{"id": "x"}]}', NO_STORE),
    ("no log", "axe", TEA, "expected format: an axe run log"),
    ("no markdown", "markdown", archive((f"{IN}.exe", TEA)), "packed folder of Markdown"),
    ("no archive", "markdown", TEA, NO_ARCHIVE),
    ("gzip without tar", "markdown", gzip.compress(TEA * 100), NO_ARCHIVE),
    ("incomplete archive", "markdown", archive((IN, TEA))[:-20], NO_ARCHIVE),
    ("changed bytes", "markdown", archive((IN, TEA))[:-8] + b"\0" * 8, NO_ARCHIVE),
    ("endless name", "markdown", ENDLESS_NAME, "has more than 65,536 bytes of headers before a file"),
    ("negative size", "markdown", NEGATIVE_SIZE, NO_ARCHIVE),
]


def test_an_invalid_file_is_refused_and_not_quoted(runtime: Caller, ada: Agent) -> None:
    for case, name, body, words in INVALID:
        before = steps.state(ada)
        answer = put(runtime, name, body)
        assert (answer.status, answer.codes, answer.attrs) == (422, ["invalid"], ["file"]), case
        assert words in answer.content.decode(), case
        assert MARK not in answer.content, case
        assert len(answer.content) < 500, case
        assert steps.state(ada) == before, case


LOG = b"## 2026-01-05T08:00:00Z\n"
# Invalid entries of a valid file: name, format, content, and a part of the reason.
LEFT_OUT: list[tuple[str, str, bytes, str]] = [
    ("deleted", "mem0", as_json([{"memory": MARKER, "state": "deleted"}]), "is marked as deleted"),
    ("nul", "mem0", as_json([{"memory": f"{MARKER}\0"}]), "contains a NUL character"),
    ("a symlink", "markdown", archive((header(IN, tarfile.SYMTYPE, linkname="/etc/passwd"), b"")), "is a link"),
    ("a hard link", "markdown", archive((header(IN, tarfile.LNKTYPE, linkname="../x"), b"")), "is a link"),
    ("a device", "markdown", archive((header(IN, tarfile.CHRTYPE), b"")), "is not a file"),
    ("an absolute path", "markdown", archive((f"/{IN}", TEA)), "outside the folder"),
    ("a path with ..", "markdown", archive((f"../../{IN}", TEA)), "outside the folder"),
    ("no UTF-8", "markdown", archive((IN, b"\xff" + TEA)), "is not UTF-8 text"),
    ("a name that is no text", "markdown", archive((f"memory/\udcff{IN}", TEA)), "not valid text"),
    ("an empty run", "axe", LOG + b"**Task:** (none)\n**Result:** (none)\n", "neither"),
    ("nul in a log", "axe", LOG + TEA + b"\0\n", "NUL"),
]


def test_an_invalid_entry_is_left_out_with_the_reason(runtime: Caller, ada: Agent) -> None:
    for case, name, body, words in LEFT_OUT:
        before = steps.state(ada)
        answer = put(runtime, name, body)
        assert (answer.status, answer.json["imported"], answer.json["left_out"]) == (201, 0, 1), case
        assert words in answer.json["named"][0]["why"], case
        assert MARK not in answer.content, case
        assert steps.state(ada) == before, case


def test_the_report_of_an_import_is_bounded(runtime: Caller, ada: Agent) -> None:
    left_out = [{"id": "x" * 300} for _ in range(importing.NAMED + 50)]
    odd = [{"memory": f"{n}", f"{'k' * 300}{n}": 1, "\ud83d\0": 1} for n in range(importing.NAMED + 50)]
    result = put(runtime, "mem0", json.dumps(left_out + odd).encode()).json
    assert (result["imported"], result["left_out"]) == (len(odd), len(left_out))
    assert len(result["named"]) == importing.NAMED
    assert all(len(each["key"]) <= importing.KEY + 1 for each in result["named"])
    assert len(result["transformed"]) <= importing.NAMED + 1
    assert sum(each["memories"] for each in result["transformed"]) == 3 * len(odd)


def attributes(number: int, size: int = 30_000) -> bytes:
    """A header with attributes, as it stands before a file. Each number gives other names."""
    data = b"".join(b"%d %04d=%s\n" % (1_010, each, b"v" * 999) for each in range(number, number + size // 1_000))
    return header("x", tarfile.XHDTYPE, size=len(data)).tobuf() + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE)


def test_an_archive_is_bounded(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its unpacked size, its number of files, and the headers before a file."""
    monkeypatch.setattr(tree, "MAX_UNPACKED", 10 * 2**20)
    bomb = archive(*[(f"memory/common/technical/{n}.md", b" " * 2**20) for n in range(11)])
    assert len(bomb) < 100_000
    assert put(runtime, "markdown", bomb).status == 422
    monkeypatch.setattr(tree, "MAX_FILES", 5)
    answer = put(runtime, "markdown", archive(*[(f"memory/common/technical/{n}.md", b"") for n in range(6)]))
    assert "more than 5 files" in answer.content.decode()
    answer = put(runtime, "markdown", gzip.compress(attributes(0) + attributes(30) + attributes(60) + b"\0" * 1_024))
    assert (answer.status, answer.attrs) == (422, ["file"])
    assert "has more than 65,536 bytes of headers before a file" in answer.content.decode()


def test_an_error_late_in_a_file_undoes_the_whole_import(runtime: Caller, ada: Agent, monkeypatch: Any) -> None:
    before = steps.state(ada)
    with monkeypatch.context() as patched:
        patched.setattr(importing, "MOST_LEFT_OUT", 10)
        answer = put(runtime, "mem0", json.dumps([{"memory": "good"}, *[1] * 11]).encode())
    assert (answer.status, answer.attrs, steps.state(ada)) == (422, ["file"], before)
    monkeypatch.setattr(importing, "BATCH", 2)
    monkeypatch.setattr(json_file, "MAX_ENTRIES", 5)
    answer = put(runtime, "mem0", json.dumps([{"memory": f"{n}"} for n in range(6)]).encode())
    assert (answer.status, steps.state(ada)) == (422, before)


@pytest.mark.parametrize("name", OTHERS)
@given(body=st.binary(max_size=300))
@example(body=b'{"results": [{"memory": {"a": []}, "metadata": {"palimpsest": {"category": []}}}]}')
@example(body=b'{"results":[{"memory":"x","metadata":{"palimpsest":{"category":"x","project":"","tags":7}}}]}')
@example(body=b'{"blocks": [{"value": "x", "label": {"a": 1}, "metadata": [1], "id": {}}]}')
@example(body=b'{"core_memory": [{"value": "x", "label": 1e400, "metadata_": {"k": 1e999}}]}')
@example(body=b'{"data": [{"content": "x", "created_at": 5, "updated_at": []}], "next_page": {}}')
@example(body=b'{"apps":[{"id":[],"name":{}}],"user":[],"memories":[{"content":"x","app_id":[],"user_id":{}}]}')
@example(body=b'[{"text": "x", "tags": {"a": 1}, "created_at": "0001-01-01T00:00:00+14:00", "is_deleted": []}]')
@example(body=b'[{"memory": "x", "created_at": "9999-12-31T23:59:59-14:00", "categories": 7, "category_ids": "x"}]')
@example(body=b"## \n\n## \n")
@example(body=b"\xef\xbb\xbf## 9999-99-99\n\xff\r\n")
@example(body=archive((header(""), b"")))
@example(body=archive((header("memory"), b"")))
@example(body=archive((header("a/../memory/x.md", tarfile.DIRTYPE), b"")))
@example(body=archive(("memory/projects/x.md", b"## Metadata\n- **Project**: x\n")))
@example(body=archive(("memory/projects//\n/sessions/x.md", b"# T\n\n## Metadata\n- **Memory ID**: 1\n\n## Tags\n")))
@example(body=archive((header(IN, mtime=2**40), b"")))
@example(body=gzip.compress(header("x.md", tarfile.XHDTYPE, size=9).tobuf() + b"7 path=x\n".ljust(512, b"\0")))
def test_no_body_is_a_server_error(name: str, body: bytes, runtime: Caller) -> None:
    answer = put(runtime, name, body)
    assert answer.status in (201, 422), answer.content


# For each format, the category that is off and a file with a memory of it.
OFF: dict[str, tuple[str, bytes]] = {
    "jsonl": ("technical", b'{"content": "on"}\n{"content": "off", "category": "technical"}\n'),
    "mem0": ("technical", b'[{"memory": "on"}, {"memory": "off", "categories": ["technical"]}]'),
    "letta": ("contextual", b'[{"text": "off"}]'),
    "memory-store": ("contextual", b'{"data": [{"content": "off"}]}'),
    "axe": ("behavioral", LOG + b"**Task:** x\n**Result:** off\n"),
    "markdown": ("technical", archive(("memory/common/behavioral/a.md", b"on"), (IN, b"off"))),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_is_refused_while_its_category_is_off(runtime: Caller, ada: Agent, name: str) -> None:
    category, body = OFF[name]
    off(ada, category)
    before = steps.state(ada)
    answer = put(runtime, name, body)
    assert (answer.status, answer.codes, steps.state(ada)) == (409, ["category_disabled"], before)
