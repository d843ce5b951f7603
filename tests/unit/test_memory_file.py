"""Trimming and appending a memory file (seed 001, requirements 1.1 to 1.3 and section 7.2)."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import FileFault
from memory.run_log import files, log_file
from memory.run_log.files import Folder, Place, name_beside
from memory.run_log.log_file import Trimmed, append, state_of, trim_entries


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
    assert trim_entries(Place(path), 5).removed == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("entries", "keep"),
    [(0, 5), (5, 0), (3, 5), (5, 5), (1, 1)],
    ids=["empty_file", "keep_n_zero", "entries_within_limit", "entries_equal_to_limit", "single_entry_keep_one"],
)
def test_trim_entries_removes_nothing(path: Path, entries: int, keep: int) -> None:
    path.write_bytes(of(entries))
    before = path.stat()
    assert trim_entries(Place(path), keep).removed == 0
    assert (path.read_bytes(), path.stat().st_ino) == (of(entries), before.st_ino)


def test_trim_entries_keep_n_negative(path: Path) -> None:
    path.write_bytes(of(5))
    with pytest.raises(FileFault, match="keepN must be non-negative"):
        trim_entries(Place(path), -1)
    assert path.read_bytes() == of(5)


def test_trim_entries_trims_old_entries(path: Path) -> None:
    path.write_bytes(of(10))
    assert trim_entries(Place(path), 3).removed == 7
    assert path.read_bytes() == b"".join(entry(number) for number in (8, 9, 10))


def test_trim_entries_preserves_entry_format(path: Path) -> None:
    last = b"## c\n\n\n  indented\t \n\n- a\r\n\n" + entry(9, "one\ntwo\n\n three ") + b"\n\n\n"
    path.write_bytes(of(4) + last)
    assert trim_entries(Place(path), 2).removed == 4
    assert path.read_bytes() == last


def test_trim_entries_discards_pre_header_content(path: Path) -> None:
    path.write_bytes(b"# Memory\n\nnotes ## not a header\n" + of(5))
    assert trim_entries(Place(path), 3).removed == 2
    assert path.read_bytes() == b"".join(entry(number) for number in (3, 4, 5))


def test_trim_entries_original_unmodified_on_write_error(path: Path, as_nobody: None) -> None:
    path.write_bytes(of(5))
    path.parent.chmod(0o555)
    try:
        with pytest.raises(FileFault, match=r"failed to create temp file: .*: permission denied"):
            trim_entries(Place(path), 2)
        assert path.read_bytes() == of(5)
        assert list(path.parent.iterdir()) == [path]
    finally:
        path.parent.chmod(0o755)


# --- bytes of any kind and number

LINES = st.sampled_from(
    [b"## ", b"##", b"## x", b"#", b" ## ", b"", b"\r", b"\xff\xfe", b"\x00", b"text", b"\xef\xbb\xbf## "]
)


@given(lines=st.lists(LINES, max_size=30), keep=st.integers(1, 8), chunk=st.integers(1, 12))
def test_any_bytes_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], keep: int, chunk: int
) -> None:
    content = b"\n".join(lines)
    path = tmp_path_factory.mktemp("any") / "log.md"
    path.write_bytes(content)
    entries = sum(line.startswith(b"## ") for line in content.split(b"\n"))
    before = log_file.CHUNK
    log_file.CHUNK = chunk
    try:
        seen = state_of(Place(path))
        assert seen is not None
        assert seen.entries == entries
        assert b"".join(log_file.read(Place(path), seen)) == content
        done = trim_entries(Place(path), keep)
    finally:
        log_file.CHUNK = before
    assert path.read_bytes() == expected(content, keep)
    assert (done.removed, done.kept) == (max(0, entries - keep), min(entries, keep))
    if done.after is not None:
        again = state_of(Place(path))
        assert again is not None
        assert (done.after.entries, done.after.size, done.after.digest) == (again.entries, again.size, again.digest)
    path.parent.rmdir() if not any(path.parent.iterdir()) else None


def test_a_large_file_is_trimmed_in_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        for number in range(60):
            file.write(entry(1, "x" * 1_000_000) if number % 2 else of(9))
    tracemalloc.start()
    trim_entries(Place(path), 200)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * log_file.CHUNK
    seen = state_of(Place(path))
    assert seen is not None
    assert seen.entries == 200


# --- what the file is


def test_a_symlink_stays_and_the_file_it_leads_to_is_trimmed(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.md"
    real.parent.mkdir()
    real.write_bytes(of(5))
    path.symlink_to(real)
    assert trim_entries(Place(path), 2).removed == 3
    assert path.is_symlink()
    assert real.read_bytes() == of(5)[len(of(3)) :]
    assert [file.name for file in real.parent.iterdir()] == ["real.md"]


def test_its_mode_is_kept(path: Path) -> None:
    for mode in (0o600, 0o640, 0o444):
        path.write_bytes(of(5))
        path.chmod(mode)
        trim_entries(Place(path), 2)
        assert path.stat().st_mode & 0o777 == mode
        path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_its_owner_is_kept(path: Path) -> None:
    path.write_bytes(of(5))
    os.chown(path, 1, 2)
    trim_entries(Place(path), 2)
    assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)


def test_a_file_of_two_names_is_left_as_it_is(path: Path) -> None:
    """To replace it would part them."""
    path.write_bytes(of(5))
    path.with_name("other.md").hardlink_to(path)
    with pytest.raises(FileFault, match="2 names"):
        trim_entries(Place(path), 2)
    assert path.read_bytes() == of(5)


def test_what_is_no_file_is_refused_at_once(path: Path, tmp_path: Path) -> None:
    path.mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, told in ((Place(path), "is a directory"), (Place(tmp_path / "pipe"), "is not a file")):
        for act in (state_of, lambda place: trim_entries(place, 2)):
            with pytest.raises(FileFault, match=told):
                act(place)
        with pytest.raises(FileFault):
            append(place, entry(1))


# --- others who write to it meanwhile


def test_what_came_since_it_was_seen_is_kept(path: Path) -> None:
    path.write_bytes(of(5))
    seen = state_of(Place(path))
    append(Place(path), entry(6))
    append(Place(path), entry(7))
    done = trim_entries(Place(path), 1, since=seen)
    assert (done.removed, done.kept) == (5, 2)
    assert path.read_bytes() == entry(6) + entry(7)


def test_a_file_that_vanished_or_was_rewritten_since_is_an_error(path: Path) -> None:
    path.write_bytes(of(5))
    seen = state_of(Place(path))
    for other in (of(5).replace(b"task3", b"TASK3"), of(4), of(6)[len(entry(1)) :], b""):
        path.write_bytes(other)
        with pytest.raises(FileFault, match="rewritten"):
            trim_entries(Place(path), 1, since=seen)
        assert path.read_bytes() == other
    path.unlink()
    with pytest.raises(FileFault, match="vanished"):
        trim_entries(Place(path), 1, since=seen)
    path.write_bytes(of(6))  # a new file with the same beginning, as an editor or a sync makes it, is the same
    assert trim_entries(Place(path), 2, since=seen).removed == 4


def add(path: Path, data: bytes) -> None:
    """As a program does that knows of no lock."""
    with path.open("ab") as file:
        file.write(data)


def begin_to_add(path: Path, data: bytes) -> None:
    """As another process does that comes upon the file just now, and is let in when the new one is in its place."""
    command = ["sh", "-c", 'printf %s "$2" >> "$1"', "sh", str(path), data.decode()]
    _others.append(subprocess.Popen(command))
    time.sleep(0.3)


_others: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _nobody_left() -> Iterator[None]:
    yield
    while _others:
        _others.pop().wait(10)


def just_before(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in the last moment before the new file gets its place."""
    replace = Folder.replace

    def late(folder: Folder, name: str, by: str) -> None:
        act()
        replace(folder, name, by)

    monkeypatch.setattr(Folder, "replace", late)


