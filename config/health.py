"""Liveness and readiness, for load balancers and for people. They name no tenant and no agent."""

from __future__ import annotations

from collections.abc import Callable

from django.db import Error as DatabaseTrouble
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from config.errors import DomainError
from config.keyring import keyring
from config.queue import depth


@require_safe
def alive(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@require_safe
def ready(_: HttpRequest) -> JsonResponse:
    """200 when the database answers for our tables, the keys are there and the queue can be reached; else 503 and which
    part is wrong."""
    parts = {"database": _state(_database), "keys": _state(keyring), "queue": _state(depth)}
    ok = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ok" if ok else "unready", **parts}, status=200 if ok else 503)


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM memory_agent LIMIT 1")  # a database without our tables is not ready


def _state(part: Callable[[], object]) -> str:
    try:
        part()
    except (DatabaseTrouble, DomainError):
        return "failed"
    return "ok"
