"""A memory file while other programs write to it, and after a failure or a kill."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memory.errors import FileFault
from memory.run_log import files, log_file
from memory.run_log.files import Folder, name_beside
from memory.run_log.log_file import Trimmed, state_of, trim_entries
from tests.unit.test_memory_file import append, entry, expected, of, place_of
from tests.unit.test_memory_file import full as full
from tests.unit.test_memory_file import path as path

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes have a file open")
NO_SPACE = OSError(28, os.strerror(28))


def test_entries_added_after_the_log_was_read_are_kept(full: Path) -> None:
    seen = state_of(place_of(full))
    append(place_of(full), entry(6))
    append(place_of(full), entry(7))
    done = trim_entries(place_of(full), 1, since=seen)
    assert (done.removed, done.kept) == (5, 2)
    assert full.read_bytes() == entry(6) + entry(7)


def test_a_file_that_changed_after_it_was_read_is_not_trimmed(full: Path) -> None:
    seen = state_of(place_of(full))
    for content in (of(5).replace(b"task3", b"TASK3"), of(4), of(6)[len(entry(1)) :], b""):
        full.write_bytes(content)
        with pytest.raises(FileFault, match="rewritten"):
            trim_entries(place_of(full), 1, since=seen)
        assert full.read_bytes() == content
    full.unlink()
    with pytest.raises(FileFault, match="was removed"):
        trim_entries(place_of(full), 1, since=seen)
    full.write_bytes(of(6))  # a new file with the same beginning, as an editor or a sync writes it
    assert trim_entries(place_of(full), 2, since=seen).removed == 4


_processes: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _wait_for_processes() -> Iterator[None]:
    yield
    while _processes:
        _processes.pop().wait(10)


def start_append(path: Path, data: bytes) -> None:
    """Append from another process, without our lock. It opens the file while the trim runs, and writes after it."""
    command = ["sh", "-c", 'printf %s "$2" >> "$1"', "sh", str(path), data.decode()]
    _processes.append(subprocess.Popen(command))
    time.sleep(0.3)


def before_replace(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` just before the new file replaces the old one."""
    replace = Folder.replace

    def late(folder: Folder, name: str, by: str) -> None:
        act()
        replace(folder, name, by)

    monkeypatch.setattr(Folder, "replace", late)


