"""An export that is imported again gives the same memories, except for the losses that the writer reports."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory.agents import lifecycle
from memory.errors import Invalid
from memory.markdown import sections
from memory.models import Agent, Memory
from memory.policy.categories import DEFAULT_PROJECT, SCOPES
from memory.policy.validation import Draft, scope_of
from memory.silo.silo import Opened, Read
from memory.transfer import exporting
from memory.transfer.export_formats import EXPORTS
from memory.transfer.exporting import Losses
from memory.transfer.formats.parts import Found, LeftOut, Part
from memory.transfer.formats.tree import members
from memory.transfer.importing import IMPORTS, check_file
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.steps import ME, fresh, problems, protect

LOSSLESS = ("jsonl", "mem0", "letta")
BOTH_WAYS = sorted(EXPORTS.keys() & IMPORTS.keys())
AT = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
HEADINGS = [f"## {name}" for name in ("Context", "Understanding", "Topic Definition", "Tags", "x")]
LINES = [
    *(*HEADINGS, *(f"\\{heading}" for heading in HEADINGS), "## 2026-01-05T08:00:00Z", "**Task:** (none)"),
    *("**Task:** Count the ferries", "**Result:** Three", "**Result:** (none)", "(none)", "none", "Not recorded"),
    *("- Not recorded: Description, Scope, Related Topics", "- **Memory ID**: 3", "- **Project**: none"),
    *("# Memory Entry: technical - 2026-01-05T08:00:00Z", "```", "---", "", " ", "\ufeff"),
]
ENDS = ["\n", "\n", "\n", "\n\n", "\r\n", "\r", "\n\n\n"]
TAGS = ["tea", "a, b", "none", "[draft]", "topic:Tea", "session:s-1", "two\nlines", "  x", "service:aws"]
PROJECTS = ["", "harbour-desk", "Harbour/Desk", "none", DEFAULT_PROJECT, "con", "x@1.2"]
MOMENTS = st.datetimes(timezones=st.just(UTC), max_value=datetime(9999, 12, 31)) | st.just(AT)  # noqa: DTZ001


@st.composite
def contents(draw: Any) -> str:
    line = st.tuples(st.sampled_from(LINES) | st.text(LETTERS, max_size=20), st.sampled_from(ENDS))
    text = "".join(map("".join, draw(st.lists(line, min_size=1, max_size=8))))
    return text if draw(st.booleans()) else text.rstrip("\r\n")


@st.composite
def drafts(draw: Any) -> Draft:
    """Any valid draft."""
    while True:
        draft = Draft(
            draw(contents()),
            draw(st.sampled_from(["core", "journal"])),
            draw(st.sampled_from(sorted(SCOPES))),
            draw(st.sampled_from(PROJECTS)),
            tuple(draw(st.lists(st.sampled_from(TAGS) | st.text(LETTERS, max_size=64), max_size=4))),
            draw(MOMENTS),
        )
        try:
            return draft.checked()
        except Invalid:
            continue


def reads(agent: Agent, parts: Iterable[Draft | Found], *, constitutional: bool = False) -> list[Read]:
    """The memories as a silo returns them."""
    found = []
    for number, part in enumerate(parts, 1):
        date = part.origin if isinstance(part, Draft) else part.date
        values = {"kind": part.kind, "category": part.category, "project": part.project, "origin": date or AT}
        values |= {"scope": scope_of(part.category), "constitutional": constitutional, "created_at": AT}
        memory = Memory(agent=agent, number=number, tokens=1, version=1, **values)
        found.append(Read(memory, Opened(part.content, tuple(part.tags))))
    return found


def write(name: str, agent: Agent, memories: Sequence[Read]) -> tuple[bytes, Counter[str]]:
    """The export, and the losses that the writer reports."""
    losses = Losses()
    return b"".join(EXPORTS[name].write(agent, memories, losses)), losses


def read(name: str, data: bytes) -> list[Part]:
    return list(IMPORTS[name].read(io.BytesIO(data), ""))


def assert_same(first: bytes, second: bytes, name: str) -> None:
    """Two exports differ only in the time of the export."""
    if name == "markdown":
        first_files, second_files = ([(m.path, m.data) for m in members(io.BytesIO(each))] for each in (first, second))
        assert first_files == second_files
    else:
        without_time = [re.sub(rb'"created_at": "[^"]*"\}\n\Z', b"", each) for each in (first, second)]
        assert without_time[0] == without_time[1]


ROUNDS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", LOSSLESS)
@ROUNDS
@given(drafts=st.lists(drafts(), max_size=4))
def test_a_lossless_format_gives_the_same_memories(name: str, drafts: list[Draft], ada: Agent) -> None:
    data, losses = write(name, ada, reads(ada, drafts))
    found = read(name, data)
    assert not losses
    if not drafts:
        assert found == [LeftOut("", "is empty")]
        return
    for draft, part in zip(drafts, found, strict=True):
        assert isinstance(part, Found)
        assert (part.content, part.kind, part.category) == (draft.content, draft.kind, draft.category)
        assert (part.project, part.tags, part.date) == (draft.project, tuple(draft.tags), draft.origin)
        assert part.transformed == ()
    assert_same(data, write(name, ada, reads(ada, found))[0], name)  # type: ignore[arg-type]


@ROUNDS
@given(draft=drafts(), constitutional=st.booleans())
@example(draft=Draft("x" * 10_000, category="technical", origin=AT).checked(), constitutional=False)
@example(draft=Draft("## Tags\n" * 1_250, category="technical", origin=AT).checked(), constitutional=False)
@example(draft=Draft("\r\\## Context\r\nx", category="user_interaction", origin=AT).checked(), constitutional=False)
def test_markdown_loses_only_what_it_reports(draft: Draft, constitutional: bool, ada: Agent) -> None:
    data, losses = write("markdown", ada, reads(ada, [draft], constitutional=constitutional))
    found = read("markdown", data)
    assert losses["the file does not show that the memory is a journal entry"] == (draft.kind == "journal")
    assert losses["the file does not show that the memory is constitutional"] == constitutional
    if "every section looks like an empty section, so the file cannot be imported again" in losses:
        assert isinstance(found[0], LeftOut)
        return
    if "the file is too long for one memory, so an import makes several memories of it" in losses:
        assert len(found) > 1
        return
    [part] = found
    assert isinstance(part, Found)
    before, after = (sections.split(text, draft.category) for text in (draft.content, part.content))
    has_placeholder = losses["the content of a section looks like an empty section, so an import loses it"]
    assert (after == before) is not has_placeholder
    assert has_placeholder == ("Not recorded" in draft.content and after != before)
    tags = tuple(dict.fromkeys(" ".join(tag.split()) for tag in draft.tags))
    assert (part.tags == tags) is not losses["a tag looks like an empty list of tags, so an import loses it"]
    assert part.tags == tags or "none" in tags
    assert part.category == draft.category
    assert part.project == draft.project or draft.project == "none"
    date = draft.origin.replace(microsecond=0)  # type: ignore[union-attr]
    assert part.date == date or date.timestamp() <= 0
    if sum(losses.values()) == (draft.kind == "journal") + constitutional:
        again, _ = write("markdown", ada, reads(ada, [part], constitutional=constitutional))
        assert_same(data, again, "markdown")


@ROUNDS
@given(draft=drafts())
def test_a_log_loses_only_what_it_reports(draft: Draft, ada: Agent) -> None:
    data, losses = write("axe", ada, reads(ada, [draft]))
    found = read("axe", data)
    if losses["the text is the same as in an empty entry of a log, so it cannot be imported again"]:
        assert [part.why for part in found if isinstance(part, LeftOut)] == ["has neither task nor result"]
        return
    [part] = found
    assert isinstance(part, Found)
    assert (part.content == draft.content) is not losses["lines that look like the start of a run get a backslash"]
    assert (part.kind, part.category, part.project, part.tags) == ("journal", "behavioral", "", ())
    assert part.date == draft.origin.replace(microsecond=0)  # type: ignore[union-attr]
    assert losses["tags are not exported"] == bool(draft.tags)
    assert losses["category and project are not exported"] == ((draft.category, draft.project) != ("behavioral", ""))
    assert losses["the kind, core, is not exported"] == (draft.kind == "core")
    assert_same(data, write("axe", ada, reads(ada, [part]))[0], "axe")


DRAFTS = [
    *(Draft(f"of {category}", category=category, origin=AT, tags=(category,)) for category in SCOPES),
    Draft("**Task:** Count the ferries\n**Result:** Three", kind="journal", origin=AT),
    *[Draft("the same", project="harbour-desk", origin=AT)] * 2,
]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_memories_move_from_agent_to_agent(name: str, house: Any, ada: Agent) -> None:
    operations.remember(ada, DRAFTS, ME)
    protect(ada, 1, 2)
    data, losses = write(name, ada, list(exporting.memories(fresh(ada))))
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    steps: list[int] = []
    done = check_file(io.BytesIO(data), name).store(eve, ME, steps.append)
    assert (done.imported, done.left_out, sum(steps)) == (len(DRAFTS), 0, len(DRAFTS))
    stored = list(exporting.memories(fresh(eve)))
    assert done.tokens == sum(each.memory.tokens for each in stored)
    assert problems(eve) == []
    # An import does not make memories constitutional. A format without this field reports the loss.
    assert done.constitutional == (2 if name in LOSSLESS else 0)
    assert losses[next((what for what in losses if "constitutional" in what), "")] == (0 if name in LOSSLESS else 2)
    assert not any(each.memory.constitutional for each in stored)
    if name in LOSSLESS:
        assert [each.opened for each in stored] == [each.opened for each in exporting.memories(fresh(ada))]
