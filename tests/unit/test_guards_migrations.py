"""The database refuses changes of kept rows after every present and future migration."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations import CreateModel
from django.db.migrations.executor import MigrationExecutor
from pytest_django import DjangoDbBlocker

from audit import guards
from tests.fault.test_writers import database_url
from tests.sql_attacks import KEPT, attacks

pytestmark = pytest.mark.database

APPS = ("audit", "memory", "refinement")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def empty(django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path: Path) -> Iterator[None]:
    """An empty database in place of the test database."""
    tests_database = connection.settings_dict["NAME"]
    empty = str(tmp_path / "empty.sqlite3") if connection.vendor == "sqlite" else f"{tests_database}_empty"
    with django_db_blocker.unblock():
        connection.close()
        _server(f'DROP DATABASE IF EXISTS "{empty}"', f'CREATE DATABASE "{empty}"')
        connection.settings_dict["NAME"] = empty
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = tests_database
            _server(f'DROP DATABASE "{empty}"')
            ContentType.objects.clear_cache()


def _server(*statements: str) -> None:
    if connection.vendor == "postgresql":
        with connection._nodb_cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def migrate(*where: str) -> None:
    call_command("migrate", *where, verbosity=0, interactive=False)


def migrations() -> list[tuple[str, str]]:
    """Every migration of the product, in the order of application."""
    graph = MigrationExecutor(connection).loader.graph
    plan = [node for leaf in sorted(graph.leaf_nodes()) for node in graph.forwards_plan(leaf)]
    return [node for node in dict.fromkeys(plan) if node[0] in APPS]


def kept_tables() -> list[str]:
    tables = connection.introspection.table_names()
    return [table for table in KEPT if table in tables]


def fill() -> None:
    """Insert two rows into each empty kept table, with the models of this migration."""
    loader = MigrationExecutor(connection).loader
    models = loader.project_state(list(loader.applied_migrations)).apps
    for table in kept_tables():
        if not rows(table):
            for number in (1, 2):
                _FILL[table](models, number)


def _entry(apps: Any, number: int) -> None:
    values: dict[str, Any] = {"agent_id": 1, "tenant_id": 1, "agent_label": "acme/ada", "seq": number, "at": AT}
    values |= {"actor_kind": "system", "actor_label": "tests", "operation": "remembered"}
    values |= {"sealed": b"note", "key_id": "key", "mac": b"m" * 32}
    apps.get_model("audit", "AuditEntry").objects.create(**values)


def _change(apps: Any, number: int) -> None:
    snapshot = {"before": b"{}\0body", "before_digest": b"d" * 32, "after": b"{}\0body", "after_digest": b"d" * 32}
    apps.get_model("audit", "Change").objects.create(agent_id=1, seq=number, number=number, **snapshot)


def _memory(apps: Any, number: int) -> None:
    tenant, _ = apps.get_model("memory", "Tenant").objects.get_or_create(slug="acme")
    agent, _ = apps.get_model("memory", "Agent").objects.get_or_create(tenant=tenant, slug="ada", model="x")
    values: dict[str, Any] = {"agent": agent, "number": number, "scope": "common", "origin": AT, "created_at": AT}
    values |= {"version": number, "sealed": b"sealed", "digest": b"d" * 32, "tokens": 1, "kind": "core"}
    apps.get_model("memory", "Memory").objects.create(**values, category="technical")


_FILL = {"audit_auditentry": _entry, "audit_change": _change, "memory_memory": _memory}


def rows(table: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        names = [column.name for column in connection.introspection.get_table_description(cursor, table)]
        cursor.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def client() -> Iterator[Any]:
    """A client that sends SQL. On SQLite it has the default pragmas: its REPLACE runs no delete trigger."""
    if connection.vendor == "postgresql":
        with psycopg.connect(database_url(), autocommit=True) as plain:
            yield plain
    else:
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as plain:
            yield plain


@pytest.mark.usefixtures("empty", "future")
def test_a_migration_is_not_reversed_while_its_tables_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    migrate()
    models = MigrationExecutor(connection).loader.project_state().apps
    models.get_model("memory", "Tenant").objects.create(slug="acme")
    models.get_model("memory", "Later").objects.create()
    for name in ("0001_initial", "zero"):
        with pytest.raises(CommandError, match=r"memory_later.*DESTROY_DATA=yes"):
            migrate("memory", name)
    models.get_model("memory", "Later").objects.all().delete()
    migrate("memory", "0001_initial")
    with pytest.raises(CommandError, match="memory_tenant"):
        migrate("memory", "zero")
    assert rows("memory_tenant")
    monkeypatch.setenv("DESTROY_DATA", "yes")
    migrate("memory", "zero")
    assert "memory_tenant" not in connection.introspection.table_names()


@pytest.mark.django_db
def test_every_migration_that_creates_a_table_keeps_its_rows() -> None:
    for app, name in migrations():
        operations = MigrationExecutor(connection).loader.get_migration(app, name).operations
        last = getattr(getattr(operations[-1], "reverse_code", None), "__module__", "")
        assert last == "config.reversing" or not any(isinstance(each, CreateModel) for each in operations), name


def test_no_migration_uses_the_keys() -> None:
    """Otherwise somebody with SQL could undo it, change a row, and let `migrate` sign the row."""
    files = [file for app in APPS for file in (settings.BASE_DIR / app / "migrations").glob("0*.py")]
    text = "\n".join(file.read_text("utf-8") for file in files)
    imported = {*re.findall(r"^ *(?:from|import) (?!django\b)([\w.]+)", text, re.MULTILINE)}
    assert imported == {"audit", "audit.models", "config.reversing", "datetime", "decimal"}


REFUSED = "kept for ever"
# The triggers name every present column. Without one of them the database refuses with another error.
REFUSED_EARLY = f"{REFUSED}|no such column: NEW|has no field"


def all_statements_are_refused(message: str = REFUSED) -> int:
    """Try each statement that would change kept rows, and return how many there are."""
    count = 0
    for table in kept_tables():
        statements, everything = list(attacks(table)), f"SELECT * FROM {table} ORDER BY id"
        with client() as sql:
            before = sql.execute(everything).fetchall()
            assert len(before) == 2
            for statement in statements:
                with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=message):
                    sql.execute(statement)
                assert sql.execute(everything).fetchall() == before, statement
        count += len(statements)
    assert guards.missing() == []
    return count


def test_kept_rows_are_protected_after_every_migration(empty: None) -> None:
    first_seen: dict[str, list[dict[str, Any]]] = {}
    for app, name in migrations():
        migrate(app, name)
        fill()
        for table in kept_tables():
            first_seen.setdefault(table, rows(table))
        assert bool(all_statements_are_refused(REFUSED_EARLY)) == bool(kept_tables()), (app, name)
    migrate()
    assert tuple(kept_tables()) == KEPT
    assert all_statements_are_refused() > 60
    for table, old_rows in first_seen.items():
        new_rows = zip(old_rows, rows(table), strict=True)
        assert [{name: new[name] for name in old} for old, new in new_rows] == old_rows


_FIRST = """
from importlib import import_module

