"""Every attack by SQL on an entry of a trail, or on its changes, is found. The first problem names the entry."""

import json
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from audit import heads, trail
from audit.models import AuditEntry, Change
from config.keyfiles import new_key
from memory.agents import lifecycle
from memory.models import Agent
from memory.writing.edits import fields_of
from tests.steps import PERSON, problems, remember, signed_update
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


@pytest.fixture
def exported(past: Agent) -> list[dict[str, Any]]:
    return heads.read(json.dumps(heads.export(past.pk)))


def point_head_at_last(agent: Agent) -> None:
    entry = entries(agent).latest("seq")
    signed_update(Agent.objects.filter(pk=agent.pk), audit_seq=entry.seq, audit_mac=entry.mac, audit_at=entry.at)


def word(column: str, now: Any, value: Any) -> str:
    """What verifying calls another value of a column."""
    if column in ("agent_id", "seq"):
        return "missing"
    is_body_gone = column in ("before", "after") and value == b"" and now is not None
    is_gone = is_body_gone or (column in ("before", "after", "sealed") and value is None)
    return "wiped" if is_gone else "altered"


@pytest.mark.parametrize(("model", "rows"), [(AuditEntry, entries), (Change, changes)])
def test_another_value_of_any_column_is_found(past: Agent, model: Any, rows: Any) -> None:
    every = list(rows(past).values())
    for number, column in enumerate(columns(model)):
        for place, row in enumerate((every[0], every[len(every) // 2], every[-1])):
            for value in others(model, column, row[column])[(number + place) % 3 :: 3]:  # each row has a third
                with undone():
                    assert rows(past).filter(pk=row["id"]).update(**{column: value}) == 1
                    assert first(past) == (row["seq"], word(column, row[column], value)), (column, value)


def test_the_primary_key_of_a_row_is_not_verified(past: Agent) -> None:
    """Agent and number identify a row, and the MAC covers them."""
    for model in (AuditEntry, Change):
        row = model.objects.latest("pk")
        assert model.objects.filter(pk=row.pk).update(id=row.pk + 1000) == 1
    assert problems(past) == []


def remove_entry(agent: Agent, seq: int) -> None:
    assert entries(agent).filter(seq=seq).delete()[0] == 1


def remove_with_changes(agent: Agent, seq: int) -> None:
    for rows in (entries(agent), changes(agent)):
        rows.filter(seq=seq).delete()


def remove_and_close_the_gap(agent: Agent, gone: int) -> None:
    remove_with_changes(agent, gone)
    renumber(agent, *((seq, seq - 1) for seq in range(gone + 1, LAST + 1)))


def insert_a_change(agent: Agent, seq: int) -> None:
    other = Change.objects.exclude(agent_id=agent.pk).get()
    values = {name: getattr(other, name) for name in columns(Change, "agent_id", "seq", "number")}
    Change.objects.create(agent_id=agent.pk, seq=seq, number=88, **values)


def insert_an_entry(agent: Agent, seq: int) -> None:
    make_room(agent, seq)
    forge(agent, seq)


def repeat_at_the_end(agent: Agent, seq: int) -> None:
    entry = entries(agent).get(seq=seq)
    forge(agent, LAST + 1, **{name: getattr(entry, name) for name in columns(AuditEntry, "seq")})
    for change in changes(agent).filter(seq=seq):
        change.pk, change.seq = None, LAST + 1
        change.save(force_insert=True)


def swap_without_changes(agent: Agent, one: int) -> None:
    for old, new in ((one, 1000), (one + 1, one), (1000, one + 1)):
        entries(agent).filter(seq=old).update(seq=new)


def take_the_mac_of_another(agent: Agent, seq: int) -> None:
    entries(agent).filter(seq=seq).update(mac=entries(agent).get(seq=seq % LAST + 1).mac)


ALL, BUT_LAST, BUT_FIRST = range(1, LAST + 1), range(1, LAST), range(2, LAST + 1)
MOVED = "inserted: the original entry is now entry {}"
ATTACKS: dict[str, tuple[Callable[[Agent, int], object], Iterable[int], Callable[[int], tuple[int, str]]]] = {
    "removed": (remove_entry, BUT_LAST, lambda seq: (seq, "missing")),
    "removed with changes": (remove_with_changes, BUT_LAST, lambda seq: (seq, f"missing: entries {seq} to {seq}")),
    "removed, the rest renumbered": (remove_and_close_the_gap, BUT_LAST, lambda seq: (seq, "altered")),
    "tail cut off": (cut, BUT_LAST, lambda last: (last + 1, "truncated")),
    "change inserted": (insert_a_change, ALL, lambda seq: (seq, "inserted")),
    "entry inserted": (insert_an_entry, BUT_FIRST, lambda seq: (seq, MOVED.format(seq + 1))),
    "repeated at the end": (repeat_at_the_end, BUT_FIRST, lambda seq: (LAST + 1, f"duplicated: this is entry {seq}")),
    "MAC of another entry": (take_the_mac_of_another, ALL, lambda seq: (seq, "altered")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_any_entry_is_found(past: Agent, bob: Agent, attack: str) -> None:
    act, numbers, expected = ATTACKS[attack]
    for seq in numbers:
        with undone():
            act(past, seq)
            problem = found(past)[0]
            assert expected(seq) in ((problem.seq, problem.problem), called(problem)), problem


def test_two_swapped_entries_are_found(past: Agent) -> None:
    for one in BUT_LAST:
        for other in {one + 1, min(one + 3, LAST), LAST} - {one}:
            with undone():
                swap(past, one, other)
                problem = found(past)[0]
                assert (problem.seq, problem.problem) == (one, f"reordered: this is entry {other}")
                assert {p.seq for p in found(past)} >= {one, other}
        with undone():
            swap_without_changes(past, one)
            assert found(past)[0].seq == one
            assert {p.seq for p in found(past)} >= {one, one + 1}


def test_the_last_entry_removed_is_found(past: Agent) -> None:
    has_changes = changes(past).filter(seq=LAST).exists()
    remove_entry(past, LAST)
    assert first(past) == (LAST, "missing" if has_changes else "truncated")


def test_gaps_are_named(past: Agent) -> None:
    for rows in (entries(past), changes(past)):
        rows.filter(seq__in=(4, 5, 6, 8)).delete()
    gaps = [(p.seq, p.problem) for p in found(past) if p.problem.startswith("missing: entries")]
    assert gaps == [(4, "missing: entries 4 to 6"), (8, "missing: entries 8 to 8")]


def test_a_trail_removed_completely_is_found(past: Agent) -> None:
    entries(past).delete()
    changes(past).delete()
    assert found(past)[0].problem == "the trail is empty"
    assert (1, "truncated") in all_called(past)


def test_a_removed_last_entry_without_changes_is_found(past: Agent) -> None:
    agent, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=PERSON)
    assert problems(agent) == []
    entries(agent).filter(seq=2).delete()
    assert [p.seq for p in found(agent)] == [2, 0]  # no trail has the key that it issued


def test_a_tail_cut_off_with_an_updated_head_is_found_by_the_memories(past: Agent) -> None:
    for last in range(2, LAST):
        with undone():
            cut(past, last)
            point_head_at_last(past)
            assert any("memory" in problem.problem for problem in found(past))


def test_a_tail_cut_off_with_all_its_effects_is_found_by_exported_heads_only(
    past: Agent, exported: list[dict[str, Any]]
) -> None:
    assert list(heads.problems(exported)) == []
    for last in BUT_LAST:
        with undone():
            set_back(past, last)
            assert problems(past) == []
            assert [called(problem) for problem in heads.problems(exported)] == [(LAST, "truncated")]


def test_changes_without_an_entry_are_found(past: Agent) -> None:
    for seq in (0, 77):
        Change.objects.create(agent_id=past.pk, seq=seq, number=1, after=b"x", after_digest=b"x")
    assert [p.seq for p in found(past) if "without their entry" in p.problem] == [0, 77]


def test_a_forged_entry_at_the_end_is_found_also_if_the_head_names_it(past: Agent) -> None:
    forge(past, LAST + 1)
    assert {p.seq for p in found(past)} == {LAST + 1}
    assert (LAST + 1, "inserted") in all_called(past)
    point_head_at_last(past)
    assert [called(problem) for problem in found(past)] == [(LAST + 1, "altered")]


def test_several_inserted_entries_are_found(past: Agent) -> None:
    for _ in range(5):
        make_room(past, 4)
    for seq in range(4, 9):
        forge(past, seq)
    assert (found(past)[0].seq, found(past)[0].problem) == (4, MOVED.format(9))


def test_an_entry_written_twice_is_called_duplicated(past: Agent) -> None:
    allow_repeats(AuditEntry)
    for entry in list(entries(past)):
        for values in ({}, {"actor_label": "mallory"}):
            with undone():
                forge(past, entry.seq + 1, seq=entry.seq, pk=10_000, mac=entry.mac, changes=entry.changes, **values)
                assert (entry.seq, "duplicated") in all_called(past)
                assert found(past)[0].seq == entry.seq


def test_a_trail_replaced_by_another_agents_is_found(past: Agent, bob: Agent) -> None:
    for rows in (entries, changes):
        rows(past).delete()
        rows(bob).update(agent_id=past.pk)
    assert first(past) == (1, "altered")
    assert (1, "truncated") in all_called(bob)


def test_an_entry_forged_under_another_key_is_found(past: Agent, settings: Any) -> None:
    real = settings.AUDIT_KEY
    settings.AUDIT_KEY = f"{new_key()},{real or (settings.KEYS_DIR / 'audit').read_text().strip()}"
    remember(past, "forged")
    settings.AUDIT_KEY = real
    assert found(past)[0].seq == LAST + 1


def test_a_change_removed_repeated_moved_or_without_its_body_is_found(past: Agent) -> None:
    for change in list(changes(past)):
        with undone():
            changes(past).filter(pk=change.pk).delete()
            assert first(past) == (change.seq, "missing")
        with undone():
            changes(past).filter(pk=change.pk).update(seq=1)
            assert {(1, "inserted"), (change.seq, "missing")} <= all_called(past)
        for side in ("before", "after"):
            if (snapshot := getattr(change, side)) is not None:
                with undone():
                    changes(past).filter(pk=change.pk).update(**{side: trail.snapshot_head(bytes(snapshot))})
                    assert first(past) == (change.seq, "wiped")


def test_a_change_written_twice_is_found(past: Agent) -> None:
    allow_repeats(Change)
    for change in list(changes(past)):
        with undone():
            change.pk = 10_000
            change.save(force_insert=True)
            assert first(past) == (change.seq, "inserted")


def test_an_older_body_is_found_in_the_row_in_the_change_and_in_both(past: Agent) -> None:
    """Also with a digest that matches it."""
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
                problem = found(past)[0]
                assert problem.seq == change.seq
                assert "altered" in problem.problem or "its state after this entry" in problem.problem
                tried += 1
    assert tried == 3 * 4 + 2


def test_macs_computed_without_the_key_are_found(past: Agent) -> None:
    """Under a random key, with the key id kept, and with a key id that the attacker made up."""
    unknown = "signed with audit key mine, which is not in the keyring"
    for seq in ALL:
        for key_id in ("", "mine"):
            with undone():
                entries(past).filter(seq=seq).update(actor_label="somebody else")
                rechain(past, seq, secrets.token_bytes(32), key_id=key_id)
                named = [(p.seq, p.problem if key_id else called(p)[1]) for p in found(past)]
                assert named == [(n, unknown if key_id else "altered") for n in range(seq, LAST + 1)]


def test_an_inserted_entry_with_macs_computed_again_is_found(past: Agent) -> None:
    for seq in BUT_FIRST:
        with undone():
            insert_an_entry(past, seq)
            rechain(past, seq, secrets.token_bytes(32))
            assert [called(problem) for problem in found(past)] == [(n, "altered") for n in range(seq, LAST + 2)]


def test_macs_computed_with_the_key_are_found_by_exported_heads_only(
    past: Agent, exported: list[dict[str, Any]]
) -> None:
    for seq in ALL:
        with undone():
            entries(past).filter(seq=seq).update(actor_label="somebody else")
            rechain(past, seq, real_key())
            assert problems(past) == []
            assert [called(problem) for problem in heads.problems(exported)] == [(LAST, "replaced")]
