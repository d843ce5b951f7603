"""Links by which a steward decides about a request: made when they are mailed, proven by a MAC, good for one decision.

Opening one decides nothing. Once it is decided, a link shows what became of it and, while the grant holds, revokes it.
It ends with the steward it was mailed to: who came after has a link of their own.
"""

from __future__ import annotations

import hmac
import secrets
import string
from dataclasses import dataclass

from django.utils import timezone

from audit.consent import LAPSES, Standing, standings
from audit.models import AccessState, ConsentLink
from audit.trail import Actor
from config.keyring import keyring
from memory import consent, editing, errors
from memory.models import Agent

_ALPHABET = string.ascii_lowercase + string.digits
_PREFIX = 12  # characters
_SECRET = 32  # bytes
_MOST = 200  # characters that are looked at of a token


@dataclass(frozen=True, slots=True)
class Opened:
    """What a link is about, as it stands now."""

    agent: Agent
    standing: Standing
    state: AccessState


def make(agent: Agent, number: int) -> str:
    """A token for the agent's present steward, about an open request; kept nowhere. Raises NotOpen, ConsentNeeded."""
    with editing.locked(agent) as row:
        if not row.steward:
            raise errors.ConsentNeeded("This agent has no steward.")
        consent.require_open(row, number)
        prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX))
        secret = secrets.token_urlsafe(_SECRET)
        ConsentLink.objects.create(
            agent_id=row.pk,
            number=number,
            prefix=prefix,
            mac=_macs(_told(row.pk, number, prefix, secret))[0],
            steward_mac=_macs(f"steward/{row.pk}/{row.steward}")[0],
            made_at=timezone.now(),
        )
        return f"{prefix}_{secret}"


def look(token: str) -> Opened:
    """What a link is about. Changes nothing. Raises LinkBroken."""
    return _opened(*_link(token))


def decide(token: str, *, approve: bool) -> Standing:
    """Decide, once. Raises LinkBroken, NotOpen, ConsentNeeded, Erased."""
    agent, link = _link(token)
    with editing.locked(agent) as row:
        if timezone.now() >= link.made_at + LAPSES:
            raise errors.LinkBroken("This link is too old to decide by.")
        _require_steward(row, link)
        do = consent.approve if approve else consent.deny
        return do(row, link.number, Actor.steward(row.steward))


def revoke(token: str) -> Standing:
    """End the grant now. Raises LinkBroken, NotOpen."""
    agent, link = _link(token)
    with editing.locked(agent) as row:
        _require_steward(row, link)
        return consent.revoke(row, link.number, Actor.steward(row.steward))


def _link(token: str) -> tuple[Agent, ConsentLink]:
    """The row a token proves, and its agent. Whatever is wrong with a token, the answer is the same."""
    prefix, _, secret = token[:_MOST].partition("_")
    link = ConsentLink.objects.filter(prefix=prefix).first() if prefix.isalnum() and secret.isascii() else None
    expected = bytes(link.mac) if link else b"\0" * 32
    told = _told(link.agent_id, link.number, prefix, secret) if link else ""
    proven = [hmac.compare_digest(expected, mac) for mac in _macs(told)]
    agent = Agent.objects.select_related("tenant").filter(pk=link.agent_id).first() if link and any(proven) else None
    if link is None or agent is None:
        raise errors.LinkBroken("This link is not valid.")
    _require_steward(agent, link)
    return agent, link


def _require_steward(agent: Agent, link: ConsentLink) -> None:
    """Raise LinkBroken for a link that was mailed to somebody else than the agent's present steward."""
    expected = bytes(link.steward_mac)
    if not any(hmac.compare_digest(expected, mac) for mac in _macs(f"steward/{agent.pk}/{agent.steward}")):
        raise errors.LinkBroken("This link is not valid.")


def _opened(agent: Agent, link: ConsentLink) -> Opened:
    standing = standings(agent.pk, link.number)[link.number]
    return Opened(agent, standing, standing.at(consent.clock(agent)))


def _told(agent_id: int, number: int, prefix: str, secret: str) -> str:
    return f"consent-link/{agent_id}/{number}/{prefix}/{secret}"


def _macs(told: str) -> list[bytes]:
    """Under every pepper of the keyring, newest first: a new one does not end the links that are out."""
    return [hmac.digest(pepper.secret, told.encode(), "sha256") for pepper in keyring().pepper]
