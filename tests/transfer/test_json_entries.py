"""The reader of large JSON files returns one entry at a time, or refuses the file."""

import io
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.transfer.formats import json_file
from memory.transfer.formats.json_file import MAX_DEPTH, Entry, entries
from memory.transfer.formats.parts import Unfit
from tests.growth import growth

MARKER = "marker-words"


class Chunks(io.BytesIO):
    """A file that returns at most `chunk` bytes at once."""

    chunk = 2**16

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, self.chunk) if size and size > 0 else size)


def read(data: bytes, chunk: int = 2**16, within: str = "") -> list[tuple[str, int, Any]]:
    file = Chunks(data)
    file.chunk = max(chunk, 3)  # a byte order mark is read at once
    return [(entry.name, entry.number, entry.value) for entry in entries(file, within)]


def refusal(data: bytes) -> str:
    """The reason of the refusal. It does not quote the file."""
    with pytest.raises(Unfit) as refused:
        read(data)
    assert MARKER not in repr(refused.value) + repr(refused.value.__context__)
    return refused.value.why


def expected_entries(value: Any, name: str = "", *, is_whole: bool = True) -> list[tuple[str, int, Any]]:
    if is_whole and isinstance(value, dict):
        return [entry for key, inner in value.items() for entry in expected_entries(inner, key, is_whole=False)]
    if isinstance(value, list):
        return [(name, 0, []), *((name, number, each) for number, each in enumerate(value, 1))]
    return [(name, 0, value)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 0, 3]), is_ascii=st.booleans(), chunk=st.integers(1, 40))
def test_the_entries_are_those_of_a_parser(value: Any, indent: Any, is_ascii: bool, chunk: int) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert read(data, chunk) == expected_entries(value)


@settings(max_examples=200, deadline=None)
@given(VALUES, st.integers(0, 10_000), st.sampled_from(["", "}", "]", ",", '"', "\\", "nul", "-", "\x01"]))
def test_a_file_that_a_parser_refuses_is_refused(value: Any, cut: int, replacement: str) -> None:
    text = json.dumps({"results": [value]})
    cut %= len(text)
    broken = text[:cut] + replacement + text[cut + 1 :]
    try:
        json.loads(broken)
    except ValueError:
        assert refusal(broken.encode()) in ("is not valid JSON", "is empty", "has a text with an incomplete character")
    else:
        with suppress(Unfit):  # half a character
            read(broken.encode())


def test_invalid_json_is_refused_with_a_reason() -> None:
    marker = MARKER.encode()
    for data in (b"", b" \n\t ", b"\xef\xbb\xbf"):
        assert refusal(data) == "is empty"
    invalid = [
        *(b'{"results": [1]} ' + marker, b"[1] [2]", b"[1,]", b"{1: 2}", b"[NaN]", b"[" * 100_000 + b"]" * 100_000),
        *(b'{"a":' * 100_000, b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), b"[" + b"7" * 5_000 + b"]"),
        *(
            b'["' + marker + b'\n"]',
            marker * 100_000,
            b'["' + marker + b'\xff"]',
            json.dumps([MARKER]).encode("utf-16"),
        ),
    ]
    for data in invalid:
        assert refusal(data) == "is not valid JSON", data[:20]


def test_unusual_json_of_other_programs_is_read() -> None:
    assert MARKER not in repr(Entry("results", 1, MARKER))
    assert read(b'\xef\xbb\xbf{"a": [1.5e3, "\\ud83e\\udd86"]}\n') == [("a", 0, []), ("a", 1, 1500.0), ("a", 2, "🦆")]
    notes: set[str] = set()
    assert [entry.value for entry in entries(io.BytesIO(b'["\\ud83d"]'), "", notes)] == [[], "?"]
    assert notes == {"incomplete character replaced by ?"}
    assert read(b'{"a": 1, "a": 2}') == [("a", 0, 1), ("a", 0, 2)]
    assert read(b'[{"a": 1, "a": 2}]') == [("", 0, []), ("", 1, {"a": 2})]
    assert read(b"12") == [("", 0, 12)]
    assert len(read(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))) == 2


def test_the_size_and_the_number_of_entries_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_ENTRY", 1_000)
    for large in ('"' + "x" * 1_001 + '"', "[" + "1," * 1_000 + "1]", '{"a": [' + '"",' * 130 + "1]}"):
        assert refusal(f'{{"results": [1, {large}, 2], "after": 3}}'.encode()) == "has an entry that is too large"
    monkeypatch.setattr(json_file, "MAX_ENTRIES", 3)
    assert len(read(b"[1, 2, 3]")) == 4
    for data in (b"[1, 2, 3, 4]", b'{"a": [1, 2, 3, 4]}'):
        assert refusal(data) == "has more than 3 entries"


def test_entries_of_named_lists_are_split_further() -> None:
    data = json.dumps({"agents": [{"name": "x", "messages": [1, {"a": 2}]}, 3], "blocks": [{"agents": []}]}).encode()
    agents = [("agents", 0, []), ("agents.name", 0, "x"), ("agents.messages", 0, []), ("agents.messages", 1, 1)]
    agents += [("agents.messages", 2, {"a": 2}), ("agents", 2, 3)]
    assert read(data, within="agents") == [*agents, ("blocks", 0, []), ("blocks", 1, {"agents": []})]


class Long(io.BytesIO):
    """A list of numbers of a given size, which is not held in memory."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def seek(self, *_: int) -> int:
        self.left = self.size
        return 0

    def read(self, size: int | None = -1) -> bytes:
        is_first = self.left == self.size
        self.left -= size or 0
        return b"" if self.left <= 0 else (b"[1" if is_first else b"") + b",12345678" * ((size or 0) // 9)


def test_the_reader_holds_one_entry() -> None:
    count, why = 0, ""
    tracemalloc.start()
    try:
        for _ in entries(Long(1_500_000)):
            count += 1
    except Unfit as unfit:  # the list has no end
        why = unfit.why
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (why, count > 150_000, peak < 4_000_000) == ("is not valid JSON", True, True)


FILES: dict[str, Callable[[int], bytes]] = {
    "short": lambda size: b"[" + b'{"memory": "some words of it"},' * (size // 30) + b"1]",
    "long": lambda size: b"[" + (b'"' + b"x" * 60_000 + b'",') * (size // 60_000) + b"1]",
    "escapes": lambda size: b'["' + b"\\n" * (size // 2) + b'"]',
    "cut": lambda size: b'["' + b"x" * size + b'"',
    "blank": lambda size: b"[" + b" " * size + b"]",
    "deep": lambda size: b"[" * 50 + b"[]," * (size // 12) + b"1" + b"]" * 50,
}


@pytest.mark.parametrize("name", FILES)
def test_time_grows_with_the_size_of_the_file(name: str) -> None:
    def run(size: int) -> None:
        with suppress(Unfit):
            for _ in entries(io.BytesIO(FILES[name](size))):
                pass

    assert growth(run, 600_000, 4) < 10  # 16, if it grew with the square
