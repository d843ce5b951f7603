"""Database triggers that protect the trail and the memories.

They refuse SQL that changes or deletes a row of the trail, leaves a gap in the trail, or deletes a memory. One change
of the trail is allowed: a redaction removes the content that it covers (`audit.redactions`).

Triggers also apply to SQL typed by hand and to `queryset.delete()`. The migration that creates a table also creates its
triggers (`install`). On SQLite, a change of a column rebuilds the table and drops its triggers. So every `migrate`
restores the triggers. A system check and `verify_audit` report triggers that are missing or altered.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from audit import redactions
from audit.waiting import advisory_lock


@dataclass(frozen=True, slots=True)
class Guard:
    """The triggers of one table.

    `refuses`: SQL events. `identity`: the columns that identify a row. If they are given, a trigger also refuses
    SQLite's REPLACE. `counts`: whether the column `seq` must count from 1 without a gap. `allowed_update`: an SQL
    condition for a permitted UPDATE.
    """

    table: str
    refuses: tuple[str, ...]
    identity: tuple[str, ...] = ()
    allowed_update: Callable[[], str] | None = None
    counts: bool = False


_guards: list[Guard] = [
    Guard("audit_auditentry", ("UPDATE", "DELETE"), ("agent_id", "seq"), redactions.is_redacted_note, counts=True),
    Guard("audit_change", ("UPDATE", "DELETE"), ("agent_id", "seq", "number"), redactions.is_redacted_change),
]


def register(guard: Guard) -> None:
    """Guard a table. The table's app calls this when the app starts."""
    if guard not in _guards:
        _guards.append(guard)


def install(*_: Any) -> None:
    """Create the triggers. The migration that creates the tables calls this. On SQLite, this function then removes the
    conditions of the triggers, so that later migrations in the same run can alter the tables (`refuse_updates`)."""
    restore_triggers()
    refuse_updates()


def restore_triggers(**_: Any) -> None:
    """Create all triggers again if one is missing. This runs after every `migrate`. On PostgreSQL, a lock lets only one
    process do this at a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        advisory_lock(_PG_LOCK)
        if not missing():
            return
        if connection.vendor == "postgresql":
            cursor.execute(f"SELECT {_PG_PATH}")
            [path] = cursor.fetchone()
            for name, body in _pg_functions().items():
                made = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {path}"
                cursor.execute(f"{made} AS $${body}$$")
        for guard in reversed(_existing()):  # memories first, as in an edit, to avoid a deadlock
            for name, statement in _triggers(guard):
                cursor.execute(_drop(name, guard.table))
                cursor.execute(statement)


def refuse_updates(plan: Sequence[Any] | None = None, **_: Any) -> None:
    """Before a `migrate` on SQLite, make the triggers refuse every UPDATE: remove the conditions for exceptions.

    SQLite does not alter a table or column that such a condition names. After the `migrate`, `restore_triggers`
    restores the conditions.
    """
    if connection.vendor == "sqlite" and plan != []:
        with transaction.atomic(), connection.cursor() as cursor:
            for guard in _existing():
                if guard.allowed_update is not None:
                    name = f"{guard.table}_no_update"
                    cursor.execute(_drop(name, guard.table))
                    cursor.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON {guard.table} BEGIN {_SQLITE_REFUSAL} END")


def missing() -> list[str]:
    """Names of triggers that are missing, disabled or altered."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_PG_PRESENT, [_pg_bodies()])
        else:
            cursor.execute("SELECT sql FROM sqlite_master")
        present = {row[0] for row in cursor.fetchall()}
    return [name for guard in _existing() for name, statement in _triggers(guard) if statement not in present]


def unexpected() -> list[str]:
    """What the service did not create, or would not disable, on any of its tables: triggers, rules, policies, row
    security, and a view in place of a table. On SQLite, also views and triggers elsewhere."""
    tables = set(connection.introspection.django_table_names())
    known = [statement for guard in _guards for _, statement in _triggers(guard)]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_PG_ATTACHED, [_pg_bodies(), known])
        else:
            cursor.execute(_SQLITE_ATTACHED, [json.dumps(known)])
        attached = [row for row in cursor.fetchall() if row[1].lower() in tables or row[0].startswith(_UNKNOWN)]
        found = {f"{what} on {table}" for what, table in attached if what.removeprefix(_LINK) not in tables}
        if connection.vendor == "postgresql":
            cursor.execute("SHOW search_path")
            if "pg_catalog" in cursor.fetchone()[0]:  # PostgreSQL's own functions may be replaced
                found.add("a search_path with pg_catalog on the database or the role")
            cursor.execute(_PG_MADE)
            found |= {f"{_UNKNOWN}{what} {name}" for what, name in cursor.fetchall()}
    return sorted(found)


def changed() -> list[str]:
    """What is missing or unexpected."""
    return [*missing(), *unexpected()]


