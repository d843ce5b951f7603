"""A redacted trail verifies. What SQL puts back into it or removes from it is found."""

from typing import Any

import pytest
from django.db.models import QuerySet

from audit import guards, trail
from audit.models import AuditEntry, Change
from audit.redactions import as_detail
from audit.trail import Actor
from audit.verify import RETURNED
from memory.consent import erasure, redaction, requests
from memory.models import Agent, Memory
from tests.conftest import drop_guards
from tests.steps import ME, fresh, problems, remember, row, signed_update
from tests.tampering import (
    all_called,
    called,
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
REDACTED, NOTED = (1, 3), [9]  # the redacted memories; the entries that lose their notes
BY, LAST = 11, 12  # the entry of the redaction; the last entry
EMPTIED: dict[str, Any] = {"sealed": b"", "digest": b"", "constitutional": False}


@pytest.fixture
def originals(past: Agent) -> dict[type, dict[int, Any]]:
    """Rows before the redaction, by id, as a backup has them."""
    models: tuple[Any, ...] = (Change, AuditEntry, Memory)
    return {model: {row["id"]: row for row in model.objects.filter(agent_id=past.pk).values()} for model in models}


@pytest.fixture
def redacted(past: Agent, originals: Any) -> Agent:
    others = [each.number for each in redaction.preview(past, REDACTED).lineage]
    request = requests.ask_redaction(past, REDACTED, OWNER, reason="request 17", excluded=others).number
    redaction.redact(past, request, ME)
    remember(past, "and on it goes")
    assert (request, fresh(past).audit_seq) == (BY - 1, LAST)
    assert problems(past) == []
    return past


def covered(agent: Agent) -> QuerySet[Change]:
    return changes(agent).filter(number__in=REDACTED)


def returned(agent: Agent, *numbers: int) -> bool:
    return {(p.seq, p.problem) for p in found(agent)} == {(seq, RETURNED) for seq in numbers}


@pytest.mark.parametrize(("side", "bodies"), [("before", 3), ("after", 5)])
def test_a_body_put_back_into_a_change_is_found(redacted: Agent, originals: Any, side: str, bodies: int) -> None:
    backup = [was for was in originals[Change].values() if was["number"] in REDACTED and was[side] is not None]
    assert len(backup) == bodies
    for was in backup:
        with undone():
            changes(redacted).filter(pk=was["id"]).update(**{side: was[side]})
            assert returned(redacted, was["seq"])


def test_a_restored_backup_of_the_trail_is_found(redacted: Agent, originals: Any) -> None:
    for pk, was in originals[Change].items():
        changes(redacted).filter(pk=pk).update(before=was["before"], after=was["after"])
    for pk, was in originals[AuditEntry].items():
        entries(redacted).filter(pk=pk).update(sealed=was["sealed"])
    assert returned(redacted, 3, 5, 7, 9)


def test_a_note_put_back_is_found(redacted: Agent, originals: Any) -> None:
    notes = [was for was in originals[AuditEntry].values() if was["sealed"] is not None and was["seq"] > 2]
    assert sorted(was["seq"] for was in notes) == NOTED
    for was in notes:
        for note in (was["sealed"], b"another"):
            with undone():
                entries(redacted).filter(pk=was["id"]).update(sealed=note)
                assert returned(redacted, was["seq"])


def test_a_memory_put_back_into_its_row_is_found(redacted: Agent, originals: Any) -> None:
    for number in REDACTED:
        [was] = [each for each in originals[Memory].values() if each["number"] == number]
        body = {"sealed": was["sealed"], "digest": was["digest"], "redacted_at": None}
        for values in (body, {**was, "redacted_at": None}, {**was, "redacted_at": None, "version": BY}):
            with undone():
                memories(redacted).filter(number=number).update(**values)
                problem = found(redacted)[0]
                assert (problem.seq, problem.problem) == (
                    BY,
                    f"memory {number} differs from its state after this entry",
                )


@pytest.mark.parametrize("is_original", [True, False])
def test_a_data_key_put_back_after_an_erasure_is_found(past: Agent, is_original: bool) -> None:
    key = bytes(fresh(past).wrapped_key) if is_original else b"x"
    erased = erasure.erase(past, requests.ask_erasure(past, OWNER, reason="request 18").number, ME)
    assert problems(past) == []
    signed_update(Agent.objects.filter(pk=past.pk), wrapped_key=key)
    assert [called(problem) for problem in found(past)] == [(erased.entry, "inserted")]


def test_another_value_of_any_column_of_a_redacted_change_is_found(redacted: Agent) -> None:
    for column in columns(Change, "agent_id", "seq"):
        for change in list(covered(redacted).filter(number=3).values()):
            for value in others(Change, column, change[column]):
                with undone():
                    changes(redacted).filter(pk=change["id"]).update(**{column: value})
                    assert found(redacted)[0].seq == change["seq"], (column, value)


def test_the_head_of_another_snapshot_of_a_memory_is_found(redacted: Agent) -> None:
    heads = {bytes(each) for change in covered(redacted) for each in (change.before, change.after) if each is not None}
    for side in ("before", "after"):
        for change in covered(redacted).exclude(before=None):
            for head in heads - {bytes(getattr(change, side))}:
                with undone():
                    changes(redacted).filter(pk=change.pk).update(**{side: head})
                    assert first(redacted) == (change.seq, "altered")


def test_another_value_of_any_column_of_the_redactions_entry_is_found(redacted: Agent) -> None:
    """Also a detail that names less. The bodies that it named are then wiped too, which is reported first."""
    entry = entries(redacted).filter(seq=BY).values().get()
    less = [{"redacted": {}}, {"notes": []}, {"redacted": {key: [] for key in entry["detail"]["redacted"]}}]
    for column in columns(AuditEntry, "agent_id", "seq"):
        values = others(AuditEntry, column, entry[column])
        if column == "detail":
            values += [entry["detail"] | each for each in less]
        for value in values:
            with undone():
                entries(redacted).filter(seq=BY).update(**{column: value})
                assert (BY, "altered") in all_called(redacted), (column, value)


def test_another_redaction_time_or_a_missing_redaction_entry_is_found(redacted: Agent) -> None:
    for value in others(Memory, "redacted_at", row(redacted, 1).redacted_at):
        with undone():
            memories(redacted).filter(number=1).update(redacted_at=value)
            assert found(redacted)[0].seq == BY
    entries(redacted).filter(seq=BY).delete()
    assert {(BY, "missing"), (3, "wiped"), (5, "wiped"), (9, "wiped")} <= all_called(redacted)


def forge_redaction(agent: Agent, detail: Any, number: int = 4) -> AuditEntry:
    """Insert the entry of a redaction, and remove the bodies that the triggers allow to remove under it."""
    guards.restore_triggers()
    entry = forge(agent, LAST + 1, operation="redacted", detail=detail, changes=1)
    Change.objects.create(agent_id=agent.pk, seq=entry.seq, number=number)
    trail.strip(agent.pk, [number], [])
    drop_guards()
    return entry


def digests(agent: Agent, number: int) -> set[bytes]:
    return {trail.body_digest(bytes(change.after)) for change in changes(agent).filter(number=number)}


def test_a_forged_redaction_is_found_also_with_the_right_digests_and_with_other_macs(redacted: Agent) -> None:
    entry = forge_redaction(redacted, as_detail({4: digests(redacted, 4)}, []))
    assert not any(trail.has_body(bytes(c.after)) for c in changes(redacted).filter(number=4) if c.after)
    assert {seq for seq, _ in all_called(redacted)} == {entry.seq}
    assert first(redacted) == (entry.seq, "altered")
    memories(redacted).filter(number=4).update(**EMPTIED | {"discarded_at": entry.at, "redacted_at": entry.at})
    rechain(redacted, entry.seq, b"a key of my own")
    assert first(redacted) == (entry.seq, "altered")


WIPED = {(3, "wiped"), (6, "wiped"), (8, "wiped")}


def test_a_forged_redaction_without_digests_or_without_its_entry_is_found(redacted: Agent) -> None:
    with undone():
        entry = forge_redaction(redacted, {"redacted": {"4": []}, "notes": []})
        assert WIPED | {(entry.seq, "altered")} <= all_called(redacted)
    forge_redaction(redacted, as_detail({4: digests(redacted, 4)}, [])).delete()
    assert all_called(redacted) >= WIPED


def test_a_redaction_of_a_wrong_form_is_found_and_no_other_problem(redacted: Agent) -> None:
    bad_redacted: list[Any] = [[], {"x": []}, {"1": 5}, {"1": ["no hex"]}, {"1": [5]}, {"1": []}]
    details: list[Any] = [{}, [], 5, "x", {"redacted": {}}, {"redacted": {}, "notes": 5}]
    details += [{"redacted": each, "notes": []} for each in bad_redacted]
    details += [{"redacted": {"1": []}, "notes": [[]]}, {"redacted": {"1": ["00"]}, "notes": [4]}]
    for detail in details:
        with undone():
            entry = forge(redacted, LAST + 1, operation="redacted", detail=detail)
            assert {seq for seq, _ in all_called(redacted)} == {entry.seq}