def test_what_another_writes_just_before_the_new_file_is_there_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(of(5))
    just_before(monkeypatch, lambda: begin_to_add(path, entry(6)))
    done = trim_entries(Place(path), 2)
    assert (done.removed, done.kept) == (3, 3)
    assert path.read_bytes() == entry(4) + entry(5) + entry(6)


def test_our_own_writers_and_trims_at_once_lose_nothing(path: Path) -> None:
    path.write_bytes(of(3))
    stop = threading.Event()

    def trims() -> None:
        while not stop.is_set():
            trim_entries(Place(path), 10_000)
            trim_entries(Place(path), 400)

    trimming = threading.Thread(target=trims)
    trimming.start()
    writers = [
        threading.Thread(target=lambda n=n: [append(Place(path), entry(1, f"{n}/{i}")) for i in range(60)])
        for n in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    trimming.join()
    kept = path.read_bytes()
    assert all(f"{n}/{i}\n".encode() in kept for n in range(4) for i in range(60))


# --- others at the same time


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda path: path.unlink(), "replaced or removed"),
        (lambda path: (path.with_name("new").write_bytes(b"saved"), path.with_name("new").replace(path)), "replaced"),
        (lambda path: path.write_bytes(of(5).replace(b"task1", b"TASK1")), "rewritten"),
        (lambda path: path.write_bytes(b"## smaller\n"), "rewritten"),
        (lambda path: path.with_name("second").hardlink_to(path), "names"),
    ],
    ids=["removed", "saved by an editor", "rewritten", "made smaller", "linked"],
)
def test_what_becomes_of_the_file_while_the_new_one_is_written_is_an_error(
    path: Path, other: Callable[[Path], object], told: str
) -> None:
    path.write_bytes(of(5))
    left: list[bytes | None] = []

    def agreed(_: Trimmed) -> None:
        other(path)
        left.append(path.read_bytes() if path.exists() else None)

    with pytest.raises(FileFault, match=told):
        trim_entries(Place(path), 2, before_replace=agreed)
    assert [path.read_bytes() if path.exists() else None] == left
    assert not path.with_name(name_beside(path.name)).exists()


