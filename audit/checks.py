"""System checks of the trail: its triggers are there, and its key is in the keyring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection

from audit import guards
from audit.models import AuditEntry
from config.checks import ask_database
from config.keyring import keyring


@register(Tags.database, deploy=True)
def triggers_are_there(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    hint = "Run 'manage.py migrate': it puts them back."
    return ask_database(
        databases,
        lambda: [
            Error(f"The trigger {name} is missing or altered.", hint=hint, id="palimpsest.E003")
            for name in guards.missing()
        ],
    )


@register(Tags.database, deploy=True)
def trail_goes_on(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """A trail begun under one audit key is not to go on under another that cannot verify it."""
    return ask_database(databases, lambda: [Error(problem, id="palimpsest.E006") for problem in _unverifiable()])


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
