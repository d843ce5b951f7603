"""The entries of large JSON files, one at a time: what any parser finds there, or the file is refused as a whole."""

from __future__ import annotations

import io
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.transfer.formats import json_file
from memory.transfer.formats.json_file import MAX_DEPTH, Entry, entries
from memory.transfer.formats.parts import Unfit
from tests.growth import growth

SAID = "marker-words"


class Chunks(io.BytesIO):
    """A file that is read in pieces of so many bytes at most."""

    chunk = 2**16

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, self.chunk) if size and size > 0 else size)


def read(data: bytes, chunk: int = 2**16) -> list[tuple[str, int, Any]]:
    file = Chunks(data)
    file.chunk = max(chunk, 3)  # a byte order mark is read at once
    return [(entry.name, entry.number, entry.value) for entry in entries(file)]


def refused(data: bytes) -> str:
    with pytest.raises(Unfit) as failure:
        read(data)
    assert SAID not in repr(failure.value)
    assert failure.value.__context__ is None or SAID not in repr(failure.value.__context__)
    return failure.value.why


def expected(value: Any) -> list[tuple[str, int, Any]]:
    """What is found in a file of a value."""
    if isinstance(value, dict):
        return [(name, *rest) for name, inner in value.items() for _, *rest in _of(inner)]
    return _of(value)


def _of(value: Any) -> list[tuple[str, int, Any]]:
    if isinstance(value, list):
        return [("", 0, []), *(("", number, each) for number, each in enumerate(value, 1))]
    return [("", 0, value)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 0, 3]), is_ascii=st.booleans(), chunk=st.integers(1, 40))
def test_it_finds_what_a_parser_finds_however_it_is_cut(value: Any, indent: Any, is_ascii: bool, chunk: int) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert read(data, chunk) == expected(value)


@settings(max_examples=200, deadline=None)
@given(
    value=VALUES, cut=st.integers(0, 10_000), put=st.sampled_from(["", "}", "]", ",", '"', "\\", "nul", "-", "\x01"])
)
def test_it_takes_nothing_that_a_parser_refuses(value: Any, cut: int, put: str) -> None:
    text = json.dumps({"results": [value]})
    cut %= len(text)
    broken = text[:cut] + put + text[cut + 1 :]
    try:
        json.loads(broken)
    except ValueError:
        assert refused(broken.encode()) in ("is not valid JSON", "is empty", "has a text with an incomplete character")
    else:
        with suppress(Unfit):  # half a character
            read(broken.encode())


def test_what_is_no_json_is_refused_by_name() -> None:
    marker = SAID.encode()
    for data in (b"", b" \n\t ", b"\xef\xbb\xbf"):
        assert refused(data) == "is empty"
    wrong = [
        b'{"results": [1]} ' + marker,
        b"[1] [2]",
        b"[1,]",
        b"{1: 2}",
        b"[NaN]",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2),
        b"[" + b"7" * 5_000 + b"]",
        b'["' + marker + b'\n"]',
        marker * 100_000,
        b'["' + marker + b'\xff"]',
        json.dumps([SAID]).encode("utf-16"),
    ]
    for data in wrong:
        assert refused(data) == "is not valid JSON", data[:20]


def test_what_other_programs_write_is_read() -> None:
    assert SAID not in repr(Entry("results", 1, SAID))
    assert read(b'\xef\xbb\xbf{"a": [1.5e3, "\\ud83e\\udd86"]}\n') == [("a", 0, []), ("a", 1, 1500.0), ("a", 2, "🦆")]
    done: set[str] = set()
    assert [entry.value for entry in entries(io.BytesIO(b'["\\ud83d"]'), (), done)] == [[], "?"]
    assert done == {"incomplete character replaced by ?"}
    assert read(b'{"a": 1, "a": 2}') == [("a", 0, 1), ("a", 0, 2)]
    assert read(b'[{"a": 1, "a": 2}]') == [("", 0, []), ("", 1, {"a": 2})]
    assert read(b"12") == [("", 0, 12)]
    deep = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)
    assert len(read(deep)) == 2


def test_a_file_with_an_entry_that_is_too_large_or_too_many_of_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_ENTRY", 1_000)
    for large in ('"' + "x" * 1_001 + '"', "[" + "1," * 1_000 + "1]", '{"a": [' + '"x",' * 1_000 + "1]}"):
        assert refused(f'{{"results": [1, {large}, 2], "after": 3}}'.encode()) == "has an entry that is too large"
    monkeypatch.setattr(json_file, "MAX_ENTRIES", 3)
    assert len(read(b"[1, 2, 3]")) == 4
    for data in (b"[1, 2, 3, 4]", b'{"a": [1, 2, 3, 4]}'):
        assert refused(data) == "has more than 3 entries"


def test_what_is_within_objects_of_a_list_is_given_apart() -> None:
    data = json.dumps({"agents": [{"name": "x", "messages": [1, {"a": 2}]}, 3], "blocks": [{"agents": []}]}).encode()
    assert [(entry.name, entry.number, entry.value) for entry in entries(io.BytesIO(data), ("agents",))] == [
        ("agents", 0, []),
        ("agents.name", 0, "x"),
        ("agents.messages", 0, []),
        ("agents.messages", 1, 1),
        ("agents.messages", 2, {"a": 2}),
        ("agents", 2, 3),
        ("blocks", 0, []),
        ("blocks", 1, {"agents": []}),
    ]


class Long(io.BytesIO):
    """A list of numbers, of so many bytes, none of which are held."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def seek(self, *_: int) -> int:
        self.left = self.size
        return 0

    def read(self, size: int | None = -1) -> bytes:
        begins = self.left == self.size
        self.left -= size or 0
        return b"" if self.left <= 0 else (b"[1" if begins else b"") + b",12345678" * ((size or 0) // 9)


def test_no_more_is_held_than_an_entry_takes() -> None:
    tracemalloc.start()
    why = ""
    count = 0
    try:
        for _ in entries(Long(1_500_000)):
            count += 1
    except Unfit as unfit:
        why = unfit.why
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert why == "is not valid JSON"
    assert count > 150_000
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "made",
    [
        lambda size: b"[" + b'{"memory": "some words of it"},' * (size // 30) + b"1]",
        lambda size: b"[" + (b'"' + b"x" * 60_000 + b'",') * (size // 60_000) + b"1]",
        lambda size: b'["' + b"\\n" * (size // 2) + b'"]',
        lambda size: b'["' + b"x" * size + b'"',
        lambda size: b"[" + b" " * size + b"]",
        lambda size: b"[" * 50 + b"[]," * (size // 3) + b"1" + b"]" * 50,
    ],
    ids=["short", "long", "escapes", "cut", "blank", "deep"],
)
def test_it_takes_as_long_as_the_file_is(made: Any) -> None:
    def run(size: int) -> None:
        try:
            for _ in entries(io.BytesIO(made(size))):
                pass
        except Unfit:
            pass

    assert growth(run, 300_000, 4) < 10  # 16, if it grew with the square
