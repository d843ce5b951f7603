"""Liveness and readiness, for load balancers and operators. The responses name no tenant and no agent."""

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from config import PROGRAM, __version__, at_once, queue
from config.database import advice
from config.errors import ConfigurationError
from config.keyring import keyring
from config.wording import several
from memory.models import Agent
from refinement import probe, providers

OK = "ok"
MOST_MODELS = 1_000


@require_safe
def alive(_: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": OK})


@at_once.limited  # if Redis hangs, an answer takes seconds
@require_safe
def ready(_: HttpRequest) -> JsonResponse:
    """Whether the service is ready. The status is 200 if the database answers and has all migrations, the keys are
    valid, and the queue can be reached. Otherwise the status is 503.

    The text of each part is "ok" or a problem. The parts `disk`, `workers` and `models` do not change the status.
    """
    parts = {"database": _database(), "keys": _keys(), "queue": _queue()}
    is_ready = all(state == OK for state in parts.values())
    parts["disk"] = _disk()
    if parts["database"] == OK:
        parts |= {"workers": _workers(queue.unattended()), "models": _models()}
    states = {"status": OK if is_ready else "unready", "version": __version__, **parts}
    return JsonResponse(states, status=200 if is_ready else 503)


def _database() -> str:
    try:
        missing = _migrations() - set(MigrationRecorder(connection).applied_migrations())
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM memory_agent LIMIT 1")  # fails without the tables
    except DatabaseError as error:
        return _NOT_MIGRATED if "migrate" in (cause := advice(error)) else f"cannot be used: {cause.rstrip('.')}"
    return _NOT_MIGRATED if missing else OK


_NOT_MIGRATED = f"not migrated: run {PROGRAM} migrate"


@cache
def _migrations() -> set[tuple[str, str]]:
    """The migrations of this version."""
    return set(MigrationLoader(None).disk_migrations)


def _keys() -> str:
    try:
        keyring()
    except ConfigurationError:
        return f"missing or invalid: run {PROGRAM} check"
    return OK


def _disk() -> str:
    """Whether a file can be written in VAR_DIR, where vaults and some letters are, and beside the SQLite database."""
    folders = {"VAR_DIR": settings.VAR_DIR}
    if connection.vendor == "sqlite":
        folders["the folder of the database"] = Path(settings.DATABASES["default"]["NAME"]).parent
    for name, folder in folders.items():
        try:
            with TemporaryFile(dir=folder) as file:
                file.write(bytes(4_096))
                file.flush()
        except OSError as failure:
            return f"cannot be written ({failure.strerror}): check the free space, the owner and the mode of {name}"
    return OK


def _queue() -> str:
    try:
        queue.depth()
    except queue.QueueUnreachable:
        return "cannot be reached: check that Redis runs and that REDIS_URL is right"
    except DatabaseError:
        return "is in the database, which cannot be used"
    return OK


def problems(unattended: str, *, of_operator: bool) -> list[str]:
    """The reasons why due agents wait. `unattended` comes from `queue.unattended`. An operator also learns the
    command that starts a worker."""
    workers = _workers(unattended) if of_operator else unattended or OK
    return [state for state in (workers, _models()) if state != OK]


def _workers(unattended: str) -> str:
    return f"{unattended}: start '{PROGRAM} worker'" if unattended else OK


def _models() -> str:
    """A text about the errors of the configuration, and about the providers that are not called now. It names no model,
    because a model is a tenant's setting. Tenants can name many models: this looks at MOST_MODELS of them."""
    models = set(Agent.objects.filter(memory_enabled=True).values_list("model", flat=True).distinct()[:MOST_MODELS])
    wrong, closed = probe.problems(models), providers.closed()
    of_one = Agent.objects.filter(pk__in=[*map(int, filter(providers.is_number, closed))])
    closed |= {model: closed[str(pk)] for pk, model in of_one.values_list("pk", "model")}
    waits = (
        f"{'a model of ' if '/' in name else ''}{providers.of(name)} does not respond and is not called until "
        f"{until:%Y-%m-%d %H:%M:%S} UTC"
        for name, until in closed.items()
        if name in models - wrong.keys() or name.isalpha()
    )
    counts = Counter(providers.of(name) for name in closed if name.startswith(providers.EMBEDDER))
    embedders = [
        f"{several(count, 'agent')} search by words only: {name.removeprefix(providers.EMBEDDER)} makes no vectors"
        for name, count in counts.items()
    ]
    found = sorted({problem.rstrip(".") for problem in wrong.values()})
    return "; ".join([*found, *dict.fromkeys(waits), *embedders]) or OK
