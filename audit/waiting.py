"""Transactions that wait for locks and for the disk only as long as necessary, and reads that make no writer wait."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connection, transaction

T = TypeVar("T")

_TRIES = 5
_CHANGED_MEANWHILE = ("40001", "40P01")  # PostgreSQL's codes; the second is a deadlock


def wait_at_most(seconds: int, *, may_be_lost: bool = False) -> None:
    """Limit the wait for each lock in this transaction. A statement that waits longer raises OperationalError. If the
    transaction `may_be_lost` in a power cut, it does not wait for the disk.

    SQLite has a timeout of its own (settings.py).
    """
    if connection.vendor == "postgresql":
        more = ", set_config('synchronous_commit', 'off', true)" if may_be_lost else ""
        _run(f"SELECT set_config('lock_timeout', %s, true){more}", [f"{seconds}s"])


def is_lock_timeout(error: OperationalError) -> bool:
    """Whether a statement waited longer for a lock than `wait_at_most` allows."""
    return getattr(error.__cause__, "sqlstate", "") == "55P03"


def advisory_lock(number: int) -> None:
    """Take PostgreSQL's advisory lock with this number until the transaction ends. SQLite needs no lock, because it has
    only one writer at a time."""
    if connection.vendor == "postgresql":
        _run("SELECT pg_advisory_xact_lock(%s)", [number])


@contextmanager
def one_snapshot() -> Iterator[None]:
    """A transaction in which all queries see the same state of the database. Inside another transaction, its
    setting counts."""
    with transaction.atomic():
        if connection.vendor == "postgresql" and not connection.savepoint_ids:
            _run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def repeated(work: Callable[[], T]) -> T:
    """Return the result of `work`, which uses `one_snapshot`. On PostgreSQL, `work` fails if another transaction
    changed a row that it locks, after the snapshot. Then it begins again, at most five times in all."""
    for _ in range(_TRIES - 1):
        try:
            return work()
        except OperationalError as error:
            if connection.in_atomic_block or getattr(error.__cause__, "sqlstate", "") not in _CHANGED_MEANWHILE:
                raise
    return work()


def _run(statement: str, values: Sequence[Any] = ()) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


@contextmanager
def with_timeout(seconds: int) -> Iterator[None]:
    """A transaction that raises OperationalError if it waits longer than `seconds` for a lock.

    On SQLite, this is the lock that every writer needs. On PostgreSQL, a power cut may lose the transaction, because it
    does not wait for the disk. Inside another transaction, the setting of the outer transaction counts.
    """
    database: Any = connection
    if database.vendor == "sqlite":
        database.patience = seconds
    try:
        is_outermost = not database.in_atomic_block
        with transaction.atomic():
            wait_at_most(seconds, may_be_lost=is_outermost)
            yield
    finally:
        if database.vendor == "sqlite":
            database.patience = None


@contextmanager
def consistent_reads() -> Iterator[None]:
    """All reads in this block see the database as it was at the start. No writer waits for these reads.

    Inside a transaction, reads see what that transaction sees.
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
            _run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
