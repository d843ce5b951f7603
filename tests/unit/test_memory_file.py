"""Trimming and appending a memory file (seed 001, requirements 1.1 to 1.3 and section 7.2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import memory_file
from memory.errors import FileFault
from memory.memory_file import append, look, trim, trim_entries
from memory.replacement import Replacement


def entry(number: int, result: str = "done") -> bytes:
    return f"## 2026-01-{number:02}T00:00:00Z\n**Task:** task{number}\n**Result:** {result}\n\n".encode()


def of(count: int) -> bytes:
    return b"".join(entry(number) for number in range(1, count + 1))


def expected(content: bytes, keep: int) -> bytes:
    """The last entries by the plainest reading of the seed: split at lines that begin so."""
    lines = content.split(b"\n")
    starts = [place for place, line in enumerate(lines) if line.startswith(b"## ")]
    return b"\n".join(lines[starts[-keep] :]) if keep and len(starts) > keep else content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.md"


# --- the seed's tests


def test_trim_entries_file_does_not_exist(path: Path) -> None:
    assert trim_entries(path, 5) == 0
    assert not path.exists()


def test_trim_entries_empty_file(path: Path) -> None:
    path.touch()
    assert trim_entries(path, 5) == 0
    assert path.read_bytes() == b""


def test_trim_entries_keep_n_zero(path: Path) -> None:
    path.write_bytes(of(5))
    assert trim_entries(path, 0) == 0
    assert path.read_bytes() == of(5)


def test_trim_entries_keep_n_negative(path: Path) -> None:
    path.write_bytes(of(5))
    with pytest.raises(FileFault, match="keepN must be non-negative"):
        trim_entries(path, -1)
    assert path.read_bytes() == of(5)


def test_trim_entries_entries_within_limit(path: Path) -> None:
    path.write_bytes(of(3))
    before = path.stat()
    assert trim_entries(path, 5) == 0
    assert (path.read_bytes(), path.stat().st_ino) == (of(3), before.st_ino)


def test_trim_entries_entries_equal_to_limit(path: Path) -> None:
    path.write_bytes(of(5))
    assert trim_entries(path, 5) == 0
    assert path.read_bytes() == of(5)


def test_trim_entries_trims_old_entries(path: Path) -> None:
    path.write_bytes(of(10))
    assert trim_entries(path, 3) == 7
    assert path.read_bytes() == b"".join(entry(number) for number in (8, 9, 10))


def test_trim_entries_preserves_entry_format(path: Path) -> None:
    last = b"## c\n\n\n  indented\t \n\n- a\r\n\n" + entry(9, "one\ntwo\n\n three ") + b"\n\n\n"
    path.write_bytes(of(4) + last)
    assert trim_entries(path, 2) == 4
    assert path.read_bytes() == last


def test_trim_entries_discards_pre_header_content(path: Path) -> None:
    path.write_bytes(b"# Memory\n\nnotes ## not a header\n" + of(5))
    assert trim_entries(path, 3) == 2
    assert path.read_bytes() == b"".join(entry(number) for number in (3, 4, 5))


def test_trim_entries_single_entry_keep_one(path: Path) -> None:
    path.write_bytes(of(1))
    assert trim_entries(path, 1) == 0
    assert path.read_bytes() == of(1)


def test_trim_entries_original_unmodified_on_write_error(path: Path, as_nobody: None) -> None:
    path.write_bytes(of(5))
    path.parent.chmod(0o555)
    try:
        with pytest.raises(FileFault, match="permission denied"):
            trim_entries(path, 2)
        assert path.read_bytes() == of(5)
        assert list(path.parent.iterdir()) == [path]
    finally:
        path.parent.chmod(0o755)


# --- bytes of any kind and number

LINES = st.sampled_from(
    [b"## ", b"##", b"## x", b"#", b" ## ", b"", b"\r", b"\xff\xfe", b"\x00", b"text", b"\xef\xbb\xbf## "]
)


@given(lines=st.lists(LINES, max_size=30), keep=st.integers(1, 8), chunk=st.integers(1, 12), step=st.integers(1, 40))
def test_any_bytes_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], keep: int, chunk: int, step: int
) -> None:
    content = b"\n".join(lines)
    path = tmp_path_factory.mktemp("any") / "log.md"
    path.write_bytes(content)
    entries = sum(line.startswith(b"## ") for line in content.split(b"\n"))
    before = memory_file.CHUNK, memory_file.STEP
    memory_file.CHUNK, memory_file.STEP = chunk, step
    try:
        seen = look(path)
        assert seen is not None
        assert seen.entries == entries
        assert b"".join(memory_file.pieces(path, seen)) == content
        done = trim(path, keep)
    finally:
        memory_file.CHUNK, memory_file.STEP = before
    assert path.read_bytes() == expected(content, keep)
    assert (done.removed, done.kept) == (max(0, entries - keep), min(entries, keep))
    if done.after is not None:
        again = look(path)
        assert again is not None
        assert (done.after.entries, done.after.size, done.after.digest) == (again.entries, again.size, again.digest)
    path.parent.rmdir() if not any(path.parent.iterdir()) else None


def test_a_large_file_is_trimmed_in_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        for number in range(60):
            file.write(entry(1, "x" * 1_000_000) if number % 2 else of(9))
    tracemalloc.start()
    trim_entries(path, 200)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * memory_file.CHUNK
    seen = look(path)
    assert seen is not None
    assert seen.entries == 200


# --- what the file is


def test_a_symlink_stays_and_the_file_it_leads_to_is_trimmed(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.md"
    real.parent.mkdir()
    real.write_bytes(of(5))
    path.symlink_to(real)
    assert trim_entries(path, 2) == 3
    assert path.is_symlink()
    assert real.read_bytes() == of(5)[len(of(3)) :]
    assert [file.name for file in real.parent.iterdir()] == ["real.md"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_its_mode_is_kept(path: Path, mode: int) -> None:
    path.write_bytes(of(5))
    path.chmod(mode)
    trim_entries(path, 2)
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_its_owner_is_kept(path: Path) -> None:
    path.write_bytes(of(5))
    os.chown(path, 1, 2)
    trim_entries(path, 2)
    assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)


def test_a_file_of_two_names_is_left_as_it_is(path: Path) -> None:
    """To replace it would part them."""
    path.write_bytes(of(5))
    path.with_name("other.md").hardlink_to(path)
    with pytest.raises(FileFault, match="2 names"):
        trim_entries(path, 2)
    assert path.read_bytes() == of(5)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_at_once(path: Path, kind: str) -> None:
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    for act in (lambda: look(path), lambda: trim_entries(path, 2)):
        with pytest.raises(FileFault, match="is a directory" if kind == "folder" else "is not a file"):
            act()
    with pytest.raises(FileFault):
        append(path, entry(1))


# --- others who write to it meanwhile


def test_what_came_since_it_was_seen_is_kept(path: Path) -> None:
    path.write_bytes(of(5))
    seen = look(path)
    append(path, entry(6))
    append(path, entry(7))
    done = trim(path, 1, since=seen)
    assert (done.removed, done.kept) == (5, 2)
    assert path.read_bytes() == entry(6) + entry(7)


def test_a_file_that_vanished_since_is_an_error(path: Path) -> None:
    path.write_bytes(of(5))
    seen = look(path)
    path.unlink()
    with pytest.raises(FileFault, match="vanished"):
        trim(path, 1, since=seen)


@pytest.mark.parametrize("other", [of(5).replace(b"task3", b"TASK3"), of(4), of(6)[len(entry(1)) :], b""])
def test_a_file_that_was_rewritten_since_is_an_error(path: Path, other: bytes) -> None:
    path.write_bytes(of(5))
    seen = look(path)
    path.write_bytes(other)
    with pytest.raises(FileFault, match="rewritten"):
        trim(path, 1, since=seen)
    assert path.read_bytes() == other


def test_a_file_of_a_new_name_with_the_same_beginning_is_the_same(path: Path) -> None:
    """An editor, or another machine's sync, replaces it as a whole."""
    path.write_bytes(of(5))
    seen = look(path)
    path.unlink()
    path.write_bytes(of(6))
    assert trim(path, 2, since=seen).removed == 4


