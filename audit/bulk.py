"""Reads and writes many rows faster than Django does. The figures are in docs/internals/benchmarks.md."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import RawSQL
from django.db.models.query import get_related_populators

# Batch size for `bulk_create`: PostgreSQL takes at most 65,535 parameters in one statement.
ROWS_AT_ONCE = 2_000

_MANY = 1_000  # changes

_FOUND_BY = ("id", "agent_id")
_Column: TypeAlias = "models.Field[Any, Any]"
M = TypeVar("M", bound=models.Model)


def insert_many(rows: Sequence[models.Model]) -> None:
    """Insert new rows of one model. The objects do not get their ids.

    Django's `bulk_create` takes three times as long.
    """
    if rows:
        _insertion(type(rows[0])).run(rows)


def update_many(rows: Sequence[models.Model], fields: Collection[str]) -> None:
    """Write these fields of existing rows of one model.

    Django's `bulk_update` takes minutes for 10,000 rows. The statement finds a row by its id. If the model has an
    `agent_id`, the statement also uses the `agent_id`, because rows may be sharded by agent
    (docs/internals/scaling.md). Raises ValueError if a row has no id.
    """
    if not all(row.pk for row in rows):
        raise ValueError("A row without an id cannot be updated. Read the rows first.")
    if rows:
        _change(type(rows[0]), frozenset(fields)).run(rows)


def analyze(changed: int, *tables: type[models.Model]) -> None:
    """After the commit of many changes, update PostgreSQL's statistics of these tables. Without them, queries are
    slow until PostgreSQL's autovacuum runs."""
    if changed >= _MANY and connection.vendor == "postgresql":
        names = ", ".join(table._meta.db_table for table in tables)
        transaction.on_commit(lambda: connection.cursor().execute(f"ANALYZE {names}"), robust=True)


@dataclass(frozen=True)
class _Statement:
    """An SQL statement that reads rows from a source with the name `data`. The columns of the source have the names
    column1, column2 and so on."""

    columns: Sequence[_Column]
    before: str
    after: str = ""

    def run(self, rows: Sequence[models.Model]) -> None:
        """Send one array for each column to PostgreSQL, and one parameter for each value to SQLite."""
        by_column = []
        for column in self.columns:
            values = [getattr(row, column.attname) for row in rows]
            if isinstance(column, models.DateTimeField | models.JSONField):  # other columns need no preparation
                values = [column.get_db_prep_save(value, connection) for value in values]
            by_column.append(values)
        stored, noted = 0, _noted.get()
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(self._with_arrays, by_column)
                if noted is not None:
                    noted.append((cursor, len(rows)))
                return
            at_once = (connection.features.max_query_params or 0) // len(self.columns)
            one_row = f"({', '.join(['%s'] * len(self.columns))})"
            by_row = zip(*by_column, strict=True)
            while params := list(chain.from_iterable(islice(by_row, at_once))):
                source = f"(VALUES {', '.join([one_row] * (len(params) // len(self.columns)))}) AS data"
                cursor.execute(f"{self.before} {source} {self.after}", params)
                stored += cursor.rowcount
        if noted is not None and stored != len(rows):
            raise DatabaseError(_NOT_STORED)

    @cached_property
    def _with_arrays(self) -> str:
        # The types have no length. Otherwise, a cast would shorten values.
        types = [str(column.cast_db_type(connection)).split("(")[0] for column in self.columns]
        names = ", ".join(f"column{place}" for place in range(1, len(types) + 1))
        return f"{self.before} unnest({', '.join(f'%s::{each}[]' for each in types)}) AS data ({names}) {self.after}"


@cache
def _insertion(model: type[models.Model]) -> _Statement:
    columns = [column for column in model._meta.concrete_fields if not column.primary_key]
    return _Statement(columns, f"INSERT INTO {_table(model)} ({', '.join(map(_name, columns))}) SELECT * FROM")


@cache
def _change(model: type[models.Model], fields: frozenset[str]) -> _Statement:
    columns = [column for column in model._meta.concrete_fields if column.attname in {*fields, *_FOUND_BY}]
    table, values = _table(model), {c: f"data.column{place}" for place, c in enumerate(columns, 1)}
    sets = ", ".join(f"{_name(c)} = {value}" for c, value in values.items() if c.attname not in _FOUND_BY)
    found = " AND ".join(f"{table}.{_name(c)} = {value}" for c, value in values.items() if c.attname in _FOUND_BY)
    return _Statement(columns, f"UPDATE {table} SET {sets} FROM", f"WHERE {found}")


@contextmanager
def pipelined() -> Iterator[None]:
    """Send the statements of this block to PostgreSQL as a pipeline, without waiting for each response.

    An error is raised at the end of the block at the latest. Raises DatabaseError if a statement of this module stored
    fewer rows than it was given, for example because SQL changed the ids of rows meanwhile.
    """
    connection.ensure_connection()
    is_postgresql = connection.vendor == "postgresql"
    noted: list[tuple[Any, int]] = []
    token = _noted.set(noted)
    try:
        with connection.wrap_database_errors, connection.connection.pipeline() if is_postgresql else nullcontext():
            yield
        if any(cursor.rowcount != count for cursor, count in noted):
            raise DatabaseError(_NOT_STORED)
    finally:
        _noted.reset(token)


_NOT_STORED = "The database did not store all rows. An operator must run 'verify_audit'."
# In a block of `pipelined`: the statements that run on PostgreSQL, with the numbers of their rows.
_noted: ContextVar[list[tuple[Any, int]] | None] = ContextVar("statements", default=None)


