"""What is stored is read back exactly, or its field is refused; nothing else is raised."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory import errors
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import operations
from memory.writing.edits import fields_of, snapshot
from tests import steps
from tests.property.walk import attempt
from tests.steps import ME

pytestmark = pytest.mark.database

ANY_TEXT = st.text(st.characters(codec=None), max_size=300) | st.text(max_size=300)
STORABLE = st.text(st.characters(codec="utf-8"), max_size=300)
TAGS = st.lists(ANY_TEXT, max_size=40)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.none() | st.datetimes(timezones=ZONES)

KEY = bytes(range(32))


@given(content=STORABLE, tags=st.lists(STORABLE, max_size=5), number=st.integers(1, 2**63 - 1))
def test_any_text_seals_and_opens(content: str, tags: list[str], number: int) -> None:
    silo = Silo(1, KEY)
    opened = silo.open_sealed(number, silo.seal(number, content, tags))
    assert (opened.content, opened.tags) == (content, tuple(tags))


@given(data=st.binary(max_size=200))
@example(data=b"")
@example(data=b"\x01\xff\xff\xff\xff")
@example(data=b"\x01\x00\x00\x00\x00")
def test_random_bytes_never_open_and_raise_one_error(data: bytes) -> None:
    silo = Silo(1, KEY)
    for opening in (lambda: silo.open_sealed(1, data), lambda: silo.open_text("note", 1, data)):
        with pytest.raises(errors.SealBroken):
            opening()


@given(content=ANY_TEXT, tags=TAGS, origin=MOMENTS)
@example(content="x" * 10_000, tags=["x" * 64], origin=None)
@example(content="\ud800", tags=[], origin=None)
def test_a_draft_is_stored_exactly_or_its_field_is_refused(
    ada: Agent, content: str, tags: list[str], origin: datetime | None
) -> None:
    draft = Draft(content, tags=tags, origin=origin)
    number = attempt(lambda: operations.remember(ada, [draft], ME).memory.number, errors.Invalid, atomic=False)
    if isinstance(number, errors.Invalid):
        assert number.field in ("content", "tags", "origin")
        assert len(content) < 5 or content not in str(number)
        return
    opened = steps.says(ada, number)
    assert opened.content == content
    assert list(opened.tags) == list(dict.fromkeys(tag.strip() for tag in tags))
    assert origin is None or steps.row(ada, number).origin == origin
    assert steps.problems(ada) == []


@given(content=STORABLE.filter(str.strip), tags=st.lists(st.text("abc ", min_size=1, max_size=5).filter(str.strip)))
def test_a_snapshot_keeps_every_field(ada: Agent, content: str, tags: list[str]) -> None:
    draft = Draft(content, tags=tags, project="site")
    edited = attempt(lambda: operations.remember(ada, [draft], ME), errors.Invalid, atomic=False)
    if isinstance(edited, errors.Invalid):
        return
    memory = steps.row(ada, edited.memory.number)
    for name, value in fields_of(snapshot(memory)).items():
        now = getattr(memory, name)
        assert (bytes(now) if isinstance(now, memoryview) else now) == value


TIMES = st.datetimes(timezones=ZONES)
NUMBERS = st.integers(0, 2**63 - 1)
FIELDS = st.fixed_dictionaries(
    {
        "origin": TIMES,
        "created_at": TIMES,
        "tokens": NUMBERS,
        "constitutional": st.booleans(),
        "is_instruction": st.booleans(),
    }
    | dict.fromkeys(("beneath_at", "discarded_at", "origin_latest", "redacted_at"), MOMENTS)
    | {"superseded_by": st.none() | NUMBERS, "store": st.none() | NUMBERS}
    | dict.fromkeys(("kind", "category", "scope", "project", "source"), STORABLE)
    | {"sealed": st.binary(max_size=40), "digest": st.binary(min_size=32, max_size=32)}
    | {"place": st.none() | st.binary(min_size=1, max_size=40)}
)


@given(FIELDS)
def test_a_snapshot_is_canonical_json_and_its_body(fields: dict[str, Any]) -> None:
    memory = Memory(agent_id=1, number=1, version=1, **fields)
    head, _, body = snapshot(memory).partition(b"\0")
    left_out = {
        ("project", ""),
        ("constitutional", False),
        ("is_instruction", False),
        *((name, None) for name in fields),
    }
    state = {
        name: value.isoformat() if isinstance(value, datetime) else len(value) if name == "place" else value
        for name, value in fields.items()
        if name not in ("sealed", "digest") and (name, value) not in left_out
    }
    assert head.decode() == json.dumps(state, sort_keys=True, separators=(",", ":"))
    assert body == fields["digest"] + (fields["place"] or b"") + fields["sealed"]
    assert fields_of(snapshot(memory)) == fields
