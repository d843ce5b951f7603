"""From every state that ever landed to the newest: what was there is there, with the values it had.

A state is the set of migrations that a landing left, with tables filled as its own models have them; the newest is
whatever the migrations of today lead to. Nothing sealed is opened, so sealed bytes may be any: that trails still verify
is shown with what the product itself wrote (`test_a_real_trail_…`), back to the first state whose trails it verifies.
Before 5812b5c, which brought redaction, an entry was chained without what core memory weighs after it, and a snapshot
had one digest: such databases come through whole, and `verify_audit` finds their entries altered (CHANGELOG.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps as today
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations import AddConstraint, AddField, AlterField, DeleteModel, RemoveField, RenameField, RenameModel
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED
from pytest_django import DjangoDbBlocker

from audit import guards
from config.checks import RefusesToStart, require_sound
from config.keyring import keyring
from memory.agents import lifecycle
from memory.models import Agent
from memory.silo import keys
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from refinement import loop
from tests import steps
from tests.conftest import OPERATOR
from tests.unit.test_guards_migrations import _server

OURS = ("audit", "memory", "refinement")
AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
Row = Mapping[str, Any]

# Four times a file was altered after it had landed, which `audit/mending.py` makes good. What the earlier one made, or
# did not, is put in its place here.
_WHOLE_INDEX = (
    "DROP INDEX audit_entry_session",
    "CREATE INDEX audit_entry_session ON audit_auditentry (agent_id, session)",
)
_NOT_SHOWN_AT = ("ALTER TABLE refinement_refinementsession DROP COLUMN shown_at",)
_WITHOUT_PROOF = ("ALTER TABLE memory_authenticator DROP COLUMN proof",)
_OWN_EDITS_BY_IN = (
    "DROP INDEX audit_entry_own_edits",
    "CREATE INDEX audit_entry_own_edits ON audit_auditentry (agent_id, at) WHERE (actor_kind = 'agent' AND operation "
    "IN ('revised', 'discarded', 'restored', 'consolidated') AND session IS NULL)",
)


@dataclass(frozen=True)
class State:
    """The last migration of each app at a landing, and what its files made that those of today do not."""

    commit: str
    audit: str
    memory: str
    refinement: str
    as_it_was: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.commit

    def leaves(self) -> list[tuple[str, str]]:
        return [(app, getattr(self, app)) for app in OURS]


# Each landing that brings or alters migrations, from `git log --first-parent -- '*/migrations'`; add yours.
LANDED = (
    State("efad8c6", "0001_initial", "0001_initial", "0001_initial", (*_WHOLE_INDEX, *_NOT_SHOWN_AT)),
    State("b7550a4", "0001_initial", "0001_initial", "0001_initial", _NOT_SHOWN_AT),
    State("c250106", "0001_initial", "0001_initial", "0001_initial"),
    State("f0004b6", "0002_rolled_back", "0001_initial", "0001_initial"),
    State("5812b5c", "0006_one_value_each", "0006_authenticator", "0004_reply_calls", _WITHOUT_PROOF),
    State("ea83b81", "0007_proposals", "0006_authenticator", "0004_reply_calls", _WITHOUT_PROOF),
    State("a7ce8c9", "0007_proposals", "0007_invitations", "0004_reply_calls", _WITHOUT_PROOF),
    State("997d74f", "0007_proposals", "0007_invitations", "0004_reply_calls"),
    State("4b2936f", "0008_consent_indexes", "0007_invitations", "0004_reply_calls", _OWN_EDITS_BY_IN),
    State("2694c05", "0009_rollbacks", "0007_invitations", "0006_outcomes", _OWN_EDITS_BY_IN),
    State("9a5ce67", "0009_rollbacks", "0007_invitations", "0006_outcomes"),
    State("6b2696c", "0010_as_declared", "0009_as_declared", "0008_as_declared"),
    State("92da8c0", "0010_as_declared", "0011_rules", "0011_gc_reports"),
    State("d2688b8", "0010_as_declared", "0012_vault", "0011_gc_reports"),
    State("2f42ad0", "0010_as_declared", "0009_as_declared", "0010_steps_of_agents"),
)
_VERIFYING = LANDED[[state.commit for state in LANDED].index("5812b5c") :]
BEFORE_OTHER_APPS = ("efad8c6", "b7550a4", "c250106", "f0004b6")  # of other people's there were these two then
FIRST_APPS = ("contenttypes", "auth")

# (table, column) → why a migration changes it. A column that is not named here has the value it had.
MEANT: dict[tuple[str, str], str] = {}

# The reason that no column shows: `rolled_back` was an outcome of sessions until 2694c05, and nothing ever set it.
NEVER_SET = ("rolled_back",)


def made_at(state: State) -> None:
    """The database as that landing made it, with rows in every table."""
    migrate_to(state)
    fill()
    with connection.cursor() as cursor:
        for statement in state.as_it_was:
            cursor.execute(statement)
    guards.put_back()


def migrate_to(state: State) -> None:
    executor = MigrationExecutor(connection)
    others = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] not in OURS]
    if state.commit in BEFORE_OTHER_APPS:
        others = [leaf for leaf in others if leaf[0] in FIRST_APPS]
    executor.migrate(state.leaves() + others)


def migrate_to_the_newest() -> None:
    call_command("migrate", verbosity=0, interactive=False)


def fill() -> None:
    """Rows in every table, by the models of the migrations that were applied."""
    loader = MigrationExecutor(connection).loader
    apps = loader.project_state(list(loader.applied_migrations)).apps
    for model in _named_first(apps.get_models(include_auto_created=True)):
        for number, given in enumerate(_ROWS.get(model._meta.label, _two)(model), 1):
            fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
            values = {field.name: given.get(field.name, _value(field, number)) for field in fields}
            model._base_manager.create(**values)


def _named_first(unordered: Iterable[Any]) -> list[Any]:
    """Those that have tables, after those that they name."""
    there = set(connection.introspection.table_names())
    found: list[Any] = []

    def add(model: Any) -> None:
        for field in model._meta.concrete_fields:
            if field.is_relation and field.related_model is not model:
                add(field.related_model)
        if model not in found:
            found.append(model)

    for model in unordered:
        if model._meta.db_table in there and not model._meta.proxy:
            add(model)
    return found


def _value(field: Any, number: int) -> Any:
    """Something that is no default, and another for another number."""
    if field.is_relation:
        others = field.related_model._base_manager.order_by("pk")
        return others[(number - 1) % others.count()]
    if field.choices:
        return field.choices[(number - 1) % len(field.choices)][0]
    kind = next(kind for kind in _VALUES if isinstance(field, kind))
    return _VALUES[kind](field, number)


def _text(field: Any, number: int) -> str:
    return f"{number} {field.name} ü"[: field.max_length]


_VALUES: dict[type, Any] = {
    models.DateTimeField: lambda _, number: AT + timedelta(days=number),
    models.DateField: lambda _, __: AT.date(),
    models.DurationField: lambda _, number: timedelta(days=number, microseconds=7),
    models.DecimalField: lambda _, __: Decimal("0.8"),
    models.BooleanField: lambda _, number: number % 2 == 1,
    models.BinaryField: lambda _, number: bytes([number, 0, 255]) * 10,
    models.JSONField: lambda _, number: {"ü": [number, None, "x"]},
    models.EmailField: lambda _, number: f"person{number}@example.org",
    models.GenericIPAddressField: lambda _, number: f"192.0.2.{number}",
    models.UUIDField: lambda _, number: f"{number:032x}",
    models.PositiveSmallIntegerField: lambda _, number: 30_000 + number,
    models.SmallIntegerField: lambda _, number: 30_000 + number,
    models.BigIntegerField: lambda _, number: 2**40 + number,
    models.IntegerField: lambda _, number: 2**30 + number,
    models.CharField: _text,
    models.Field: _text,
}


def _two(_: Any) -> Iterator[Row]:
    yield from ({}, {})


def _tenants(_: Any) -> Iterator[Row]:
    yield from ({"slug": "acme"}, {"slug": "globex"})


def _agents(_: Any) -> Iterator[Row]:
    budget = {"budget_tokens": 9_000, "target_tokens": 4_000}
    for number, slug in enumerate(("ada", "bob"), 1):
        yield {**budget, "slug": slug, "wrapped_key": keys.new_wrapped_key(number)}


def _memories(model: Any) -> Iterator[Row]:
    """One that is constitutional, one discarded, one redacted, and one of each category."""
    kept: dict[str, Any] = {"category": "technical", "source": "agent", "redacted_at": None}
    yield kept | {"number": 1, "constitutional": True, "discarded_at": None}
    yield kept | {"number": 2, "constitutional": False}
    yield kept | {"number": 3, "constitutional": False, "sealed": b"", "digest": b"", "redacted_at": AT}
    constraint = next(c for c in model._meta.constraints if c.name == "memory_known_category")
    [(_, categories)] = constraint.condition.children
    for number, category in enumerate(categories, 4):
        yield kept | {"number": number, "category": category, "constitutional": False, "discarded_at": None}


def _entries(model: Any) -> Iterator[Row]:
    """One of each operation there was."""
    named = {"agent_id": 1, "tenant_id": 1, "agent_label": "acme/ada", "key_id": keyring().audit[0].id}
    for seq, (operation, _) in enumerate(model._meta.get_field("operation").choices, 1):
        yield {**named, "seq": seq, "operation": operation}


def _changes(_: Any) -> Iterator[Row]:
    yield from ({"agent_id": 1, "seq": 1, "number": 1}, {"agent_id": 1, "seq": 1, "number": 2, "before": None})


def _sessions(model: Any) -> Iterator[Row]:
    """One of each outcome there was."""
    outcomes = [outcome for outcome, _ in model._meta.get_field("outcome").choices if outcome not in NEVER_SET]
    for number, outcome in enumerate(outcomes, 1):
        yield {"number": number, "outcome": outcome, "closed_at": None if outcome == "open" else AT}


_ROWS: dict[str, Any] = {
    "memory.Tenant": _tenants,
    "memory.Agent": _agents,
    "memory.Memory": _memories,
    "audit.AuditEntry": _entries,
    "audit.Change": _changes,
    "refinement.RefinementSession": _sessions,
}


# What is there


def tables() -> dict[str, list[Row]]:
    """Every row of every table, as it lies there."""
    names = [name for name in connection.introspection.table_names() if name != "django_migrations"]
    return {name: _rows(name) for name in names}


def _rows(table: str) -> list[Row]:
    with connection.cursor() as cursor:
        columns = [column.name for column in connection.introspection.get_table_description(cursor, table)]
        cursor.execute("SELECT {} FROM {}".format(", ".join(f'"{name}"' for name in columns), f'"{table}"'))
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def lost(before: dict[str, list[Row]], after: dict[str, list[Row]]) -> list[str]:
    """The rows that are not as they were, in the columns that no migration means to change."""
    found = []
    for table, rows in before.items():
        for row in rows:
            kept = {name: value for name, value in row.items() if (table, name) not in MEANT}
            if not any(kept.items() <= other.items() for other in after.get(table, [])):
                found.append(f"{table}: {kept}")
    return found


def no_numbers(there: dict[str, list[Row]]) -> list[str]:
    """The columns of numbers in which something else stands, as SQLite lets it."""
    numbers = [
        (model._meta.db_table, field.column)
        for model in _our_models()
        for field in model._meta.concrete_fields
        if isinstance(field, models.IntegerField)
    ]
    return [f"{table}.{name}" for table, name in numbers for row in there[table] if isinstance(row.get(name), str)]


def unsound() -> str:
    """What the system checks find wrong."""
    try:
        require_sound()
    except RefusesToStart as refusal:
        return str(refusal)
    return ""


def _our_models() -> Iterator[Any]:
    for app in OURS:
        yield from today.get_app_config(app).get_models()


def schema() -> dict[str, Any]:
    """Columns, rules and indexes of our tables."""
    found: dict[str, Any] = {}
    tables = sorted(model._meta.db_table for model in _our_models())
    with connection.cursor() as cursor:
        for table in tables:
            described = connection.introspection.get_table_description(cursor, table)
            found[table] = {column.name: (column.type_code, column.null_ok) for column in described}
            found[f"rules of {table}"] = set(connection.introspection.get_constraints(cursor, table))
        cursor.execute(_INDEXES[connection.vendor])
        found["indexes"] = {name: made for name, table, made in cursor.fetchall() if table in tables}
    return found


_INDEXES = {
    "sqlite": "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    "postgresql": "SELECT indexname, tablename, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
}


@contextmanager
def nothing_there(folder: Path, blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database of its own with nothing in it, in the place of the tests'."""
    theirs = connection.settings_dict["NAME"]
    ours = str(folder / "empty.sqlite3") if connection.vendor == "sqlite" else f"{theirs}_empty"
    with blocker.unblock():
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


