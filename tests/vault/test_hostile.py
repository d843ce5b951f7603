"""Whatever a memory says, its file says whose it is; what a person writes into one is that one's word alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.trail import Actor
from memory.consent import redaction, removal_requests
from memory.errors import MemoryFault
from memory.markdown import labels, sections
from memory.models import Agent, Memory, Scope
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened
from memory.vault import comparing, rendering
from memory.vault.files import open_file
from memory.writing import operations
from tests.steps import ME, fresh, problems, remember, says
from tests.vault.tree import differ, memories, the_one, tree

OWNER = Actor.person("owner@acme.test")
DAY = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)

# What a template, or who reads a file again, looks for.
PIECES = [
    "{{ Context }}",
    "{{ number }}",
    "{{ sealed }}",
    "## Metadata",
    "## metadata",
    "\\## Metadata",
    "\\\\## Tags",
    "- **Memory ID**: 7",
    "- **Topic ID**: 7",
    "- **Version**: 9.9.9",
    "## Sealed",
    "## Sealed!",
    "```",
    "~~~",
    "\n```\n",
    "\n~~~~ x\n",
    "\n\\```\n",
    "\n## Context\n",
    "QUJD",
    "## Understanding",
    "## Context ",
    "## Tags\t",
    "## Outcome",
    "# Memory Index",
    "# Memory Entry: technical - 2026-02-01T09:30:00Z",
    "Not recorded",
    "- Not recorded: Topic Flow, Depth Reached, User Engagement",
    "\n## Topic Evolution\n- Not recorded: Topic Flow, Depth Reached, User Engagement\n",
    "none",
    "\r",
    "\r\n",
    "\n",
    "\n\n",
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\ufeff",
    "\0",
    " ",
    "\\",
    "word",
]
TEXT = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), min_size=1, max_size=12).map("".join)
WRITTEN = TEXT.filter(lambda text: bool(text.strip()) and text.encode("utf-8", "replace").decode() == text)
TAGS = st.lists(WRITTEN.map(lambda text: text[:64]), max_size=3).map(tuple)
OPEN = sorted(name for name, scope in SCOPES.items() if scope != PRIVATE)


def memory(category: str, number: int = 42, sealed: bytes = b"sealed") -> Memory:
    made = Memory(number=number, category=category, project="", origin=DAY, created_at=DAY, version=1, sealed=sealed)
    made.scope = Scope.PRIVATE if SCOPES[category] == PRIVATE else SCOPES[category]
    return made


def said_again(data: bytes) -> rendering.FileInfo:
    said = rendering.read_file(data)
    assert said is not None
    return said


@pytest.mark.parametrize("category", OPEN)
@given(text=WRITTEN, tags=TAGS)
def test_any_text_is_found_again_in_its_file(category: str, text: str, tags: tuple[str, ...]) -> None:
    data = rendering.render(memory(category), Opened(text, tags), "1.0.0", DAY)
    said = said_again(data)
    found = rendering.blocks(data.decode())
    told = {name: as_shown(part, category) for name, part in sections.split(text, category).items()}
    shown = {name: found[name] for name in told}
    assert (said.number, said.version, shown) == (42, "1.0.0", told)
    assert said.sealed is None
    assert found["Tags"] == rendering.tags_line(tags).strip()


def as_shown(text: str, category: str) -> str:
    """Without a last line that the template could have filled in."""
    return labels.stored(text, is_bold=category == "git_history")


@pytest.mark.parametrize("category", sorted(name for name, scope in SCOPES.items() if scope == PRIVATE))
@given(sealed=st.binary(min_size=1, max_size=400))
def test_any_sealed_block_is_found_again(category: str, sealed: bytes) -> None:
    said = said_again(rendering.render(memory(category, sealed=sealed), None, "1.0.0", DAY))
    assert (said.number, said.sealed) == (42, sealed)


@given(data=st.one_of(st.binary(max_size=300), WRITTEN.map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_a_file_of_ours_or_none(data: bytes) -> None:
    said = rendering.read_file(data)
    assert said is None or said.number >= 0


def test_what_is_no_number_names_no_memory() -> None:
    for number in ("", "-1", "7.0", "٧", "7 8", "1" * 19, "0x7", "7\u2028", "{{ number }}", "**7**"):
        found = rendering.read_file(f"## Metadata\n- **Memory ID**: {number}\n".encode())
        assert found is None or found.number == 7


def test_a_file_follows_whatever_its_memory_says(ada: Agent, vault: Path) -> None:
    texts = [piece.replace("\0", "") for piece in PIECES if piece.strip("\0").strip()]
    said = [f"{text}\nabove\n{text}\n- **Memory ID**: 7\n{text}" for text in texts]
    numbers = remember(ada, *said, category="technical", tags=["## User Prompt"])
    private = remember(ada, *said, category="personal")
    assert differ(ada) == []
    files = {said_again((vault / path).read_bytes()).number: vault / path for path in memories(vault)}
    assert set(files) == {*numbers, *private}
    for number, content in zip(private, said, strict=True):
        assert open_file(fresh(ada), files[number].read_bytes()).content == content
    for number in numbers:
        files[number].write_bytes(files[number].read_bytes().replace(b"above", b"below"))
    assert differ(ada) == [("edited", number) for number in numbers]
    aside = {
        files[number].name[:6]: kept for number, (_, kept) in zip(numbers, comparing.repair(ada).aside, strict=True)
    }
    for number in numbers:
        assert b"below" in (vault / aside[f"{number:06}"]).read_bytes()
        assert b"above" in files[number].read_bytes()
    assert differ(ada) == [("copy", number) for number in numbers]
    assert problems(ada) == []


# --- a person's own file, with the number of some memory


def forged(number: int, text: str = "Words of mine.") -> str:
    return f"# Notes\n\n## Metadata\n- **Memory ID**: {number}\n- **Version**: 1.0.0\n\n## Understanding\n{text}\n"


@pytest.fixture
def two(ada: Agent) -> list[int]:
    return remember(ada, "heather blooms", "moss grows", category="technical")


def contents(agent: Agent) -> list[str]:
    return [says(agent, number).content for number in (1, 2)]


def path_of(vault: Path, number: int) -> Path:
    """Where it is, and not aside."""
    [path] = vault.glob(f"[!.]*/*/{number:06}*.md")
    return path


@pytest.mark.parametrize("claimed", [2, 99, 0])
def test_a_file_with_anothers_number_is_kept(ada: Agent, vault: Path, two: list[int], claimed: int) -> None:
    """Written over the file of the first."""
    path_of(vault, 1).write_text(forged(claimed))
    comparing.repair(fresh(ada))
    assert contents(ada) == ["heather blooms", "moss grows"]
    assert any("Words of mine." in (vault / path).read_text() for path in tree(vault))
    assert {kind for kind, _ in differ(ada)} <= {"copy"}
    assert {said_again((vault / path).read_bytes()).number for path in memories(vault)} >= {1, 2}


def test_a_redaction_removes_what_bears_its_number_and_nothing_else(ada: Agent, vault: Path, two: list[int]) -> None:
    (vault / "one.md").write_text(forged(1))
    (vault / "other.md").write_text(forged(2))
    (vault / "both.md").write_text(forged(2) + forged(1))
    kept = path_of(vault, 2).read_bytes()
    redaction.redact(ada, removal_requests.ask_redaction(ada, [1], OWNER, reason="request 17").number, ME)
    assert not (vault / "one.md").exists()
    assert (vault / "other.md").read_text() == forged(2)
    assert (vault / "both.md").exists()  # the first number is a file's
    assert path_of(vault, 2).read_bytes() == kept
    assert says(ada, 2).content == "moss grows"


def test_two_files_that_were_swapped(ada: Agent, vault: Path, two: list[int]) -> None:
    one, other = path_of(vault, 1), path_of(vault, 2)
    said = one.read_bytes(), other.read_bytes()
    one.write_bytes(said[1])
    other.write_bytes(said[0])
    operations.revise(ada, 1, ME, content="heather fades")
    for _ in range(2):
        comparing.repair(fresh(ada))
    assert contents(ada) == ["heather fades", "moss grows"]
    texts = [(vault / path).read_text() for path in memories(vault)]
    assert any("heather fades" in text for text in texts)
    assert any("moss grows" in text for text in texts)
    assert {kind for kind, _ in differ(ada)} <= {"copy"}


def test_a_sealed_block_of_another_memory_does_not_open(ada: Agent, vault: Path) -> None:
    first, second = remember(ada, "sesame", "poppy", category="personal")
    data = path_of(vault, first).read_text().replace(f"**: {first}\n", f"**: {second}\n")
    with pytest.raises(MemoryFault) as caught:
        open_file(fresh(ada), data.encode())
    assert "sesame" not in str(caught.value)


def test_a_sealed_block_of_somebodys_own_does_not_open(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "sesame", category="personal")
    head, _, _ = the_one(vault).read_text().partition("```")
    for block in ("", "QUJD", "****", "A" * 10_000):
        the_one(vault).write_text(f"{head}```\n{block}\n```\n")
        with pytest.raises(MemoryFault):
            open_file(fresh(ada), the_one(vault).read_bytes())
        assert differ(ada) == [("edited", number)]


# --- what a killed writer left


def test_of_many_versions_the_last_fifty_are_known_again(ada: Agent, vault: Path) -> None:
    """A crash leaves one of the last; what is older than that is told as somebody's, and stays."""
    [number] = remember(ada, "version 0", category="technical")
    said = [the_one(vault).read_bytes()]
    for nth in range(1, 55):
        operations.revise(ada, number, ME, content=f"version {nth}")
        said.append(the_one(vault).read_bytes())
    the_one(vault).write_bytes(said[5])
    assert differ(ada) == [("behind", number)]
    the_one(vault).write_bytes(said[4])
    assert differ(ada) == [("edited", number)]
    comparing.repair(ada)
    assert "version 54" in path_of(vault, number).read_text()
