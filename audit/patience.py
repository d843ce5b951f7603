"""Waiting for locks, but not for as long as somebody else's import takes."""

from __future__ import annotations

from django.db import connection


def wait_at_most(seconds: int) -> None:
    """Of every lock in this transaction: beyond it a statement fails with OperationalError. SQLite has a timeout of its
    own (settings.py)."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds}s"])