def _existing() -> list[Guard]:
    """The guards whose tables exist. Django's introspection leaves out partitions, and what SQL hid in the schema."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES[connection.vendor])
        tables = {name for (name,) in cursor.fetchall()}
    return [guard for guard in _guards if guard.table in tables]


def triggers() -> list[tuple[str, str]]:
    """The pairs (trigger, table) of all guards."""
    return [(name, guard.table) for guard in _guards for name, _ in _triggers(guard)]


_TABLES = {
    "postgresql": "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)",
    "sqlite": "SELECT name FROM sqlite_master WHERE type <> 'view'",
}
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
    """The functions that the triggers call: name → body."""
    functions = {"palimpsest_refuse": f"BEGIN {_PG_REFUSAL} END ", "palimpsest_no_gap": _PG_NO_GAP}
    for guard in _guards:
        if guard.allowed_update is not None:
            allowed = f"IF {guard.allowed_update()} THEN RETURN NEW; END IF;"
            functions[_pg_function(guard, "UPDATE")] = f"BEGIN {allowed} {_PG_REFUSAL} END "
    return functions


def _pg_bodies() -> list[str]:
    return [name + body for name, body in _pg_functions().items()]


def _pg_function(guard: Guard, event: str) -> str:
    """The function that refuses this event."""
    is_conditional = event == "UPDATE" and guard.allowed_update is not None
    return f"palimpsest_{guard.table}_only_redacts" if is_conditional else "palimpsest_refuse"


# The functions' search path. Without it, a caller's temporary table of the same name is read instead of the real one.
_PG_PATH = "quote_ident(current_schema()) || ', pg_temp'"

# Only enabled triggers that call an unaltered function.
_PG_PRESENT = f"""
    SELECT pg_get_triggerdef(t.oid, true), t.oid
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
    WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND l.lanname = 'plpgsql'
    AND p.proname || p.prosrc = ANY(%s) AND p.proconfig = ARRAY['search_path=' || {_PG_PATH}]
"""


_LINK, _UNKNOWN = "a foreign key of ", "unknown "
# Triggers, rules and so on, with their tables. A function in a check, default or index can do anything. An operator, a
# domain or a cast can call it, so the objects that such an expression depends on count too.
_PG_ATTACHED = rf"""
    SELECT each.what, c.relname FROM pg_class c JOIN (
        SELECT tgrelid AS oid, 'trigger ' || tgname AS what FROM pg_trigger
            WHERE (NOT tgisinternal OR tgparentid <> 0)
            AND oid NOT IN (SELECT known.oid FROM ({_PG_PRESENT}) AS known (made, oid) WHERE made = ANY(%s))
        UNION SELECT tgrelid, 'disabled trigger ' || tgname FROM pg_trigger WHERE tgenabled NOT IN ('O', 'A')
        UNION SELECT ev_class, 'rule ' || rulename FROM pg_rewrite WHERE rulename <> '_RETURN'
        UNION SELECT polrelid, 'policy ' || polname FROM pg_policy
        UNION SELECT oid, 'row security' FROM pg_class WHERE relrowsecurity OR relforcerowsecurity
        UNION SELECT oid, 'a view' FROM pg_class WHERE relkind NOT IN ('r', 'p')
        UNION SELECT inhparent, 'a child table' FROM pg_inherits
        UNION SELECT inhrelid, 'a parent table' FROM pg_inherits
        UNION SELECT stxrelid, 'statistics ' || stxname FROM pg_statistic_ext WHERE stxexprs IS NOT NULL
        UNION SELECT attrelid, 'an unknown type or collation' FROM pg_attribute
            WHERE atttypid >= 16384 OR attcollation >= 16384
        UNION SELECT confrelid, '{_LINK}' || conrelid::regclass FROM pg_constraint WHERE contype = 'f'
        UNION SELECT conrelid, 'an action of a foreign key' FROM pg_constraint
            WHERE contype = 'f' AND (confdeltype <> 'a' OR confupdtype <> 'a')
        UNION SELECT of, 'a function in ' || code FROM (
            SELECT conrelid AS of, pg_get_constraintdef(oid) AS code FROM pg_constraint WHERE contype = 'c'
            UNION SELECT adrelid, pg_get_expr(adbin, adrelid) FROM pg_attrdef
            UNION SELECT indrelid, pg_get_indexdef(indexrelid) FROM pg_index
        ) AS expression WHERE regexp_replace(code, '(?<![\w."])lower\(', '', 'g') ~ '[\w"]\('
        UNION SELECT of, 'hidden code in ' || name FROM (
            SELECT 'pg_constraint'::regclass AS class, oid, conrelid AS of, conname::text AS name
                FROM pg_constraint WHERE contype = 'c'
            UNION SELECT 'pg_attrdef'::regclass, oid, adrelid, 'a default' FROM pg_attrdef
            UNION SELECT 'pg_class'::regclass, indexrelid, indrelid, indexrelid::regclass::text FROM pg_index
        ) AS with_code JOIN pg_depend ON classid = class AND objid = with_code.oid
            WHERE refobjid >= 16384 AND refclassid IN (
                'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_opclass'::regclass
            )
        UNION SELECT oid, 'triggers are off: session_replication_role' FROM pg_class
            WHERE relname = 'audit_auditentry' AND current_setting('session_replication_role') <> 'origin'
    ) AS each ON each.oid = c.oid WHERE pg_table_is_visible(c.oid)
