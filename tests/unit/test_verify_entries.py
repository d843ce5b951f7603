"""Every attack on an entry of a trail, or on what it changed, is found; the entry is named, and what became of it."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from audit import heads, trail
from audit.models import AuditEntry, Change
from config.keyfiles import new_key
from memory.agents import lifecycle
from memory.models import Agent
from memory.writing.edits import fields_of
from tests.steps import PERSON, problems, remember
from tests.tampering import (
    LAST,
    all_called,
    allow_repeats,
    called,
    changes,
    columns,
    cut,
    entries,
    first,
    forge,
    found,
    make_room,
    memories,
    others,
    real_key,
    rechain,
    renumber,
    set_back,
    swap,
    undone,
)

pytestmark = pytest.mark.database

# --- one column of one row


def word(column: str, now: Any, value: Any) -> str:
    """What it is called that a column of a row holds another value than it did."""
    if column in ("agent_id", "seq"):
        return "missing"
    is_body_gone = column in ("before", "after") and value == b"" and now is not None
    is_gone = is_body_gone or (column in ("before", "after", "sealed") and value is None)
    return "wiped" if is_gone else "altered"


def test_an_altered_column_of_any_entry_is_found(past: Agent) -> None:
    for column in columns(AuditEntry):
        for entry in list(entries(past).values()):
            for value in others(AuditEntry, column, entry[column]):
                with undone():
                    assert entries(past).filter(pk=entry["id"]).update(**{column: value}) == 1
                    assert first(past) == (entry["seq"], word(column, entry[column], value)), (column, value)


def test_an_altered_column_of_any_change_is_found(past: Agent) -> None:
    for column in columns(Change):
        for change in list(changes(past).values()):
            for value in others(Change, column, change[column]):
                with undone():
                    assert changes(past).filter(pk=change["id"]).update(**{column: value}) == 1
                    assert first(past) == (change["seq"], word(column, change[column], value)), (column, value)


def test_a_snapshot_that_lost_its_body_is_called_wiped(past: Agent) -> None:
    for side in ["before", "after"]:
        for change in changes(past).filter(**{f"{side}__isnull": False}):
            with undone():
                head = trail.snapshot_head(bytes(getattr(change, side)))
                changes(past).filter(pk=change.pk).update(**{side: head})
                assert first(past) == (change.seq, "wiped")


def test_the_id_of_a_row_says_nothing(past: Agent) -> None:
    """Rows are told apart by agent and number, and those are covered."""
    for model in (AuditEntry, Change):
        row = model.objects.latest("pk")
        assert model.objects.filter(pk=row.pk).update(id=row.pk + 1000) == 1
    assert problems(past) == []


# --- rows removed


def test_any_removed_entry_is_found(past: Agent) -> None:
    for seq in range(1, LAST + 1):
        with undone():
            assert entries(past).filter(seq=seq).delete()[0] == 1
            assert first(past) == (
                seq,
                "missing" if changes(past).filter(seq=seq).exists() or seq < LAST else "truncated",
            )


def test_any_entry_removed_with_its_changes_is_found(past: Agent) -> None:
    for seq in range(1, LAST):
        with undone():
            entries(past).filter(seq=seq).delete()
            changes(past).filter(seq=seq).delete()
            told = found(past)[0]
            assert (told.seq, told.problem) == (seq, f"missing: entries {seq} to {seq}")


def test_several_removed_entries_are_named(past: Agent) -> None:
    for rows in (entries(past), changes(past)):
        rows.filter(seq__in=(4, 5, 6, 8)).delete()
    gaps = [(p.seq, p.problem) for p in found(past) if p.problem.startswith("missing: entries")]
    assert gaps == [(4, "missing: entries 4 to 6"), (8, "missing: entries 8 to 8")]


def test_any_removed_change_is_found(past: Agent) -> None:
    for change in changes(past):
        with undone():
            changes(past).filter(pk=change.pk).delete()
            assert first(past) == (change.seq, "missing")


def test_a_trail_removed_whole_is_found(past: Agent) -> None:
    entries(past).delete()
    changes(past).delete()
    assert found(past)[0].problem == "the trail is empty"
    assert (1, "truncated") in all_called(past)


# --- the tail cut off


@pytest.fixture
def exported(past: Agent) -> list[dict[str, Any]]:
    return heads.read(json.dumps(heads.export(past.pk)))


def test_a_tail_cut_off_is_found(past: Agent) -> None:
    for last in range(1, LAST):
        with undone():
            cut(past, last)
            assert first(past) == (last + 1, "truncated")


def test_a_last_entry_that_touched_no_memory_cut_off_is_found(past: Agent) -> None:
    agent, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=PERSON)
    assert problems(agent) == []
    entries(agent).filter(seq=2).delete()
    assert [p.seq for p in found(agent)] == [2, 0]  # the key it issued is in no trail now


def test_a_tail_cut_off_with_the_agents_row_is_found_by_the_memories(past: Agent) -> None:
    for last in range(2, LAST):
        with undone():
            cut(past, last)
            entry = entries(past).latest("seq")
            row = {"audit_seq": last, "audit_mac": entry.mac, "audit_at": entry.at}
            Agent.objects.filter(pk=past.pk).update(**row)
            assert any("memory" in problem.problem for problem in found(past))


def test_a_tail_cut_off_with_all_that_it_changed_is_found_with_heads_alone(
    past: Agent, exported: list[dict[str, Any]]
) -> None:
    assert list(heads.problems(exported)) == []
    for last in range(1, LAST):
        with undone():
            set_back(past, last)
            assert problems(past) == []
            assert [called(problem) for problem in heads.problems(exported)] == [(LAST, "truncated")]


# --- rows put in


def test_a_change_without_an_entry_is_found(past: Agent) -> None:
    for seq in (0, 77):
        Change.objects.create(agent_id=past.pk, seq=seq, number=1, after=b"x", after_digest=b"x")
    assert [p.seq for p in found(past) if "without their entry" in p.problem] == [0, 77]


def test_a_change_put_into_any_entry_is_found(past: Agent, bob: Agent) -> None:
    other = changes(bob).get()
    for seq in range(1, LAST + 1):
        with undone():
            values = {name: getattr(other, name) for name in columns(Change, "agent_id", "seq", "number")}
            Change.objects.create(agent_id=past.pk, seq=seq, number=88, **values)
            assert first(past) == (seq, "inserted")


def test_a_change_moved_to_another_entry_is_found_in_both(past: Agent) -> None:
    for change in changes(past):
        with undone():
            changes(past).filter(pk=change.pk).update(seq=1)
            assert {(1, "inserted"), (change.seq, "missing")} <= all_called(past)


def test_a_forged_entry_at_the_end_is_found(past: Agent) -> None:
    forge(past, LAST + 1)
    assert {p.seq for p in found(past)} == {LAST + 1}
    assert (LAST + 1, "inserted") in all_called(past)


def test_a_forged_entry_that_the_agents_row_names_is_found(past: Agent) -> None:
    entry = forge(past, LAST + 1)
    Agent.objects.filter(pk=past.pk).update(audit_seq=entry.seq, audit_mac=entry.mac, audit_at=entry.at)
    assert [called(problem) for problem in found(past)] == [(LAST + 1, "altered")]


def test_an_entry_put_in_with_the_rest_renumbered_is_found(past: Agent) -> None:
    for seq in range(2, LAST + 1):
        with undone():
            make_room(past, seq)
            forge(past, seq)
            told = found(past)[0]
            assert (told.seq, told.problem) == (seq, f"inserted: the entry written in its place is now entry {seq + 1}")


def test_many_entries_put_in_are_found(past: Agent) -> None:
    for _ in range(5):
        make_room(past, 4)
    for seq in range(4, 9):
        forge(past, seq)
    assert (found(past)[0].seq, found(past)[0].problem) == (
        4,
        "inserted: the entry written in its place is now entry 9",
    )


def test_an_entry_put_in_with_the_rest_renumbered_and_computed_anew_is_found(past: Agent) -> None:
    for seq in range(2, LAST + 1):
        with undone():
            make_room(past, seq)
            forge(past, seq)
            rechain(past, seq, secrets.token_bytes(32))
            assert [called(problem) for problem in found(past)] == [(n, "altered") for n in range(seq, LAST + 2)]


def test_an_entry_written_twice_is_called_duplicated(past: Agent) -> None:
    allow_repeats(AuditEntry)
    for entry in list(entries(past)):
        for values in ({}, {"actor_label": "mallory"}):
            with undone():
                forge(past, entry.seq + 1, seq=entry.seq, pk=10_000, mac=entry.mac, changes=entry.changes, **values)
                assert (entry.seq, "duplicated") in all_called(past)
                assert found(past)[0].seq == entry.seq


def test_a_change_written_twice_is_found(past: Agent) -> None:
    allow_repeats(Change)
    for change in list(changes(past)):
        with undone():
            change.pk = 10_000
            change.save(force_insert=True)
            assert first(past) == (change.seq, "inserted")


def test_an_old_entry_repeated_at_the_end_is_called_duplicated(past: Agent) -> None:
    for seq in range(2, LAST + 1):
        with undone():
            entry = entries(past).get(seq=seq)
            forge(past, LAST + 1, **{name: getattr(entry, name) for name in columns(AuditEntry, "seq")})
            for change in changes(past).filter(seq=seq):
                change.pk, change.seq = None, LAST + 1
                change.save(force_insert=True)
            assert (found(past)[0].seq, found(past)[0].problem) == (LAST + 1, f"duplicated: this is entry {seq}")


def test_a_trail_of_another_agent_put_in_its_place_is_found(past: Agent, bob: Agent) -> None:
    for rows in (entries, changes):
        rows(past).delete()
        rows(bob).update(agent_id=past.pk)
    assert first(past) == (1, "altered")
    assert (1, "truncated") in all_called(bob)


# --- rows moved


def test_any_two_entries_in_each_others_place_are_found(past: Agent) -> None:
    for one in range(1, LAST):
        for other in {one + 1, min(one + 3, LAST), LAST} - {one}:
            with undone():
                swap(past, one, other)
                told = found(past)
                assert (told[0].seq, told[0].problem) == (one, f"reordered: this is entry {other}")
                assert {p.seq for p in told} >= {one, other}


def test_entries_in_each_others_place_without_their_changes_are_found(past: Agent) -> None:
    for one in range(1, LAST):
        with undone():
            for old, new in ((one, 1000), (one + 1, one), (1000, one + 1)):
                entries(past).filter(seq=old).update(seq=new)
            assert found(past)[0].seq == one
            assert {p.seq for p in found(past)} >= {one, one + 1}


def test_a_removed_entry_whose_place_the_rest_took_is_found(past: Agent) -> None:
    for gone in range(1, LAST):
        with undone():
            for rows in (entries(past), changes(past)):
                rows.filter(seq=gone).delete()
            renumber(past, *((seq, seq - 1) for seq in range(gone + 1, LAST + 1)))
            assert first(past) == (gone, "altered")


# --- the rest of the chain computed anew


def doctored(past: Agent, seq: int) -> None:
    entries(past).filter(seq=seq).update(actor_label="somebody else")


def test_a_chain_computed_anew_without_the_key_is_found(past: Agent) -> None:
    for seq in range(1, LAST + 1):
        with undone():
            doctored(past, seq)
            rechain(past, seq, secrets.token_bytes(32))
            assert [called(problem) for problem in found(past)] == [(n, "altered") for n in range(seq, LAST + 1)]


def test_a_chain_computed_anew_under_a_key_of_another_name_is_found(past: Agent) -> None:
    for seq in range(1, LAST + 1):
        with undone():
            doctored(past, seq)
            rechain(past, seq, secrets.token_bytes(32), key_id="mine")
            expected = "signed with audit key mine, which is not in the keyring"
            assert [(p.seq, p.problem) for p in found(past)] == [(n, expected) for n in range(seq, LAST + 1)]


def test_a_chain_computed_anew_with_the_key_is_found_with_heads_alone(
    past: Agent, exported: list[dict[str, Any]]
) -> None:
    for seq in range(1, LAST + 1):
        with undone():
            doctored(past, seq)
            rechain(past, seq, real_key())
            assert problems(past) == []
            assert [called(problem) for problem in heads.problems(exported)] == [(LAST, "replaced")]


def test_a_mac_of_another_entry_is_found(past: Agent) -> None:
    macs = {entry.seq: entry.mac for entry in entries(past)}
    for seq in range(1, LAST + 1):
        with undone():
            entries(past).filter(seq=seq).update(mac=macs[seq % LAST + 1])
            assert first(past) == (seq, "altered")


def test_an_entry_forged_under_a_key_of_ones_own_is_found(past: Agent, settings: Any) -> None:
    real = settings.AUDIT_KEY
    settings.AUDIT_KEY = new_key()
    remember(past, "forged")
    settings.AUDIT_KEY = real
    assert found(past)[0].seq == LAST + 1


# --- an older body put back


def test_an_older_body_put_back_is_found_wherever_it_is_put(past: Agent) -> None:
    """In the row, in the change, in both, and with a digest that fits it."""
    tried = 0
    for change in changes(past).filter(before__isnull=False):
        older = bytes(change.before)
        digests = {"after_digest": trail.snapshot_digest(older)}
        in_row = memories(past).filter(number=change.number, version=change.seq)
        for after, row in (({"after": older}, False), ({"after": older} | digests, True), ({}, True)):
            if row and not in_row.exists():
                continue
            with undone():
                if after:
                    changes(past).filter(pk=change.pk).update(**after)
                if row:
                    in_row.update(**fields_of(older))
                told = found(past)[0]
                assert told.seq == change.seq
                assert "altered" in told.problem or "as this entry left it" in told.problem
                tried += 1
    assert tried == 3 * 4 + 2
