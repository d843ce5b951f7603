"""Liveness and readiness, for load balancers and for people. They name no tenant and no agent."""

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
    """200 when the database answers and is migrated, the keys are there and the queue can be reached; else 503. Each
    part is "ok" or says what is wrong; of workers and models, too, without which requests are answered all the same."""
    needed = {"database": _database(), "keys": _keys(), "queue": _queue()}
    is_ready = all(state == OK for state in needed.values())
    beside = {"workers": _workers, "models": _models} if needed["database"] == OK else {}
    told = {"status": OK if is_ready else "unready", **needed, **{name: say() for name, say in beside.items()}}
    return JsonResponse(told, status=200 if is_ready else 503)


def _database() -> str:
    try:
        missing = _migrations() - set(MigrationRecorder(connection).applied_migrations())
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM memory_agent LIMIT 1")  # a database without our tables is not ready
    except DatabaseTrouble as trouble:
        is_there = isinstance(trouble, ProgrammingError) or "no such table" in str(trouble)
        return _NOT_MIGRATED if is_there else "cannot be used: is it up, and is DATABASE_URL right?"
    return _NOT_MIGRATED if missing else OK


_NOT_MIGRATED = "not migrated: run manage.py migrate"


@cache
def _migrations() -> set[tuple[str, str]]:
    """All that this version knows of."""
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
    """What keeps due agents waiting, in words."""
    return [told for told in (_workers(), _models()) if told != OK]


def _workers() -> str:
    return unattended() or OK


def _models() -> str:
    """Models by their provider alone: their names are tenants' words."""
    shut = {
        f"a model of {providers.of(name)}" if "/" in name else name: until for name, until in providers.shut().items()
    }
    return "; ".join(f"{name} is left alone until {until:%Y-%m-%d %H:%M:%S} UTC" for name, until in shut.items()) or OK
