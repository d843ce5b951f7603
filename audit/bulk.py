"""Whole sets of rows in one statement, whatever their number, on SQLite and PostgreSQL.

A verb asks the database the same few things for one memory as for ten thousand; Django's `bulk_update` took 61
statements for 10,000 rows. On PostgreSQL several rows travel as one JSON parameter (`jsonb_to_recordset`): one
exchange with the server. SQLite runs in this process and takes thousands of parameters, so there the values go in as
they are: JSON, base64 and back took several times as long, and so did one statement a row, since a statement on a
guarded table begins a journal of its own (docs/benchmarks.md).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, models

from audit.lookups import as_base64

Row = Mapping[str, Any]
Names = tuple[str, ...]
M = TypeVar("M", bound=models.Model)


def insert(model: type[models.Model], rows: Sequence[Row], names: tuple[str, ...] = ()) -> None:
    """Insert `rows` (field attname → value): what is under these names, or, without names, every key of the first."""
    if rows:
        _execute(_insert(model, names or tuple(rows[0]), _vendor(), len(rows) > 1), rows)


def update(model: type[models.Model], rows: Sequence[Row], names: tuple[str, ...] = ()) -> None:
    """Update the rows found by their `id`, one of the names, setting the others."""
    if rows:
        _execute(_update(model, names or tuple(rows[0]), _vendor(), len(rows) > 1), rows)


def change(model: type[models.Model], values: Row, where: str, params: Sequence[Any]) -> None:
    """Give the rows that meet `where` (SQL over the model's own columns) these values."""
    statement = _change(model, tuple(values), where, _vendor())
    with connection.cursor() as cursor:
        cursor.execute(statement.before, [*statement.values(values), *params])


def tally(model: type[models.Model], rows: Sequence[Row], *, key: Names, counted: Names, latest: Names) -> list[Any]:
    """Insert `rows`; where there is one of the same `key`, what is `counted` is added to it, and what is `latest` set.

    In order of the key, so that no two wait for each other. Gives key and counts of each as they are now, as tuples.
    """
    given: list[Any] = []
    if rows:
        ordered = sorted(rows, key=itemgetter(*key))
        statement = _tally(model, tuple(rows[0]), key, counted, latest, _vendor(), len(rows) > 1)
        _execute(statement, ordered, given)
    return given


@contextmanager
def together() -> Iterator[None]:
    """What is written in this block goes to PostgreSQL without waiting for each answer: one exchange for all of it.

    A refusal is raised at the end of the block, if not before. On SQLite, in this process, there is nothing to save.
    """
    if _vendor() == "sqlite":
        yield
        return
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


Wanted = tuple[str, Sequence[int] | Sequence[bytes]]  # a column and the distinct values wanted of it


def select(
    model: type[M],
    where: str,
    params: Sequence[Any],
    *,
    among: Wanted | None = None,
    lock: bool = False,
    without: tuple[str, ...] = (),
) -> list[M]:
    """The rows that meet `where` (SQL over the model's own columns), by a statement prepared once.

    For the reads of the write path: composing a query over forty columns took Django longer than the database
    took to answer it. `lock` holds the rows until the transaction ends (SQLite's transaction does so by itself). The
    fields `without` are left out.
    """
    chosen = selection(model, without)
    rows = _read(model, chosen.columns, where, params, among, lock=lock)
    return [model.from_db(DEFAULT_DB_ALIAS, chosen.names, chosen.convert(row)) for row in rows]


def values(
    model: type[models.Model],
    columns: tuple[str, ...],
    where: str,
    params: Sequence[Any],
    *,
    among: Wanted | None = None,
) -> list[Any]:
    """These columns of the rows that meet `where`, as the database gives them: bytes, numbers and texts."""
    return _read(model, columns, where, params, among)


def _read(
    model: type[models.Model],
    columns: tuple[str, ...],
    where: str,
    params: Sequence[Any],
    among: Wanted | None,
    *,
    lock: bool = False,
) -> list[Any]:
    vendor = _vendor()
    if among is None:
        sql = _query(model, columns, where, vendor, lock=lock)
    else:
        name, wanted = among
        are_bytes = bool(wanted) and isinstance(wanted[0], bytes)
        sql = _query_among(model, columns, where, vendor, name, are_bytes=are_bytes)
        if vendor == "postgresql":
            params = [list(wanted), *params]
        else:
            params = [*params, json.dumps([as_base64(v) if isinstance(v, bytes) else v for v in wanted])]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


@lru_cache(maxsize=64)
def _query(model: type[models.Model], columns: tuple[str, ...], where: str, vendor: str, *, lock: bool = False) -> str:
    listed = ", ".join(map(connection.ops.quote_name, columns))
    for_update = " FOR UPDATE" if lock and vendor == "postgresql" else ""
    return f"SELECT {listed} FROM {_table(model)} WHERE {where}{for_update}"


@lru_cache(maxsize=64)
def _query_among(
    model: type[models.Model], columns: tuple[str, ...], where: str, vendor: str, name: str, *, are_bytes: bool
) -> str:
    sql = _query(model, columns, where, vendor)
    if vendor == "sqlite":
        value = "from_base64(value)" if are_bytes else "value"
        return f'{sql} AND "{name}" IN (SELECT {value} FROM json_each(%s))'
    # Each value is looked up by itself: with "= ANY", a planner that has no statistics yet, as after a first
    # import, goes through all of an agent's memories.
    kind = model._meta.get_field(name).db_type(connection)
    each = f'{sql} AND "{name}" = wanted.value OFFSET 0'
    return f"SELECT found.* FROM unnest(%s::{kind}[]) AS wanted(value) CROSS JOIN LATERAL ({each}) AS found"


@cache
def _vendor() -> str:
    """Which of the two databases this process has. (Asking the connection cost more than some of its answers.)"""
    return connection.vendor


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns of a model's rows, and how their values become the fields'."""

    columns: tuple[str, ...]
    names: list[str]
    converters: list[tuple[int, list[Any], Any]]

    def convert(self, row: Sequence[Any]) -> list[Any]:
        """The row's values as the model's fields have them."""
        values = list(row)
        for place, converters, expression in self.converters:
            for converter in converters:
                values[place] = converter(values[place], expression, connection)
        return values


@lru_cache(maxsize=64)
def selection(model: type[models.Model], without: tuple[str, ...] = ()) -> Selection:
    fields = [field for field in model._meta.concrete_fields if field.attname not in without]
    converters = [(place, _converters(field), field.cached_col) for place, field in enumerate(fields)]
    return Selection(
        tuple(str(field.column) for field in fields),
        [field.attname for field in fields],
        [each for each in converters if each[1]],
    )


def _converters(field: models.Field[Any, Any]) -> list[Any]:
    return connection.ops.get_db_converters(field.cached_col) + field.get_db_converters(connection)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it travels: its name, the key of its value in a row, and how its value is made ready."""

    name: str
    attname: str
    field: models.Field[Any, Any]
    ready: Callable[[Any], Any] | None

    @property
    def quoted(self) -> str:
        return connection.ops.quote_name(self.name)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement in two parts, between which stand its rows: `one_row` for each, or once a JSON text of all."""

    columns: tuple[Column, ...]
    before: str
    one_row: str
    after: str = ""
    takes_json: bool = False

    def values(self, row: Row) -> list[Any]:
        return [row[c.attname] if c.ready is None else c.ready(row[c.attname]) for c in self.columns]

    def run(self, rows: Sequence[Row], given: list[Any] | None = None) -> None:
        """`given` takes in what the statement returns."""
        params = [_payload(self.columns, rows)] if self.takes_json else [v for row in rows for v in self.values(row)]
        repeated = self.one_row if self.takes_json else ", ".join([self.one_row] * len(rows))
        with connection.cursor() as cursor:
            cursor.execute(self.before + repeated + self.after, params)
            if given is not None:
                given += cursor.fetchall()


def _execute(statement: _Statement, rows: Sequence[Row], given: list[Any] | None = None) -> None:
    if len(rows) == 1 or statement.takes_json:
        statement.run(rows, given)
        return
    at_once = _sqlite_parameters() // len(statement.columns)
    for start in range(0, len(rows), at_once):
        statement.run(rows[start : start + at_once], given)


def _sqlite_parameters() -> int:
    """How many one statement may have: 250,000 in Debian's and Python's own, 32,766 otherwise."""
    connection.ensure_connection()
    return int(connection.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER))


@lru_cache(maxsize=64)
def _insert(model: type[models.Model], keys: tuple[str, ...], vendor: str, is_many: bool) -> _Statement:
    columns = _columns(model, keys, vendor)
    # Only names of models and columns are put into the text; values travel as parameters.
    into = f"INSERT INTO {_table(model)} ({', '.join(column.quoted for column in columns)}) "
    if vendor == "postgresql" and is_many:
        return _Statement(columns, into, _select(columns), takes_json=True)
    return _Statement(columns, f"{into}VALUES ", _parameters(columns, vendor))


@lru_cache(maxsize=64)
def _change(model: type[models.Model], keys: Names, where: str, vendor: str) -> _Statement:
    columns = _columns(model, keys, vendor)
    sets = ", ".join(f"{column.quoted} = {_parameter(column, vendor)}" for column in columns)
    return _Statement(columns, f"UPDATE {_table(model)} SET {sets} WHERE {where}", "")


@lru_cache(maxsize=64)
def _tally(
    model: type[models.Model], keys: Names, key: Names, counted: Names, latest: Names, vendor: str, is_many: bool
) -> _Statement:
    inserting, table, quoted = _insert(model, keys, vendor, is_many), _table(model), connection.ops.quote_name
    sets = [f"{name} = {table}.{name} + excluded.{name}" for name in map(quoted, counted)]
    sets += [f"{name} = excluded.{name}" for name in map(quoted, latest)]
    found, told = (", ".join(map(quoted, names)) for names in (key, (*key, *counted)))
    after = f" ON CONFLICT ({found}) DO UPDATE SET {', '.join(sets)} RETURNING {told}"
    return replace(inserting, after=after)


@lru_cache(maxsize=64)
def _update(model: type[models.Model], keys: tuple[str, ...], vendor: str, is_many: bool) -> _Statement:
    columns, table = _columns(model, keys, vendor), _table(model)
    others, key = ([c for c in columns if (c.name in _FOUND_BY) is is_key] for is_key in (False, True))
    if not is_many:
        sets = ", ".join(f"{column.quoted} = {_parameter(column, vendor)}" for column in others)
        found = " AND ".join(f"{column.quoted} = %s" for column in key)
        return _Statement((*others, *key), f"UPDATE {table} SET {sets} WHERE {found}", "")
    is_postgresql, listed = vendor == "postgresql", (*key, *others)
    # SQLite calls the columns of VALUES column1, column2 and so on.
    given = {c: f"given.{c.quoted if is_postgresql else f'column{place}'}" for place, c in enumerate(listed, 1)}
    sets = ", ".join(f"{column.quoted} = {given[column]}" for column in others)
    found = " AND ".join(f"{table}.{column.quoted} = {given[column]}" for column in key)
    rows = _select(columns) if is_postgresql else _parameters(listed, vendor)
    before = f"UPDATE {table} SET {sets} FROM ({'' if is_postgresql else 'VALUES '}"
    return _Statement(listed, before, rows, f") AS given WHERE {found}", takes_json=is_postgresql)


# Of what is an agent's, the agent is named, too: where rows lie by agent, one server is asked (docs/scaling.md).
_FOUND_BY = ("id", "agent_id")


def streamed(rows: models.QuerySet[Any, Any], at_a_time: int = 500) -> closing[Generator[Any, None, None]]:
    """The rows, some at a time, from a cursor that is closed when the block ends.

    One left open is closed by the garbage collector, on PostgreSQL possibly in the middle of another statement, and
    then waits for ever for the connection that statement holds.
    """
    return closing(cast(Generator[Any, None, None], rows.iterator(at_a_time)))


def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _columns(model: type[models.Model], keys: tuple[str, ...], vendor: str) -> tuple[Column, ...]:
    return tuple(
        Column(str(field.column), field.attname, field, _ready(field, vendor))
        for field in model._meta.concrete_fields
        if field.attname in keys
    )


def _ready(field: models.Field[Any, Any], vendor: str) -> Callable[[Any], Any] | None:
    """How a value becomes a parameter, where it cannot go as it is: JSON as its text, times as SQLite keeps them."""
    if isinstance(field, models.JSONField):
        return _json_text
    return _sqlite_time if vendor == "sqlite" and isinstance(field, models.DateTimeField) else None


def _json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _sqlite_time(value: datetime | None) -> str | None:
    if value is None:
        return None
    return str((value if value.tzinfo is UTC else value.astimezone(UTC)).replace(tzinfo=None))


def _parameter(column: Column, vendor: str) -> str:
    return "%s::jsonb" if vendor == "postgresql" and isinstance(column.field, models.JSONField) else "%s"


def _parameters(columns: Sequence[Column], vendor: str) -> str:
    return f"({', '.join(_parameter(column, vendor) for column in columns)})"


def _payload(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    return json.dumps([{c.name: _plain(c, row[c.attname]) for c in columns} for row in rows])


def _plain(column: Column, value: Any) -> Any:
    """A value as JSON can carry it: bytes as base64, JSON as its text, times in ISO 8601."""
    if value is None or isinstance(value, bool | int | str):
        return value if column.ready is None else column.ready(value)
    if isinstance(value, bytes | memoryview | bytearray):
        return as_base64(bytes(value))
    if isinstance(value, datetime):
        return value.isoformat()
    return value if column.ready is None else column.ready(value)


def _select(columns: Sequence[Column]) -> str:
    wanted = ", ".join(_pg_expression(column) for column in columns)
    record = ", ".join(f"{column.quoted} {_pg_transport(column.field)}" for column in columns)
    return f"SELECT {wanted} FROM jsonb_to_recordset(%s::jsonb) AS x({record})"


def _pg_transport(field: models.Field[Any, Any]) -> str:
    as_text = isinstance(field, models.BinaryField | models.JSONField)
    return "text" if as_text else str(field.cast_db_type(connection))


def _pg_expression(column: Column) -> str:
    name = f"x.{column.quoted}"
    if isinstance(column.field, models.BinaryField):
        return f"decode({name}, 'base64') AS {column.quoted}"
    if isinstance(column.field, models.JSONField):
        return f"{name}::jsonb AS {column.quoted}"
    return f"{name} AS {column.quoted}"
