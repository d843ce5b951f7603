"""With whose key a request came: looked at again before anything is done or read by it.

A key is proven when a request begins. Its body may come long after, or it may wait for an agent's lock; meanwhile the
key may have ended, as in an exchange by which a runtime makes its silo its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memory.errors import KeyRejected
from memory.models import Agent, AgentKey, TenantKey

_key: ContextVar[AgentKey | TenantKey | None] = ContextVar("key", default=None)


@contextmanager
def request() -> Iterator[None]:
    """A request, of which nobody knows yet with whose key it comes."""
    before = _key.set(None)
    try:
        yield
    finally:
        _key.reset(before)


def note(key: AgentKey | TenantKey | None) -> None:
    """This request came with this key."""
    _key.set(key)


def require_valid(row: Agent | None = None) -> None:
    """Raise KeyRejected when the key has ended meanwhile. The write path asks with the agent's `row` locked.

    The end of an agent's key is an entry of its trail. If that has not grown, the key is not read again.
    """
    key = _key.get()
    if key is None:
        return
    if row is not None and isinstance(key, AgentKey) and (key.agent_id, key.agent.audit_seq) == (row.pk, row.audit_seq):
        return
    if not type(key)._default_manager.filter(pk=key.pk, revoked_at__isnull=True).exists():
        raise KeyRejected("The key is not valid.")