def test_what_another_writes_just_before_the_new_file_is_there_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(of(5))
    replace = Path.replace

    def late(name: Path, target: Path) -> Path:
        with path.open("ab") as another:  # which knows of no lock
            another.write(entry(6))
        return replace(name, target)

    monkeypatch.setattr(Path, "replace", late)
    done = trim(path, 2)
    assert (done.removed, done.kept) == (3, 3)
    assert path.read_bytes() == entry(4) + entry(5) + entry(6)


def test_our_own_writers_and_trims_at_once_lose_nothing(path: Path) -> None:
    path.write_bytes(of(3))
    stop = threading.Event()

    def trims() -> None:
        while not stop.is_set():
            trim_entries(path, 10_000)
            trim_entries(path, 400)

    trimming = threading.Thread(target=trims)
    trimming.start()
    writers = [
        threading.Thread(target=lambda n=n: [append(path, entry(1, f"{n}/{i}")) for i in range(60)]) for n in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    trimming.join()
    kept = path.read_bytes()
    assert all(f"{n}/{i}\n".encode() in kept for n in range(4) for i in range(60))


# --- killed, or without room


def test_killed_at_any_point_it_is_the_old_file_or_the_new(path: Path) -> None:
    old = of(2_000)
    script = (
        "import sys; from pathlib import Path; from memory.memory_file import trim_entries; "
        "print('at it', flush=True); trim_entries(Path(sys.argv[1]), 3)"
    )
    for delay in range(12):
        path.write_bytes(old)
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            threading.Event().wait(delay / 2_000)
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (old, expected(old, 3))
    trim_entries(path, 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_a_killed_one_left_is_removed_by_the_next(path: Path) -> None:
    path.write_bytes(of(5))
    replacing = Replacement(path)
    replacing.name.write_bytes(b"half")
    trim_entries(path, 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_without_names_for_unnamed_files_it_works_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path.write_bytes(of(5))
    assert trim_entries(path, 2) == 3
    assert path.read_bytes() == expected(of(5), 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path.write_bytes(of(5))

    def full(number: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileFault, match="no space left"):
        trim_entries(path, 2)
    with pytest.raises(FileFault, match="no space left"):
        append(path, entry(6))
    monkeypatch.undo()
    assert path.read_bytes() == of(5)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# --- appending


def test_a_first_entry_makes_the_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ada.md"
    append(path, entry(1))
    assert path.read_bytes() == entry(1)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_lacks_its_last_newline_gets_one_first(path: Path) -> None:
    path.write_bytes(b"## a\nx")
    append(path, entry(1))
    assert path.read_bytes() == b"## a\nx\n" + entry(1)
