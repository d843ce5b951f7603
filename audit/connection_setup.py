"""Prepares each new connection to PostgreSQL: for migrations that run while the connection is open, and for dates that
Python does not have."""

from collections.abc import Callable
from typing import Any

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from config.unreadable import NO_DATE, NO_SPAN


@receiver(connection_created, dispatch_uid="audit.connection_setup.postgresql")
def _prepare(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor != "postgresql":
        return
    if _replan not in connection.execute_wrappers:
        connection.execute_wrappers.append(_replan)
    _read_any_date(connection.connection.adapters)


def _read_any_date(adapters: Any) -> None:
    """Make reads of `infinity` and the like give a value in place of an error (see `config.unreadable`)."""
    from psycopg import DataError  # only if PostgreSQL is used
    from psycopg.types import datetime as types

    def register(name: str, loader: Any, instead: Any) -> None:
        class Tolerant(loader):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except DataError:
                    return instead

        adapters.register_loader(name, Tolerant)

    register("timestamptz", adapters.get_loader(adapters.types["timestamptz"].oid, 0), NO_DATE)  # Django's own
    register("timestamp", types.TimestampLoader, NO_DATE.replace(tzinfo=None))  # the beginning of a week
    register("date", types.DateLoader, NO_DATE.date())
    register("interval", types.IntervalLoader, NO_SPAN)


def _replan(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Execute a statement. If PostgreSQL refuses its old plan, drop all plans and execute the statement again.

    PostgreSQL refuses the plan if a migration changed the type of the statement's result. Inside a transaction, the
    error is raised instead, because the rollback drops the plans.
    """
    try:
        return execute(sql, params, many, context)
    except NotSupportedError:
        database = context["connection"]
        if database.in_atomic_block:
            raise
        database.connection.execute("DEALLOCATE ALL")
    return execute(sql, params, many, context)
