"""System checks of the audit trail: its triggers exist, and its key is in the keyring."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection

from audit import guards
from audit.models import AuditEntry
from config import PROGRAM
from config.checks import ask_database
from config.keyring import keyring


@register(Tags.database, deploy=True)
def triggers_exist(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    hint = f"Run '{PROGRAM} migrate'. It creates the triggers again."
    return ask_database(
        databases,
        lambda: [
            Error(f"The trigger {name} is missing or altered.", hint=hint, id="palimpsest.E003")
            for name in guards.missing()
        ],
    )


@register(Tags.database, deploy=True)
def audit_key_exists(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The key of the newest entry must be in the keyring. Otherwise the trail cannot be verified."""
    return ask_database(databases, lambda: [Error(problem, id="palimpsest.E006") for problem in _unverifiable()])


def _unverifiable() -> list[str]:
    if AuditEntry._meta.db_table not in connection.introspection.table_names():
        return []
    newest = AuditEntry.objects.order_by("-pk").values_list("key_id", flat=True).first()
    if newest is None or newest in {key.id for key in keyring().audit}:
        return []
    advice = "Restore that key from its backup to AUDIT_KEY, or to the audit file in KEYS_DIR."
    return [f"The newest audit entry was signed with key {newest}, which is not in the keyring. {advice}"]
