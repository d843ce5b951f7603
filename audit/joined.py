"""A row and the rows its foreign keys lead to, by one statement that is put together once.

For what every request asks first: composing such a query over sixty columns took Django several times as long as the
database took to answer it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, models

from audit.bulk import Selection, selection

M = TypeVar("M", bound=models.Model)


def one(model: type[M], path: tuple[str, ...], column: str, value: Any) -> M | None:
    """The row whose `column`, which is unique, has this value. `path` names foreign keys, each of the row before it."""
    chain = _chain(model, path)
    with connection.cursor() as cursor:
        cursor.execute(f"{chain.sql} WHERE {_quoted(chain.tables[0], column)} = %s", [value])
        found = cursor.fetchone()
    if found is None:
        return None
    rows = _rows(chain, found)
    for name, (row, related) in zip(path, pairwise(rows), strict=True):
        setattr(row, name, related)
    return cast(M, rows[0])


@dataclass(frozen=True, slots=True)
class _Chain:
    sql: str
    tables: tuple[str, ...]
    models: tuple[type[Any], ...]
    selections: tuple[Selection, ...]


def _rows(chain: _Chain, values: tuple[Any, ...]) -> list[Any]:
    rows, start = [], 0
    for model, chosen in zip(chain.models, chain.selections, strict=True):
        end = start + len(chosen.columns)
        rows.append(model.from_db(DEFAULT_DB_ALIAS, chosen.names, chosen.convert(values[start:end])))
        start = end
    return rows


@lru_cache(maxsize=16)
def _chain(model: type[models.Model], path: tuple[str, ...]) -> _Chain:
    kinds: list[Any] = [model]
    joins = ""
    for name in path:
        field = kinds[-1]._meta.get_field(name)
        here, there = kinds[-1]._meta.db_table, field.related_model._meta.db_table
        kinds.append(field.related_model)
        joins += f" JOIN {_name(there)} ON {_quoted(there, 'id')} = {_quoted(here, field.column)}"
    tables = tuple(kind._meta.db_table for kind in kinds)
    chosen = tuple(selection(kind) for kind in kinds)
    columns = ", ".join(_quoted(table, each) for table, its in zip(tables, chosen, strict=True) for each in its.columns)
    return _Chain(f"SELECT {columns} FROM {_name(tables[0])}{joins}", tables, tuple(kinds), chosen)


def _quoted(table: str, column: str) -> str:
    return f"{_name(table)}.{_name(column)}"


def _name(name: str) -> str:
    return connection.ops.quote_name(name)
