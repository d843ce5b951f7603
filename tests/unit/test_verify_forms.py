"""Values of wrong types and forms, which only SQL writes, are found. They do not end the verification."""

from __future__ import annotations

import json

import pytest
from django.db.models import Model

from audit.models import AuditEntry, Change
from memory.models import Agent, Memory
from tests.steps import problems
from tests.tampering import changes, columns, entries, found, sql, undone

pytestmark = pytest.mark.database


def test_an_unreadable_snapshot_is_found(past: Agent) -> None:
    changes(past).filter(seq=5, number=3).update(after=b"marmalade")
    assert [p.seq for p in found(past)] == [5]


VALUES = ["'zz'", "''", "1.5", "x'00'", "x''", "10000000000000"]
BETWEEN_NUMBERS = ("seq", "1.5")  # the number of the entry is lost, and the walk ends there
CASES = [
    (Change, {"seq": 5, "number": 3}, ()),
    (AuditEntry, {"seq": 5}, ("operation", "actor_kind", "detail")),
    (Memory, {"number": 5}, ("agent_id", "kind", "category", "scope", "source", "constitutional", "redacted_at")),
]


@pytest.mark.sqlite
@pytest.mark.parametrize(("model", "where", "without"), CASES)
def test_a_value_of_a_wrong_type_is_found(
    past: Agent, model: type[Model], where: dict[str, int], without: tuple[str, ...]
) -> None:
    for column in columns(model, *without):
        with undone():
            [pk] = model.objects.filter(agent_id=past.pk, **where).values_list("pk", flat=True)
            for value in VALUES:
                sql(f"UPDATE {model._meta.db_table} SET {column} = {value} WHERE rowid = {pk}")
                problem = found(past)[0]
                assert model is Memory or problem.seq == 5 or (column, value) == BETWEEN_NUMBERS


@pytest.mark.sqlite
@pytest.mark.parametrize("value", ["''", "x''"])
def test_a_flag_that_is_not_a_boolean_is_found(past: Agent, value: str) -> None:
    sql(f"UPDATE memory_memory SET constitutional = {value} WHERE agent_id = {past.pk} AND number = 5")
    found(past)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "values",
    [
        "detail = '[[' || detail || ']]'",
        "detail = '5'",
        "actor_label = CAST(x'ff' AS TEXT)",
        "at = '2026-99-99 00:00:00'",
    ],
)
def test_an_entry_of_a_wrong_form_is_found(past: Agent, values: str) -> None:
    sql(f"UPDATE audit_auditentry SET {values} WHERE agent_id = {past.pk} AND seq = 5")
    assert [p.seq for p in found(past)] == [5]


@pytest.mark.sqlite
def test_a_name_that_occurs_twice_in_a_detail_is_found(past: Agent) -> None:
    """SQLite reads the first value. Python, which computes the MAC, reads the last."""
    [detail] = entries(past).filter(operation="key_issued").values_list("detail", flat=True)
    real = json.dumps(detail)
    sql(f'UPDATE audit_auditentry SET detail = \'{{"prefix":"zzz",{real[1:]}\' WHERE agent_id = {past.pk} AND seq = 2')
    assert 2 in [problem.seq for problem in found(past)]


@pytest.mark.postgresql
@pytest.mark.parametrize("at", ["infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_cannot_represent_is_found(past: Agent, bob: Agent, at: str) -> None:
    entries(past).filter(seq=2).update(operation="restored")
    sql(f"UPDATE audit_auditentry SET at = '{at}' WHERE agent_id = {past.pk} AND seq = 5")
    assert [p.seq for p in found(past) if "form" in p.problem] == [5]
    assert found(past)[0].seq == 2
    assert problems(bob) == []


@pytest.mark.postgresql
def test_a_memory_with_a_time_that_python_cannot_represent_is_named(past: Agent) -> None:
    sql(f"UPDATE memory_memory SET origin = 'infinity' WHERE agent_id = {past.pk} AND number = 3")
    assert any(p.problem.startswith("memory 3: ") for p in found(past))
