"""Values that no edit writes, as SQL can put them into a row: found, named, and the end of nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from audit.models import AuditEntry, Change
from memory.models import Agent, Memory
from tests.steps import problems
from tests.tampering import changes, columns, entries, found, sql, undone

pytestmark = pytest.mark.database


def test_a_snapshot_that_cannot_be_read_ends_nothing(past: Agent) -> None:
    changes(past).filter(seq=5, number=3).update(after=b"marmalade")
    assert [p.seq for p in found(past)] == [5]


VALUES = ["'zz'", "''", "1.5", "x'00'", "x''", "10000000000000"]
AMONG_THE_NUMBERS = ("seq", "1.5")  # which entry it was cannot be told, and the walk ends there


@pytest.mark.sqlite
def test_a_change_of_a_wrong_type_is_found(past: Agent) -> None:
    for column in columns(Change):
        with undone():
            [change] = changes(past).filter(seq=5, number=3).values_list("pk", flat=True)
            for value in VALUES:
                sql(f"UPDATE audit_change SET {column} = {value} WHERE rowid = {change}")
                assert found(past)[0].seq == 5 or (column, value) == AMONG_THE_NUMBERS


@pytest.mark.sqlite
def test_an_entry_of_a_wrong_type_is_found(past: Agent) -> None:
    for column in columns(AuditEntry, "operation", "actor_kind", "detail"):
        with undone():
            [entry] = entries(past).filter(seq=5).values_list("pk", flat=True)
            for value in VALUES:
                sql(f"UPDATE audit_auditentry SET {column} = {value} WHERE rowid = {entry}")
                assert found(past)[0].seq == 5 or (column, value) == AMONG_THE_NUMBERS


@pytest.mark.sqlite
def test_a_memory_of_a_wrong_type_is_found(past: Agent) -> None:
    for column in columns(Memory, "agent_id", "kind", "category", "scope", "source", "constitutional", "redacted_at"):
        with undone():
            [memory] = Memory.objects.filter(agent=past, number=5).values_list("pk", flat=True)
            for value in VALUES:
                sql(f"UPDATE memory_memory SET {column} = {value} WHERE rowid = {memory}")
                found(past)


@pytest.mark.sqlite
def test_a_flag_that_is_no_flag_is_found(past: Agent) -> None:
    """Other values read as false, here as everywhere."""
    for value in ["''", "x''"]:
        with undone():
            sql(f"UPDATE memory_memory SET constitutional = {value} WHERE agent_id = {past.pk} AND number = 5")
            found(past)


@pytest.mark.sqlite
def test_an_entry_of_a_wrong_form_is_found(past: Agent) -> None:
    rows: Any = [
        "UPDATE audit_auditentry SET detail = '[[' || detail || ']]'",
        "UPDATE audit_auditentry SET detail = '5'",
        "UPDATE audit_auditentry SET actor_label = CAST(x'ff' AS TEXT)",
        "UPDATE audit_auditentry SET at = '2026-99-99 00:00:00'",
    ]
    for statement in rows:
        with undone():
            sql(f"{statement} WHERE agent_id = {past.pk} AND seq = 5")
            assert [p.seq for p in found(past)] == [5]


@pytest.mark.sqlite
def test_a_name_that_stands_twice_is_found(past: Agent) -> None:
    """SQLite takes the first value, and Python, by which the MAC fits, the last."""
    [twice] = entries(past).filter(operation="key_issued").values_list("detail", flat=True)
    real = json.dumps(twice)
    sql(f'UPDATE audit_auditentry SET detail = \'{{"prefix":"zzz",{real[1:]}\' WHERE agent_id = {past.pk} AND seq = 2')
    assert 2 in [problem.seq for problem in found(past)]


@pytest.mark.postgresql
def test_a_time_beyond_pythons_is_found(past: Agent, bob: Agent) -> None:
    for at in ["infinity", "20000-01-01", "0044-03-15 BC"]:
        with undone():
            entries(past).filter(seq=2).update(operation="restored")
            sql(f"UPDATE audit_auditentry SET at = '{at}' WHERE agent_id = {past.pk} AND seq = 5")
            assert [p.seq for p in found(past) if "form" in p.problem] == [5]
            assert found(past)[0].seq == 2
            assert problems(bob) == []


@pytest.mark.postgresql
def test_a_memory_of_a_time_beyond_pythons_is_named(past: Agent) -> None:
    sql(f"UPDATE memory_memory SET origin = 'infinity' WHERE agent_id = {past.pk} AND number = 3")
    assert any(p.problem.startswith("memory 3: ") for p in found(past))
