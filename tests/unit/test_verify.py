"""Changes by SQL to an agent's memories, counters, row and keys are found; and what verifying does not report."""

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.db.models import F, Model
from pytest_django import Settings

from audit import verify
from audit.models import AuditEntry, Change
from audit.trail import Actor
from config.keyfiles import new_key
from config.keyring import keyring
from memory.agents import lifecycle
from memory.models import Agent, AgentKey, Memory
from memory.silo.silo import Silo
from memory.time_machine import replay
from memory.writing import operations
from memory.writing.counters import recount
from memory.writing.edits import fields_of
from tests import steps
from tests.steps import ME, problems, remember, signed_update
from tests.tampering import LAST, called, changes, columns, entries, first, found, memories, others, sql, undone

pytestmark = pytest.mark.database


def update(agent: Agent, **values: Any) -> None:
    """Change the row as somebody who has the audit key, so that only the other checks can find it."""
    signed_update(Agent.objects.filter(pk=agent.pk), **values)


def check_named(agent: Agent, memory: Memory, what: str = "differs from its state after this entry") -> None:
    problem = found(agent)[0]
    assert (problem.seq, problem.problem) == (memory.version, f"memory {memory.number} {what}")


def test_another_value_of_any_column_of_a_memory_is_found(past: Agent) -> None:
    found = set()
    for column in columns(Memory, "redacted_at", "store", "place"):
        for place, memory in enumerate(memories(past)):
            for value in others(Memory, column, getattr(memory, column))[place % 3 :: 3]:  # each has a third
                with suppress(IntegrityError), undone():  # the database refuses some values
                    assert memories(past).filter(pk=memory.pk).update(**{column: value}) == 1
                    is_lost = column in ("agent_id", "number")
                    check_named(past, memory, "is missing" if is_lost else "differs from its state after this entry")
                    found.add(column)
    assert found == set(columns(Memory, "redacted_at", "store", "place"))


def test_inserted_and_removed_memories_are_found(past: Agent) -> None:
    for memory in list(memories(past)):
        with undone():
            memories(past).filter(pk=memory.pk).delete()
            check_named(past, memory, "is missing")
    for number in (77, 88):
        memory = steps.row(past, 6)
        memory.pk, memory.number = None, number
        memory._state.adding = True
        memory.save()
    assert [p.problem for p in found(past)][:2] == ["memory 77 is not in the trail", "memory 88 is not in the trail"]


def test_two_memories_with_swapped_bodies_are_found(past: Agent) -> None:
    one, other = memories(past).filter(number__in=(4, 6))
    for mine, theirs in ((one, other), (other, one)):
        memories(past).filter(pk=mine.pk).update(sealed=theirs.sealed, digest=theirs.digest)
    assert {(p.seq, p.problem) for p in found(past)} >= {
        (each.version, f"memory {each.number} differs from its state after this entry") for each in (one, other)
    }


def test_an_older_body_of_a_memory_is_found(past: Agent) -> None:
    """Alone, with the other columns of that time, and with its version too."""
    older = [change for change in changes(past) if memories(past).get(number=change.number).version > change.seq]
    assert len(older) == 6
    for change in older:
        memory = memories(past).get(number=change.number)
        state = fields_of(bytes(change.after))
        for values in ({"sealed": state["sealed"]}, state, state | {"version": change.seq}):
            if any(getattr(memory, name) != value for name, value in values.items()):
                with undone():
                    memories(past).filter(pk=memory.pk).update(**values)
                    check_named(past, memory)


COUNTERS = [
    "core_count",
    "core_tokens",
    "journal_count",
    "beneath_count",
    "beneath_tokens",
    "constitutional_count",
    "constitutional_tokens",
]


@pytest.mark.parametrize("counter", [*COUNTERS, "duplicate_tokens", "next_number"])
def test_an_altered_counter_is_found(past: Agent, counter: str) -> None:
    for value in (51, 49):
        update(past, **{counter: value})
        assert any(counter in p.problem for p in found(past))


def test_an_altered_high_water_mark_is_found(past: Agent) -> None:
    """A lower mark would lower the floor of the next session."""
    row = steps.fresh(past)
    assert row.high_water_tokens - 1 > row.core_tokens - row.duplicate_tokens
    for difference in (1, -1):
        with undone():
            update(past, high_water_tokens=F("high_water_tokens") + difference)
            assert ["high-water" in p.problem for p in found(past)] == [True]


