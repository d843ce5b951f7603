"""The signature of an agent's row. It covers the columns that decide who can read the silo, and the end of the trail.

A row counts only if its signature is right and the trail has no later entry. So a value that somebody changed with SQL,
or an old row with its old signature, opens nothing. `verify_audit` reports it, and `repair_authority` repairs it.
"""

from __future__ import annotations

import hmac
import json
from typing import Any

from audit.bulk import Prepared
from audit.models import AuditEntry, Operation
from audit.verify import ill_formed
from config.keyring import keyring
from memory.access.heads import require_not_shortened
from memory.errors import AuthorityBroken
from memory.models import Agent

VALUES = (
    "tenant_id",
    "steward",
    "is_steward_only",
    "model",
    "system_prompt",
    "refinement_prompt",
    "memory_enabled",
    "rules",
    "memory_path",
    "vault_path",
    "target_tokens",
    "retention",
    "discard_share_lifted_until",
    "live_keys",
)
# Their entries contain the values after them, sealed, so that the values can be repaired.
OPERATIONS = frozenset(
    {Operation.AGENT_CREATED, Operation.AGENT_CHANGED, Operation.KEY_ISSUED, Operation.KEY_REVOKED, Operation.ERASED}
)
FIELD = "authority"
SIGNATURE = ("authority_key_id", "authority_mac")

_last_entry = Prepared(lambda: AuditEntry.objects.filter(agent_id=0).only("seq").order_by("-seq")[:1])


def sign(agent: Agent) -> None:
    """Sign the row with the newest audit key. The caller saves the columns of `SIGNATURE`."""
    key = keyring().audit[0]
    agent.authority_key_id, agent.authority_mac = key.id, _mac(key.secret, agent)


def require(agent: Agent) -> None:
    """Raise AuthorityBroken unless the service wrote this row, and no entry of the trail is later than the row."""
    if agent.is_proven:
        return
    if agent.get_deferred_fields() or not _is_current(agent):
        tenant = agent.tenant
        agent.refresh_from_db()  # it may only be stale
        agent.tenant = tenant if tenant.pk == agent.tenant_id else agent.tenant
        if not _is_current(agent):
            raise AuthorityBroken(agent.label)
    require_not_shortened(agent)
    agent.is_proven = True


def require_same(row: Agent, before: Agent) -> None:
    """`require`, for a row that was read again. If its trail has not grown, no query is needed."""
    row.is_proven = before.is_proven and before.audit_seq == row.audit_seq and is_signed(row)
    require(row)


def is_signed(agent: Agent) -> bool:
    """Whether the row has the signature of the service. The row of an agent without a trail has no signature yet."""
    if not agent.audit_seq and not agent.authority_mac:
        return True
    with ill_formed():
        secrets = [key.secret for key in keyring().audit if key.id == agent.authority_key_id]
        return any(hmac.compare_digest(_mac(secret, agent), bytes(agent.authority_mac)) for secret in secrets)
    return False


def _is_current(agent: Agent) -> bool:
    last = next((entry.seq for entry in _last_entry(agent.pk)), 0)
    return is_signed(agent) and agent.audit_seq == last


def as_text(agent: Agent) -> str:
    """The values as JSON, with digests of the prompts."""
    return _canonical(_values(agent))


def _values(agent: Agent) -> dict[str, Any]:
    return {name: plain(getattr(agent, name)) for name in VALUES}


def _mac(secret: bytes, agent: Agent) -> bytes:
    values = _values(agent) | {"agent": agent.pk, "seq": agent.audit_seq, "head": bytes(agent.audit_mac).hex()}
    values["has_silo"] = bool(agent.wrapped_key)
    return hmac.digest(secret, b"authority" + _canonical(values).encode(), "sha256")


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def plain(value: Any) -> Any:
    """A value as in the database, as JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else f"{value:.2f}"