WRITER = (
    "import sys, time; file = open(sys.argv[1], 'ab', buffering=0); print('open', flush=True); "
    "time.sleep(float(sys.argv[2])); file.write(b'## late\\n'); file.close()"
)


@pytest.mark.skipif(sys.platform != "linux", reason="where it can be told who has a file open")
def test_a_program_that_keeps_it_open_is_waited_for(path: Path) -> None:
    path.write_bytes(of(5))
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0.5"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = trim_entries(Place(path), 2)
        other.wait()
    assert path.read_bytes() == entry(4) + entry(5) + b"## late\n"
    assert done.kept == 3


@pytest.mark.skipif(sys.platform != "linux", reason="where it can be told who has a file open")
def test_a_program_that_never_closes_it_keeps_it_from_being_trimmed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "WRITER_SECONDS", 0.1)
    path.write_bytes(of(5))
    with path.open("ab"), pytest.raises(FileFault, match="is open for writing"):
        trim_entries(Place(path), 2)
    assert path.read_bytes() == of(5)
    assert trim_entries(Place(path), 2).removed == 3


@pytest.mark.skipif(sys.platform != "linux", reason="where it can be told who has a file open")
def test_nothing_that_others_append_is_lost(path: Path) -> None:
    """Programs that open, write and close, and know of no lock, while it is trimmed over and over."""
    script = (
        "import sys\nfor i in range(1500):\n  with open(sys.argv[1], 'ab', buffering=0) as file: "
        "file.write(f'## {sys.argv[2]}/{i}\\n'.encode())"
    )
    path.touch()
    others = [subprocess.Popen([sys.executable, "-c", script, str(path), str(n)]) for n in range(2)]
    while any(other.poll() is None for other in others):
        trim_entries(Place(path), 5_000)  # nothing
        with suppress(FileFault):  # it is written to without a pause
            trim_entries(Place(path), 2_999)  # at the end one
    kept = path.read_bytes().splitlines()
    assert len(kept) >= 2_999
    assert len(set(kept)) == len(kept)


def test_a_lock_that_is_never_given_up_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    path.write_bytes(of(5))
    with path.open("rb") as other:  # whoever may read it may lock it
        fcntl.flock(other, fcntl.LOCK_EX)
        for act in (lambda: trim_entries(Place(path), 2), lambda: append(Place(path), entry(6))):
            with pytest.raises(FileFault, match="locked by another"):
                act()
    assert path.read_bytes() == of(5)


def test_one_that_is_written_to_for_ever_is_looked_at_all_the_same(path: Path) -> None:
    path.write_bytes(of(5))
    with path.open("ab") as out, subprocess.Popen(["yes", "## more"], stdout=out) as other:
        seen = state_of(Place(path))
        other.kill()
    assert seen is not None
    assert seen.entries >= 5


