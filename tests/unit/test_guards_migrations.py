"""What is kept for ever is kept after every migration, in both directions, with rows there since the first."""

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


def steps_back() -> list[tuple[str, str]]:
    """What to migrate to, app by app and one migration earlier each time, from the last to each app's first."""
    forth = steps()
    earlier = [(node, [other for other in forth if other[0] == node[0] and other < node]) for node in reversed(forth)]
    return [before[-1] for _, before in earlier if before]


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


def test_every_road_is_refused_after_every_migration_taken_back(empty: None) -> None:
    migrate()
    fill()
    taken = steps_back()
    assert len(taken) >= 3
    for app, name in taken:
        migrate(app, name)
        assert tuple(there()) == KEPT
        every_road_is_refused(REFUSED_YET)
    migrate()
    assert every_road_is_refused(REFUSED) > 60
