"""System checks. The key-encryption keys of all silos, and the pepper, must be in the keyring."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

from config.checks import ask_database
from config.keyring import keyring
from memory.errors import SealBroken, SiloKeyMissing
from memory.models import Pepper
from memory.silo import keys


@register(Tags.database, deploy=True)
def silos_open(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """For each key-encryption key, unwrap the data key of one agent. If a key-encryption key is missing, return an
    error, so that the service does not start.

    For a broken data key, return only a warning, because this affects only one agent.
    """
    return ask_database(databases, _unopenable)


def _unopenable() -> list[CheckMessage]:
    problems: list[CheckMessage] = []
    for agent_id, wrapped in _one_agent_per_key():
        try:
            keys.unwrap(agent_id, wrapped)
        except SiloKeyMissing as missing:
            problems.append(Error(str(missing), id="palimpsest.E002"))
        except SealBroken as broken:
            problems.append(Warning(str(broken), id="palimpsest.W003"))
    return problems


def _one_agent_per_key() -> list[tuple[int, bytes]]:
    """For each key-encryption key, return one agent's id and wrapped data key. The first bytes of a wrapped key contain
    the id of the key-encryption key."""
    if "memory_agent" not in connection.introspection.table_names():
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, wrapped_key FROM memory_agent WHERE id IN "
            "(SELECT min(id) FROM memory_agent WHERE length(wrapped_key) > 0 GROUP BY substr(wrapped_key, 1, 9))"
        )
        return [(agent_id, bytes(wrapped)) for agent_id, wrapped in cursor.fetchall()]


@register(Tags.database, deploy=True)
def pepper_exists(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The pepper that was the newest at the last start must be in the keyring. Otherwise no key, link or second factor
    is valid."""
    return ask_database(databases, _unknown_pepper)


def _unknown_pepper() -> list[CheckMessage]:
    if Pepper._meta.db_table not in connection.introspection.table_names():
        return []
    peppers = [key.id for key in keyring().pepper]
    row, _ = Pepper.objects.get_or_create(pk=1, defaults={"key_id": peppers[0]})
    if row.key_id not in peppers:
        problem = f"Keys, links and second factors were made with the pepper {row.key_id}, which is not in the keyring."
        advice = "Restore it from its backup (PEPPER_KEY, or the pepper file in KEYS_DIR)."
        return [Error(f"{problem} {advice}", id="palimpsest.E007")]
    Pepper.objects.filter(pk=1).exclude(key_id=peppers[0]).update(key_id=peppers[0])
    return []
