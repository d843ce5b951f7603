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


def run(sql: str) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
        return int(cursor.rowcount)


@contextmanager
def refused(agent: Agent) -> Iterator[None]:
    before = steps.state(agent)
    with pytest.raises(DatabaseError):
        yield
    assert steps.state(agent) == before


def test_changing_or_removing_what_is_kept_for_ever_is_refused(ada: Agent) -> None:
    rows: Any = [
        "UPDATE audit_auditentry SET actor_label = 'nobody'",
        "UPDATE audit_auditentry SET seq = seq",
        "UPDATE audit_change SET after = before",
        "DELETE FROM audit_auditentry",
        "DELETE FROM audit_change WHERE number = 1",
        "DELETE FROM memory_memory WHERE number = 1",
    ]
    for statement in rows:
        remember(ada, "tea")
        with refused(ada):
            run(statement)


@pytest.mark.postgresql
def test_truncate_is_refused_also_from_another_table(ada: Agent) -> None:
    remember(ada, "tea")
    for statement in [*(f"TRUNCATE {table}" for table in TABLES), "TRUNCATE memory_tenant CASCADE"]:
        with refused(ada):
            run(statement)


def ways_to_write_over(row: Any) -> list[Callable[[], object]]:
    model, same = type(row), type(row).objects.filter(pk=row.pk)
    return [
        lambda: same.update(seq=7),
        lambda: model.objects.bulk_update([row], ["seq"]),
        lambda: model.objects.update_or_create(pk=row.pk, defaults={"seq": 7}),
        lambda: model.objects.bulk_create([row], update_conflicts=True, update_fields=["seq"], unique_fields=["id"]),
        lambda: row.save(),
    ]


def test_no_way_of_writing_rows_over_or_of_deleting_them_is_open(ada: Agent) -> None:
    remember(ada, "tea")
    rows = [model.objects.latest("pk") for model in (AuditEntry, Change)]
    ways = [way for row in rows for way in ways_to_write_over(row)]
    for row in (*rows, steps.row(ada, 1)):
        ways += [row.delete, type(row).objects.all().delete]
    for way in ways:
        with refused(ada), transaction.atomic():
            way()


@pytest.fixture
def plain(transactional_db: None, ada: Agent) -> Iterator[sqlite3.Connection]:
    """A client that sets no pragma, as somebody with the file would: REPLACE runs no delete trigger for it."""
    remember(ada, "tea", "coffee")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as client:
        assert client.execute("PRAGMA recursive_triggers").fetchone() == (0,)
        yield client


@pytest.mark.sqlite
def test_replace_by_id_is_refused(plain: sqlite3.Connection, ada: Agent) -> None:
    for verb in ["REPLACE", "INSERT OR REPLACE"]:
        for table in TABLES:
            before = steps.state(ada)
            with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
                plain.execute(f"{verb} INTO {table} SELECT * FROM {table} LIMIT 1")
            assert steps.state(ada) == before


