"""A file names its memory whatever the memory's text is. Text that a person writes into a file changes no memory."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import MemoryFault
from memory.markdown import labels, sections
from memory.models import Agent, Memory, Scope
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened
from memory.vault import comparing, rendering
from memory.vault.rendering import restored, tags_of, visible
from memory.vault.writer import open_file
from memory.writing import operations
from tests.growth import growth
from tests.steps import ME, fresh, problems, remember, says
from tests.vault.tree import differences, memory_files, only_file, redact, tree

DAY = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)

# Texts that a template or the reader of a file looks for.
PIECES = [
    *("{{ Context }}", "{{ number }}", "{{ sealed }}", "## Metadata", "## metadata", "\\## Metadata", "\\\\## Tags"),
    *("- **Memory ID**: 7", "- **Topic ID**: 7", "- **Version**: 9.9.9", "## Sealed", "## Sealed!", "```", "~~~"),
    *("\n```\n", "\n~~~~ x\n", "\n\\```\n", "\n## Context\n", "QUJD", "## Understanding", "## Context ", "## Tags\t"),
    *("## Outcome", "# Memory Index", "# Memory Entry: technical - 2026-02-01T09:30:00Z", "Not recorded"),
    "- Not recorded: Topic Flow, Depth Reached, User Engagement",
    "\n## Topic Evolution\n- Not recorded: Topic Flow, Depth Reached, User Engagement\n",
    *("none", "\r", "\r\n", "\n", "\n\n", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "\0", " "),
    *("\\", "word"),
]
TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), min_size=1, max_size=12).map("".join)
WRITTEN = TEXT.filter(lambda text: bool(text.strip()) and text.encode("utf-8", "replace").decode() == text)
TAGS = st.lists(WRITTEN.map(lambda text: text[:64]), max_size=3).map(tuple)
OPEN = sorted(name for name, scope in SCOPES.items() if scope != PRIVATE)


def render(category: str, content: str = "", tags: tuple[str, ...] = (), sealed: bytes = b"sealed") -> bytes:
    """The file of memory 42."""
    memory = Memory(number=42, category=category, project="", origin=DAY, created_at=DAY, version=1, sealed=sealed)
    memory.scope = Scope.PRIVATE if SCOPES[category] == PRIVATE else SCOPES[category]
    opened = None if SCOPES[category] == PRIVATE else Opened(content, tags)
    return rendering.render(memory, opened, "1.0.0", DAY)


def read(data: bytes) -> rendering.FileInfo:
    info = rendering.read_file(data)
    assert info is not None
    return info


@pytest.mark.parametrize("category", OPEN)
@given(text=WRITTEN, tags=TAGS)
def test_any_text_is_read_back(category: str, text: str, tags: tuple[str, ...]) -> None:
    data = render(category, text, tags)
    info, found = read(data), rendering.blocks(data.decode())
    # A last line that the template could have filled in is not read back.
    is_bold = category == "git_history"
    expected = {name: labels.stored(part, is_bold=is_bold) for name, part in sections.split(text, category).items()}
    assert (info.number, info.version, info.sealed) == (42, "1.0.0", None)
    assert {name: found[name] for name in expected} == expected
    assert found["Tags"] == rendering.tags_line(tags).strip()


@pytest.mark.parametrize("category", sorted(SCOPES.keys() - set(OPEN)))
@given(sealed=st.binary(min_size=1, max_size=400))
def test_any_sealed_block_is_read_back(category: str, sealed: bytes) -> None:
    info = read(render(category, sealed=sealed))
    assert (info.number, info.sealed) == (42, sealed)


@given(data=st.one_of(st.binary(max_size=300), WRITTEN.map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_can_be_read(data: bytes) -> None:
    info = rendering.read_file(data)
    assert info is None or info.number >= 0


def test_a_memory_id_that_is_not_a_number_is_ignored() -> None:
    for number in ("", "-1", "7.0", "٧", "7 8", "1" * 19, "0x7", "7\u2028", "{{ number }}", "**7**"):
        info = rendering.read_file(f"## Metadata\n- **Memory ID**: {number}\n".encode())
        assert info is None or info.number == 7


def test_a_file_is_recognized_whatever_its_text_is(ada: Agent, vault: Path) -> None:
    texts = [piece.replace("\0", "") for piece in PIECES if piece.strip("\0").strip()]
    contents = [f"{text}\nabove\n{text}\n- **Memory ID**: 7\n{text}" for text in texts]
    numbers = remember(ada, *contents, category="technical", tags=["## User Prompt"])
    private = remember(ada, *contents, category="personal")
    assert differences(ada) == []
    files = {read((vault / path).read_bytes()).number: vault / path for path in memory_files(vault)}
    assert set(files) == {*numbers, *private}
    for number, content in zip(private, contents, strict=True):
        assert open_file(fresh(ada), files[number].read_bytes()).content == content
    for number in numbers:
        files[number].write_bytes(files[number].read_bytes().replace(b"above", b"below"))
    assert differences(ada) == [("edited", number) for number in numbers]
    for number, (_, kept) in zip(numbers, comparing.repair(ada).aside, strict=True):
        assert b"below" in (vault / kept).read_bytes()
        assert b"above" in files[number].read_bytes()
    assert differences(ada) == [("copy", number) for number in numbers]
    assert problems(ada) == []


HOSTILE = "gnp\u202e.exe\x1b[31m\x9b\x07\u2066\rx"
ODD = st.lists(st.sampled_from(["\\", "u{202E}", "u{1B}", "u{1b}", "u{41}", "\u202e", "\x1b", "\r", "\n", "a", ","]))
INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


@given(ODD.map("".join))
def test_invisible_characters_are_escaped_and_restored(text: str) -> None:
    assert restored(visible(text)) == text
    assert not INVISIBLE.search(visible(text))


def test_only_invisible_characters_are_escaped() -> None:
    rows = {
        "a\u202eb": "a\\u{202E}b",
        "a\\u{202E}b": "a\\\\u{202E}b",
        "a\\\u202eb": "a\\\\\\u{202E}b",
        **{text: text for text in ("u{202E}", "\\u{41} \\u{1b} C:\\users", "one\r\ntwo\tthree")},
        "שלום\u200f عربي 🧑\u200d🚀": "שלום\u200f عربي 🧑\u200d🚀",
    }
    assert {text: visible(text) for text in rows} == rows


def test_the_time_to_read_a_file_grows_with_its_length() -> None:
    start = "## Metadata\n- **Memory ID**: 1\n\n## Sealed\n```"
    assert growth(lambda size: rendering.read_file(f"{start}{chr(10) * size}x".encode()), 4_000) < 10


@pytest.mark.parametrize("do", [visible, restored, tags_of])
def test_time_grows_with_the_length_of_the_text(do: object) -> None:
    assert growth(lambda size: do("\\" * size), 50_000) < 10  # type: ignore[operator]


@pytest.mark.parametrize("category", OPEN)
def test_a_file_has_no_terminal_codes(category: str) -> None:
    content = f"- Topic: {HOSTILE}\n- Session: {HOSTILE}\n"
    text = render(category, content, (f"topic:{HOSTILE}", f"method:{HOSTILE}")).decode()
    assert not INVISIBLE.search(text)
    assert HOSTILE in "".join(rendering.blocks(text).values())


@given(st.lists(st.text("a, \\\u202e", min_size=1, max_size=8).map(lambda text: f"x{text}x"), max_size=5))
def test_tags_with_commas_are_read_back(tags: list[str]) -> None:
    tags = [" ".join(tag.split()) for tag in tags]
    line = rendering.blocks(render("technical", "tea", tuple(tags)).decode())["Tags"]
    assert tags_of(line) == tuple(tags)


def test_a_line_of_tags_that_a_person_wrote_is_read() -> None:
    rows = {"a, b": ("a", "b"), "a\\, b": ("a, b",), "a\\\\, b": ("a\\", "b"), "a\\b\\": ("a\\b\\",), "none": ()}
    rows[" , a,"] = ("a",)
    assert {line: tags_of(line) for line in rows} == rows


def forged(number: int) -> str:
    return f"# Notes\n\n## Metadata\n- **Memory ID**: {number}\n- **Version**: 1.0.0\n\n## Understanding\nMy words.\n"


@pytest.fixture
def two(ada: Agent) -> list[int]:
    return remember(ada, "heather blooms", "moss grows", category="technical")


def contents(agent: Agent) -> list[str]:
    return [says(agent, number).content for number in (1, 2)]


def path_of(vault: Path, number: int) -> Path:
    """The file of an active memory."""
    [path] = vault.glob(f"[!.]*/*/{number:06}*.md")
    return path


@pytest.mark.parametrize("number", [2, 99, 0])
def test_a_file_with_another_number_is_kept(ada: Agent, vault: Path, two: list[int], number: int) -> None:
    path_of(vault, 1).write_text(forged(number))
    comparing.repair(fresh(ada))
    assert contents(ada) == ["heather blooms", "moss grows"]
    assert any("My words." in (vault / path).read_text() for path in tree(vault))
    assert {kind for kind, _ in differences(ada)} <= {"copy"}
    assert {read((vault / path).read_bytes()).number for path in memory_files(vault)} >= {1, 2}


def test_a_redaction_keeps_files_with_another_number(ada: Agent, vault: Path, two: list[int]) -> None:
    (vault / "one.md").write_text(forged(1))
    others = {vault / "other.md": forged(2), vault / "both.md": forged(2) + forged(1)}  # the first number counts
    for path, text in others.items():
        path.write_text(text)
    others[path_of(vault, 2)] = path_of(vault, 2).read_text()
    redact(ada, 1)
    assert {path: path.read_text() for path in others} == others
    assert len(memory_files(vault)) == 3
    assert says(ada, 2).content == "moss grows"


def test_two_swapped_files_change_no_memory(ada: Agent, vault: Path, two: list[int]) -> None:
    one, other = path_of(vault, 1), path_of(vault, 2)
    text = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(text)
    operations.revise(ada, 1, ME, content="heather fades")
    for _ in range(2):
        comparing.repair(fresh(ada))
    assert contents(ada) == ["heather fades", "moss grows"]
    for text in contents(ada):
        assert any(text in (vault / path).read_text() for path in memory_files(vault))
    assert {kind for kind, _ in differences(ada)} <= {"copy"}


def test_a_foreign_sealed_block_does_not_open(ada: Agent, vault: Path) -> None:
    first, second = remember(ada, "sesame", "poppy", category="personal")
    path = path_of(vault, first)
    text = path.read_text()
    with pytest.raises(MemoryFault) as caught:
        open_file(fresh(ada), text.replace(f"**: {first}\n", f"**: {second}\n").encode())
    assert "sesame" not in str(caught.value)
    for block in ("", "QUJD", "****", "A" * 10_000):
        path.write_text(f"{text.partition('```')[0]}```\n{block}\n```\n")
        with pytest.raises(MemoryFault):
            open_file(fresh(ada), path.read_bytes())
        assert differences(ada) == [("edited", first)]


def test_the_last_fifty_versions_of_a_file_are_recognized(ada: Agent, vault: Path) -> None:
    """A crash can leave one of the last versions. An older one counts as a person's file, and is kept."""
    [number] = remember(ada, "version 0", category="technical")
    path = only_file(vault)
    versions = [path.read_bytes()]
    for nth in range(1, 55):
        operations.revise(ada, number, ME, content=f"version {nth}")
        versions.append(path.read_bytes())
    for nth, kind in ((5, "behind"), (4, "edited")):
        path.write_bytes(versions[nth])
        assert differences(ada) == [(kind, number)]
    comparing.repair(ada)
    assert "version 54" in path_of(vault, number).read_text()