def test_the_high_water_mark_counts_the_largest_of_equal_texts(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal texts can have different sizes when the token counter was changed."""
    for size in (7, 90, 20):
        monkeypatch.setattr("memory.policy.tokens.count", lambda _, size=size: size)
        remember(ada, "the same")
    assert steps.fresh(ada).high_water_tokens == 90
    operations.discard(ada, [2], ME)
    remember(ada, "other", "other")
    operations.restore(ada, [2], ME)
    assert steps.fresh(ada).high_water_tokens == 110
    assert problems(ada) == []


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("audit_seq", LAST + 1, (LAST + 1, "truncated")),
        ("audit_seq", LAST - 1, (LAST, "inserted")),
        ("audit_seq", 0, (1, "inserted")),
        ("audit_mac", b"", (LAST, "altered")),
        ("audit_mac", bytes(32), (LAST, "altered")),
        ("audit_at", datetime(2990, 1, 1, tzinfo=UTC), (LAST, "altered")),  # the next entry would get this time
        ("audit_at", datetime(1990, 1, 1, tzinfo=UTC), (LAST, "altered")),
        ("audit_at", None, (LAST, "altered")),
    ],
)
def test_an_altered_head_in_the_agents_row_is_found(
    past: Agent, column: str, value: Any, named: tuple[int, str]
) -> None:
    update(past, **{column: value})
    assert [called(problem) for problem in found(past)] == [named]


def test_a_renamed_agent_is_found_and_one_moved_to_another_tenant_also_after_more_writes(
    past: Agent, bob: Agent
) -> None:
    with undone():
        update(past, slug="eve")
        assert [p.seq for p in found(past)] == [1]
    update(past, tenant=bob.tenant)
    assert [(p.agent, p.seq) for p in found(past)] == [("globex/ada", 1)]
    remember(steps.fresh(past), "as another's")
    assert [p.seq for p in found(past)] == [1]
    update(past, tenant=past.tenant)
    assert [p.seq for p in found(past)] == [steps.fresh(past).audit_seq]


def test_agent_keys_changed_by_sql_are_found(past: Agent) -> None:
    keys = AgentKey.objects.filter(agent=past)
    key = keys.get()
    with undone():
        AgentKey.objects.create(agent=past, prefix="x" * 12, mac=key.mac)
        assert [p.problem for p in found(past)] == [f"inserted: the agent key {'x' * 12} is not in the trail"]
    with undone():
        keys.delete()
        assert [p.seq for p in found(past)] == [2]
    lifecycle.issue_key(past, ME)
    lifecycle.revoke_key(past, key.prefix, ME)
    assert problems(past) == []
    keys.update(revoked_at=None)
    assert first(past) == (2, "altered")
    assert len(found(past)) == 1


def test_a_removed_data_key_is_found(past: Agent) -> None:
    update(past, wrapped_key=b"")
    assert [p.problem for p in found(past)] == ["missing: the data key does not exist, but no entry destroyed it"]


def test_an_unreadable_snapshot_is_found(past: Agent) -> None:
    changes(past).filter(seq=5, number=3).update(after=b"marmalade")
    assert [p.seq for p in found(past)] == [5]


VALUES = ["'zz'", "''", "1.5", "x'00'", "x''", "10000000000000"]
BETWEEN_NUMBERS = ("seq", "1.5")  # the number of the entry is lost, and the walk ends there
FLAGS = ("constitutional", "is_instruction")
REFUSED = ("beneath_at", "superseded_by", "store", "place")  # by constraints: memory 5 is in the journal
CASES = [
    (Change, {"seq": 5, "number": 3}, ()),
    (AuditEntry, {"seq": 5}, ("operation", "actor_kind", "detail")),
    # SQLite reads another value than 1 of a flag as false, as the queries do, and an empty date as none.
    (
        Memory,
        {"number": 5},
        ("agent_id", "kind", "category", "scope", "source", *FLAGS, "redacted_at", "origin_latest", *REFUSED),
    ),
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


@pytest.mark.sqlite
def test_a_name_with_escapes_in_a_detail_is_found(past: Agent) -> None:
    """Queries in SQLite do not find this name. Python, which computes the MAC, reads it as before."""
    sql(f"UPDATE audit_auditentry SET detail = replace(detail, 'prefix', '\\u0070refix') WHERE agent_id = {past.pk}")
    assert 2 in [problem.seq for problem in found(past)]


@pytest.mark.postgresql
@pytest.mark.parametrize("at", ["infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_cannot_represent_is_found(past: Agent, bob: Agent, at: str) -> None:
    entries(past).filter(seq=2).update(operation="restored")
    sql(f"UPDATE audit_auditentry SET at = '{at}' WHERE agent_id = {past.pk} AND seq = 5")
    assert {2, 5} <= {problem.seq for problem in found(past)}
    assert problems(bob) == []


@pytest.mark.postgresql
def test_a_memory_with_a_time_that_python_cannot_represent_is_named(past: Agent) -> None:
    sql(f"UPDATE memory_memory SET origin = 'infinity' WHERE agent_id = {past.pk} AND number = 3")
    assert any(p.problem.startswith("memory 3 differs") for p in found(past))


@pytest.mark.postgresql
def test_an_abandoned_verification_leaves_no_cursor_open(past: Agent) -> None:
    """If the garbage collector closes a cursor during another statement, it waits for itself for ever."""
    memories(past).update(tokens=1000)
    abandoned = replay.problems(steps.fresh(past))
    next(abandoned)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] > 0
        abandoned.close()
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] == 0


def test_a_lost_database_connection_is_an_error_and_not_a_problem(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Agent) -> Any:
        raise OperationalError("the connection is closed")
        yield

    monkeypatch.setattr("memory.time_machine.replay._states", fail)
    with pytest.raises(OperationalError):
        problems(past)


def test_a_trail_of_another_audit_key_is_found_and_of_an_older_one_verifies(past: Agent, settings: Settings) -> None:
    old = keyring().audit[0]
    settings.AUDIT_KEY = new_key()
    assert any(old.id in p.problem for p in found(past))
    settings.AUDIT_KEY = f"{new_key()},{base64.b64encode(old.secret).decode()}"
    remember(past, "after the change of keys")
    assert problems(past) == []
    assert steps.last_entry(past).key_id == keyring().audit[0].id


def test_tampering_with_one_agent_is_not_reported_for_another(past: Agent, bob: Agent) -> None:
    memories(past).update(tokens=1000)
    found(past)
    assert problems(bob) == []


def test_verifying_needs_no_data_key(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("verifying opens a silo")

    monkeypatch.setattr(Silo, "for_agent", classmethod(fail))
    signed_update(Agent.objects.filter(pk=past.pk), wrapped_key=b"opens nothing")
    assert problems(past) == []
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"opens nothing else")
    assert [each.seq for each in problems(past)] == [0]


def test_every_agent_with_a_trail_is_listed(past: Agent, bob: Agent) -> None:
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "globex/bob")]
    entries(past).filter(seq=1).delete()
    entries(bob).delete()
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "")]


@pytest.mark.parametrize("detail", [{"n": 1.5, "s": 'é\u2028"', "l": [1, None, True], "o": {"a": {}}}, {"big": 2**53}])
def test_any_json_detail_verifies(ada: Agent, detail: dict[str, Any]) -> None:
    operations.notify(ada, "told", operation="session_closed", actor=Actor.system("x"), detail=detail)
    assert steps.last_entry(ada).detail == json.loads(json.dumps(detail))
    assert problems(ada) == []


@pytest.mark.sqlite
@pytest.mark.parametrize("column", ["budget_tokens", "quiet_below_tokens", "paused"])
def test_a_setting_of_a_wrong_type_is_named(column: str, ada: Agent) -> None:
    sql("PRAGMA ignore_check_constraints = on")
    sql(f"UPDATE memory_agent SET {column} = 'x' WHERE id = {ada.pk}")
    sql("PRAGMA ignore_check_constraints = off")
    assert f"{column} in the agent's row has a wrong type or form" in {problem.problem for problem in problems(ada)}


@pytest.mark.sqlite
@pytest.mark.parametrize("text", ["x", ""])
@pytest.mark.parametrize("column", ["discarded_at", "beneath_at", "origin_latest", "redacted_at"])
def test_a_text_in_place_of_a_date_does_not_hide_a_memory(column: str, text: str, ada: Agent) -> None:
    """Queries take it as a date. The counters can agree with it."""
    remember(ada, "tea")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = on")
        cursor.execute(f"UPDATE memory_memory SET {column} = '{text}' WHERE agent_id = %s", [ada.pk])
        cursor.execute("PRAGMA ignore_check_constraints = off")
    Agent.objects.filter(pk=ada.pk).update(**{name: n for name, n in recount(ada).items() if name != "next_number"})
    assert f"memory: {column} of a row is not a date or time span" in {problem.problem for problem in problems(ada)}
