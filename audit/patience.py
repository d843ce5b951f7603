"""Waiting for locks, but not for as long as somebody else's import takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction


def wait_at_most(seconds: int) -> None:
    """Of every lock in this transaction: beyond it a statement fails with OperationalError. SQLite has a timeout of its
    own (settings.py)."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds}s"])


def alone(what: int) -> None:
    """Until this transaction ends nobody else of the service is at it: `what` is a number of PostgreSQL's advisory
    locks. SQLite's transactions are alone anyway."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [what])


@contextmanager
def not_awaited() -> Iterator[None]:
    """A transaction that does not wait for the disk: for what is made anew, should a power cut take it back. It is in
    order all the same: what is committed later is there only with it. Part of another's, it waits as that does."""
    is_sqlite = connection.vendor == "sqlite"
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    try:
        if is_sqlite:
            _run("PRAGMA synchronous = NORMAL")
        with transaction.atomic():
            if not is_sqlite:
                _run("SET LOCAL synchronous_commit = off")
            yield
    finally:
        if is_sqlite:
            _run("PRAGMA synchronous = FULL")  # as settings.py has it


def _run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def hurried(seconds: int) -> Iterator[None]:
    """A transaction that gives up with OperationalError where it would wait longer: for a lock or, on SQLite, for its
    turn to write. For what may be lost: PostgreSQL does not wait for the disk, unless it is part of another's."""
    turns: Any = connection
    if turns.vendor == "sqlite":
        turns.patience = seconds
    try:
        is_alone = not turns.in_atomic_block
        with transaction.atomic():
            if turns.vendor == "postgresql":
                _hurry(seconds, may_be_lost=is_alone)
            yield
    finally:
        if turns.vendor == "sqlite":
            turns.patience = None


def _hurry(seconds: int, *, may_be_lost: bool) -> None:
    more = ", set_config('synchronous_commit', 'off', true)" if may_be_lost else ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT set_config('lock_timeout', %s, true){more}", [f"{seconds}s"])
