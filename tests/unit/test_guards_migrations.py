"""What is kept for ever is kept after every migration, of today and to come, with rows there since the first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from pytest_django import DjangoDbBlocker

from audit import guards
from tests.fault.test_writers import database_url
from tests.roads import KEPT, roads

pytestmark = pytest.mark.database

OURS = ("audit", "memory", "refinement")
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def empty(django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path: Path) -> Iterator[None]:
    """A database of its own with nothing in it, in the place of the tests'."""
    theirs = connection.settings_dict["NAME"]
    ours = str(tmp_path / "empty.sqlite3") if connection.vendor == "sqlite" else f"{theirs}_empty"
    with django_db_blocker.unblock():
        connection.close()
        _server(f'DROP DATABASE IF EXISTS "{ours}"', f'CREATE DATABASE "{ours}"')
        connection.settings_dict["NAME"] = ours
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = theirs
            _server(f'DROP DATABASE "{ours}"')
            ContentType.objects.clear_cache()


def _server(*statements: str) -> None:
    if connection.vendor == "postgresql":
        with connection._nodb_cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def migrate(*where: str) -> None:
    call_command("migrate", *where, verbosity=0, interactive=False)


def steps() -> list[tuple[str, str]]:
    """Every migration of ours, in the order in which they come."""
    graph = MigrationExecutor(connection).loader.graph
    plan = [node for leaf in sorted(graph.leaf_nodes()) for node in graph.forwards_plan(leaf)]
    return [node for node in dict.fromkeys(plan) if node[0] in OURS]


def there() -> list[str]:
    tables = connection.introspection.table_names()
    return [table for table in KEPT if table in tables]


def fill() -> None:
    """Two rows for each kept table that has none, as the models were at this migration."""
    loader = MigrationExecutor(connection).loader
    at_this = loader.project_state(list(loader.applied_migrations)).apps
    for table in there():
        if not rows(table):
            for number in (1, 2):
                _FILL[table](at_this, number)


def _entry(apps: Any, number: int) -> None:
    apps.get_model("audit", "AuditEntry").objects.create(
        agent_id=1,
        tenant_id=1,
        agent_label="acme/ada",
        seq=number,
        at=AT,
        actor_kind="system",
        actor_label="tests",
        operation="remembered",
        sealed=b"note",
        key_id="key",
        mac=b"m" * 32,
    )


def _change(apps: Any, number: int) -> None:
    snapshot = {"before": b"{}\0body", "before_digest": b"d" * 32, "after": b"{}\0body", "after_digest": b"d" * 32}
    apps.get_model("audit", "Change").objects.create(agent_id=1, seq=number, number=number, **snapshot)


def _memory(apps: Any, number: int) -> None:
    tenant, _ = apps.get_model("memory", "Tenant").objects.get_or_create(slug="acme")
    agent, _ = apps.get_model("memory", "Agent").objects.get_or_create(tenant=tenant, slug="ada", model="x")
    said = {"sealed": b"sealed", "digest": b"d" * 32, "tokens": 1, "kind": "core", "category": "technical"}
    apps.get_model("memory", "Memory").objects.create(
        agent=agent, number=number, scope="common", origin=AT, created_at=AT, version=number, **said
    )


_FILL = {"audit_auditentry": _entry, "audit_change": _change, "memory_memory": _memory}


def rows(table: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        names = [column.name for column in connection.introspection.get_table_description(cursor, table)]
        cursor.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def client() -> Iterator[Any]:
    """Whoever types SQL. On SQLite a client that sets no pragma: REPLACE runs no delete trigger for it."""
    if connection.vendor == "postgresql":
        with psycopg.connect(database_url(), autocommit=True) as plain:
            yield plain
    else:
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as plain:
            yield plain


REFUSED = "kept for ever"
# The triggers name every column of today: before one of them is there, the database refuses for want of it.
REFUSED_YET = f"{REFUSED}|no such column: NEW|has no field"


def every_road_is_refused(message: str) -> int:
    """How many there were."""
    tried = 0
    for table in there():
        statements, everything = list(roads(table)), f"SELECT * FROM {table} ORDER BY id"
        with client() as sql:
            before = sql.execute(everything).fetchall()
            assert len(before) == 2
            for statement in statements:
                with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=message):
                    sql.execute(statement)
                assert sql.execute(everything).fetchall() == before, statement
        tried += len(statements)
    assert guards.missing() == []
    return tried


def test_every_road_is_refused_after_every_migration(empty: None) -> None:
    first_seen: dict[str, list[dict[str, Any]]] = {}
    for app, name in steps():
        migrate(app, name)
        fill()
        for table in there():
            first_seen.setdefault(table, rows(table))
        assert bool(every_road_is_refused(REFUSED_YET)) == bool(there()), (app, name)
    migrate()
    assert tuple(there()) == KEPT
    assert every_road_is_refused(REFUSED) > 60
    for table, then in first_seen.items():
        assert [{name: now[name] for name in was} for was, now in zip(then, rows(table), strict=True)] == then


_FIRST = """
from importlib import import_module

Migration = import_module("{app}.migrations.0001_initial").Migration
"""
# What an ordinary migration to come may do to a table that is kept: SQLite makes each of them anew for it.
_TO_COME = """
from django.db import migrations, models


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
"""
_ALTERED = {"audit": ["auditentry", "change"], "memory": ["memory"]}


@pytest.fixture
def to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Each app whose rows are kept has one migration more than today."""
    for app, altered in _ALTERED.items():
        folder = tmp_path / f"{app}_to_come"
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "0001_initial.py").write_text(_FIRST.format(app=app))
        (folder / "0002_to_come.py").write_text(_TO_COME.format(app=app, models=altered))
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {app: f"{app}_to_come" for app in _ALTERED}


def test_every_road_is_refused_after_migrations_to_come_and_after_they_are_taken_back(
    empty: None, to_come: None
) -> None:
    for app in OURS:
        migrate(app, "0001_initial")
    fill()
    before = {table: rows(table) for table in there()}
    for app in _ALTERED:
        migrate(app, "0002_to_come")
        assert every_road_is_refused(REFUSED) > 60
    assert [row["later"] for table in KEPT for row in rows(table)] == [7] * 6
    for app in reversed(_ALTERED):
        migrate(app, "0001_initial")
        assert every_road_is_refused(REFUSED) > 60
    assert {table: rows(table) for table in there()} == before


def test_a_new_database_comes_through_migrations_to_come(empty: None, to_come: None) -> None:
    """In one run: what the first migrations make the later ones alter."""
    migrate()
    fill()
    assert every_road_is_refused(REFUSED) > 60


def test_the_migrations_themselves_make_the_triggers(empty: None) -> None:
    """Before anything hears that they are done; that lets redactions through again, on SQLite."""
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    fill()
    with client() as sql:
        for table in KEPT:
            for statement in roads(table):
                with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=REFUSED):
                    sql.execute(statement)
    late = {"sqlite": ["audit_auditentry_no_update", "audit_change_no_update"], "postgresql": []}
    assert guards.missing() == late[connection.vendor]
