"""System checks of the settings and the keys. Each app has its own checks beside these, which ask the database.

The web process and every command run them before they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register, run_checks
from django.db import DatabaseError

from config.keyfiles import exposed
from config.keyring import KeysMissing, keyring

OURS = "palimpsest"  # the tag of what a command asks before it begins: the settings, no pages and no models

# Checks that query the database are registered with `deploy=True`. Django's `migrate` does not run them, so that
# it can put a missing trigger back.


class RefusesToStart(SystemExit):
    """The set-up is not one to serve with; the message says what is wrong."""


@register(OURS)
def keys_are_there(**_: Any) -> list[CheckMessage]:
    try:
        keyring()
    except KeysMissing as missing:
        return [Error(str(missing), id="palimpsest.E001")]
    return []


@register(OURS)
def keys_are_private(**_: Any) -> list[CheckMessage]:
    return [
        Warning(f"{path} is open to others.", hint=f"Run 'chmod go-rwx {path}'.", id="palimpsest.W002")
        for path in exposed(Path(settings.KEYS_DIR))
    ]


@register(OURS)
def leases_outlast_calls(**_: Any) -> list[CheckMessage]:
    """A lease is renewed between calls: one shorter than a call would be lost in the midst of it."""
    wrong = {
        "MODEL_CALL_SECONDS must be above 0.": settings.MODEL_CALL_SECONDS <= 0,
        "LEASE_SECONDS must be above MODEL_CALL_SECONDS.": settings.LEASE_SECONDS <= settings.MODEL_CALL_SECONDS,
        "BATCH_TOKENS must be above 0.": settings.BATCH_TOKENS <= 0,
    }
    return [Error(problem, id="palimpsest.E004") for problem, is_wrong in wrong.items() if is_wrong]


@register(OURS)
def queue_can_work(**_: Any) -> list[CheckMessage]:
    wrong = {
        "QUEUE_WORKERS must be above 0.": settings.QUEUE_WORKERS <= 0,
        "WEB_WORKERS must be above 0.": settings.WEB_WORKERS <= 0,
        "WEB_THREADS must be above 0.": settings.WEB_THREADS <= 0,
        "SWEEP_MINUTES must be from 1 to 10080.": not 1 <= settings.SWEEP_MINUTES <= 10_080,
        "WORKER_NICE must be from 0 to 19.": not 0 <= settings.WORKER_NICE <= 19,
        "SWEEP_AGENTS must be above 0.": settings.SWEEP_AGENTS <= 0,
        "TASK_SECONDS must be above MODEL_CALL_SECONDS.": settings.TASK_SECONDS <= settings.MODEL_CALL_SECONDS,
    }
    return [Error(problem, id="palimpsest.E007") for problem, is_wrong in wrong.items() if is_wrong]


@register(OURS)
def people_can_ask(**_: Any) -> list[CheckMessage]:
    wrong = [name for name in ("ASKS_PER_PERSON", "ASKS_PER_AGENT") if getattr(settings, name) <= 0]
    return [Error(f"{name} must be above 0.", id="palimpsest.E008") for name in wrong]


def of_the_database() -> list[CheckMessage]:
    """The errors of the checks that ask the database."""
    found = run_checks(tags=[Tags.database], databases=["default"], include_deployment_checks=True)
    return [check for check in found if check.is_serious()]


def require_sound() -> None:
    """Raise RefusesToStart with every error of the checks, database included."""
    found = run_checks(databases=["default"])
    errors = [check for check in found if check.is_serious()] + of_the_database()
    if errors:
        raise RefusesToStart("Palimpsest does not start:\n" + "\n".join(f"- {check.msg}" for check in errors))


def ask_database(databases: Sequence[str] | None, ask: Callable[[], list[CheckMessage]]) -> list[CheckMessage]:
    """What the database answers, if it is to be asked and can be."""
    if not databases:
        return []
    try:
        return ask()
    except DatabaseError:
        return [Warning("The database cannot be asked.", hint="See /readyz.", id="palimpsest.W001")]
    except KeysMissing:  # told by keys_are_there
        return []
