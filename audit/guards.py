"""What the database itself refuses: changing or removing a row of the trail, leaving one out, removing a memory.

One change of a row is let through: the trail's loss of what a redaction covers (`audit.redactions`).

Triggers, because they hold for SQL typed by hand, for `queryset.delete()` and for a road nobody thought of.
The migration that makes a table makes them (`install`). Changing a column on SQLite rebuilds its table and silently
drops them, so they are put back after every migrate; that they are there, and say what is written here, is a system
check and part of `verify_audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from audit import redactions
from audit.patience import alone


@dataclass(frozen=True, slots=True)
class Guard:
    """What `table` refuses, the columns that identify a row (so that SQLite's REPLACE is refused too), whether the last
    of them counts from 1 without a gap, and the condition, in SQL, on which an UPDATE is let through."""

    table: str
    refuses: tuple[str, ...]
    identity: tuple[str, ...] = ()
    counts: bool = False
    lets_through: Callable[[], str] | None = None


_guards: list[Guard] = [
    Guard(
        "audit_auditentry",
        ("UPDATE", "DELETE"),
        ("agent_id", "seq"),
        counts=True,
        lets_through=redactions.is_redacted_note,
    ),
    Guard(
        "audit_change",
        ("UPDATE", "DELETE"),
        ("agent_id", "seq", "number"),
        lets_through=redactions.is_redacted_change,
    ),
]


def register(guard: Guard) -> None:
    """Add a table to guard; called by the app that owns it when it starts."""
    if guard not in _guards:
        _guards.append(guard)


def install(*_: Any) -> None:
    """Called by a migration that has created the tables. On SQLite, later migrations of the run may alter them."""
    put_back()
    let_nothing_through()


def put_back(**_: Any) -> None:
    """Make the triggers anew, all or none, if any is missing. Runs after every migrate, of which there may be many at
    once: on PostgreSQL one waits for the other."""
    with transaction.atomic(), connection.cursor() as cursor:
        alone(_PG_LOCK)
        if not missing():
            return
        if connection.vendor == "postgresql":
            cursor.execute(f"SELECT {_PG_PATH}")
            [path] = cursor.fetchone()
            for name, body in _pg_functions().items():
                made = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {path}"
                cursor.execute(f"{made} AS $${body}$$")
        for guard in reversed(_there()):  # memories first, as edits lock them: neither waits for the other in a ring
            for name, statement in _triggers(guard):
                cursor.execute(_drop(name, guard.table))
                cursor.execute(statement)


def let_nothing_through(plan: Sequence[Any] | None = None, **_: Any) -> None:
    """Before a migrate that has something to do, on SQLite, which alters no table or column that a trigger of another
    table, or a condition, names: for as long as it takes, no UPDATE is let through. `put_back` puts that back."""
    if connection.vendor == "sqlite" and plan != []:
        with transaction.atomic(), connection.cursor() as cursor:
            for guard in _there():
                if guard.lets_through is not None:
                    name = f"{guard.table}_no_update"
                    cursor.execute(_drop(name, guard.table))
                    cursor.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON {guard.table} BEGIN {_SQLITE_REFUSAL} END")


def missing() -> list[str]:
    """Names of triggers that ought to be there, enabled and as they are made here, and are not."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_PG_PRESENT, [[name + body for name, body in _pg_functions().items()]])
        else:
            cursor.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
        present = {row[0] for row in cursor.fetchall()}
    return [name for guard in _there() for name, statement in _triggers(guard) if statement not in present]


def _there() -> list[Guard]:
    """The guards whose tables exist."""
    tables = set(connection.introspection.table_names())
    return [guard for guard in _guards if guard.table in tables]


def triggers() -> list[tuple[str, str]]:
    """(trigger, table) of every guard."""
    return [(name, guard.table) for guard in _guards for name, _ in _triggers(guard)]


_PG_LOCK = 0x70616C696D  # "palim"

_PG_REFUSAL = """
    RAISE EXCEPTION '% on % is refused: it is kept for ever', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
"""
_PG_NO_GAP = """
BEGIN
    IF NEW.seq <> 1 AND NOT EXISTS (
        SELECT 1 FROM audit_auditentry WHERE agent_id = NEW.agent_id AND seq = NEW.seq - 1
    ) THEN
        RAISE EXCEPTION 'refused: the entry before it is missing' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END """


def _pg_functions() -> dict[str, str]:
    """What the triggers call: name → body."""
    functions = {"palimpsest_refuse": f"BEGIN {_PG_REFUSAL} END ", "palimpsest_no_gap": _PG_NO_GAP}
    for guard in _guards:
        if guard.lets_through is not None:
            passing = f"IF {guard.lets_through()} THEN RETURN NEW; END IF;"
            functions[_pg_function(guard, "UPDATE")] = f"BEGIN {passing} {_PG_REFUSAL} END "
    return functions


def _pg_function(guard: Guard, event: str) -> str:
    """The function that refuses this event."""
    has_its_own = event == "UPDATE" and guard.lets_through is not None
    return f"palimpsest_{guard.table}_only_redacts" if has_its_own else "palimpsest_refuse"


# Where the functions look for tables, whoever calls them: a temporary table of the same name comes before the real one
# otherwise, and an entry made up in it would be believed.
_PG_PATH = "quote_ident(current_schema()) || ', pg_temp'"

# Those triggers alone that fire and call our functions, unaltered.
_PG_PRESENT = f"""
    SELECT pg_get_triggerdef(t.oid, true)
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
    WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND l.lanname = 'plpgsql'
    AND p.proname || p.prosrc = ANY(%s) AND p.proconfig = ARRAY['search_path=' || {_PG_PATH}]
"""


def _triggers(guard: Guard) -> Iterator[tuple[str, str]]:
    if connection.vendor == "postgresql":
        for event in (*guard.refuses, "TRUNCATE"):
            name = f"{guard.table}_no_{event.lower()}"
            each = "STATEMENT" if event == "TRUNCATE" else "ROW"
            yield (
                name,
                (
                    f"CREATE TRIGGER {name} BEFORE {event} ON {guard.table} "
                    f"FOR EACH {each} EXECUTE FUNCTION {_pg_function(guard, event)}()"
                ),
            )
        if guard.counts:
            name = f"{guard.table}_no_gap"
            on = f"BEFORE INSERT ON {guard.table} FOR EACH ROW"
            yield name, f"CREATE TRIGGER {name} {on} EXECUTE FUNCTION palimpsest_no_gap()"
        return
    for event in guard.refuses:
        name = f"{guard.table}_no_{event.lower()}"
        passing = guard.lets_through if event == "UPDATE" else None
        when = f"WHEN NOT ({passing()}) " if passing is not None else ""
        yield name, f"CREATE TRIGGER {name} BEFORE {event} ON {guard.table} {when}BEGIN {_SQLITE_REFUSAL} END"
    # REPLACE deletes the row in its way, and a client that did not set recursive_triggers runs no trigger for that:
    # neither an INSERT nor an UPDATE may come where another row is.
    if "UPDATE" not in guard.refuses:
        name = f"{guard.table}_no_move"
        listed = ", ".join(("id", *_SQLITE_ALIASES, *guard.identity))
        yield (
            name,
            f"CREATE TRIGGER {name} BEFORE UPDATE OF {listed} ON {guard.table} BEGIN {_SQLITE_REFUSAL} END",
        )
    name = f"{guard.table}_no_replace"
    same = " AND ".join(f"{column} = NEW.{column}" for column in guard.identity)
    yield (
        name,
        (
            f"CREATE TRIGGER {name} BEFORE INSERT ON {guard.table} "
            f"WHEN EXISTS (SELECT 1 FROM {guard.table} WHERE id = NEW.id OR ({same})) BEGIN {_SQLITE_REFUSAL} END"
        ),
    )
    if guard.counts:
        name = f"{guard.table}_no_gap"
        before = f"SELECT 1 FROM {guard.table} WHERE agent_id = NEW.agent_id AND seq = NEW.seq - 1"
        yield (
            name,
            f"CREATE TRIGGER {name} BEFORE INSERT ON {guard.table} WHEN NEW.seq <> 1 AND NOT EXISTS ({before}) "
            "BEGIN SELECT RAISE(ABORT, 'refused: the entry before it is missing'); END",
        )


_SQLITE_REFUSAL = "SELECT RAISE(ABORT, 'refused: it is kept for ever');"
_SQLITE_ALIASES = ("rowid", "_rowid_", "oid")  # of the column `id`, which a trigger takes for columns of their own


def _drop(name: str, table: str) -> str:
    on = f" ON {table}" if connection.vendor == "postgresql" else ""
    return f"DROP TRIGGER IF EXISTS {name}{on}"
