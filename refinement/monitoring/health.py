"""Liveness and readiness, for load balancers and operators. The responses name no tenant and no agent."""

from __future__ import annotations

from functools import cache

from django.db import Error as DatabaseTrouble
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
    """200 if the database answers and is migrated, the keys exist and the queue can be reached; else 503.

    Each part is "ok" or says what is wrong. `workers` and `models` do not change the status.
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
    except DatabaseTrouble as trouble:
        is_table_missing = isinstance(trouble, ProgrammingError) or "no such table" in str(trouble)
        return _NOT_MIGRATED if is_table_missing else "cannot be used: is it up, and is DATABASE_URL right?"
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
        return "missing, or none: manage.py check says which"
    return OK


def _queue() -> str:
    try:
        depth()
    except DatabaseTrouble:
        return "lies in the database"
    except QueueUnreachable:
        return "cannot be reached: is Redis up, and is REDIS_URL right?"
    return OK


def troubles() -> list[str]:
    """Why due agents wait, in words."""
    return [state for state in (_workers(), _models()) if state != OK]


def _workers() -> str:
    return unattended() or OK


def _models() -> str:
    """Names only the provider of a model: the name of a model is a tenant's word."""
    shut = {
        f"a model of {providers.of(name)}" if "/" in name else name: until for name, until in providers.shut().items()
    }
    return "; ".join(f"{name} is left alone until {until:%Y-%m-%d %H:%M:%S} UTC" for name, until in shut.items()) or OK
