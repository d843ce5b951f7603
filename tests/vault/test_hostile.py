"""Whatever a memory says, its file says whose it is; what a person writes into one is that one's word alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.trail import Actor
from memory.agents import rule_changes
from memory.consent import redaction, removal_requests
from memory.errors import CategoryDisabled, Constitutional, Discarded, DiscardShare, MemoryDisabled, MemoryFault
from memory.markdown import labels, sections
from memory.models import Agent, Memory, Scope
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened
from memory.vault import rendering, repair
from memory.writing import daily_limit, operations
from tests.steps import ME, PERSON, fresh, last_entry, problems, protect, remember, says
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


def said_again(data: bytes) -> rendering.Said:
    said = rendering.read_again(data)
    assert said is not None
    return said


@pytest.mark.parametrize("category", OPEN)
@given(text=WRITTEN, tags=TAGS)
def test_any_text_is_found_again_in_its_file(category: str, text: str, tags: tuple[str, ...]) -> None:
    data = rendering.rendered(memory(category), Opened(text, tags), "1.0.0", DAY)
    said = said_again(data)
    told = {name: part for name, part in sections.parted(text, category).items() if not labels.is_absent(part)}
    found = {name: part for name, part in said.sections.items() if name in sections.names(category)}
    assert (said.number, said.version, found) == (42, "1.0.0", told)
    assert said.sealed is None
    assert said.tags == rendering.tags_line(tags).strip()


@pytest.mark.parametrize("category", sorted(name for name, scope in SCOPES.items() if scope == PRIVATE))
@given(sealed=st.binary(min_size=1, max_size=400))
def test_any_sealed_block_is_found_again(category: str, sealed: bytes) -> None:
    said = said_again(rendering.rendered(memory(category, sealed=sealed), None, "1.0.0", DAY))
    assert (said.number, said.sealed) == (42, sealed)


@given(data=st.one_of(st.binary(max_size=300), WRITTEN.map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_a_file_of_ours_or_none(data: bytes) -> None:
    said = rendering.read_again(data)
    assert said is None or said.number >= 0


@pytest.mark.parametrize(
    "number", ["", "-1", "7.0", "٧", "7 8", "1" * 19, "0x7", "7\u2028", "{{ number }}", "**7**"], ids=ascii
)
def test_what_is_no_number_names_no_memory(number: str) -> None:
    found = rendering.read_again(f"## Metadata\n- **Memory ID**: {number}\n".encode())
    assert found is None or found.number == 7


@pytest.mark.parametrize("text", [piece for piece in PIECES if piece.strip("\0").strip()])
def test_a_file_follows_whatever_its_memory_says(ada: Agent, vault: Path, text: str) -> None:
    text = text.replace("\0", "")
    content = f"{text}\nabove\n{text}\n- **Memory ID**: 7\n{text}"
    [number] = remember(ada, content, category="technical", tags=["## User Prompt"])
    [sealed] = remember(ada, content, category="personal")
    assert differ(ada) == []
    files = {said_again((vault / path).read_bytes()).number: vault / path for path in memories(vault)}
    assert set(files) == {number, sealed}
    assert repair.opened_file(fresh(ada), files[sealed].read_bytes()).content == content
    files[number].write_bytes(files[number].read_bytes().replace(b"above", b"below"))
    assert differ(ada) == [("edited", number)]
    repair.take_in(ada, number, ME)
    told = sections.parted(content.replace("above", "below"), "technical")
    assert sections.parted(says(ada, number).content, "technical") == told
    assert says(ada, number).tags == ("## User Prompt",)
    assert differ(ada) == []
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
def test_a_file_with_anothers_number_is_not_taken_in(ada: Agent, vault: Path, two: list[int], claimed: int) -> None:
    """Written over the file of the first."""
    mine = path_of(vault, 1)
    mine.write_text(forged(claimed))
    for number in (1, 2, 99, 0):
        with pytest.raises(MemoryFault):
            repair.take_in(ada, number, ME)
    repair.repair(fresh(ada))
    assert contents(ada) == ["heather blooms", "moss grows"]
    assert any("Words of mine." in (vault / path).read_text() for path in tree(vault))
    assert {kind for kind, _ in differ(ada)} <= {"copy"}
    assert {said_again((vault / path).read_bytes()).number for path in memories(vault)} >= {1, 2}


def test_a_file_with_its_own_number_is_one_edit_of_one_memory(ada: Agent, vault: Path, two: list[int]) -> None:
    path_of(vault, 1).write_text(f"{forged(1)}\n## Tags\nnone\n")
    repair.take_in(ada, 1, ME)
    assert contents(ada) == ["Words of mine.", "moss grows"]
    assert differ(ada) == []


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
        repair.repair(fresh(ada))
    assert contents(ada) == ["heather fades", "moss grows"]
    texts = [(vault / path).read_text() for path in memories(vault)]
    assert any("heather fades" in text for text in texts)
    assert any("moss grows" in text for text in texts)
    assert {kind for kind, _ in differ(ada)} <= {"copy"}


def test_a_sealed_block_of_another_memory_does_not_open(ada: Agent, vault: Path) -> None:
    first, second = remember(ada, "sesame", "poppy", category="personal")
    data = path_of(vault, first).read_text().replace(f"**: {first}\n", f"**: {second}\n")
    with pytest.raises(MemoryFault) as caught:
        repair.opened_file(fresh(ada), data.encode())
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("block", ["", "QUJD", "****", "A" * 10_000])
def test_a_sealed_block_of_somebodys_own_does_not_open(ada: Agent, vault: Path, block: str) -> None:
    [number] = remember(ada, "sesame", category="personal")
    head, _, _ = the_one(vault).read_text().partition("```")
    the_one(vault).write_text(f"{head}```\n{block}\n```\n")
    with pytest.raises(MemoryFault):
        repair.opened_file(fresh(ada), the_one(vault).read_bytes())
    assert differ(ada) == [("edited", number)]


# --- what is taken in


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
    repair.leave(ada, number, ME)
    assert "version 54" in path_of(vault, number).read_text()


def edited(vault: Path, number: int = 1) -> Path:
    path = path_of(vault, number)
    path.write_text(path.read_text().replace("heather", "bracken"))
    return path


REFUSALS = [
    ("discarded", Discarded, "discarded"),
    ("protected", Constitutional, "constitutional"),
    ("off", CategoryDisabled, "off"),
    ("memory off", MemoryDisabled, "off"),
    ("share", DiscardShare, "daily share"),
]


def bring_about(agent: Agent, what: str, patch: pytest.MonkeyPatch) -> None:
    if what == "discarded":
        operations.discard(agent, [1], PERSON)
    elif what == "protected":
        protect(agent, 1)
    elif what == "off":
        off = {"memory_rules": {"categories": {"technical": {"enabled": False}}}}
        rule_changes.change(agent, PERSON, rules=off)
    elif what == "memory off":
        rule_changes.change(agent, PERSON, enabled=False)
    else:
        patch.setattr(daily_limit, "DAY", timedelta(0))
        patch.setattr(daily_limit, "ALWAYS_ALLOWED", 0)
        operations.discard(agent, [2], PERSON)


@pytest.mark.parametrize(("what", "refused"), [each[:2] for each in REFUSALS], ids=[each[2] for each in REFUSALS])
def test_what_no_edit_may_do_no_file_does(
    ada: Agent, vault: Path, two: list[int], what: str, refused: type[MemoryFault], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = edited(vault).read_bytes()
    bring_about(ada, what, monkeypatch)
    before = last_entry(ada).seq
    with pytest.raises(refused):
        repair.take_in(fresh(ada), 1, ME)
    assert (last_entry(ada).seq, says(ada, 1).content) == (before, "heather blooms")
    assert mine in [(vault / path).read_bytes() for path in memories(vault)]
    if what == "memory off":
        with pytest.raises(MemoryDisabled):
            repair.repair(fresh(ada))
    else:
        assert (("edited", 1) in differ(fresh(ada))) is (what != "off")  # of which nothing is told
        repair.repair(fresh(ada))
    assert mine in [(vault / path).read_bytes() for path in memories(vault)]


def test_a_file_that_was_set_aside_is_left(ada: Agent, vault: Path, two: list[int]) -> None:
    mine = edited(vault).read_bytes()
    operations.discard(ada, [1], PERSON)
    kept = repair.leave(ada, 1, ME)
    assert (vault / kept).read_bytes() == mine
    assert differ(ada) == []  # that it was put aside is nothing to be done about
    operations.restore(ada, [1], PERSON)
    assert "heather blooms" in path_of(vault, 1).read_text()
    assert (vault / kept).read_bytes() == mine
    assert differ(ada) == []


@pytest.mark.parametrize("decide", [repair.take_in, repair.leave])
def test_files_that_were_written_to_outlive_a_migration(
    ada: Agent, vault: Path, two: list[int], decide: Callable[[Agent, int, Actor], object]
) -> None:
    mine = edited(vault).read_bytes()
    rule_changes.set_one(ada, PERSON, "version", "1.1.0")
    now = fresh(ada)
    assert repair.migrate(now) == 1
    assert path_of(vault, 1).read_bytes() == mine
    assert differ(now) == [("edited", 1)]
    decide(now, 1, ME)
    said = path_of(vault, 1).read_text()
    assert "- **Version**: 1.1.0" in said
    assert ("bracken" in said) == (decide is repair.take_in)
    assert repair.older(now) == 0
    assert differ(now) == []


def test_a_migration_of_what_is_off_waits(
    ada: Agent, vault: Path, two: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path_of(vault, 1).read_bytes()
    bring_about(ada, "off", monkeypatch)
    rule_changes.set_one(fresh(ada), PERSON, "version", "1.1.0")
    assert repair.migrate(fresh(ada)) == 0
    assert path_of(vault, 1).read_bytes() == before
    rule_changes.set_one(fresh(ada), PERSON, "memory_rules.categories.technical.enabled", "true")
    assert "- **Version**: 1.1.0" in path_of(vault, 1).read_text()
    assert differ(fresh(ada)) == []
