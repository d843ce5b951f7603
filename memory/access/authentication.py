"""Authenticates keys, and finds an agent by its name or key. The error is the same for a forbidden object and for a
missing object.

A request checks its key when it begins. It may then wait long for its body or for an agent's lock, and somebody may
revoke the key during this time. So the request checks its key again before it reads or changes anything.
"""

import secrets
import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from django.db import OperationalError, transaction
from django.utils import timezone

from audit.bulk import Prepared
from audit.ill_formed import ILL_FORMED, is_ill_formed
from config.keyring import is_proven, macs
from memory.access import authority, roles
from memory.errors import AuthorityBroken, Erased, Invalid, KeyRejected, KeySuspended, NotFound
from memory.models import Agent, AgentKey, Tenant, TenantKey

_ALPHABET = string.ascii_lowercase + string.digits
_FORMS = {AgentKey: "pal", TenantKey: "palt"}
_KINDS: dict[str, type[Any]] = {form: kind for kind, form in _FORMS.items()}
_PURPOSES = {AgentKey: "agent-key", TenantKey: "tenant-key"}  # part of the text of a MAC
_OWNERS = {AgentKey: "agent_id", TenantKey: "tenant_id"}
PREFIX_CHARACTERS = 12
SECRET_BYTES = 32
TOUCH_EVERY = timedelta(minutes=1)  # how often a key's last use is written
K = TypeVar("K", AgentKey, TenantKey)
_WITH_PREFIX: dict[type[Any], Prepared[Any]] = {
    AgentKey: Prepared(lambda: AgentKey.objects.select_related("agent__tenant").filter(prefix="")),
    TenantKey: Prepared(lambda: TenantKey.objects.select_related("tenant").filter(prefix="")),
}


def agent_named(label: str) -> Agent:
    """The agent with the name `tenant/agent`, for commands. Raises Invalid, NotFound."""
    tenant, slash, slug = label.partition("/")
    if not (tenant and slash and slug and label.isprintable()):
        raise Invalid("agent", "must have the form TENANT/AGENT, with lower-case letters, digits, '-' and '_'")
    agent = Agent.objects.select_related("tenant").filter(tenant__slug=tenant, slug=slug).first()
    if agent is None or agent.label != label:  # with another collation, SQL could find another name
        raise NotFound(f"The agent {label} does not exist.")
    return agent


def agent_key(key: str) -> AgentKey:
    """The row of an agent's key. Records the key's last use. Raises KeyRejected, with the same message for each
    reason."""
    row = either_key(key)
    if not isinstance(row, AgentKey):
        raise KeyRejected("The key is not valid.")
    return row


def either_key(key: str, *, exchanges: bool = False) -> AgentKey | TenantKey:
    """The row of an agent's or a tenant's key. Records the key's last use. Raises KeyRejected, with the same message
    for each reason, and KeySuspended. `exchanges`: the request may exchange the key."""
    row = _found(key)
    if isinstance(row, AgentKey) and row.agent.keys_suspended:
        require_not_suspended(row.agent, exchanges=exchanges)
    now = timezone.now()
    if row.last_used_at is None or abs(now - row.last_used_at) > TOUCH_EVERY:
        # A key is valid even if its last use cannot be written, for example because the disk is full. On SQLite, a
        # transaction waits for the lock when it begins.
        with suppress(OperationalError), transaction.atomic():
            type(row)._default_manager.filter(pk=row.pk).update(last_used_at=now)
    return row


def unused_key(key: str) -> AgentKey | None:
    """The row of an agent's valid key that was never used, or None. This does not count as a use."""
    with suppress(KeyRejected):
        row = _found(key)
        return row if isinstance(row, AgentKey) and row.last_used_at is None else None
    return None


def _found(key: str) -> AgentKey | TenantKey:
    form, _, rest = key.partition("_")
    prefix, _, secret = rest.partition("_")
    kind = _KINDS.get(form)
    if kind is None or len(prefix) != PREFIX_CHARACTERS or not prefix.isalnum() or not secret.isascii():
        raise KeyRejected("The key is not valid.")
    try:
        rows: list[AgentKey | TenantKey] = _WITH_PREFIX[kind](prefix)
    except ILL_FORMED as error:
        if not is_ill_formed(error):
            raise
        raise AuthorityBroken("TENANT/AGENT") from None  # SQL wrote a value of a wrong type
    row = rows[0] if rows else None
    owner_id = getattr(row, _OWNERS[kind], 0)
    is_right = is_proven(row.mac if row else None, f"{_PURPOSES[kind]}/{owner_id}/{prefix}/{secret}")
    if not is_right or row is None or row.revoked_at is not None:
        raise KeyRejected("The key is not valid.")
    if isinstance(row, AgentKey):
        authority.require(row.agent)
        if row.fingerprint not in row.agent.live_keys.split():  # inserted or put back with SQL
            raise KeyRejected("The key is not valid.")
    elif row.fingerprint not in roles.live_fingerprints(row.tenant):
        raise KeyRejected("The key is not valid.")
    return row


