"""System checks: what is wrong with the set-up, found before anything is served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register, run_checks
from django.db import DatabaseError, connection

from audit import guards
from audit.models import AuditEntry
from config.keyfiles import exposed
from config.keyring import KeysMissing, keyring
from memory import tokens
from memory.errors import SealBroken, SiloKeyMissing
from memory.silo import keys

OURS = "palimpsest"  # the tag of what a command asks before it begins: the settings, no pages and no models


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


@register(OURS)
def token_counter_is_there(**_: Any) -> list[CheckMessage]:
    try:
        tokens.count("")
    except tokens.TokenCounterMissing as missing:
        return [Error(str(missing), id="palimpsest.E005")]
    return []


@register(Tags.database)
def silos_open(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """One agent under each key-encryption key is tried: a service whose silos' keys are missing is not to start.

    A key that was altered or moved is its agent's trouble alone, and no reason to keep the others waiting.
    """
    return _asked(databases, _unopenable)


@register(Tags.database)
def triggers_are_there(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    hint = "Run 'manage.py migrate': it puts them back."
    return _asked(
        databases,
        lambda: [
            Error(f"The trigger {name} is missing or altered.", hint=hint, id="palimpsest.E003")
            for name in guards.missing()
        ],
    )


@register(Tags.database)
def trail_goes_on(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """A trail begun under one audit key is not to go on under another that cannot verify it."""
    return _asked(databases, lambda: [Error(problem, id="palimpsest.E006") for problem in _unverifiable()])


def require_sound() -> None:
    """Raise RefusesToStart with every error of the checks, database included."""
    errors = [
        check for check in run_checks(databases=["default"], include_deployment_checks=False) if check.is_serious()
    ]
    if errors:
        raise RefusesToStart("Palimpsest does not start:\n" + "\n".join(f"- {check.msg}" for check in errors))


def _asked(databases: Sequence[str] | None, ask: Callable[[], list[CheckMessage]]) -> list[CheckMessage]:
    """What the database answers, if it is to be asked and can be."""
    if not databases:
        return []
    try:
        return ask()
    except DatabaseError:
        return [Warning("The database cannot be asked.", hint="See /readyz.", id="palimpsest.W001")]
    except KeysMissing:  # told by keys_are_there
        return []


def _unverifiable() -> list[str]:
    """What is wrong when the trail's newest entry was made under a key that is not there."""
    if AuditEntry._meta.db_table not in connection.introspection.table_names():
        return []
    newest = AuditEntry.objects.order_by("-pk").values_list("key_id", flat=True).first()
    if newest is None or newest in {key.id for key in keyring().audit}:
        return []
    return [
        f"The newest entry of the audit trail was made under key {newest}, which is not in the keyring. "
        "Put that key back (AUDIT_KEY, or the audit file in KEYS_DIR) from its backup."
    ]


def _unopenable() -> list[CheckMessage]:
    problems: list[CheckMessage] = []
    for agent_id, wrapped in _one_agent_per_key():
        try:
            keys.cipher_for(agent_id, wrapped)
        except SiloKeyMissing as missing:
            problems.append(Error(str(missing), id="palimpsest.E002"))
        except SealBroken as broken:
            problems.append(Warning(str(broken), id="palimpsest.W003"))
    return problems


def _one_agent_per_key() -> list[tuple[int, bytes]]:
    """An agent for each key-encryption key that wraps any (the key's id stands in the wrapped key's first bytes)."""
    if "memory_agent" not in connection.introspection.table_names():
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, wrapped_key FROM memory_agent WHERE id IN "
            "(SELECT min(id) FROM memory_agent WHERE length(wrapped_key) > 0 GROUP BY substr(wrapped_key, 1, 9))"
        )
        return [(agent_id, bytes(wrapped)) for agent_id, wrapped in cursor.fetchall()]
