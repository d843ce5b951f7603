"""For all tests: the test database, two tenants, no network, and no access to real keys."""

import gc
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.cache import cache
from django.core.management.color import no_style
from django.db import connection, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from pytest_django import DjangoDbBlocker
from pytest_socket import socket_allow_hosts

from audit import guards
from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent, Tenant
from memory.search import cache as search_cache
from tests import environment

pytest_plugins = ["tests.privacy.plugin", "tests.tampering"]

Rows = dict[str, list[tuple[Any, ...]]]  # by table
LOOPBACK = ["127.0.0.1", "::1"]
OPERATOR = Actor.operator("tests")

_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
# "quick" does not shrink failing examples, which can take minutes.
_QUICK: dict[str, Any] = {"max_examples": 25, "phases": [Phase.explicit, Phase.reuse, Phase.generate]}
_QUICK["derandomize"] = "CI" in os.environ
hypothesis_settings.register_profile("quick", deadline=None, suppress_health_check=_SLOW, **_QUICK)
hypothesis_settings.register_profile("thorough", max_examples=400, deadline=None, suppress_health_check=_SLOW)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure() -> None:
    if str(settings.KEYS_DIR) != str(environment.FOLDER / "keys"):
        raise pytest.UsageError("The tests need keys of their own. Keep '-p tests.environment' in addopts.")
    gc.set_threshold(100_000, 50, 100)  # the tests are 7 % faster
    default = settings.DATABASES["default"]
    if default["ENGINE"].endswith("sqlite3"):  # a file, so that WAL, locks and other processes are real
        default.setdefault("TEST", {})["NAME"] = str(environment.FOLDER / "test.sqlite3")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start a service (tests/commands/conftest.py): it has a database of its own."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "service" in fixtures and "scaled" not in fixtures:
            item.add_marker(pytest.mark.own_database)
        if item.get_closest_marker("postgresql"):
            item.add_marker(pytest.mark.database)


@pytest.hookimpl(tryfirst=True)  # before fixtures, which may need one vendor
def pytest_runtest_setup(item: pytest.Item) -> None:
    other = {"sqlite": "postgresql", "postgresql": "sqlite"}[connection.vendor]
    if item.get_closest_marker(other):
        pytest.skip(f"about {other}; this database is {connection.vendor}")
    socket_allow_hosts(LOOPBACK, allow_unix_socket=True)


_MADE_BY_MIGRATE = {"django_content_type", "auth_permission"}


@pytest.fixture(scope="session", autouse=True)
def _flush_past_the_guards() -> Iterator[None]:
    """Let Django empty the tables after a transactional test. The guards refuse that, so they are removed for it."""
    flush = TransactionTestCase._fixture_teardown

    def without_guards(_: TransactionTestCase) -> None:
        tables = set(connection.introspection.django_table_names(only_existing=True)) - _MADE_BY_MIGRATE
        with transaction.atomic():  # one commit for about a hundred statements
            if connection.vendor == "postgresql":
                _empty(sorted(tables))
            else:
                drop_guards()
                connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), sorted(tables)))
            guards.restore_triggers()

    TransactionTestCase._fixture_teardown = without_guards
    yield
    TransactionTestCase._fixture_teardown = flush


def _empty(tables: list[str]) -> None:
    """Empty tables of PostgreSQL. TRUNCATE would make new files for every table and index each time."""
    guarded = sorted({table for _, table in guards.triggers()} & set(tables))
    with transaction.atomic(), connection.cursor() as cursor:
        for table in guarded:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in guarded:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def drop_guards(table: str = "") -> None:
    """Drop the triggers of one table or of all, as an attacker with the database's password can."""
    on = " ON {}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name, guarded in guards.triggers():
            if table in ("", guarded):
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on.format(guarded)}")


@dataclass(frozen=True)
class House:
    """Two tenants with one agent each, and the agents' keys."""

    ada: Agent
    ada_key: str
    bob: Agent
    bob_key: str


def new_house() -> House:
    ada, ada_key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    bob, bob_key = lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
    return House(ada, ada_key, bob, bob_key)


@pytest.fixture(scope="session")
def first_house(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> tuple[House, Rows]:
    """A house, and its rows. Most tests begin with a copy of them: to insert the rows is ten times as fast as to create
    the agents. It is made before any test can change the clock or the settings."""
    with django_db_blocker.unblock(), transaction.atomic():
        before, made = _all_rows(), new_house()
        new = {table: [row for row in rows if row not in before[table]] for table, rows in _all_rows().items()}
        transaction.set_rollback(True)
    return made, {table: rows for table, rows in new.items() if rows}


def _all_rows() -> Rows:
    found = {}
    with connection.cursor() as cursor:
        for table in set(connection.introspection.django_table_names(only_existing=True)) - _MADE_BY_MIGRATE:
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = cursor.fetchall()
    return found


@pytest.fixture
def house(db: None, first_house: tuple[House, Rows]) -> House:
    if Tenant.objects.exists():
        return new_house()
    made, rows_of = first_house
    search_cache.forget()
    cache.clear()  # the rates of these keys, which the tests before have used
    with transaction.atomic(), connection.cursor() as cursor:
        for table, rows in rows_of.items():
            cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
        cursor.execute("".join(connection.ops.sequence_reset_sql(no_style(), apps.get_models())))  # on PostgreSQL
    return deepcopy(made)


@pytest.fixture
def ada(house: House) -> Agent:
    return house.ada


@pytest.fixture
def bob(house: House) -> Agent:
    """An agent of another tenant. Every test with an agent has it."""
    return house.bob


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[None]:
    """Run the test as a user whom file permissions restrict, also where the tests run as root."""
    if os.geteuid():
        yield
        return
    closed = [folder for folder in tmp_path.parents if folder.stat().st_mode & 0o005 != 0o005]
    for folder in closed:
        folder.chmod(0o755)
    for each in (tmp_path, *tmp_path.rglob("*")):
        os.chown(each, 65534, 65534)
    group = os.getegid()
    os.setegid(65534)
    os.seteuid(65534)
    yield
    os.seteuid(0)
    os.setegid(group)
    # The parent folders stay readable: another test process may use one of them as nobody.
