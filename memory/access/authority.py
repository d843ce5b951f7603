"""The signature of an agent's row. It covers the columns that decide who can read the silo, and the end of the trail.

A row counts only if its signature is right and the trail has no later entry. So a value that somebody changed with SQL,
or an old row with its old signature, opens nothing. `verify_audit` reports it, and `repair_authority` repairs it.
"""

import hashlib
import hmac
from base64 import b64encode
from contextlib import suppress
from copy import copy
from typing import Any

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce

from audit import guards
from audit.bulk import Prepared
from audit.ill_formed import ILL_FORMED
from audit.models import AUTHORITY_OPERATIONS, AuditEntry, Operation
from audit.trail import canonical
from config.keyring import keyring
from memory.access.heads import require_not_shortened
from memory.errors import AuthorityBroken, NotAllowed
from memory.models import Agent

VALUES = (
    "tenant_id",
    "slug",
    "steward",
    "is_steward_only",
    "model",
    "embedder",
    "former_embedder",
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
    "claimed_at",
    "claimed_by",
    "recovery_mac",
    "keys_suspended",
    "keys_lifted_at",
)
# The empty value of each. SQLite also stores values of other types.
_EMPTY = {name: type(getattr(Agent(), name))() for name in VALUES}
# Their entries contain the values after them, sealed, so that the values can be repaired.
OPERATIONS = frozenset({*AUTHORITY_OPERATIONS, Operation.ERASED})
FIELD = "authority"
SIGNATURE = ("authority_key_id", "authority_mac")

_last_entry = Prepared(lambda: AuditEntry.objects.filter(agent_id=0).only("seq").order_by("-seq")[:1])
_LAST = AuditEntry.objects.filter(agent_id=OuterRef("pk")).order_by("-seq").values("seq")[:1]


def sign(agent: Agent) -> None:
    """Sign the row with the newest audit key. The caller saves the columns of `SIGNATURE`."""
    key = keyring().audit[0]
    agent.authority_key_id, agent.authority_mac = key.id, _mac(key.secret, agent)


def require(agent: Agent, before: Agent | None = None) -> None:
    """Raise AuthorityBroken unless the service wrote this row, and no entry of the trail is later than the row.

    `before` is the same row, read earlier. If the trail has not grown since then, no query is needed.
    """
    if before is not None:
        agent.is_proven = before.is_proven and before.audit_seq == agent.audit_seq and is_signed(agent)
    if agent.is_proven:
        return
    last = [entry.seq for entry in _last_entry(agent.pk)]
    if agent.get_deferred_fields() or not is_signed(agent) or last != [agent.audit_seq]:
        _read_again(agent)  # it may only be stale
    require_not_shortened(agent, _read_again)
    agent.is_proven = True


def require_ahead(agent: Agent) -> None:
    """Check the trail before SQLite's lock, because this may take seconds. Raises AuthorityBroken."""
    ahead = copy(agent)  # `agent` is proven under the lock
    ahead.is_proven = False
    require(ahead)


def require_last(agent: Agent) -> None:
    """Raise AuthorityBroken if the trail has a later entry than the locked row. SQL may have put an older row back."""
    if [entry.seq for entry in _last_entry(agent.pk)] != [agent.audit_seq]:
        raise AuthorityBroken(agent.label)


def require_nothing_added(*, or_removed: bool = False) -> None:
    """Raise NotAllowed if somebody added a trigger, a rule or a view to the database. It can change or ignore what this
    transaction writes. Call this after the writes: then nobody can remove it before the commit. With `or_removed`, a
    missing trigger is an error, too."""
    if guards.changed() if or_removed else guards.unexpected():
        raise NotAllowed("Something was added to the database. An operator must run 'verify_audit' and remove it.")


def is_signed(agent: Agent) -> bool:
    """Whether the row has the signature of the service."""
    with suppress(*ILL_FORMED):
        secrets = [key.secret for key in keyring().audit if key.id == agent.authority_key_id]
        return any(hmac.compare_digest(_mac(secret, agent), agent.authority_mac) for secret in secrets)
    return False


def _read_again(agent: Agent) -> None:
    """Read the row and the number of its last entry in one query: between two, another process may write an entry."""
    pk = agent.pk
    with suppress(Agent.DoesNotExist):
        agent.refresh_from_db(from_queryset=Agent.objects.filter(audit_seq=Coalesce(Subquery(_LAST), 0)))
        if agent.pk == pk and is_signed(agent):
            return
    raise AuthorityBroken(agent.label)


def as_text(agent: Agent) -> str:
    """The values as JSON. A prompt is in it as it is in the row: sealed."""
    return canonical({name: plain(getattr(agent, name)) for name in VALUES})


def _mac(secret: bytes, agent: Agent) -> bytes:
    # Empty values are left out. So a new column changes no signature. Sealed prompts can be long, so they are digests.
    values = {
        name: {"sha256": hashlib.sha256(value).hexdigest()} if isinstance(value, bytes | memoryview) else plain(value)
        for name, empty in _EMPTY.items()
        if (value := getattr(agent, name)) != empty
    }
    values |= {"agent": agent.pk, "seq": agent.audit_seq, "head": memoryview(agent.audit_mac).hex()}
    values |= {"at": plain(agent.audit_at), "silo": hashlib.sha256(agent.wrapped_key).hexdigest()}
    values |= {"redacted": agent.redacted_seq} if agent.redacted_seq != 0 else {}
    values["tenant"] = agent.tenant.slug  # SQL could exchange the names of tenants
    return hmac.digest(secret, b"authority" + canonical(values).encode(), "sha256")


def plain(value: Any) -> Any:
    """A value as in the database, as JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else f"{value:.2f}"
