"""Files of other systems over the API: taken in whole or refused, whatever is sent, and nothing of it in an error."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.agents import rule_changes
from memory.models import Agent
from memory.transfer import importing
from memory.transfer.export_formats import EXPORTS
from memory.transfer.formats import json_file, tree
from memory.transfer.importing import IMPORTS
from memory.writing import edits
from tests import steps
from tests.api.calling import Answer, Caller
from tests.moving.test_systems import TREES
from tests.privacy.marker import MARKER
from tests.steps import PERSON, fresh, remember

SAID = MARKER.encode()
OTHERS = [name for name in IMPORTS if name != "jsonl"]


def put(runtime: Caller, name: str, body: bytes, kind: str = "", **asked: str) -> Answer:
    query = "&".join(f"{key}={value}" for key, value in {"format": name, **asked}.items())
    return runtime.post(f"import?{query}", raw=body, kind=kind or IMPORTS[name].media_type)


def archive(*members: tuple[Any, bytes]) -> bytes:
    """Packed; a member is a name, or a header."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for header, data in members:
            if isinstance(header, str):
                header = tarfile.TarInfo(header)
                header.size = len(data)
            packed.addfile(header, io.BytesIO(data))
    return file.getvalue()


def header(name: str, kind: bytes, **values: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in values.items():
        setattr(made, key, value)
    return made


FILE = f"{MARKER} likes tea".encode()
IN = "memory/common/technical/tea.md"


def test_what_another_system_kept_is_remembered(runtime: Caller, ada: Agent) -> None:
    body = (TREES / "mem0/tree/exports/get-all.json").read_bytes()
    answer = put(runtime, "mem0", body, project="harbour-desk")
    assert answer.status == 201
    told = answer.json
    assert (told["imported"], told["left_out"], told["constitutional"]) == (7, 6, 0)
    assert {"key": "#number", "why": "has no text"} in told["named"]
    assert {"what": "not kept: updated_at", "memories": 1} in told["transformed"]
    found = [json.loads(line) for line in runtime.get("export").content.splitlines()]
    assert {each["project"] for each in found if each["category"] == "contextual"} == {"harbour-desk"}
    assert sum(each["tokens"] for each in found) == told["tokens"]


@pytest.mark.parametrize("name", [name for name in EXPORTS if name in IMPORTS])
def test_what_leaves_comes_back(runtime: Caller, stranger: Caller, ada: Agent, name: str) -> None:
    remember(ada, "of no project")
    remember(ada, "of one", project="harbour-desk")
    data = runtime.get(f"export?format={name}").content
    answer = put(stranger, name, data)
    assert (answer.status, answer.json["imported"]) == (201, 2)


def test_nothing_is_a_file_too(runtime: Caller, ada: Agent) -> None:
    empty = {"jsonl": b"\n\n", "mem0": b'{"results": []}', "letta": b'{"blocks": []}', "memory-store": b'{"data": []}'}
    for name, body in [*((name, b"") for name in IMPORTS), *empty.items(), ("axe", b"\n")]:
        before = steps.state(ada)
        answer = put(runtime, name, body)
        if name == "markdown":
            assert (answer.status, answer.codes) == (422, ["invalid"]), name
        else:
            assert (answer.status, answer.json["imported"]) == (201, 0), name
        assert steps.state(ada) == before, name


def test_a_body_is_in_the_formats_own_type(runtime: Caller, ada: Agent) -> None:
    for name in IMPORTS:
        for kind in {"application/xml", *(each.media_type for each in IMPORTS.values())} - {IMPORTS[name].media_type}:
            answer = put(runtime, name, b"x", kind)
            assert (answer.status, answer.codes) == (415, ["unsupported_media_type"]), (name, kind)
        assert put(runtime, name, b"x", f"{IMPORTS[name].media_type}; charset=latin-1").status == 415, (name, kind)


def test_what_is_asked_wrongly_is_told(runtime: Caller, ada: Agent) -> None:
    kind = "application/x-ndjson"
    for query, attr in (
        ("format=csv", "format"),
        (f"format={MARKER}", "format"),
        ("folder=x", "body"),
        ("project=x", "project"),
    ):
        answer = runtime.post(f"import?{query}", raw=b'{"content": "x"}', kind=kind)
        assert (answer.status, answer.attrs) == (422, [attr])
        assert SAID not in answer.content
    answer = put(runtime, "mem0", b'[{"memory": "x", "categories": ["contextual"]}]', project=f"../{MARKER}")
    assert (answer.status, answer.attrs) == (422, ["project"])
    assert SAID not in answer.content


# What is sent → what is said of it. Nothing of it is stored, and nothing of it is said again.
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "no json": ("mem0", SAID, "is not valid JSON"),
    "cut off": ("mem0", b'{"results": [{"memory": "good"}, {"memory": "' + SAID, "is not valid JSON"),
    "more behind it": ("mem0", b'[{"memory": "good"}] ' + SAID, "is not valid JSON"),
    "nan": ("mem0", b'[{"memory": "' + SAID + b'", "score": NaN}]', "is not valid JSON"),
    "deep": ("mem0", b'[{"memory": "' + SAID + b'", "x": ' + b"[" * 100_000, "is not valid JSON"),
    "deep and closed": ("letta", b"[" * 100_000 + b"]" * 100_000, "is not valid JSON"),
    "a long number": ("mem0", b'[{"memory": "' + SAID + b'", "id": ' + b"7" * 5_000 + b"}]", "is not valid JSON"),
    "utf-16": ("mem0", f'[{{"memory": "{MARKER}"}}]'.encode("utf-16"), "is not valid JSON"),
    "latin-1": ("letta", b'{"blocks": [{"value": "caf\xe9 ' + SAID + b'"}]}', "is not valid JSON"),
    "a text": ("mem0", json.dumps(MARKER).encode(), "without a list of memories"),
    "a number": ("memory-store", b"7", "store's list of memories"),
    "an object of its own": ("mem0", json.dumps({MARKER: MARKER}).encode(), "without a list of memories"),
    "no agent": ("letta", json.dumps({MARKER: [MARKER]}).encode(), "neither an agent file"),
    "a text within a text": (
        "letta",
        json.dumps(json.dumps(json.dumps({"blocks": []}))).encode(),
        "neither an agent file",
    ),
    "broken within a text": ("letta", json.dumps('{"blocks": [' + MARKER).encode(), "is not valid JSON"),
    "no object": ("mem0", json.dumps([MARKER]).encode(), "expected format: JSON from mem0"),
    "numbers for texts": ("mem0", b'[{"memory": 7}, 7]', "expected format: JSON from mem0"),
    "a list of another system": (
        "letta",
        json.dumps([{"memory": MARKER}]).encode(),
        "expected format: a Letta agent file",
    ),
    "a list without words": (
        "memory-store",
        b'{"data": [{"id": "x"}]}',
        "expected format: the memory list of an Anthropic",
    ),
    "no log": ("axe", FILE, "expected format: an axe run log"),
    "no markdown": ("markdown", archive((f"{IN}.exe", FILE)), "packed folder of Markdown"),
    "no archive": ("markdown", FILE, "is not a complete tar archive"),
    "no tar in it": ("markdown", gzip.compress(FILE * 100), "is not a complete tar archive"),
    "an archive cut off": ("markdown", archive((IN, FILE))[:-20], "is not a complete tar archive"),
    "bytes changed": ("markdown", archive((IN, FILE))[:-8] + b"\0" * 8, "is not a complete tar archive"),
    "a name without end": (
        "markdown",
        gzip.compress(header("x", tarfile.XHDTYPE, size=2**33 - 1).tobuf() + b"\0" * 2**20),
        "has more than 65,536 bytes of headers before a file",
    ),
    "a negative size": (
        "markdown",
        gzip.compress(header("x", tarfile.REGTYPE, size=-5).tobuf(tarfile.GNU_FORMAT) + b"\0" * 2_048),
        "is not a complete tar archive",
    ),
}


