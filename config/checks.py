"""System checks of the settings and the keys. The web process and every command run these checks at start.

Other apps have checks that query the database.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from config.keyfiles import exposed
from config.keyring import KeysMissing, keyring

OURS = "palimpsest"  # the tag of the checks that commands run; they check settings, not pages and models

# Checks that query the database are registered with `deploy=True`. Django's `migrate` does not run them, so it can
# restore a missing trigger.


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
        Warning(f"Other users can access {path}.", hint=f"Run 'chmod go-rwx {path}'.", id="palimpsest.W002")
        for path in exposed(Path(settings.KEYS_DIR))
    ]


_ABOVE_ZERO = (
    *("MODEL_CALL_SECONDS", "BATCH_TOKENS", "QUEUE_WORKERS", "SWEEP_AGENTS", "WEB_WORKERS", "WEB_THREADS"),
    *("MAX_OUTPUT_TOKENS", "ASKS_PER_PERSON", "ASKS_PER_AGENT", "API_RATE"),
)


@register(OURS)
def settings_make_sense(**_: Any) -> list[CheckMessage]:
    """Check numbers in the settings. A session renews its lease only between model calls, so a lease must be longer
    than a call."""
    call = settings.MODEL_CALL_SECONDS
    wrong = {f"{name} must be above 0.": getattr(settings, name) <= 0 for name in _ABOVE_ZERO} | {
        "LEASE_SECONDS must be above MODEL_CALL_SECONDS.": call >= settings.LEASE_SECONDS,
        "TASK_SECONDS must be above MODEL_CALL_SECONDS.": call >= settings.TASK_SECONDS,
        "SWEEP_MINUTES must be from 1 to 10080.": not 1 <= settings.SWEEP_MINUTES <= 10_080,
        "EMBEDDER must begin with local/: the agent's side decides which provider can read its texts.": (
            bool(settings.EMBEDDER) and not settings.EMBEDDER.startswith("local/")
        ),
        "WORKER_NICE must be from 0 to 19.": not 0 <= settings.WORKER_NICE <= 19,
    }
    return [Error(problem, id="palimpsest.E004") for problem, is_wrong in wrong.items() if is_wrong]


def of_the_database() -> list[CheckMessage]:
    """The errors of the checks that query the database."""
    found = run_checks(tags=[Tags.database], databases=["default"], include_deployment_checks=True)
    return [check for check in found if check.is_serious()]


def require_sound() -> None:
    """Run all checks, including those that query the database. Raises ImproperlyConfigured with all errors."""
    found = run_checks(databases=["default"])
    errors = [check for check in found if check.is_serious()] + of_the_database()
    if errors:
        raise ImproperlyConfigured("".join(f"\n- {check.msg}" for check in errors))


def ask_database(databases: Sequence[str] | None, ask: Callable[[], list[CheckMessage]]) -> list[CheckMessage]:
    """Run a check that queries the database. If the database does not answer, return a warning. If `databases` is
    empty, do nothing."""
    if not databases:
        return []
    try:
        return ask()
    except DatabaseError:
        return [Warning("The database does not answer.", hint="See /readyz.", id="palimpsest.W001")]
    except KeysMissing:  # keys_are_there reports it
        return []