def test_an_append_just_before_the_replacement_is_kept(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_replace(monkeypatch, lambda: start_append(full, entry(6)))
    done = trim_entries(place_of(full), 2)
    assert (done.removed, done.kept) == (3, 3)
    assert full.read_bytes() == entry(4) + entry(5) + entry(6)


def test_appends_and_trims_in_threads_lose_no_entry(path: Path) -> None:
    path.write_bytes(of(3))
    stop = threading.Event()

    def trim_until_stopped() -> None:
        while not stop.is_set():
            trim_entries(place_of(path), 10_000)
            trim_entries(place_of(path), 400)

    def write(writer: int) -> None:
        for number in range(60):
            append(place_of(path), entry(1, f"{writer}/{number}"))

    trimming = threading.Thread(target=trim_until_stopped)
    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in (trimming, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    trimming.join()
    kept = path.read_bytes()
    assert all(f"{writer}/{number}\n".encode() in kept for writer in range(4) for number in range(60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "replaced or removed"),
        (lambda path: (path.with_name("new").write_bytes(b"saved"), path.with_name("new").replace(path)), "replaced"),
        (lambda path: path.write_bytes(of(5).replace(b"task1", b"TASK1")), "rewritten"),
        (lambda path: path.write_bytes(b"## smaller\n"), "rewritten"),
        (lambda path: path.with_name("second").hardlink_to(path), "names"),
    ],
    ids=["removed", "saved by an editor", "rewritten", "made smaller", "linked"],
)
def test_a_change_during_the_trim_is_an_error_and_stays(
    full: Path, change: Callable[[Path], object], message: str
) -> None:
    changed: list[bytes | None] = []

    def content() -> bytes | None:
        return full.read_bytes() if full.exists() else None

    def apply(_: Trimmed) -> None:
        change(full)
        changed.append(content())

    with pytest.raises(FileFault, match=message):
        trim_entries(place_of(full), 2, before_replace=apply)
    assert [content()] == changed
    assert not full.with_name(name_beside(full.name)).exists()


WRITER = (
    "import sys, time; file = open(sys.argv[1], 'ab', buffering=0); print('open', flush=True); "
    "time.sleep(float(sys.argv[2])); file.write(b'## late\\n'); file.close()"
)


@on_linux
def test_a_trim_waits_for_a_program_that_has_the_file_open(full: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(full), "0.5"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert trim_entries(place_of(full), 2).kept == 3
        other.wait()
    assert full.read_bytes() == entry(4) + entry(5) + b"## late\n"


@on_linux
def test_a_file_that_stays_open_for_writing_is_not_trimmed(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "WRITER_SECONDS", 0.1)
    with full.open("ab"), pytest.raises(FileFault, match="is open for writing"):
        trim_entries(place_of(full), 2)
    assert full.read_bytes() == of(5)
    assert trim_entries(place_of(full), 2).removed == 3


@on_linux
def test_appends_of_programs_without_locks_are_not_lost(path: Path) -> None:
    script = (
        "import sys\nfor i in range(1500):\n  with open(sys.argv[1], 'ab', buffering=0) as file: "
        "file.write(f'## {sys.argv[2]}/{i}\\n'.encode())"
    )
    path.touch()
    others = [subprocess.Popen([sys.executable, "-c", script, str(path), str(n)]) for n in range(2)]
    while any(other.poll() is None for other in others):
        trim_entries(place_of(path), 5_000)  # removes nothing
        with suppress(FileFault):  # the writers may leave no pause
            trim_entries(place_of(path), 2_999)  # removes one entry at the end
    kept = path.read_bytes().splitlines()
    assert len(set(kept)) == len(kept) >= 2_999


def test_a_lock_that_is_never_released_is_an_error(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    with full.open("rb") as other:  # read access is enough to lock a file
        fcntl.flock(other, fcntl.LOCK_EX)
        for act in (lambda: trim_entries(place_of(full), 2), lambda: append(place_of(full), entry(6))):
            with pytest.raises(FileFault, match="locked by another"):
                act()
    assert full.read_bytes() == of(5)


def test_a_file_that_grows_without_pause_can_be_read(full: Path) -> None:
    with full.open("ab") as out, subprocess.Popen(["yes", "## more"], stdout=out) as other:
        seen = state_of(place_of(full))
        other.kill()
    assert seen is not None
    assert seen.entries >= 5


def test_an_interrupt_waits_until_late_appends_are_copied(full: Path) -> None:
    script = (
        "import os, signal, subprocess, sys, time\nfrom pathlib import Path\nfrom memory.run_log import log_file\n"
        "from memory.run_log.files import Folder, Place\nput, path = Folder.replace, Path(sys.argv[1])\n"
        "def late(folder, name, by):\n  subprocess.Popen(['sh', '-c', 'echo \"## late\" >> \"$0\"', str(path)])\n"
        "  time.sleep(0.3)\n  put(folder, name, by)\n"
        "  os.kill(os.getpid(), signal.SIGINT)\n"
        "Folder.replace = late\n"
        "try:\n  log_file.trim_entries(Place(path, (path.parent,)), 2)\nexcept KeyboardInterrupt:\n  print('stopped')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(full)], capture_output=True, text=True, check=True)
    assert ran.stdout == "stopped\n"
    assert full.read_bytes() == entry(4) + entry(5) + b"## late\n"


def test_a_late_append_that_does_not_fit_on_the_disk_is_reported(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def fail(number: int, data: bytes) -> int:
        raise NO_SPACE if data else write(number, data)

    def act() -> None:
        start_append(full, entry(6))
        monkeypatch.setattr("memory.run_log.files.os.write", fail)

    before_replace(monkeypatch, act)
    with pytest.raises(FileFault, match=r"was trimmed, but \d+ bytes .* no space left"):
        trim_entries(place_of(full), 2)
    monkeypatch.undo()
    assert full.read_bytes() == entry(4) + entry(5), "whole entries only"


def test_a_failed_append_keeps_what_others_appended_after_it(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        with full.open("ab") as file:
            file.write(entry(9))
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr("memory.run_log.log_file.os.fsync", fail)
    with pytest.raises(FileFault):
        append(place_of(full), entry(3))
    monkeypatch.undo()
    assert full.read_bytes().endswith(entry(9))


def test_a_full_disk_leaves_the_file_unchanged(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda *_: (_ for _ in ()).throw(NO_SPACE))
        for act in (lambda: trim_entries(place_of(full), 2), lambda: append(place_of(full), entry(6))):
            with pytest.raises(FileFault, match="no space left"):
                act()
    assert (full.read_bytes(), list(full.parent.iterdir())) == (of(5), [full])
    assert trim_entries(place_of(full), 2).removed == 3
    assert (full.read_bytes(), list(full.parent.iterdir())) == (expected(of(5), 2), [full])


def test_a_kill_at_any_point_leaves_the_old_or_the_new_file(path: Path) -> None:
    old = of(2_000)
    script = (
        "import sys; from pathlib import Path; from memory.run_log.log_file import trim_entries; "
        "from memory.run_log.files import Place; "
        "print('at it', flush=True); path = Path(sys.argv[1]); trim_entries(Place(path, (path.parent,)), 3)"
    )
    for delay in range(12):
        path.write_bytes(old)
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay / 2_000)
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (old, expected(old, 3))
    trim_entries(place_of(path), 2)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("keep", [10, 2])
def test_the_next_trim_removes_the_temporary_file_of_a_killed_one(full: Path, keep: int) -> None:
    full.with_name(name_beside(full.name)).write_bytes(b"half")
    trim_entries(place_of(full), keep)
    assert list(full.parent.iterdir()) == [full]
