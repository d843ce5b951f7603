"""Removes deleted content from the database's own files, as far as possible.

SQLite overwrites deleted content (`secure_delete`, on every connection). After each removal, this module empties
SQLite's write-ahead log. PostgreSQL keeps old row versions until its next vacuum. Backups, replicas and archived logs
keep their copies.
"""

from django.db import OperationalError, connection, transaction

_WAIT = 2_000  # milliseconds to wait for readers


def empty_log_on_commit() -> None:
    """Empty SQLite's log after this transaction, because the transaction removes content."""
    transaction.on_commit(empty_log)


def empty_log() -> bool:
    """Move SQLite's write-ahead log into the database and empty it.

    Return False if a reader or the caller's transaction prevents this. The log then still contains removed content.
    Raises no error.
    """
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        try:
            [[timeout]] = cursor.execute("PRAGMA busy_timeout").fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {_WAIT}")
            [[busy, *_]] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {timeout}")
        except OperationalError:  # inside a transaction of the caller
            return False
    return not busy