def require_not_suspended(agent: Agent, *, exchanges: bool = False) -> None:
    """Raise KeySuspended if the agent's keys are suspended. After an owner has lifted the suspension, a key still opens
    nothing. If the silo was never claimed, the key can be exchanged."""
    if agent.keys_suspended and (agent.claimed_at or not (exchanges and agent.keys_lifted_at)):
        raise KeySuspended


def prefix_of(key: str) -> str:
    """The public part of a key."""
    return key.split("_")[1]


def is_key_of(agent: Agent, key: str) -> bool:
    """Whether this is a valid key of this agent."""
    with suppress(KeyRejected):
        return agent_key(key).agent_id == agent.pk
    return False


def new_key(kind: type[K], owner_id: int, seed: str = "") -> tuple[str, bytes, str]:
    """Make a key. Returns its prefix, its MAC for the database, and the key itself. With a `seed`, it is the first of
    `seeded_keys`.

    The MAC needs the keyring's pepper, so a row that somebody inserts with SQL is not a valid key.
    """
    key = seeded_keys(seed)[0] if seed else f"{_FORMS[kind]}_{new_prefix()}_{secrets.token_urlsafe(SECRET_BYTES)}"
    _, prefix, secret = key.split("_", 2)
    [mac, *_] = macs(f"{_PURPOSES[kind]}/{owner_id}/{prefix}/{secret}")
    return prefix, mac, key


def seeded_keys(seed: str) -> list[str]:
    """The agent's key that a claim with this secret seed issues, with each pepper of the keyring, newest first."""
    pairs = zip(macs(f"key-prefix/{seed}"), macs(f"key-secret/{seed}"), strict=True)
    return [f"{_FORMS[AgentKey]}_{prefix.hex()[:PREFIX_CHARACTERS]}_{secret.hex()}" for prefix, secret in pairs]


def new_prefix() -> str:
    """The public part of a new key or link."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(PREFIX_CHARACTERS))


# --- the key of the current request

request_key: ContextVar[AgentKey | TenantKey | None] = ContextVar("request_key", default=None)


@contextmanager
def new_request() -> Iterator[None]:
    """A context manager for one request. At the beginning of the request, no key is authenticated."""
    before = request_key.set(None)
    try:
        yield
    finally:
        request_key.reset(before)


def require_rights_in(tenant_id: int) -> None:
    """Raise NotAllowed if the person of this request has lost a right in the tenant since it began. Raise KeyRejected
    if the key of this request is a tenant's, and has ended."""
    roles.require_same_rights(tenant_id)
    if isinstance(request_key.get(), TenantKey):
        require_valid_key()


def require_valid_key(row: Agent | None = None) -> Agent | None:
    """Raise KeyRejected if the key was revoked or suspended after the request began. The write path passes the agent's
    locked `row`. Returns the present row of an agent's key.

    This reads the signed row of the agent, because SQL can put the row of a key back.
    """
    key, is_locked = request_key.get(), row is not None
    if isinstance(key, AgentKey):
        if row is None:
            row = Agent.objects.get(pk=key.agent_id)
            row.tenant = key.agent.tenant
            authority.require(row)  # with the trail's last entry: SQL may have put an older row back
            if not row.wrapped_key:
                raise Erased("The agent's memory was erased.")
        before = key.agent  # a suspended key may be exchanged, but a worker has not proven this row
        is_unchanged = is_locked and before.is_proven and before.audit_seq == row.audit_seq
        if key.fingerprint not in row.live_keys.split() or (row.keys_suspended and not is_unchanged):
            raise KeyRejected("The key is not valid.")
        return row
    if key is not None and key.fingerprint not in roles.live_fingerprints(Tenant.objects.get(pk=key.tenant_id)):
        raise KeyRejected("The key is not valid.")
    return None
