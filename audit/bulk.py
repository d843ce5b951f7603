"""Writes and reads of many rows for which Django has no fast way of its own."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from typing import Any, cast

from django.db import connection, models

# The parameters of so many rows stay below what PostgreSQL takes in one statement: 65,535. For `bulk_create`.
ROWS_AT_ONCE = 2_000

_FOUND_BY = ("id", "agent_id")


def update_many(rows: Sequence[models.Model], fields: Collection[str]) -> None:
    """Write these fields of existing rows of one model, of each row its own values.

    PostgreSQL gets one statement with an array for each column, and SQLite one for as many rows as its parameters
    allow. Django's `bulk_update` takes minutes for 10,000 rows. A row is found by its id and, if the model has one,
    its agent: the rows may lie by agent on several servers (docs/scaling.md).
    """
    if not rows:
        return
    columns = [f for f in rows[0]._meta.concrete_fields if f.attname in _FOUND_BY or f.attname in fields]
    if connection.vendor == "postgresql":
        values = [[_prepared(column, row) for row in rows] for column in columns]
        arrays = ", ".join(f"%s::{_type(column)}[]" for column in columns)
        names = ", ".join(f"column{place}" for place in range(1, len(columns) + 1))
        _update(columns, f"unnest({arrays}) AS given ({names})", values)
        return
    one_row = f"({', '.join(['%s'] * len(columns))})"
    at_once = (connection.features.max_query_params or 0) // len(columns)
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        source = f"(VALUES {', '.join([one_row] * len(part))}) AS given"
        _update(columns, source, [_prepared(column, row) for row in part for column in columns])


def _update(columns: Sequence[models.Field[Any, Any]], source: str, params: Sequence[Any]) -> None:
    """Both databases call the columns of a source column1, column2 and so on."""
    quote = connection.ops.quote_name
    table = quote(columns[0].model._meta.db_table)
    given = {column.attname: (quote(str(column.column)), f"given.column{n}") for n, column in enumerate(columns, 1)}
    sets = ", ".join(f"{name} = {value}" for key, (name, value) in given.items() if key not in _FOUND_BY)
    found = " AND ".join(f"{table}.{name} = {value}" for key, (name, value) in given.items() if key in _FOUND_BY)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {sets} FROM {source} WHERE {found}", params)


def _prepared(column: models.Field[Any, Any], row: models.Model) -> Any:
    return column.get_db_prep_save(getattr(row, column.attname), connection)


def _type(column: models.Field[Any, Any]) -> str:
    """The PostgreSQL type without a length, so that a cast never cuts a value short."""
    return str(column.cast_db_type(connection)).split("(")[0]


def streamed(rows: models.QuerySet[Any, Any], at_a_time: int = 500) -> closing[Generator[Any, None, None]]:
    """The rows, some at a time, from a cursor that is closed when the block ends.

    If it stays open, the garbage collector closes it, on PostgreSQL possibly in the middle of another statement. Then
    it waits forever for the connection that statement holds.
    """
    return closing(cast(Generator[Any, None, None], rows.iterator(at_a_time)))
