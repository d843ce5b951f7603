"""How each new connection to PostgreSQL is prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import NotSupportedError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


def prepare_connections() -> None:
    connection_created.connect(_expect_migrations, dispatch_uid="audit.connection_setup.postgresql")


def _expect_migrations(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection.vendor == "postgresql" and _planned_anew not in connection.execute_wrappers:
        connection.execute_wrappers.append(_planned_anew)


def _planned_anew(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """A statement prepared before a migration changed what it gives is prepared anew.

    PostgreSQL refuses it for ever otherwise. In a transaction the refusal stands, and the rollback forgets all of them.
    """
    try:
        return execute(sql, params, many, context)
    except NotSupportedError:
        database = context["connection"]
        if database.in_atomic_block:
            raise
        database.connection.execute("DEALLOCATE ALL")
    return execute(sql, params, many, context)
