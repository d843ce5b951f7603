"""What the database itself refuses, attacked by SQL."""

import os
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, transaction

from audit import guards, verify
from audit.models import AuditEntry
from memory.models import Agent
from memory.writing import operations
from tests.conftest import drop_guards
from tests.fault.test_writers import at_once, database_url
from tests.steps import ME, refused, remember
from tests.tampering import undone

pytestmark = pytest.mark.database

TABLES = ["audit_auditentry", "audit_change", "memory_memory"]


def run(*statements: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


INVALID = [
    "UPDATE memory_memory SET constitutional = true, discarded_at = created_at",
    "UPDATE memory_memory SET constitutional = true, source = 'system'",
    *(f"UPDATE memory_memory SET {column} = 'other'" for column in ("kind", "scope", "source", "category")),
    "UPDATE memory_memory SET number = 0",
    "UPDATE memory_memory SET number = 2 WHERE number = 1",
    "UPDATE memory_agent SET retention = 0.49",
    "UPDATE memory_agent SET target_tokens = budget_tokens + 1",
    "UPDATE memory_agent SET slug = 'ada', tenant_id = (SELECT min(id) FROM memory_tenant)",
    *(["TRUNCATE memory_tenant CASCADE"] if connection.vendor == "postgresql" else []),
]


def test_invalid_rows_and_a_cascade_are_refused(ada: Agent) -> None:
    """test_guards_migrations.py tries each statement that changes or removes kept rows."""
    for statement in INVALID:
        remember(ada, "tea", "coffee")
        with refused(ada, DatabaseError):
            run(statement)


def test_an_entry_must_follow_the_previous_number(ada: Agent) -> None:
    remember(ada, "tea")
    last = AuditEntry.objects.order_by("-seq").values().first()
    assert last is not None
    values = last | {"id": last["id"] + 1, "seq": last["seq"] + 2}
    with pytest.raises(IntegrityError, match="the entry before it is missing"), transaction.atomic():
        AuditEntry.objects.create(**values)
    AuditEntry.objects.create(**values | {"seq": last["seq"] + 1})


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


VIEW = "ALTER TABLE memory_agentkey RENAME TO k\nCREATE VIEW memory_agentkey AS SELECT * FROM k"
FUNCTION = "CREATE FUNCTION x(varchar, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'"
CHECK = "CONSTRAINT x CHECK (slug ### 'x')"
OPERATOR = f"{FUNCTION}\nCREATE OPERATOR ### (LEFTARG = varchar, RIGHTARG = text, FUNCTION = x)"
UNEXPECTED: dict[str, dict[str, str]] = {
    "sqlite": {
        "trigger x on memory_agent": "CREATE TRIGGER x AFTER UPDATE ON memory_agent BEGIN SELECT 1; END",
        "view memory_agentkey on memory_agentkey": VIEW,
        "trigger audit_change_no_delete on audit_change": WEAKENED["sqlite"][0] + "\n" + WEAKENED["sqlite"][1],
        "trigger audit_change_no_update": (
            "DROP TRIGGER audit_change_no_update\nPRAGMA writable_schema = ON\n"
            "UPDATE sqlite_master SET type = 'TABLE' WHERE name = 'audit_change'\nPRAGMA writable_schema = OFF"
        ),
        "table x on x": "CREATE VIRTUAL TABLE x USING fts5(y)",
        "TRIGGER x on memory_agent": (
            "CREATE TRIGGER x AFTER UPDATE ON memory_agent BEGIN SELECT 1; END\nPRAGMA writable_schema = ON\n"
            "UPDATE sqlite_master SET type = 'TRIGGER' WHERE name = 'x'\nPRAGMA writable_schema = OFF"
        ),
        "table y on y": (
            "CREATE TRIGGER x AFTER UPDATE ON memory_agent BEGIN SELECT 1; END\nPRAGMA writable_schema = ON\n"
            "UPDATE sqlite_master SET type = 'table', name = 'y', tbl_name = 'y' WHERE name = 'x'\n"
            "PRAGMA writable_schema = OFF"
        ),
        "an action of a foreign key on memory_vault": (
            "ALTER TABLE memory_vault ADD y integer REFERENCES memory_agent(id) ON DELETE SET NULL"
        ),
        "a collation on memory_vault": "CREATE INDEX x ON memory_vault(fault COLLATE NOCASE)",
        "a conflict clause on memory_vault": (
            "ALTER TABLE memory_vault ADD y integer DEFAULT 1 NOT NULL ON CONFLICT IGNORE"
        ),
    },
    "postgresql": {
        "trigger x on memory_agent": f"{ALLOW}\nCREATE TRIGGER x AFTER UPDATE ON memory_agent EXECUTE FUNCTION allow()",
        "disabled trigger audit_change_no_delete on audit_change": WEAKENED["disabled"][0],
        "trigger audit_change_no_delete on audit_change": (
            f"DROP TRIGGER audit_change_no_delete ON audit_change\n{ALLOW}\n"
            "CREATE CONSTRAINT TRIGGER audit_change_no_delete AFTER DELETE ON audit_change DEFERRABLE "
            "FOR EACH ROW EXECUTE FUNCTION allow()"
        ),
        "an action of a foreign key on memory_vault": (
            "ALTER TABLE memory_vault ADD y integer REFERENCES memory_agent(id) ON UPDATE SET NULL"
        ),
        "statistics x on memory_tenant": "CREATE STATISTICS x ON (upper(name)) FROM memory_tenant",
        "trigger audit_change_no_update": (
            "DROP TRIGGER audit_change_no_update ON audit_change\n"
            "ALTER TABLE audit_change DROP CONSTRAINT audit_change_pkey, ALTER id DROP IDENTITY\n"
            "CREATE TABLE x (LIKE audit_change) PARTITION BY LIST (id)\n"
            "ALTER TABLE x ATTACH PARTITION audit_change DEFAULT"
        ),
        "rule x on memory_membership": "CREATE RULE x AS ON DELETE TO memory_membership DO INSTEAD NOTHING",
        "policy x on memory_person": "CREATE POLICY x ON memory_person",
        "row security on memory_tenantkey": "ALTER TABLE memory_tenantkey ENABLE ROW LEVEL SECURITY",
        "a view on memory_agentkey": VIEW,
        "an unknown type or collation on memory_person": (
            "CREATE DOMAIN x AS varchar(200)\nALTER TABLE memory_person ALTER name TYPE x"
        ),
        "an unknown type or collation on memory_pepper": (
            'CREATE COLLATION x FROM "C"\nALTER TABLE memory_pepper ALTER key_id TYPE varchar(8) COLLATE x'
        ),
        "hidden code in x on memory_tenant": f"{OPERATOR}\nALTER TABLE memory_tenant ADD {CHECK}",
        "hidden code in y_index on memory_tenant": (
            f"{OPERATOR}\nCREATE INDEX y_index ON memory_tenant (id) WHERE slug ### ''"
        ),
        "hidden code in a default on memory_tenant": (
            f"{OPERATOR}\nALTER TABLE memory_tenant ADD y boolean DEFAULT ('a'::varchar ### 'b')"
        ),
        "hidden code in y on memory_tenant": (
            f"{FUNCTION}\nCREATE DOMAIN z AS varchar CHECK (x(VALUE, 'x'))\n"
            "ALTER TABLE memory_tenant ADD CONSTRAINT y CHECK (slug::z IS NOT NULL)"
        ),
        "triggers are off: session_replication_role on": "SET LOCAL session_replication_role = replica",
    },
}


def test_what_sql_adds_to_a_table_is_named(ada: Agent) -> None:
    assert guards.unexpected() == []
    for name, statements in UNEXPECTED[connection.vendor].items():
        with undone():
            run(*statements.split("\n"))
            assert any(name in problem.problem for problem in verify.missing_guards())
