"""A system check. The key-encryption keys of all silos must be in the keyring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

from config.checks import ask_database
from memory.errors import SealBroken, SiloKeyMissing
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
