"""For migrations: what a file of ours made before it was altered, after it had landed, is brought to what it makes now.

A database that began with the later file is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import migrations

Act = Callable[[Any, Any], None]


def column(app: str, name: str, field: str, otherwise: Any) -> migrations.RunPython:
    """Add the column of a field where it is missing, with this value in the rows that are there."""

    def act(apps: Any, editor: Any) -> None:
        model = apps.get_model(app, name)
        missing = model._meta.get_field(field)
        with editor.connection.cursor() as cursor:
            there = editor.connection.introspection.get_table_description(cursor, model._meta.db_table)
        if missing.column not in {each.name for each in there}:
            made = missing.clone()
            made.default = otherwise
            made.set_attributes_from_name(field)
            editor.add_field(model, made)

    return _forwards(act)


def number(app: str, name: str, field: str, otherwise: int) -> migrations.RunPython:
    """Put a number where SQLite has the column's own name, which it takes for a text where there is no such column."""

    def act(apps: Any, editor: Any) -> None:
        model = apps.get_model(app, name)
        if editor.connection.vendor == "sqlite":
            with editor.connection.cursor() as cursor:
                quoted = editor.quote_name(model._meta.get_field(field).column)
                table = editor.quote_name(model._meta.db_table)
                cursor.execute(f"UPDATE {table} SET {quoted} = %s WHERE typeof({quoted}) = 'text'", [otherwise])  # noqa: S608  names of ours

    return _forwards(act)


def index(app: str, name: str, index_name: str, is_right: Callable[[str], bool]) -> migrations.RunPython:
    """Make an index anew whose definition, as the database tells it, is not right."""

    def act(apps: Any, editor: Any) -> None:
        model = apps.get_model(app, name)
        [wanted] = [each for each in model._meta.indexes if each.name == index_name]
        with editor.connection.cursor() as cursor:
            cursor.execute(_DEFINITION[editor.connection.vendor], [index_name])
            found = cursor.fetchone()
        if found is None or not is_right(found[0]):
            if found is not None:
                editor.remove_index(model, wanted)
            editor.add_index(model, wanted)

    return _forwards(act)


def _forwards(act: Act) -> migrations.RunPython:
    return migrations.RunPython(act, migrations.RunPython.noop)


_DEFINITION = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'index' AND name = %s",
    "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = %s AND schemaname = current_schema()",
}