@pytest.mark.sqlite
def test_replace_by_another_unique_key_is_refused(plain: sqlite3.Connection, ada: Agent) -> None:
    for table in TABLES:
        columns = [row[1] for row in plain.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
        listed = ", ".join(columns)
        with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
            plain.execute(f"REPLACE INTO {table} (id, {listed}) SELECT id + 1000, {listed} FROM {table} LIMIT 1")


@pytest.mark.sqlite
def test_update_or_replace_over_another_memory_is_refused(plain: sqlite3.Connection, ada: Agent) -> None:
    """By whatever name: `id` has several, and a trigger on one of them takes no notice of the others."""
    for column in ["number", "id", "rowid", "_rowid_", "oid", "ROWID", '"id"']:
        before = steps.state(ada)
        value = f"(SELECT min({column}) FROM memory_memory)"
        with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
            plain.execute(f"UPDATE OR REPLACE memory_memory SET {column} = {value} WHERE number = 2")
        assert steps.state(ada) == before


@pytest.mark.sqlite
def test_a_plain_client_is_refused_too(plain: sqlite3.Connection, ada: Agent) -> None:
    for statement in ["UPDATE audit_change SET number = 9", "DELETE FROM audit_auditentry"]:
        with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
            plain.execute(statement)


def test_a_row_that_must_not_be_is_refused(ada: Agent) -> None:
    rows: Any = [
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
    for statement in rows:
        remember(ada, "tea", "coffee")
        with refused(ada):
            run(statement)


def test_an_entry_that_leaves_one_out_is_refused(ada: Agent) -> None:
    """Whatever a program believes of where the trail stands, its number follows on the one before."""
    remember(ada, "tea")
    last = AuditEntry.objects.order_by("-seq").values().first()
    assert last is not None
    apart = last | {"id": last["id"] + 1, "seq": last["seq"] + 2}
    with pytest.raises(IntegrityError, match="the entry before it is missing"), transaction.atomic():
        AuditEntry.objects.create(**apart)
    AuditEntry.objects.create(**apart | {"seq": last["seq"] + 1})


def test_missing_triggers_are_reported_and_put_back(ada: Agent) -> None:
    for table in TABLES:
        drop_guards(table)
        gone = [name for name, guarded in guards.triggers() if guarded == table]
        assert guards.missing() == gone
        assert [problem.problem.split()[1] for problem in verify.missing_guards()] == gone
        guards.restore_triggers()
        assert guards.missing() == []


@pytest.mark.django_db(transaction=True)
def test_a_rebuilt_table_has_its_triggers_back_after_migrate(ada: Agent) -> None:
    if connection.vendor == "sqlite":
        guards.refuse_updates()  # as before every migrate that has something to do
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


@pytest.mark.postgresql
@pytest.mark.parametrize("way", ["DISABLE TRIGGER", "ENABLE REPLICA TRIGGER"])
def test_a_trigger_that_does_not_fire_counts_as_missing(ada: Agent, way: str) -> None:
    run(f"ALTER TABLE audit_change {way} audit_change_no_delete")
    assert guards.missing() == ["audit_change_no_delete"]


def test_putting_back_twice_is_harmless(ada: Agent) -> None:
    guards.restore_triggers()
    guards.restore_triggers()
    operations.remember(ada, [], ME)
    assert guards.missing() == []


EMPTIED = {
    "sqlite": ["CREATE TRIGGER audit_change_no_delete BEFORE DELETE ON audit_change BEGIN SELECT 1; END"],
    "postgresql": [
        "CREATE FUNCTION let_by() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "CREATE TRIGGER audit_change_no_delete BEFORE DELETE ON audit_change FOR EACH ROW EXECUTE FUNCTION let_by()",
    ],
}


def test_a_trigger_that_does_nothing_counts_as_missing_and_is_put_back(ada: Agent) -> None:
    run("DROP TRIGGER audit_change_no_delete" + (" ON audit_change" if connection.vendor == "postgresql" else ""))
    for statement in EMPTIED[connection.vendor]:
        run(statement)
    assert guards.missing() == ["audit_change_no_delete"]
    guards.restore_triggers()
    assert guards.missing() == []


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "function",
    [
        "palimpsest_refuse",
        "palimpsest_no_gap",
        "palimpsest_audit_auditentry_only_redacts",
        "palimpsest_audit_change_only_redacts",
    ],
)
def test_a_function_that_refuses_nothing_counts_as_missing_and_is_put_back(ada: Agent, function: str) -> None:
    run(f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    made = [each for guard in guards._guards for each in guards._triggers(guard)]
    calls_it = [name for name, statement in made if f" {function}()" in statement]
    assert calls_it
    assert guards.missing() == calls_it
    guards.restore_triggers()
    assert guards.missing() == []


@pytest.mark.postgresql
def test_a_trigger_under_a_condition_counts_as_missing(ada: Agent) -> None:
    run("DROP TRIGGER audit_change_no_delete ON audit_change")
    run(
        "CREATE TRIGGER audit_change_no_delete BEFORE DELETE ON audit_change FOR EACH ROW WHEN (false) "
        "EXECUTE FUNCTION palimpsest_refuse()"
    )
    assert guards.missing() == ["audit_change_no_delete"]


def test_putting_back_is_done_whole_or_not_at_all(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no moment without a trigger: what was there is there until all are there anew."""
    drop_guards("audit_change")
    gone = guards.missing()
    made = guards._triggers

    def broken(guard: guards.Guard) -> Iterator[tuple[str, str]]:
        yield from made(guard)
        if guard.table == "audit_auditentry":
            yield "broken", "CREATE TRIGGER broken"

    with monkeypatch.context() as patched:
        patched.setattr(guards, "_triggers", broken)
        with pytest.raises(DatabaseError), transaction.atomic():
            guards.restore_triggers()
    assert guards.missing() == gone


@pytest.mark.django_db(transaction=True)
def test_putting_back_is_one_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_many_processes_migrate_at_once() -> None:
    """Trap: on PostgreSQL "tuple concurrently updated" and "already exists"."""
    drop_guards()
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--skip-checks"]
    env = os.environ | {"DATABASE_URL": database_url()}
    options: Any = {"cwd": settings.BASE_DIR, "env": env, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **options) for _ in range(5)]
    told = [process.communicate(timeout=120)[1] for process in running]
    assert [(process.returncode, said) for process, said in zip(running, told, strict=True)] == [(0, "")] * 5
    assert guards.missing() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_many_threads_put_back_at_once() -> None:
    for _ in range(10):
        drop_guards()
        at_once(*[guards.restore_triggers] * 5)
        assert guards.missing() == []
