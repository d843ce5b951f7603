"""Consistent reads of many rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction


@contextmanager
def consistent_reads() -> Iterator[None]:
    """All reads in this block see the database as it was at the start. No writer waits for these reads.

    If a transaction is already open, the reads see the database as this transaction sees it.
    """
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