def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _name(column: _Column) -> str:
    return connection.ops.quote_name(str(column.column))


class Prepared(Generic[M]):
    """A query of whole rows, for frequent reads. Django compiles its SQL only once.

    Compiling takes 0.2 ms or more, four times as long as the rest of the query.
    """

    def __init__(self, compose: Callable[[], models.QuerySet[M]]) -> None:
        """`compose` returns the query with example values as parameters. Each call replaces these values."""
        self._compose = compose

    def __call__(self, *params: Any) -> list[M]:
        """Return the rows for these parameters. The values in `params` are in the same order as the placeholders in the
        SQL. This makes objects in the same way as Django's `ModelIterable`."""
        composed = self._composed
        found = []
        with connection.cursor() as cursor:
            cursor.execute(composed.sql, params)
            for row in map(list, cursor.fetchall()):
                for place, converters, expression in composed.converters:
                    for convert in converters:
                        row[place] = convert(row[place], expression, connection)
                made = composed.model.from_db(DEFAULT_DB_ALIAS, composed.names, row[composed.places])
                for each in composed.related:
                    each.populate(row, made)
                found.append(made)
        return found

    @cached_property
    def _composed(self) -> _Composed:
        query = self._compose()
        compiler = query.query.get_compiler(DEFAULT_DB_ALIAS)
        sql, _ = compiler.as_sql()
        converters = compiler.get_converters([column for column, *_ in compiler.select]).items()
        places = slice(compiler.klass_info["select_fields"][0], compiler.klass_info["select_fields"][-1] + 1)
        return _Composed(
            query.model,
            sql,
            places,
            [column.target.attname for column, *_ in compiler.select[places]],
            [(place, convert, expression) for place, (convert, expression) in converters],
            get_related_populators(compiler.klass_info, compiler.select, DEFAULT_DB_ALIAS),  # type: ignore[call-arg]  # of Django 6.1
        )


@dataclass(frozen=True, slots=True)
class _Composed:
    """Compiled SQL, and what is necessary to make objects from its rows."""

    model: type[Any]
    sql: str
    places: slice  # of the model's own columns in a row
    names: list[str]  # of these columns
    converters: list[tuple[int, Any, Any]]
    related: list[Any]


@contextmanager
def streamed(rows: models.QuerySet[Any, Any], at_a_time: int = 500) -> Iterator[Generator[Any, None, None]]:
    """A context manager that gives the rows. It reads them in batches, and closes the cursor at the end of the block.

    Otherwise the garbage collector closes the cursor. On PostgreSQL, this can happen during another statement on the
    same connection. Then the other statement waits forever. If the connection is lost, this raises Django's error.
    """
    with connection.wrap_database_errors, closing(cast(Generator[Any, None, None], rows.iterator(at_a_time))) as found:
        yield found


PART = 60  # rows


def in_parts(rows: models.QuerySet[M], *, after: int, limit: int) -> Iterator[M]:
    """Yield the first `limit` rows with a `number` above `after`, sorted by number. They are read in parts, so that the
    caller can stop before many large rows are in RAM."""
    while limit > 0:
        part = list(rows.filter(number__gt=after).order_by("number")[: min(PART, limit)])
        yield from part
        if len(part) < PART:
            return
        after, limit = cast(Any, part[-1]).number, limit - len(part)


# --- membership in a list of any length

if TYPE_CHECKING:
    _Lookup = models.Lookup[Any]
else:
    _Lookup = models.Lookup


class Among(_Lookup):
    """The lookup `number__among=[…]`. It works like `__in`, but sends a list of any length as one parameter."""

    lookup_name = "among"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        left, params = self.process_lhs(compiler, connection)
        if connection.vendor == "postgresql":
            return f"{left} = ANY(%s)", (*params, parameter(self.rhs))
        wanted = "from_base64(value)" if isinstance(self.lhs.output_field, models.BinaryField) else "value"
        return f"{left} IN (SELECT {wanted} FROM json_each(%s))", (*params, parameter(self.rhs))


def rows_among(columns: Mapping[str, str], rows: Collection[Sequence[Any]]) -> RawSQL:
    """A condition like `(a, b) IN (…)`, with any number of rows. `columns` has the type in PostgreSQL of each column:
    bytea or text."""
    if connection.vendor == "postgresql":
        found = f"* FROM unnest({', '.join(f'%s::{kind}[]' for kind in columns.values())})"
        values: list[Any] = [list(column) for column in zip(*rows, strict=True)]
    else:
        parts = {f"json_extract(value, '$[{place}]')": kind for place, kind in enumerate(columns.values())}
        read = (f"from_base64({part})" if kind == "bytea" else part for part, kind in parts.items())
        found, values = f"{', '.join(read)} FROM json_each(%s)", [parameter(map(parameter, rows))]
    return RawSQL(f"({', '.join(columns)}) IN (SELECT {found})", values, models.BooleanField())  # noqa: S611  no values


def parameter(values: Iterable[Any]) -> list[Any] | str:
    """Return these values as one parameter of the lookup `among`: an array on PostgreSQL, JSON on SQLite."""
    if connection.vendor == "postgresql":
        return list(values)
    return json.dumps([base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in values])


for _field in (models.BigIntegerField, models.PositiveBigIntegerField, models.BigAutoField, models.BinaryField):
    _field.register_lookup(Among)