def test_a_file_that_is_none_is_refused_and_not_repeated(runtime: Caller, ada: Agent) -> None:
    for case in HOSTILE:
        name, body, word = HOSTILE[case]
        before = steps.state(ada)
        answer = put(runtime, name, body)
        assert (answer.status, answer.codes, answer.attrs) == (422, ["invalid"], ["file"]), case
        assert word in answer.content.decode(), case
        assert SAID not in answer.content, case
        assert len(answer.content) < 500, case
        assert steps.state(ada) == before, case


# An entry that is none, of a file that is well: why it is left out.
LEFT_OUT: dict[str, tuple[str, bytes, str]] = {
    "deleted": ("mem0", json.dumps([{"memory": MARKER, "state": "deleted"}]).encode(), "is marked as deleted"),
    "nul": ("mem0", json.dumps([{"memory": f"{MARKER}\0"}]).encode(), "contains a NUL character"),
    "a link": ("markdown", archive((header(IN, tarfile.SYMTYPE, linkname="/etc/passwd"), b"")), "is a link"),
    "a hard link": ("markdown", archive((header(IN, tarfile.LNKTYPE, linkname="../x"), b"")), "is a link"),
    "a device": ("markdown", archive((header(IN, tarfile.CHRTYPE), b"")), "is not a file"),
    "an absolute path": ("markdown", archive((f"/{IN}", FILE)), "outside the folder"),
    "a path that climbs": ("markdown", archive((f"../../{IN}", FILE)), "outside the folder"),
    "large": ("markdown", archive((IN, SAID * (2**20 // len(SAID) + 1))), "is too large"),
    "no text at all": ("markdown", archive((IN, b"\xff" + FILE)), "is not UTF-8 text"),
    "an odd name": ("markdown", archive((f"memory/\udcff{IN}", FILE)), "not valid text"),
    "of nothing": ("axe", b"## 2026-01-05T08:00:00Z\n**Task:** (none)\n**Result:** (none)\n", "neither"),
    "nul in a log": ("axe", b"## 2026-01-05T08:00:00Z\n" + FILE + b"\0\n", "NUL"),
}


def test_what_is_no_memory_is_left_out_with_the_reason(runtime: Caller, ada: Agent) -> None:
    for case in LEFT_OUT:
        name, body, word = LEFT_OUT[case]
        before = steps.state(ada)
        answer = put(runtime, name, body)
        assert (answer.status, answer.json["imported"], answer.json["left_out"]) == (201, 0, 1), case
        assert word in answer.json["named"][0]["why"], case
        assert SAID not in answer.content, case
        assert steps.state(ada) == before, case


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_is_looked_through_before_anything_is_locked(
    runtime: Caller, ada: Agent, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = edits.locked
    places: list[int] = []
    body = io.BytesIO(OF_A_CATEGORY[name])

    def noting(agent: Agent) -> Any:
        places.append(body.tell())
        return locked(agent)

    monkeypatch.setattr(edits, "locked", noting)
    importing.check_file(body, name).store(ada, PERSON)
    assert places[0] == len(body.getvalue()), "read to its end by then"


def test_keys_and_names_are_cut_and_counted(runtime: Caller, ada: Agent) -> None:
    left = [{"id": "x" * 5_000} for _ in range(importing.NAMED + 50)]
    odd = [{"memory": f"{n}", f"{'k' * 5_000}{n}": 1, "\ud83d\0": 1} for n in range(importing.NAMED + 50)]
    told = put(runtime, "mem0", json.dumps(left + odd).encode()).json
    assert (told["imported"], told["left_out"]) == (len(odd), len(left))
    assert len(told["named"]) == importing.NAMED
    assert all(len(each["key"]) <= importing.KEY + 1 for each in told["named"])
    assert len(told["transformed"]) <= importing.NAMED + 1
    assert sum(each["memories"] for each in told["transformed"]) == 3 * len(odd)


def test_what_holds_no_memories_is_given_up(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MOST_LEFT_OUT", 10)
    before = steps.state(ada)
    answer = put(runtime, "mem0", json.dumps([{"memory": "good"}, *[1] * 11]).encode())
    assert (answer.status, answer.attrs) == (422, ["file"])
    assert steps.state(ada) == before


def test_a_bomb_is_given_up(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_UNPACKED", 10 * 2**20)
    bomb = archive(*[(f"memory/common/technical/{n}.md", b" " * 2**20) for n in range(11)])
    assert len(bomb) < 100_000
    assert put(runtime, "markdown", bomb).status == 422
    monkeypatch.setattr(tree, "MAX_FILES", 5)
    answer = put(runtime, "markdown", archive(*[(f"memory/common/technical/{n}.md", b"") for n in range(6)]))
    assert "more than 5 files" in answer.content.decode()


def attributes(number: int, size: int = 30_000) -> bytes:
    """A header of attributes as they stand before a file, of other names in each."""
    said = b"".join(b"%d %04d=%s\n" % (1_010, each, b"v" * 999) for each in range(number, number + size // 1_000))
    return header("x", tarfile.XHDTYPE, size=len(said)).tobuf() + said + b"\0" * (-len(said) % tarfile.BLOCKSIZE)


def test_headers_of_one_file_are_bounded(runtime: Caller, ada: Agent) -> None:
    answer = put(runtime, "markdown", gzip.compress(attributes(0) + attributes(30) + attributes(60) + b"\0" * 1_024))
    assert (answer.status, answer.attrs) == (422, ["file"])
    assert "has more than 65,536 bytes of headers before a file" in answer.content.decode()


def test_a_bad_entry_far_behind_undoes_what_came_before(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes while it is read, which one over the API cannot."""
    monkeypatch.setattr(importing, "BATCH", 2)
    monkeypatch.setattr(json_file, "MAX_ENTRIES", 5)
    before = steps.state(ada)
    answer = put(runtime, "mem0", json.dumps([{"memory": f"{n}"} for n in range(6)]).encode())
    assert answer.status == 422
    assert steps.state(ada) == before


@pytest.mark.parametrize("name", OTHERS)
@given(body=st.binary(max_size=300))
@example(body=b'{"results": [{"memory": {"a": []}, "metadata": {"palimpsest": {"category": []}}}]}')
@example(
    body=b'{"results": [{"memory": "x", "metadata": {"palimpsest": {"category": "x", "project": "", "tags": 7}}}]}'
)
@example(body=b'{"blocks": [{"value": "x", "label": {"a": 1}, "metadata": [1], "id": {}}]}')
@example(body=b'{"core_memory": [{"value": "x", "label": 1e400, "metadata_": {"k": 1e999}}]}')
@example(body=b'{"data": [{"content": "x", "created_at": 5, "updated_at": []}], "next_page": {}}')
@example(
    body=b'{"apps": [{"id": [], "name": {}}], "user": [], "memories": [{"content": "x", "app_id": [], "user_id": {}}]}'
)
@example(body=b'[{"text": "x", "tags": {"a": 1}, "created_at": "0001-01-01T00:00:00+14:00", "is_deleted": []}]')
@example(body=b'[{"memory": "x", "created_at": "9999-12-31T23:59:59-14:00", "categories": 7, "category_ids": "x"}]')
@example(body=b"## \n\n## \n")
@example(body=b"\xef\xbb\xbf## 9999-99-99\n\xff\r\n")
@example(body=archive((header("", tarfile.REGTYPE), b"")))
@example(body=archive((header("memory", tarfile.REGTYPE), b"")))
@example(body=archive((header("a/../memory/x.md", tarfile.DIRTYPE), b"")))
@example(body=archive(("memory/projects/x.md", b"## Metadata\n- **Project**: x\n")))
@example(body=archive(("memory/projects//\n/sessions/x.md", b"# T\n\n## Metadata\n- **Memory ID**: 1\n\n## Tags\n")))
@example(body=archive((header(IN, tarfile.REGTYPE, mtime=2**40), b"")))
@example(body=gzip.compress(header("x.md", tarfile.XHDTYPE, size=9).tobuf() + b"7 path=x\n".ljust(512, b"\0")))
def test_no_body_is_an_error_of_ours(name: str, body: bytes, runtime: Caller) -> None:
    answer = put(runtime, name, body)
    assert answer.status in (201, 422), answer.content


# --- switches

OF_A_CATEGORY = {
    "jsonl": b'{"content": "open"}\n{"content": "shut", "category": "technical"}\n',
    "mem0": b'[{"memory": "open"}, {"memory": "shut", "categories": ["technical"]}]',
    "letta": b'[{"text": "shut"}]',
    "memory-store": b'{"data": [{"content": "shut"}]}',
    "axe": b"## 2026-01-05T08:00:00Z\n**Task:** x\n**Result:** shut\n",
    "markdown": archive(("memory/common/behavioral/a.md", b"open"), (IN, b"shut")),
}
SHUT = {"letta": "contextual", "memory-store": "contextual", "axe": "behavioral"}


@pytest.mark.parametrize("name", IMPORTS)
@pytest.mark.parametrize("code", ["memory_disabled", "category_disabled"])
def test_nothing_is_written_of_what_is_switched_off(runtime: Caller, ada: Agent, name: str, code: str) -> None:
    rules = {"memory_rules": {"categories": {SHUT.get(name, "technical"): {"enabled": False}}}}
    off: Any = {"enabled": False} if code == "memory_disabled" else {"rules": rules}
    rule_changes.change(fresh(ada), PERSON, **off)
    before = steps.state(ada)
    answer = put(runtime, name, OF_A_CATEGORY[name])
    assert (answer.status, answer.codes) == (409, [code])
    assert steps.state(ada) == before
