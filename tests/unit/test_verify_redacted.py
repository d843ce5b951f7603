"""A trail that was redacted verifies; what is put back into it, or taken out of it by SQL alone, is found."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import QuerySet

from audit import guards, trail
from audit.models import AuditEntry, Change
from audit.redactions import as_detail
from audit.trail import Actor
from audit.verify import RETURNED
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent, Memory
from tests.conftest import drop_guards
from tests.steps import ME, fresh, problems, remember, row
from tests.tampering import (
    all_called,
    changes,
    columns,
    entries,
    first,
    forge,
    found,
    memories,
    others,
    rechain,
    undone,
)

pytestmark = pytest.mark.database

OWNER = Actor.person("owner@acme.test")
NAMED, NOTED = (1, 3), [5]  # memories that are redacted, entries that lose their notes
BY, LAST = 11, 12  # the redaction's entry, the last
EMPTIED: dict[str, Any] = {"sealed": b"", "digest": b"", "constitutional": False}


@pytest.fixture
def originals(past: Agent) -> dict[type, dict[int, Any]]:
    """Rows as they were before the redaction, by id: what a backup has."""
    models: tuple[Any, ...] = (Change, AuditEntry, Memory)
    return {model: {row["id"]: row for row in model.objects.filter(agent_id=past.pk).values()} for model in models}


@pytest.fixture
def redacted(past: Agent, originals: Any) -> Agent:
    asked = removal_requests.ask_redaction(past, NAMED, OWNER, reason="request 17").number
    redaction.redact(past, asked, ME)
    remember(past, "and on it goes")
    assert (asked, fresh(past).audit_seq) == (BY - 1, LAST)
    assert problems(past) == []
    return past


def covered(agent: Agent) -> QuerySet[Change]:
    return changes(agent).filter(number__in=NAMED)


# --- put back


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_body_put_back_into_a_change_is_found(redacted: Agent, originals: Any, side: str) -> None:
    tried = 0
    for pk, was in originals[Change].items():
        if was["number"] in NAMED and was[side] is not None:
            with undone():
                changes(redacted).filter(pk=pk).update(**{side: was[side]})
                assert [(p.seq, p.problem) for p in found(redacted)] == [(was["seq"], RETURNED)]
                tried += 1
    assert tried == {"before": 3, "after": 5}[side]


def test_every_body_put_back_is_found(redacted: Agent, originals: Any) -> None:
    """As by restoring the tables out of a backup, the later entries kept."""
    for pk, was in originals[Change].items():
        changes(redacted).filter(pk=pk).update(before=was["before"], after=was["after"])
    for pk, was in originals[AuditEntry].items():
        entries(redacted).filter(pk=pk).update(sealed=was["sealed"])
    assert {(p.seq, p.problem) for p in found(redacted)} == {(seq, RETURNED) for seq in (3, 5, 7, 9)}


def test_a_note_put_back_is_found(redacted: Agent, originals: Any) -> None:
    notes = {pk: was for pk, was in originals[AuditEntry].items() if was["sealed"] is not None}
    assert sorted(was["seq"] for was in notes.values()) == NOTED
    for pk, was in notes.items():
        for note in (was["sealed"], b"another"):
            with undone():
                entries(redacted).filter(pk=pk).update(sealed=note)
                assert [(p.seq, p.problem) for p in found(redacted)] == [(was["seq"], RETURNED)]


def test_a_memory_put_back_into_its_row_is_found(redacted: Agent, originals: Any) -> None:
    for number in NAMED:
        [was] = [each for each in originals[Memory].values() if each["number"] == number]
        body = {"sealed": was["sealed"], "digest": was["digest"], "redacted_at": None}
        for values in (body, {**was, "redacted_at": None}, {**was, "redacted_at": None, "version": BY}):
            with undone():
                memories(redacted).filter(number=number).update(**values)
                told = found(redacted)[0]
                assert (told.seq, told.problem) == (BY, f"memory {number} is not as this entry left it")


def test_another_time_of_a_redaction_is_found(redacted: Agent) -> None:
    for value in others(Memory, "redacted_at", row(redacted, 1).redacted_at):
        with undone():
            memories(redacted).filter(number=1).update(redacted_at=value)
            assert found(redacted)[0].seq == BY


def test_a_data_key_put_back_after_an_erasure_is_found(past: Agent) -> None:
    """Also another than it was."""
    wrapped = bytes(fresh(past).wrapped_key)
    erased = erasure.erase(past, removal_requests.ask_erasure(past, OWNER, reason="request 18").number, ME)
    assert problems(past) == []
    for key in (wrapped, b"x"):
        Agent.objects.filter(pk=past.pk).update(wrapped_key=key)
        assert [(p.seq, p.problem.split(":")[0]) for p in found(past)] == [(erased.entry, "inserted")]


# --- altered


def test_an_altered_column_of_what_is_left_of_a_change_is_found(redacted: Agent) -> None:
    for column in columns(Change, "agent_id", "seq"):
        for change in list(covered(redacted).filter(number=3).values()):
            for value in others(Change, column, change[column]):
                with undone():
                    changes(redacted).filter(pk=change["id"]).update(**{column: value})
                    assert found(redacted)[0].seq == change["seq"], (column, value)


def test_heads_of_other_snapshots_of_a_memory_are_found(redacted: Agent) -> None:
    for side in ["before", "after"]:
        heads = {
            bytes(each) for change in covered(redacted) for each in (change.before, change.after) if each is not None
        }
        for change in covered(redacted):
            for head in heads:
                if change.before is not None and head != bytes(getattr(change, side)):
                    with undone():
                        changes(redacted).filter(pk=change.pk).update(**{side: head})
                        assert first(redacted) == (change.seq, "altered")


def test_an_altered_column_of_its_entry_is_found(redacted: Agent) -> None:
    """A detail that names less, among others: what it named is wiped then, too, which comes first."""
    for column in columns(AuditEntry, "agent_id", "seq"):
        entry = entries(redacted).filter(seq=BY).values().get()
        values = others(AuditEntry, column, entry[column])
        if column == "detail":
            values += [entry["detail"] | {"redacted": {}}, entry["detail"] | {"notes": []}]
            values += [entry["detail"] | {"redacted": {number: [] for number in entry["detail"]["redacted"]}}]
        for value in values:
            with undone():
                entries(redacted).filter(seq=BY).update(**{column: value})
                assert (BY, "altered") in all_called(redacted), (column, value)


def test_its_entry_taken_away_is_found(redacted: Agent) -> None:
    entries(redacted).filter(seq=BY).delete()
    assert {(BY, "missing"), (3, "wiped"), (5, "wiped"), (9, "wiped")} <= all_called(redacted)


# --- made up


def strip_under(agent: Agent, detail: Any, number: int) -> AuditEntry:
    """Put in the entry of a redaction, and take out what the triggers let go for it. They are taken away again."""
    guards.restore_triggers()
    entry = forge(agent, LAST + 1, operation="redacted", detail=detail, changes=1)
    Change.objects.create(agent_id=agent.pk, seq=entry.seq, number=number)
    trail.strip(agent.pk, [number], [])
    drop_guards()
    return entry


def digests(agent: Agent, number: int) -> set[bytes]:
    return {trail.body_digest(bytes(change.after)) for change in changes(agent).filter(number=number)}


def test_a_redaction_made_up_by_sql_is_found(redacted: Agent) -> None:
    """Also one that names the digests of what it takes: the entry itself is not of the chain."""
    entry = strip_under(redacted, as_detail({4: digests(redacted, 4)}, []), 4)
    assert not any(trail.has_body(bytes(c.after)) for c in changes(redacted).filter(number=4) if c.after)
    assert {seq for seq, _ in all_called(redacted)} == {entry.seq}
    assert first(redacted) == (entry.seq, "altered")
    memories(redacted).filter(number=4).update(**EMPTIED | {"discarded_at": entry.at, "redacted_at": entry.at})
    rechain(redacted, entry.seq, b"a key of my own")
    assert first(redacted) == (entry.seq, "altered")


def test_a_redaction_made_up_that_names_no_digests_is_found(redacted: Agent) -> None:
    entry = strip_under(redacted, {"redacted": {"4": []}, "notes": []}, 4)
    assert {(3, "wiped"), (6, "wiped"), (8, "wiped"), (entry.seq, "altered")} <= all_called(redacted)


def test_a_redaction_made_up_and_taken_away_again_is_found(redacted: Agent) -> None:
    strip_under(redacted, as_detail({4: digests(redacted, 4)}, []), 4).delete()
    assert {(3, "wiped"), (6, "wiped"), (8, "wiped")} <= all_called(redacted)


def test_a_redaction_of_another_form_is_found_and_no_other_is_doubted_for_it(redacted: Agent) -> None:
    rows: Any = [
        {},
        [],
        5,
        "x",
        {"redacted": {}},
        {"redacted": [], "notes": []},
        {"redacted": {"x": []}, "notes": []},
        {"redacted": {"1": 5}, "notes": []},
        {"redacted": {"1": ["no hex"]}, "notes": []},
        {"redacted": {"1": [5]}, "notes": []},
        {"redacted": {}, "notes": 5},
        {"redacted": {"1": []}, "notes": [[]]},
        {"redacted": {"1": []}, "notes": []},
        {"redacted": {"1": ["00"]}, "notes": [1]},
    ]
    for detail in rows:
        with undone():
            entry = forge(redacted, LAST + 1, operation="redacted", detail=detail)
            assert {seq for seq, _ in all_called(redacted)} == {entry.seq}
