"""Trimming and appending a memory file (seed 001, requirements 1.1 to 1.3 and section 7.2)."""

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import FileFault
from memory.run_log import log_file
from memory.run_log.files import Place
from memory.run_log.log_file import locked_to_append, state_of, trim_entries


def entry(number: int, result: str = "done") -> bytes:
    return f"## 2026-01-{number:02}T00:00:00Z\n**Task:** task{number}\n**Result:** {result}\n\n".encode()


def place_of(path: Path) -> Place:
    """The place of a file whose folder is trusted."""
    return Place(path, (path.resolve().parent,))


def append(place: Place, data: bytes) -> None:
    with locked_to_append(place) as file:
        file.add(data)


def of(count: int) -> bytes:
    return b"".join(entry(number) for number in range(1, count + 1))


def expected(content: bytes, keep: int) -> bytes:
    """The last entries, by a simple implementation of the requirement."""
    lines = content.split(b"\n")
    starts = [place for place, line in enumerate(lines) if line.startswith(b"## ")]
    return b"\n".join(lines[starts[-keep] :]) if keep and len(starts) > keep else content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.md"


@pytest.fixture
def full(path: Path) -> Path:
    """A file of five entries."""
    path.write_bytes(of(5))
    return path


def test_trim_entries_file_does_not_exist(path: Path) -> None:
    assert trim_entries(place_of(path), 5).removed == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("entries", "keep"),
    [(0, 5), (5, 0), (3, 5), (5, 5), (1, 1)],
    ids=["empty_file", "keep_n_zero", "entries_within_limit", "entries_equal_to_limit", "single_entry_keep_one"],
)
def test_trim_entries_removes_nothing(path: Path, entries: int, keep: int) -> None:
    path.write_bytes(of(entries))
    before = path.stat()
    assert trim_entries(place_of(path), keep).removed == 0
    assert (path.read_bytes(), path.stat().st_ino) == (of(entries), before.st_ino)


def test_trim_entries_keep_n_negative(full: Path) -> None:
    with pytest.raises(FileFault, match="keepN must be non-negative"):
        trim_entries(place_of(full), -1)
    assert full.read_bytes() == of(5)


def test_trim_entries_trims_old_entries(path: Path) -> None:
    path.write_bytes(of(10))
    assert trim_entries(place_of(path), 3).removed == 7
    assert path.read_bytes() == entry(8) + entry(9) + entry(10)


def test_trim_entries_preserves_entry_format(path: Path) -> None:
    last = b"## c\n\n\n  indented\t \n\n- a\r\n\n" + entry(9, "one\ntwo\n\n three ") + b"\n\n\n"
    path.write_bytes(of(4) + last)
    assert trim_entries(place_of(path), 2).removed == 4
    assert path.read_bytes() == last


def test_trim_entries_discards_pre_header_content(path: Path) -> None:
    path.write_bytes(b"# Memory\n\nnotes ## not a header\n" + of(5))
    assert trim_entries(place_of(path), 3).removed == 2
    assert path.read_bytes() == entry(3) + entry(4) + entry(5)


def test_trim_entries_original_unmodified_on_write_error(full: Path, as_nobody: None) -> None:
    full.parent.chmod(0o555)
    try:
        with pytest.raises(FileFault, match=r"failed to create temp file: .*: permission denied"):
            trim_entries(place_of(full), 2)
        assert full.read_bytes() == of(5)
        assert list(full.parent.iterdir()) == [full]
    finally:
        full.parent.chmod(0o755)


LINES = st.sampled_from(
    [b"## ", b"##", b"## x", b"#", b" ## ", b"", b"\r", b"\xff\xfe", b"\x00", b"text", b"\xef\xbb\xbf## "]
)


@given(lines=st.lists(LINES, max_size=30), keep=st.integers(1, 8), chunk=st.integers(1, 12))
def test_any_bytes_are_trimmed_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], keep: int, chunk: int
) -> None:
    content = b"\n".join(lines)
    path = tmp_path_factory.mktemp("any") / "log.md"
    path.write_bytes(content)
    entries = sum(line.startswith(b"## ") for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "CHUNK", chunk)
        seen = state_of(place_of(path))
        assert seen is not None
        assert seen.entries == entries
        assert b"".join(log_file.read(place_of(path), seen)) == content
        done = trim_entries(place_of(path), keep)
    assert path.read_bytes() == expected(content, keep)
    assert (done.removed, done.kept) == (max(0, entries - keep), min(entries, keep))
    if done.after is not None:
        again = state_of(place_of(path))
        assert again is not None
        assert (done.after.entries, done.after.size, done.after.digest) == (again.entries, again.size, again.digest)


def test_a_large_file_is_trimmed_in_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        for number in range(60):
            file.write(entry(1, "x" * 1_000_000) if number % 2 else of(9))
    tracemalloc.start()
    trim_entries(place_of(path), 200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * log_file.CHUNK
    seen = state_of(place_of(path))
    assert seen is not None
    assert seen.entries == 200


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_trimming_keeps_mode_and_owner(full: Path, mode: int) -> None:
    full.chmod(mode)
    owner = (1, 2) if os.geteuid() == 0 else (os.getuid(), os.getgid())  # only root may change the owner
    os.chown(full, *owner)
    trim_entries(place_of(full), 2)
    after = full.stat()
    assert (after.st_mode & 0o777, after.st_uid, after.st_gid) == (mode, *owner)


def test_a_file_with_a_second_hard_link_is_refused(full: Path) -> None:
    full.with_name("other.md").hardlink_to(full)
    place = place_of(full)
    for act in (lambda: state_of(place), lambda: trim_entries(place, 2), lambda: append(place, entry(6))):
        with pytest.raises(FileFault, match="2 names"):
            act()
    assert full.read_bytes() == of(5)


def test_a_folder_and_a_pipe_are_refused_without_waiting(path: Path, tmp_path: Path) -> None:
    path.mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, message in ((place_of(path), "is a directory"), (place_of(tmp_path / "pipe"), "is not a file")):
        for act in (state_of, lambda place: trim_entries(place, 2)):
            with pytest.raises(FileFault, match=message):
                act(place)
        with pytest.raises(FileFault):
            append(place, entry(1))


def test_a_symlink_is_not_followed(full: Path, path: Path) -> None:
    path.rename(path.with_name("moved.md"))
    path.symlink_to(path.with_name("moved.md"))
    place = place_of(path)
    for act in (lambda: state_of(place), lambda: trim_entries(place, 2), lambda: append(place, entry(6))):
        with pytest.raises(FileFault, match="symlink"):
            act()
    assert path.read_bytes() == of(5)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_symlink_that_replaces_a_file_or_folder_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
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
        with monkeypatch.context() as patch:
            patch.setattr(Place, "real", swapped)
            with pytest.raises(FileFault):
                act()
        with pytest.raises(FileFault, match="symlink"):
            act()
    assert (outside / "ada.md").read_bytes() == of(5)


def test_the_first_append_creates_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ada.md"
    append(place_of(path), b"## a\nx")
    assert path.stat().st_mode & 0o777 == 0o600
    append(place_of(path), entry(1))  # adds the missing newline first
    assert path.read_bytes() == b"## a\nx\n" + entry(1)
