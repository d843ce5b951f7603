"""SQL statements that try to change or remove rows of tables whose rows stay forever."""

from collections.abc import Iterator, Sequence

from django.db import connection

KEPT = ("audit_auditentry", "audit_change", "memory_memory")
NEVER_CHANGED = KEPT[:2]  # an edit changes a memory's row
_UNIQUE = {
    "audit_auditentry": ("agent_id", "seq"),
    "audit_change": ("agent_id", "seq", "number"),
    "memory_memory": ("agent_id", "number"),
}


def attacks(table: str) -> Iterator[str]:
    """Statements that the table must refuse. The table must have two rows or more."""
    with connection.cursor() as cursor:
        columns = [column.name for column in connection.introspection.get_table_description(cursor, table)]
    yield f"DELETE FROM {table}"
    yield f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})"
    yield f"WITH these AS (SELECT id FROM {table}) DELETE FROM {table} WHERE id IN (SELECT id FROM these)"
    yield from {"sqlite": _sqlite, "postgresql": _postgresql}[connection.vendor](table, columns)
    if table in NEVER_CHANGED:
        yield from (f"UPDATE {table} SET {column} = {column}" for column in columns)
        yield f"UPDATE {table} SET id = id + 1000 WHERE id = (SELECT max(id) FROM {table})"


def _sqlite(table: str, columns: Sequence[str]) -> Iterator[str]:
    rest = ", ".join(column for column in columns if column != "id")
    first, last = (f"(SELECT {which}(id) FROM {table})" for which in ("min", "max"))
    for verb in ("REPLACE", "INSERT OR REPLACE"):
        yield f"{verb} INTO {table} SELECT * FROM {table} LIMIT 1"
        yield f"{verb} INTO {table} (id, {rest}) SELECT id + 1000, {rest} FROM {table}"
        yield f"{verb} INTO {table} (rowid, {rest}) SELECT rowid, {rest} FROM {table}"
        yield f"{verb} INTO {table} (id, {rest}) SELECT CAST(id AS TEXT), {rest} FROM {table}"
    yield f"INSERT INTO {table} SELECT * FROM {table} WHERE true ON CONFLICT DO UPDATE SET id = 1000"
    for name in ("id", "rowid", "_rowid_", "oid", "ROWID", '"id"', "[oid]"):
        yield f"UPDATE OR REPLACE {table} SET {name} = {first} WHERE id = {last}"
    same = ", ".join(f"{column} = (SELECT {column} FROM {table} WHERE id = {first})" for column in _UNIQUE[table])
    for way in ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"):
        yield f"UPDATE OR {way} {table} SET {same} WHERE id = {last}"
    if table in NEVER_CHANGED:
        yield f"UPDATE {table} SET agent_id = 7 FROM {table} AS other WHERE other.id = {table}.id"


def _postgresql(table: str, columns: Sequence[str]) -> Iterator[str]:
    every, unique = ", ".join(columns), ", ".join(_UNIQUE[table])
    yield f"TRUNCATE {table}"
    yield f"TRUNCATE ONLY {table} RESTART IDENTITY CASCADE"
    yield f"DELETE FROM ONLY {table} USING {table} AS other WHERE other.id = {table}.id"
    yield f"WITH gone AS (DELETE FROM {table} RETURNING id) SELECT count(*) FROM gone"
    yield f"MERGE INTO {table} AS a USING {table} AS b ON a.id = b.id WHEN MATCHED THEN DELETE"
    if table in NEVER_CHANGED:
        insert, update = f"INSERT INTO {table} ({every}) SELECT", "DO UPDATE SET agent_id = 7"
        yield f"MERGE INTO {table} AS a USING {table} AS b ON a.id = b.id WHEN MATCHED THEN UPDATE SET agent_id = 7"
        yield f"{insert} {every} FROM {table} ON CONFLICT (id) {update}"
        yield f"{insert} {every.replace('id', 'id + 1000', 1)} FROM {table} ON CONFLICT ({unique}) {update}"
        yield f"WITH new AS (UPDATE {table} SET agent_id = 7 RETURNING id) SELECT count(*) FROM new"
        yield f"UPDATE ONLY {table} SET agent_id = agent_id"
