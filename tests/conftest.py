"""What every test stands on: the test database, two tenants, no network, and no way to the real keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management.color import no_style
from django.db import connection, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from pytest_socket import socket_allow_hosts

from audit import guards
from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from tests import environment

pytest_plugins = ["tests.privacy.plugin", "tests.tampering"]

LOOPBACK = ["127.0.0.1", "::1"]
OPERATOR = Actor.operator("tests")

_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
# Quick tells what failed as it found it: to shorten a walk takes minutes, which "thorough" takes.
hypothesis_settings.register_profile(
    "quick",
    max_examples=25,
    deadline=None,
    derandomize="CI" in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=_SLOW,
)
hypothesis_settings.register_profile("thorough", max_examples=400, deadline=None, suppress_health_check=_SLOW)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure() -> None:
    if str(settings.KEYS_DIR) != str(environment.FOLDER / "keys"):
        raise pytest.UsageError("The tests run with keys of their own: keep '-p tests.environment' in addopts.")
    default = settings.DATABASES["default"]
    if default["ENGINE"].endswith("sqlite3"):  # a file, so that WAL, locks and other processes are real
        default.setdefault("TEST", {})["NAME"] = str(environment.FOLDER / "test.sqlite3")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who is given a service of their own (tests/commands/conftest.py) has a database of their own."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "service" in fixtures and "scaled" not in fixtures:
            item.add_marker(pytest.mark.own_database)
        if item.get_closest_marker("postgresql"):
            item.add_marker(pytest.mark.database)


@pytest.hookimpl(tryfirst=True)  # before fixtures, which may suit one vendor alone
def pytest_runtest_setup(item: pytest.Item) -> None:
    vendor = connection.vendor
    other = {"sqlite": "postgresql", "postgresql": "sqlite"}[vendor]
    if item.get_closest_marker(other):
        pytest.skip(f"about {other}; this database is {vendor}")
    socket_allow_hosts(LOOPBACK, allow_unix_socket=True)


_MADE_BY_MIGRATE = {"django_content_type", "auth_permission"}


@pytest.fixture(scope="session", autouse=True)
def _flush_past_the_guards() -> Iterator[None]:
    """Between transactional tests the tables are emptied, which the guards refuse: the one way around them."""
    flush = TransactionTestCase._fixture_teardown

    def without_guards(_: TransactionTestCase) -> None:
        tables = set(connection.introspection.django_table_names(only_existing=True)) - _MADE_BY_MIGRATE
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
    """On PostgreSQL, where TRUNCATE makes new files of every table and index: tens of thousands in one run."""
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
    """Take the triggers away, of one table or of all, as an attacker who owns the database would."""
    on = " ON {}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name, guarded in guards.triggers():
            if table in ("", guarded):
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on.format(guarded)}")


@dataclass(frozen=True)
class House:
    """Two tenants with an agent each, and the agents' keys."""

    ada: Agent
    ada_key: str
    bob: Agent
    bob_key: str


@pytest.fixture
def house(db: None) -> House:
    ada, ada_key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    bob, bob_key = lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
    return House(ada, ada_key, bob, bob_key)


@pytest.fixture
def ada(house: House) -> Agent:
    return house.ada


@pytest.fixture
def bob(house: House) -> Agent:
    """The outsider: of another tenant, there in every test that has an agent."""
    return house.bob


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[None]:
    """A user for whom permissions hold, also where the tests run as root."""
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
    # Those folders stay open: another test process may be in one of them as nobody just now.
