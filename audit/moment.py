"""Reading many rows as they stood at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction


@contextmanager
def at_one_moment() -> Iterator[None]:
    """What is read in this block is as it stood when it began, whatever others write meanwhile, whom it keeps waiting
    in nothing. Inside a transaction that is under way, as it stands there."""
    database: Any = connection
    if database.in_atomic_block:
        yield
    elif database.vendor == "sqlite":
        database.ensure_connection()  # which sets the mode
        mode, database.transaction_mode = database.transaction_mode, "DEFERRED"  # takes no lock
        try:
            with transaction.atomic():
                yield
        finally:
            database.transaction_mode = mode
    else:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
