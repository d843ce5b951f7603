"""What the database itself refuses, attacked by SQL."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, transaction

from audit import guards, verify
from audit.models import AuditEntry, Change
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.conftest import drop_guards
from tests.fault.test_writers import at_once, database_url
from tests.steps import ME, remember

pytestmark = pytest.mark.database

TABLES = ["audit_auditentry", "audit_change", "memory_memory"]


def run(*statements: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def refused(agent: Agent, error: type[Exception] = DatabaseError, message: str | None = None) -> Iterator[None]:
    before = steps.state(agent)
    with pytest.raises(error, match=message):
        yield
    assert steps.state(agent) == before


FORBIDDEN = [
    "UPDATE audit_auditentry SET actor_label = 'nobody'",
    "UPDATE audit_auditentry SET seq = seq",
    "UPDATE audit_change SET after = before",
    "DELETE FROM audit_auditentry",
    "DELETE FROM audit_change WHERE number = 1",
    "DELETE FROM memory_memory WHERE number = 1",
    "UPDATE memory_memory SET constitutional = true, discarded_at = created_at",
    "UPDATE memory_memory SET constitutional = true, source = 'system'",
    "UPDATE memory_memory SET kind = 'other'",
    "UPDATE memory_memory SET scope = 'public'",
    "UPDATE memory_memory SET source = 'rumour'",
    "UPDATE memory_memory SET category = 'other'",
    "UPDATE memory_memory SET number = 0",
    "UPDATE memory_memory SET number = 2 WHERE number = 1",
    "UPDATE memory_agent SET retention = 0.49",
    "UPDATE memory_agent SET target_tokens = budget_tokens + 1",
    "UPDATE memory_agent SET slug = 'ada', tenant_id = (SELECT min(id) FROM memory_tenant)",
]


def test_changes_of_kept_rows_and_invalid_rows_are_refused(ada: Agent) -> None:
    for statement in FORBIDDEN:
        remember(ada, "tea", "coffee")
        with refused(ada):
            run(statement)


@pytest.mark.postgresql
def test_truncate_is_refused_also_by_cascade(ada: Agent) -> None:
    remember(ada, "tea")
    for statement in [*(f"TRUNCATE {table}" for table in TABLES), "TRUNCATE memory_tenant CASCADE"]:
        with refused(ada):
            run(statement)


def overwrites(row: Any) -> list[Callable[[], object]]:
    model, same = type(row), type(row).objects.filter(pk=row.pk)
    return [
        lambda: same.update(seq=7),
        lambda: model.objects.bulk_update([row], ["seq"]),
        lambda: model.objects.update_or_create(pk=row.pk, defaults={"seq": 7}),
        lambda: model.objects.bulk_create([row], update_conflicts=True, update_fields=["seq"], unique_fields=["id"]),
        lambda: row.save(),
    ]


def test_the_orm_cannot_overwrite_or_delete_kept_rows(ada: Agent) -> None:
    remember(ada, "tea")
    rows = [model.objects.latest("pk") for model in (AuditEntry, Change)]
    writes = [write for row in rows for write in overwrites(row)]
    for row in (*rows, steps.row(ada, 1)):
        writes += [row.delete, type(row).objects.all().delete]
    for write in writes:
        with refused(ada), transaction.atomic():
            write()


@pytest.fixture
def plain(transactional_db: None, ada: Agent) -> Iterator[sqlite3.Connection]:
    """A client with the default pragmas: its REPLACE runs no delete trigger."""
    remember(ada, "tea", "coffee")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as client:
        assert client.execute("PRAGMA recursive_triggers").fetchone() == (0,)
        yield client


@pytest.mark.sqlite
def test_a_plain_sqlite_client_cannot_replace_update_or_delete(plain: sqlite3.Connection, ada: Agent) -> None:
    statements = ["UPDATE audit_change SET number = 9", "DELETE FROM audit_auditentry"]
    for table in TABLES:
        for verb in ["REPLACE", "INSERT OR REPLACE"]:
            statements.append(f"{verb} INTO {table} SELECT * FROM {table} LIMIT 1")
        names = ", ".join(row[1] for row in plain.execute(f"PRAGMA table_info({table})") if row[1] != "id")
        statements.append(f"REPLACE INTO {table} (id, {names}) SELECT id + 1000, {names} FROM {table} LIMIT 1")
    for column in ["number", "id", "rowid", "_rowid_", "oid", "ROWID", '"id"']:  # a trigger OF one misses the others
        value = f"(SELECT min({column}) FROM memory_memory)"
        statements.append(f"UPDATE OR REPLACE memory_memory SET {column} = {value} WHERE number = 2")
    for statement in statements:
        with refused(ada, sqlite3.IntegrityError, "kept for ever"):
            plain.execute(statement)


def test_an_entry_must_follow_the_previous_number(ada: Agent) -> None:
    remember(ada, "tea")
    last = AuditEntry.objects.order_by("-seq").values().first()
    assert last is not None
    values = last | {"id": last["id"] + 1, "seq": last["seq"] + 2}
    with pytest.raises(IntegrityError, match="the entry before it is missing"), transaction.atomic():
        AuditEntry.objects.create(**values)
    AuditEntry.objects.create(**values | {"seq": last["seq"] + 1})


# --- missing and weakened triggers


def test_missing_triggers_are_reported_and_restored(ada: Agent) -> None:
    for table in TABLES:
        drop_guards(table)
        dropped = [name for name, guarded in guards.triggers() if guarded == table]
        assert guards.missing() == dropped
        assert [problem.problem.split()[1] for problem in verify.missing_guards()] == dropped
        for _ in range(2):  # to restore twice is harmless
            guards.restore_triggers()
            assert guards.missing() == []
    operations.remember(ada, [], ME)


@pytest.mark.django_db(transaction=True)
def test_migrate_restores_the_triggers_of_a_rebuilt_table(ada: Agent) -> None:
    if connection.vendor == "sqlite":
        guards.refuse_updates()  # migrate does this first when it has migrations to apply
        with connection.schema_editor() as editor:  # as AlterField does: a new table, copied and renamed
            field = Change._meta.get_field("after")
            other = field.clone()
            other.set_attributes_from_name("after")
            other.null = False
            other.model = Change
            editor._remake_table(Change, alter_fields=[(field, other)])
    else:
        drop_guards("audit_change")
    assert "audit_change_no_update" in guards.missing()
    call_command("migrate", verbosity=0)
    assert guards.missing() == []


DROP = "DROP TRIGGER audit_change_no_delete"
CREATE = "CREATE TRIGGER audit_change_no_delete BEFORE DELETE ON audit_change"
ALLOW = "CREATE FUNCTION allow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'"
WEAKENED: dict[str, list[str]] = {
    "sqlite": [DROP, f"{CREATE} BEGIN SELECT 1; END"],
    "no effect": [f"{DROP} ON audit_change", ALLOW, f"{CREATE} FOR EACH ROW EXECUTE FUNCTION allow()"],
    "condition": [
        f"{DROP} ON audit_change",
        f"{CREATE} FOR EACH ROW WHEN (false) EXECUTE FUNCTION palimpsest_refuse()",
    ],
    "disabled": ["ALTER TABLE audit_change DISABLE TRIGGER audit_change_no_delete"],
    "replica": ["ALTER TABLE audit_change ENABLE REPLICA TRIGGER audit_change_no_delete"],
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=getattr(pytest.mark, "sqlite" if way == "sqlite" else "postgresql")) for way in WEAKENED],
)
def test_a_weakened_trigger_counts_as_missing_and_is_restored(ada: Agent, way: str) -> None:
    run(*WEAKENED[way])
    assert guards.missing() == ["audit_change_no_delete"]
    guards.restore_triggers()
    assert guards.missing() == []


@pytest.mark.postgresql
@pytest.mark.parametrize("function", ["refuse", "no_gap", "audit_auditentry_only_redacts", "audit_change_only_redacts"])
def test_a_weakened_function_counts_as_missing_and_is_restored(ada: Agent, function: str) -> None:
    name = f"palimpsest_{function}"
    run(f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    created = [each for guard in guards._guards for each in guards._triggers(guard)]
    callers = [trigger for trigger, statement in created if f" {name}()" in statement]
    assert callers
    assert guards.missing() == callers
    guards.restore_triggers()
    assert guards.missing() == []


def test_a_failed_restore_changes_nothing(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_guards("audit_change")
    missing, triggers = guards.missing(), guards._triggers

    def broken(guard: guards.Guard) -> Iterator[tuple[str, str]]:
        yield from triggers(guard)
        if guard.table == "audit_auditentry":
            yield "broken", "CREATE TRIGGER broken"

    with monkeypatch.context() as patched:
        patched.setattr(guards, "_triggers", broken)
        with pytest.raises(DatabaseError), transaction.atomic():
            guards.restore_triggers()
    assert guards.missing() == missing


@pytest.mark.django_db(transaction=True)
def test_a_restore_is_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_guards("audit_change")
    outside: list[str] = []

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        if not connection.in_atomic_block:
            outside.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(watch):
        guards.restore_triggers()
    assert [sql for sql in outside if "BEGIN" not in sql.split()[0]] == []
    assert guards.missing() == []


@pytest.mark.django_db(transaction=True)
def test_many_processes_can_migrate_at_once() -> None:
    """Trap: on PostgreSQL "tuple concurrently updated" and "already exists"."""
    drop_guards()
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--skip-checks"]
    env = os.environ | {"DATABASE_URL": database_url()}
    options: Any = {"cwd": settings.BASE_DIR, "env": env, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **options) for _ in range(5)]
    outputs = [process.communicate(timeout=120)[1] for process in running]
    assert [(process.returncode, text) for process, text in zip(running, outputs, strict=True)] == [(0, "")] * 5
    assert guards.missing() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_many_threads_can_restore_at_once() -> None:
    for _ in range(10):
        drop_guards()
        at_once(*[guards.restore_triggers] * 5)
        assert guards.missing() == []