Migration = import_module("{app}.migrations.0001_initial").Migration
"""
# What an ordinary future migration does: it alters kept tables, which SQLite rebuilds for each operation, and adds one.
_FUTURE = """
from django.db import migrations, models

from config.reversing import keep_rows


class Migration(migrations.Migration):
    dependencies = [("{app}", "0001_initial")]
    operations = []
    for model in {models}:
        rule = models.CheckConstraint(condition=models.Q(later__gt=0), name=model + "_later")
        operations += [
            migrations.AddField(model, "later", models.PositiveIntegerField(default=7)),
            migrations.AddField(model, "empty", models.TextField(null=True)),
            migrations.AlterField(model, "later", models.PositiveBigIntegerField(default=7)),
            migrations.AddConstraint(model, rule),
        ]
    table = migrations.CreateModel("Later", [("id", models.BigAutoField(primary_key=True))])
    operations += [table, keep_rows("{app}", "Later")]
"""
_ALTERED = {"audit": ["auditentry", "change"], "memory": ["memory"]}


@pytest.fixture
def future(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Add one migration to each app with kept rows."""
    for app, altered in _ALTERED.items():
        folder = tmp_path / f"{app}_future"
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "0001_initial.py").write_text(_FIRST.format(app=app))
        (folder / "0002_future.py").write_text(_FUTURE.format(app=app, models=altered))
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {app: f"{app}_future" for app in _ALTERED}


def test_kept_rows_are_protected_after_future_migrations_and_their_reversal(empty: None, future: None) -> None:
    for app in APPS:
        migrate(app, "0001_initial")
    fill()
    before = {table: rows(table) for table in kept_tables()}
    for app in _ALTERED:
        migrate(app, "0002_future")
        assert all_statements_are_refused(REFUSED_EARLY) > 60
    assert [row["later"] for table in KEPT for row in rows(table)] == [7] * 6
    for app in reversed(_ALTERED):
        migrate(app, "0001_initial")
        assert all_statements_are_refused(REFUSED_EARLY) > 60
    assert {table: rows(table) for table in kept_tables()} == before


def test_a_new_database_is_protected_after_all_migrations_in_one_run(empty: None, future: None) -> None:
    migrate()
    fill()
    assert all_statements_are_refused(REFUSED_EARLY) > 60


def test_the_migrations_create_the_triggers(empty: None) -> None:
    """Before the signal after a migration, SQLite refuses redactions too."""
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    fill()
    with client() as sql:
        for statement in (each for table in KEPT for each in attacks(table)):
            with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=REFUSED):
                sql.execute(statement)
    restored_later = {"sqlite": ["audit_auditentry_no_update", "audit_change_no_update"], "postgresql": []}
    assert guards.missing() == restored_later[connection.vendor]