def test_a_stop_waits_until_what_came_meanwhile_is_copied(path: Path) -> None:
    path.write_bytes(of(5))
    script = (
        "import os, signal, subprocess, sys, time\nfrom pathlib import Path\nfrom memory.run_log import log_file\n"
        "from memory.run_log.files import Folder, Place\nput, path = Folder.replace, Path(sys.argv[1])\n"
        "def late(folder, name, by):\n  subprocess.Popen(['sh', '-c', 'echo \"## late\" >> \"$0\"', str(path)])\n"
        "  time.sleep(0.3)\n  put(folder, name, by)\n"
        "  os.kill(os.getpid(), signal.SIGINT)\n"
        "Folder.replace = late\n"
        "try:\n  log_file.trim_entries(Place(path), 2)\nexcept KeyboardInterrupt:\n  print('stopped')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "stopped\n"
    assert path.read_bytes() == entry(4) + entry(5) + b"## late\n"


def test_what_cannot_be_copied_for_want_of_room_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(of(5))
    plainly = os.write

    def full(number: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28)) if data else plainly(number, data)

    def act() -> None:
        begin_to_add(path, entry(6))
        monkeypatch.setattr("memory.run_log.files.os.write", full)

    just_before(monkeypatch, act)
    with pytest.raises(FileFault, match=r"was trimmed, but \d+ bytes .* no space left"):
        trim_entries(Place(path), 2)
    monkeypatch.undo()
    assert path.read_bytes() == entry(4) + entry(5), "whole entries alone"


def test_when_it_fails_to_append_what_others_wrote_behind_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(of(2))

    def failing(number: int) -> None:
        add(path, entry(9))
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr("memory.run_log.log_file.os.fsync", failing)
    with pytest.raises(FileFault):
        append(Place(path), entry(3))
    monkeypatch.undo()
    assert path.read_bytes().endswith(entry(9))


# --- where it may lie


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside.md", tmp_path / "root"
    outside.write_bytes(of(5))
    root.mkdir()
    (root / "ada.md").symlink_to(outside)
    place = Place(root / "ada.md", (root,))
    for act in (lambda: state_of(place), lambda: trim_entries(place, 2), lambda: append(place, entry(6))):
        with pytest.raises(FileFault, match="is not under"):
            act()
    assert outside.read_bytes() == of(5)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_nor_one_that_is_put_there_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "root" / "acme"
    outside.mkdir()
    folder.mkdir(parents=True)
    for each in (outside, folder):
        (each / "ada.md").write_bytes(of(5))
    place = Place(folder / "ada.md", (tmp_path / "root",))
    real = Place.real

    def swapped(self: Place) -> tuple[Path, Path]:
        found = real(self)
        if what == "file" and not (folder / "ada.md").is_symlink():
            (folder / "ada.md").unlink()
            (folder / "ada.md").symlink_to(outside / "ada.md")
        elif what == "folder" and not folder.is_symlink():
            folder.rename(tmp_path / "gone")
            folder.symlink_to(outside)
        return found

    for act in (lambda: state_of(place), lambda: trim_entries(place, 2), lambda: append(place, entry(6))):
        monkeypatch.setattr(Place, "real", swapped)
        with pytest.raises(FileFault):
            act()
        monkeypatch.setattr(Place, "real", real)
        with pytest.raises(FileFault, match="is not under"):
            act()
    assert (outside / "ada.md").read_bytes() == of(5)


# --- killed, or without room


def test_killed_at_any_point_it_is_the_old_file_or_the_new(path: Path) -> None:
    old = of(2_000)
    script = (
        "import sys; from pathlib import Path; from memory.run_log.log_file import trim_entries; "
        "from memory.run_log.files import Place; "
        "print('at it', flush=True); trim_entries(Place(Path(sys.argv[1])), 3)"
    )
    for delay in range(12):
        path.write_bytes(old)
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            threading.Event().wait(delay / 2_000)
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (old, expected(old, 3))
    trim_entries(Place(path), 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_a_killed_one_left_is_removed_by_the_next(path: Path) -> None:
    path.write_bytes(of(5))
    left = path.with_name(name_beside(path.name))
    left.write_bytes(b"half")
    trim_entries(Place(path), 10)  # also where there is nothing to trim
    assert not left.exists()
    left.write_bytes(b"half")
    trim_entries(Place(path), 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_without_names_for_unnamed_files_it_works_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path.write_bytes(of(5))
    assert trim_entries(Place(path), 2).removed == 3
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
        trim_entries(Place(path), 2)
    with pytest.raises(FileFault, match="no space left"):
        append(Place(path), entry(6))
    monkeypatch.undo()
    assert path.read_bytes() == of(5)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# --- appending


def test_a_first_entry_makes_the_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ada.md"
    append(Place(path), b"## a\nx")
    assert path.stat().st_mode & 0o777 == 0o600
    append(Place(path), entry(1))  # the last newline that lacks comes first
    assert path.read_bytes() == b"## a\nx\n" + entry(1)
