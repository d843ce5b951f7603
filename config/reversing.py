"""Keeps `migrate` from deleting data when it reverses a migration."""

import os
from typing import Any

from django.core.management.base import CommandError
from django.db.migrations import RunPython


def keep_rows(app: str, *models: str) -> RunPython:
    """The last operation of a migration that creates tables. While one of these tables has rows, the migration cannot
    be reversed, unless the environment has DESTROY_DATA=yes. Without `models`, this applies to all tables of the app.
    """

    def refuse(apps: Any, _: Any) -> None:
        for model in apps.get_app_config(app).get_models() if os.environ.get("DESTROY_DATA") != "yes" else ():
            if (not models or model.__name__ in models) and model._default_manager.exists():
                table = model._meta.db_table
                raise CommandError(f"This would delete all rows of {table}. To do that, set DESTROY_DATA=yes.")

    return RunPython(RunPython.noop, refuse)