@pytest.fixture
def empty(django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path: Path) -> Iterator[None]:
    with nothing_there(tmp_path, django_db_blocker):
        yield


@dataclass(frozen=True)
class Upgraded:
    """What a landed state held, and what today's migrations made of it."""

    before: dict[str, list[Row]]
    after: dict[str, list[Row]]
    schema: dict[str, Any]
    unguarded: list[str]
    unsound: str


@pytest.fixture(scope="session")
def upgraded(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[State], Upgraded]:
    """Each state is made and upgraded once."""

    @cache
    def upgrade(state: State) -> Upgraded:
        with nothing_there(tmp_path_factory.mktemp(state.commit), django_db_blocker):
            made_at(state)
            before = tables()
            migrate_to_the_newest()
            return Upgraded(before, tables(), schema(), guards.missing(), unsound())

    return upgrade


@pytest.fixture(scope="session")
def newest(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The schema that today's migrations make out of nothing."""
    with nothing_there(tmp_path_factory.mktemp("newest"), django_db_blocker):
        migrate_to_the_newest()
        return schema()


Upgrade = Callable[[State], Upgraded]


@pytest.mark.parametrize("state", LANDED, ids=str)
def test_a_landed_state_comes_whole_to_the_schema_of_today(
    upgraded: Upgrade, newest: dict[str, Any], state: State
) -> None:
    """One test for each, for each takes seconds: rows and values, guards, checks, schema."""
    was = upgraded(state)
    assert [table for table, rows in was.before.items() if not rows] == []
    assert lost(was.before, was.after) == []
    assert was.unguarded == []
    assert was.unsound == ""
    assert was.schema == newest
    assert no_numbers(was.after) == []


def make_history() -> Agent:
    """What the product itself writes: edits, a session that merges, a rollback of it and one of that."""
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    same = [f"The team {always}meets at 09:45 on the quay" for always in ("", "always ")]
    steps.remember(agent, *same, *(f"The {thing} is in the attic" for thing in ("boat", "lamp", "map")))
    steps.remember(agent, same[0])
    operations.protect(agent, [3], OPERATOR)
    session = loop.refine(steps.fresh(agent), trigger="manual")
    for _ in range(2):
        rollback.roll_back(steps.fresh(agent), What.entry(steps.last_entry(agent).seq), OPERATOR)
    assert session.merged
    return agent


_UNLIKE = {tuple(state.leaves()): state for state in _VERIFYING}


@pytest.mark.parametrize("state", _UNLIKE.values(), ids=str)
def test_a_real_trail_goes_back_to_a_landed_state_and_verifies_after_it(empty: None, state: State) -> None:
    migrate_to_the_newest()
    agent = make_history()
    then = steps.state(agent)
    for app, name in reversed(state.leaves()):
        call_command("migrate", app, name, verbosity=0, interactive=False)
    migrate_to_the_newest()
    assert steps.problems(agent) == []
    assert steps.state(agent) == then
    assert steps.says(agent, 1).content == "The team meets at 09:45 on the quay"
    require_sound()


# What the code of the release before can go on working with

_PROMISED_SINCE = next(state for state in LANDED if state.commit == "2694c05")

# (app, migration) → why what it does is borne all the same, or that everything stops for it, as the changelog says.
LOOKED_AT: dict[tuple[str, str], str] = {
    ("memory", "0010_log_of_runs"): "a slug's checks are not the table's; the key is of a column that was not there",
    ("memory", "0012_vault"): "its tables are new; the key is of a column that was not there",
    ("memory", "0013_sessions_of_projects"): "it asks less: names that an agent keeps apart, its projects do",
}


def is_borne(operation: Any) -> bool:
    """Whether code that knows nothing of it reads and writes as before."""
    if isinstance(operation, AddField):
        return bool(operation.field.null or operation.field.db_default is not NOT_PROVIDED)
    return not isinstance(operation, RemoveField | RenameField | RenameModel | DeleteModel | AlterField | AddConstraint)


def test_a_migration_leaves_the_code_before_it_working() -> None:
    graph = MigrationLoader(None).graph
    before = {node for leaf in _PROMISED_SINCE.leaves() for node in graph.forwards_plan(leaf)}
    since = [node for node in graph.nodes if node[0] in OURS and node not in before]
    assert since
    unborne = {node for node in since for operation in graph.nodes[node].operations if not is_borne(operation)}
    assert unborne == set(LOOKED_AT)