"""
# Operators and functions with the names of PostgreSQL's own. If an operator is for exactly the types of its arguments,
# PostgreSQL prefers it to its own. So this query names the schema of all that it uses.
_PG_MADE = " UNION ALL ".join(
    f"""
    SELECT '{what}', {name} FROM pg_catalog.pg_{table} WHERE oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid
    AND pg_catalog.pg_{what}_is_visible(oid) AND {name} OPERATOR(pg_catalog.=) ANY (
        SELECT {name} FROM pg_catalog.pg_{table} WHERE oid OPERATOR(pg_catalog.<) '16384'::pg_catalog.oid
    )"""
    for what, table, name in (("operator", "operator", "oprname"), ("function", "proc", "proname"))
)
# SQLite executes `sql`. The other columns can be wrong, so a row counts as a table only if they agree with `sql`.
_SQLITE_ATTACHED = f"""
    SELECT '{_LINK}' || m.name, f."table" FROM sqlite_master m, pragma_foreign_key_list(m.name) f UNION
    SELECT 'an action of a foreign key', m.name FROM sqlite_master m, pragma_foreign_key_list(m.name)
    WHERE on_update <> 'NO ACTION' OR on_delete <> 'NO ACTION' UNION
    SELECT 'a collation', tbl_name FROM sqlite_master WHERE sql LIKE '%%collate%%' UNION
    SELECT 'a conflict clause', tbl_name FROM sqlite_master WHERE sql LIKE '%%conflict%%' UNION
    SELECT '{_UNKNOWN}' || type || ' ' || name, tbl_name FROM sqlite_master WHERE sql NOT LIKE 'CREATE INDEX %%'
    AND sql NOT IN (SELECT value FROM json_each(%s))
    AND sql NOT LIKE 'CREATE UNIQUE INDEX %%' AND NOT (type = 'table' AND name = tbl_name AND (
        instr(replace(sql, '"', ''), 'CREATE TABLE ' || name || '(') = 1
        OR instr(replace(sql, '"', ''), 'CREATE TABLE ' || name || ' (') = 1
    ))
"""


def _triggers(guard: Guard) -> Iterator[tuple[str, str]]:
    """The names of the guard's triggers, and the statements that create them."""
    for what, event, action in (_pg_actions if connection.vendor == "postgresql" else _sqlite_actions)(guard):
        name = f"{guard.table}_no_{what}"
        yield name, f"CREATE TRIGGER {name} BEFORE {event} ON {guard.table} {action}"


def _pg_actions(guard: Guard) -> Iterator[tuple[str, str, str]]:
    for event in (*guard.refuses, "TRUNCATE"):
        each = "STATEMENT" if event == "TRUNCATE" else "ROW"
        yield event.lower(), event, f"FOR EACH {each} EXECUTE FUNCTION {_pg_function(guard, event)}()"
    if guard.counts:
        yield "gap", "INSERT", "FOR EACH ROW EXECUTE FUNCTION palimpsest_no_gap()"


def _sqlite_actions(guard: Guard) -> Iterator[tuple[str, str, str]]:
    refuse = f"BEGIN {_SQLITE_REFUSAL} END"
    for event in guard.refuses:
        allowed = guard.allowed_update if event == "UPDATE" else None
        yield event.lower(), event, f"WHEN NOT ({allowed()}) {refuse}" if allowed is not None else refuse
    # REPLACE deletes a conflicting row, and without `recursive_triggers` no trigger runs for that. So an INSERT or
    # UPDATE that conflicts with an existing row is refused.
    if "UPDATE" not in guard.refuses:
        yield "move", f"UPDATE OF {', '.join(('id', *_SQLITE_ALIASES, *guard.identity))}", refuse
    same = " AND ".join(f"{column} = NEW.{column}" for column in guard.identity)
    yield "replace", "INSERT", f"WHEN EXISTS (SELECT 1 FROM {guard.table} WHERE id = NEW.id OR ({same})) {refuse}"
    if guard.counts:
        before = f"SELECT 1 FROM {guard.table} WHERE agent_id = NEW.agent_id AND seq = NEW.seq - 1"
        refuse = "BEGIN SELECT RAISE(ABORT, 'refused: the entry before it is missing'); END"
        yield "gap", "INSERT", f"WHEN NEW.seq <> 1 AND NOT EXISTS ({before}) {refuse}"


_SQLITE_REFUSAL = "SELECT RAISE(ABORT, 'refused: it is kept for ever');"
_SQLITE_ALIASES = ("rowid", "_rowid_", "oid")  # other names of the column `id`


def _drop(name: str, table: str) -> str:
    on = f" ON {table}" if connection.vendor == "postgresql" else ""
    return f"DROP TRIGGER IF EXISTS {name}{on}"
