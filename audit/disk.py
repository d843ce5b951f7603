"""Removes deleted content from the database's own files, as far as possible, and checks these files.

SQLite overwrites deleted content (`secure_delete`, on every connection). After each removal, and once a minute, this
module empties SQLite's write-ahead log. PostgreSQL keeps old row versions until its next vacuum. Backups, replicas and
archived logs keep their copies.
"""

import time

from django.db import OperationalError, connection, transaction

_TRIES, _PAUSE = 20, 0.1  # while readers prevent it, and the seconds between two attempts


def damage() -> str:
    """What SQLite's own check of the database finds first, or "". SQL can make an index that hides rows."""
    if connection.vendor != "sqlite":
        return ""
    with connection.cursor() as cursor:
        [[first]] = cursor.execute("PRAGMA integrity_check(1)").fetchall()
    return "" if first == "ok" else str(first)


def empty_log_on_commit() -> None:
    """Empty SQLite's log after this transaction, because the transaction removes content."""
    transaction.on_commit(empty_log)


def empty_log() -> bool:
    """Move SQLite's write-ahead log into the database and empty it. No writer waits for readers meanwhile.

    Return False if a reader or the caller's transaction prevents this. The log then still contains removed content.
    Raises no error.
    """
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        try:
            for _ in range(_TRIES):
                [[_, frames, moved]] = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # without this lock
                if frames == moved:
                    [[is_busy, *_]] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    if not is_busy:
                        return True
                time.sleep(_PAUSE)
        except OperationalError:  # inside a transaction of the caller
            pass
    return False
