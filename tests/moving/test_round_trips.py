"""What leaves in a format comes back as it was, but for what the writer said the format does not hold; and leaves again
as it left."""

from __future__ import annotations

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
from memory.transfer.formats.parts import HERE, Found, LeftOut, Part
from memory.transfer.importing import IMPORTS, check_parts
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.steps import ME, fresh, problems, protect

WHOLE = ("jsonl", "mem0", "letta")
BOTH_WAYS = sorted(EXPORTS.keys() & IMPORTS.keys())
AT = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
LINES = st.sampled_from(
    [
        *(
            f"{mark}## {name}"
            for name in ("Context", "Understanding", "Topic Definition", "Tags", "x")
            for mark in ("", "\\")
        ),
        "## 2026-01-05T08:00:00Z",
        "**Task:** (none)",
        "**Task:** Count the ferries",
        "**Result:** Three",
        "**Result:** (none)",
        "(none)",
        "none",
        "Not recorded",
        "- Not recorded: Description, Scope, Related Topics",
        "- **Memory ID**: 3",
        "- **Project**: none",
        "# Memory Entry: technical - 2026-01-05T08:00:00Z",
        "```",
        "---",
        "",
        " ",
        "\ufeff",
    ]
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\n\n", "\r\n", "\r", "\n\n\n"])


@st.composite
def contents(draw: Any) -> str:
    lines = draw(st.lists(st.tuples(LINES | st.text(LETTERS, max_size=20), ENDS), min_size=1, max_size=8))
    text = "".join(line + end for line, end in lines)
    return text if draw(st.booleans()) else text.rstrip("\r\n")


TAGS = st.lists(
    st.sampled_from(["tea", "a, b", "none", "[draft]", "topic:Tea", "session:s-1", "two\nlines", "  x", "service:aws"])
    | st.text(LETTERS, max_size=64),
    max_size=4,
)
MOMENTS = st.datetimes(timezones=st.just(UTC), max_value=datetime(9999, 12, 31)) | st.just(AT)  # noqa: DTZ001
PROJECTS = st.sampled_from(["", "harbour-desk", "Harbour/Desk", "none", DEFAULT_PROJECT, "con", "x@1.2"])


@st.composite
def drafts(draw: Any) -> Draft:
    """Anything that may be remembered."""
    while True:
        given = Draft(
            draw(contents()),
            draw(st.sampled_from(["core", "journal"])),
            draw(st.sampled_from(sorted(SCOPES))),
            draw(PROJECTS),
            tuple(draw(TAGS)),
            draw(MOMENTS),
        )
        try:
            return given.checked()
        except Invalid:
            continue


def reads(agent: Agent, given: Iterable[Draft | Found], *, constitutional: bool = False) -> list[Read]:
    """As they would be read from a silo."""
    found = []
    for number, each in enumerate(given, 1):
        date = each.origin if isinstance(each, Draft) else each.date
        memory = Memory(
            agent=agent,
            number=number,
            kind=each.kind,
            category=each.category,
            scope=scope_of(each.category),
            project=each.project,
            origin=date or AT,
            created_at=AT,
            tokens=1,
            constitutional=constitutional,
            version=1,
        )
        found.append(Read(memory, Opened(each.content, tuple(each.tags))))
    return found


def out(name: str, agent: Agent, given: Sequence[Read]) -> tuple[bytes, Counter[str]]:
    noted = Losses()
    return b"".join(EXPORTS[name].write(agent, given, noted)), noted


def back(name: str, data: bytes) -> list[Part]:
    return list(IMPORTS[name].read(io.BytesIO(data), ""))


def the_same(first: bytes, second: bytes, name: str) -> None:
    if name == "markdown":
        assert [each[:2] for each in packed(first)] == [each[:2] for each in packed(second)]
    else:
        assert undated(first) == undated(second)


def packed(data: bytes) -> list[tuple[str, bytes]]:
    from memory.transfer.formats.tree import members

    return [(member.path, member.data) for member in members(io.BytesIO(data))]


def undated(data: bytes) -> bytes:
    return re.sub(rb'"created_at": "[^"]*"\}\n\Z', b"", data)


ROUNDS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", WHOLE)
@ROUNDS
@given(given=st.lists(drafts(), max_size=4))
def test_all_of_it_comes_back(name: str, given: list[Draft], ada: Agent) -> None:
    data, noted = out(name, ada, reads(ada, given))
    found = back(name, data)
    assert not noted
    if not given:
        assert found == [LeftOut("", "is empty")]
        return
    assert [part for part in found if isinstance(part, LeftOut)] == []
    for draft, part in zip(given, found, strict=True):
        assert isinstance(part, Found)
        assert (part.content, part.kind, part.category) == (draft.content, draft.kind, draft.category)
        assert (part.project, part.tags, part.date) == (draft.project, tuple(draft.tags), draft.origin)
        assert part.transformed == ()
    the_same(data, out(name, ada, reads(ada, found))[0], name)  # type: ignore[arg-type]


@ROUNDS
@given(draft=drafts(), constitutional=st.booleans())
@example(draft=Draft("x" * 10_000, category="technical", origin=AT).checked(), constitutional=False)
@example(draft=Draft("## Tags\n" * 1_250, category="technical", origin=AT).checked(), constitutional=False)
def test_a_folder_gives_back_what_its_writer_did_not_say_is_lost(
    draft: Draft, constitutional: bool, ada: Agent
) -> None:
    [read] = reads(ada, [draft], constitutional=constitutional)
    data, noted = out("markdown", ada, [read])
    found = back("markdown", data)
    assert noted["the file does not show that the memory is a journal entry"] == (draft.kind == "journal")
    assert noted["the file does not show that the memory is constitutional"] == constitutional
    if "every section has the placeholder of an empty section, so the file has no text" in noted:
        assert isinstance(found[0], LeftOut)
        return
    if "the file is too long for one memory, and is imported as several" in noted:
        assert len(found) > 1
        return
    [part] = found
    assert isinstance(part, Found)
    said = [sections.split(text, draft.category) for text in (part.content, draft.content)]
    assert (said[0] == said[1]) is not noted["a section has the placeholder of an empty section"]
    assert noted["a section has the placeholder of an empty section"] == (
        "Not recorded" in draft.content and said[0] != said[1]
    )
    tags = tuple(dict.fromkeys(" ".join(tag.split()) for tag in draft.tags))
    assert (part.tags == tags) is not noted["a tag has the placeholder of an empty list of tags"]
    assert part.tags == tags or "none" in tags
    assert part.category == draft.category
    assert part.project == draft.project or draft.project == "none"
    date = draft.origin.replace(microsecond=0)  # type: ignore[union-attr]
    assert part.date == date or date.timestamp() <= 0
    if sum(noted.values()) == (draft.kind == "journal") + constitutional:
        the_same(data, out("markdown", ada, reads(ada, [part], constitutional=constitutional))[0], "markdown")


@ROUNDS
@given(draft=drafts())
def test_a_log_gives_back_what_is_not_said_to_be_lost(draft: Draft, ada: Agent) -> None:
    data, noted = out("axe", ada, reads(ada, [draft]))
    found = back("axe", data)
    if noted["the text is what a log shows for an empty entry, so it cannot be imported again"]:
        assert [part.why for part in found if isinstance(part, LeftOut)] == ["has neither task nor result"]
        return
    [part] = found
    assert isinstance(part, Found)
    has_posed = noted["lines that look like the start of a run get a backslash"]
    assert (part.content == draft.content) is not has_posed
    assert (part.kind, part.category, part.project, part.tags) == ("journal", "behavioral", "", ())
    assert part.date == draft.origin.replace(microsecond=0)  # type: ignore[union-attr]
    assert noted["tags are not exported"] == bool(draft.tags)
    assert noted["category and project are not exported"] == ((draft.category, draft.project) != ("behavioral", ""))
    assert noted["the kind, core, is not exported"] == (draft.kind == "core")
    the_same(data, out("axe", ada, reads(ada, [part]))[0], "axe")


# --- through the silo


GIVEN = [
    *(Draft(f"of {category}", category=category, origin=AT, tags=(category,)) for category in SCOPES),
    Draft("**Task:** Count the ferries\n**Result:** Three", kind="journal", origin=AT),
    Draft("the same", project="harbour-desk", origin=AT),
    Draft("the same", project="harbour-desk", origin=AT),
]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_from_an_agent_to_another(name: str, house: Any, ada: Agent) -> None:
    operations.remember(ada, GIVEN, ME)
    protect(ada, 1, 2)
    data, noted = out(name, ada, list(exporting.memories(fresh(ada))))
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    steps: list[int] = []
    done = check_parts(back(name, data)).store(eve, ME, steps.append)
    assert (done.imported, done.left_out, sum(steps)) == (len(GIVEN), 0, len(GIVEN))
    assert done.tokens == sum(read.memory.tokens for read in exporting.memories(fresh(eve)))
    assert problems(eve) == []
    assert done.constitutional == (2 if name in WHOLE else 0)
    assert noted[next((what for what in noted if "constitutional" in what), "")] == (0 if name in WHOLE else 2)
    assert not any(read.memory.constitutional for read in exporting.memories(fresh(eve)))
    again, _ = out(name, fresh(eve), list(exporting.memories(fresh(eve))))
    third, _ = lifecycle.create("acme", "third", model="builtin/dedupe", actor=OPERATOR)
    assert check_parts(back(name, again)).store(third, ME).imported == len(GIVEN)
    assert says(eve) == says(third)


def says(agent: Agent) -> list[Any]:
    found = exporting.memories(fresh(agent))
    return [(read.opened, read.memory.category, read.memory.project, read.memory.kind) for read in found]


def test_who_names_no_project_gets_the_one_that_was_given(ada: Agent) -> None:
    part = Found("#1", "said", "contextual", HERE)
    check_parts([part], project="harbour-desk").store(ada, ME)
    check_parts([part]).store(ada, ME)
    assert [read.memory.project for read in exporting.memories(ada)] == ["harbour-desk", DEFAULT_PROJECT]
