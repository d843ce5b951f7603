"""Of a log with any bytes, read in any pieces, the newest entries that fit are sent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.policy import tokens
from memory.run_log import log_file
from memory.run_log.files import Place
from refinement import gc_logs
from refinement.gc_logs import FileLog

TEXTS = st.lists(
    st.sampled_from([b"## ", b"\n## ", b"\n", b"#", b" ", b"tea and milk", "zażółć".encode(), b"\xff\xfe", b"x" * 40]),
    max_size=40,
).map(b"".join)


def entries_of(content: bytes) -> list[bytes]:
    """The entries, split at every line that begins one."""
    found: list[list[bytes]] = []
    for line in content.split(b"\n"):
        if line.startswith(b"## "):
            found.append([line])
        elif found:
            found[-1].append(line)
    return [b"\n".join(lines) for lines in found]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "ada.md"


def log_at(path: Path) -> FileLog:
    agent: Any = SimpleNamespace(memory_path=str(path))
    with mock.patch.object(gc_logs.runs, "place_of", return_value=Place(path, (path.parent,))):
        return FileLog(agent, None)  # type: ignore[arg-type]


@given(content=TEXTS, context=st.integers(1, 60), chunk=st.integers(4, 50))
@example(content=b"## one\n## two\n", context=2, chunk=4)
def test_the_newest_entries_that_fit_are_sent(path: Path, content: bytes, context: int, chunk: int) -> None:
    path.write_bytes(content)
    entries = entries_of(content)
    with mock.patch.object(log_file, "CHUNK", chunk):
        text = log_at(path).text(context)
        sent = b"".join(text.pieces())
    assert len(sent) == text.size
    assert content.endswith(sent)
    kept = len(entries) - text.left_out
    assert entries_of(sent) == entries[-kept:] if entries else sent == content
    assert kept >= 1 or not entries
    assert kept <= 1 or weight(entries[-kept:]) <= context
    if sent != content:
        assert sent.startswith(b"## "), "the text before the first entry is left out first"
    if entries and kept < len(entries):
        assert weight(entries[-kept - 1 :]) > context, "one more fits"


def weight(entries: list[bytes]) -> int:
    return sum(max(1, tokens.count("\n" + each.decode("utf-8", "replace"))) for each in entries)
