"""Removing bytes from the database's own files, as far as a program can see to it.

SQLite overwrites what goes (`secure_delete`, on every connection), and is told to fold its write-ahead log into the
database afterwards. PostgreSQL keeps old row versions until its vacuum comes by. What copies hold (backups, replicas,
archived logs) is beyond reach.
"""

from __future__ import annotations

from django.db import OperationalError, connection, transaction

_PATIENCE = 2_000  # milliseconds to wait for others who read


def fold_log_afterwards() -> None:
    """To be called in a transaction that removes what must not stay behind in SQLite's log."""
    transaction.on_commit(fold_log)


def fold_log() -> bool:
    """Fold SQLite's write-ahead log in and empty it. False while somebody else reads: it still holds what was removed.

    Never raises: what was asked for is done and committed.
    """
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        try:
            [[patience]] = cursor.execute("PRAGMA busy_timeout").fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
            [[busy, *_]] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {patience}")
        except OperationalError:  # in a transaction of the caller's
            return False
    return not busy
