"""Liveness and readiness, for load balancers and operators. The responses name no tenant and no agent."""

from __future__ import annotations

from functools import cache

from django.db import Error as DatabaseError
from django.db import ProgrammingError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from config.errors import ConfigurationError
from config.keyring import keyring
from config.queue import QueueUnreachable, depth, unattended
from refinement import providers

OK = "ok"


@require_safe
def alive(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": OK})


@require_safe
def ready(_: HttpRequest) -> JsonResponse:
    """Whether the service is ready. The status is 200 if the database answers and has all migrations, the keys are
    valid, and the queue can be reached. Otherwise the status is 503.

    The text of each part is "ok" or a problem. The parts `workers` and `models` do not change the status.
    """
    parts = {"database": _database(), "keys": _keys(), "queue": _queue()}
    is_ready = all(state == OK for state in parts.values())
    if parts["database"] == OK:
        parts |= {"workers": _workers(), "models": _models()}
    return JsonResponse({"status": OK if is_ready else "unready", **parts}, status=200 if is_ready else 503)


def _database() -> str:
    try:
        missing = _migrations() - set(MigrationRecorder(connection).applied_migrations())
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM memory_agent LIMIT 1")  # fails without the tables
    except DatabaseError as error:
        is_table_missing = isinstance(error, ProgrammingError) or "no such table" in str(error)
        return (
            _NOT_MIGRATED if is_table_missing else "cannot be used: check that it runs and that DATABASE_URL is right"
        )
    return _NOT_MIGRATED if missing else OK


_NOT_MIGRATED = "not migrated: run manage.py migrate"


@cache
def _migrations() -> set[tuple[str, str]]:
    """The migrations of this version."""
    return set(MigrationLoader(None).disk_migrations)


def _keys() -> str:
    try:
        keyring()
    except ConfigurationError:
        return "missing or invalid: run manage.py check"
    return OK


def _queue() -> str:
    try:
        depth()
    except DatabaseError:
        return "is in the database, which cannot be used"
    except QueueUnreachable:
        return "cannot be reached: check that Redis runs and that REDIS_URL is right"
    return OK


def problems() -> list[str]:
    """The reasons why due agents wait."""
    return [state for state in (_workers(), _models()) if state != OK]


def _workers() -> str:
    return unattended() or OK


def _models() -> str:
    """A text about the providers that are not called now. It names no model, because a model is a tenant's setting."""
    closed = {
        f"a model of {providers.of(name)}" if "/" in name else name: until for name, until in providers.closed().items()
    }
    return (
        "; ".join(
            f"{name} does not respond and is not called until {until:%Y-%m-%d %H:%M:%S} UTC"
            for name, until in closed.items()
        )
        or OK
    )
