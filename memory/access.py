"""Who may reach what: the one door from a name or a key to an agent. Missing and forbidden look alike."""

from __future__ import annotations

import hmac
import secrets
import string
from datetime import timedelta

from django.utils import timezone

from config.keyring import Key, keyring
from memory.errors import Invalid, KeyRejected, NotFound
from memory.models import Agent, AgentKey

_ALPHABET = string.ascii_lowercase + string.digits
_FORM = "pal"
PREFIX_CHARACTERS = 12
SECRET_BYTES = 32
TOUCH_EVERY = timedelta(minutes=1)  # how often a key's last use is written


def agent_named(label: str) -> Agent:
    """The agent of `tenant/agent`, for somebody at the service's own command line. Raises Invalid, NotFound."""
    tenant, slash, slug = label.partition("/")
    if not (tenant and slash and slug and label.isascii()):
        raise Invalid("agent", "must be given as TENANT/AGENT, each of lower-case letters, digits, '-' and '_'")
    try:
        return Agent.objects.select_related("tenant").get(tenant__slug=tenant, slug=slug)
    except Agent.DoesNotExist:
        raise NotFound(f"There is no agent {label}.") from None


def agent_of_key(key: str) -> Agent:
    """The agent whose side holds this key; notes its last use. Raises KeyRejected, whatever is wrong with it."""
    prefix, secret = _parts(key)
    row = AgentKey.objects.select_related("agent__tenant").filter(prefix=prefix).first()
    expected = bytes(row.mac) if row else b"\0" * 32
    agent_id = row.agent_id if row else 0
    # Under every pepper of the keyring, so that a new one does not end the keys that are out.
    proven = [hmac.compare_digest(expected, _mac(p, agent_id, prefix, secret)) for p in keyring().pepper]
    if not any(proven) or row is None or row.revoked_at is not None:
        raise KeyRejected("The agent key is not valid.")
    _note_use(row)
    return row.agent


def new_key() -> tuple[str, str, str]:
    """(prefix, secret, the key as its holder keeps it)."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(PREFIX_CHARACTERS))
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return prefix, secret, f"{_FORM}_{prefix}_{secret}"


def key_mac(agent_id: int, prefix: str, secret: str) -> bytes:
    """What is stored of a key: a MAC under the keyring's pepper, so that a row put in by SQL is worth nothing."""
    return _mac(keyring().pepper[0], agent_id, prefix, secret)


def _mac(pepper: Key, agent_id: int, prefix: str, secret: str) -> bytes:
    return hmac.digest(pepper.secret, f"agent-key/{agent_id}/{prefix}/{secret}".encode(), "sha256")


def _parts(key: str) -> tuple[str, str]:
    form, _, rest = key.partition("_")
    prefix, _, secret = rest.partition("_")
    if form != _FORM or len(prefix) != PREFIX_CHARACTERS or not prefix.isalnum() or not secret.isascii():
        raise KeyRejected("The agent key is not valid.")
    return prefix, secret


def _note_use(row: AgentKey) -> None:
    now = timezone.now()
    if row.last_used_at is None or now - row.last_used_at > TOUCH_EVERY:
        AgentKey.objects.filter(pk=row.pk).update(last_used_at=now)
