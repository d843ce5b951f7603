"""Prepares each new connection to PostgreSQL for migrations that run while the connection is open."""

from collections.abc import Callable
from typing import Any

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver


@receiver(connection_created, dispatch_uid="audit.connection_setup.postgresql")
def _add_wrapper(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "postgresql" and _replan not in connection.execute_wrappers:
        connection.execute_wrappers.append(_replan)


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
