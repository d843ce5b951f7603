"""Links by which a steward decides about a request, or a proposal: made when they are mailed, proven by a MAC, good for
one decision.

Opening one decides nothing. Once it is decided, a link shows what became of it and, while the grant holds, revokes it.
It ends with the steward it was mailed to: who came after has a link of their own.
"""

from __future__ import annotations

import hmac
import secrets
import string
from contextlib import suppress
from dataclasses import dataclass

from django.utils import timezone

from audit.consent import LAPSES, Standing, standings
from audit.models import AccessState, ConsentLink
from audit.proposals import Proposal, ProposalState
from audit.proposals import proposals as proposed
from audit.trail import Actor
from config.errors import DomainError
from config.keyring import keyring
from memory import consent, editing, errors, letters, proposals
from memory.models import Agent

_ALPHABET = string.ascii_lowercase + string.digits
_PREFIX = 12  # characters
_SECRET = 32  # bytes
_MOST = 200  # characters that are looked at of a token


Asked = Standing | Proposal


@dataclass(frozen=True, slots=True)
class Opened:
    """What a link is about, as it stands now."""

    agent: Agent
    asked: Asked
    state: AccessState | ProposalState


def make(agent: Agent, number: int) -> str:
    """A token for the agent's present steward, about an open request or proposal; kept nowhere.

    Raises NotOpen, ConsentNeeded, Erased.
    """
    with editing.locked(agent) as row:
        editing.require_key(row)
        if not row.steward:
            raise errors.ConsentNeeded("This agent has no steward.")
        if isinstance(asked_by(row, number), Proposal):
            proposals.require_open(row, number)
        else:
            consent.require_open(row, number)
        prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX))
        secret = secrets.token_hex(_SECRET)  # letters and digits: nothing a mail program would cut off
        ConsentLink.objects.create(
            agent_id=row.pk,
            number=number,
            prefix=prefix,
            mac=_macs(_told(row.pk, number, prefix, secret))[0],
            steward_mac=_macs(f"steward/{row.pk}/{row.steward}")[0],
            made_at=timezone.now(),
        )
        return f"{prefix}_{secret}"


def asked_by(agent: Agent, number: int) -> Asked | None:
    """What the entry of this number asked, or proposed."""
    return standings(agent.pk, number).get(number) or proposed(agent.pk, number).get(number)


def look(token: str) -> Opened:
    """What a link is about. Decides nothing. Raises LinkBroken."""
    agent, link = _proven(token)
    asked = asked_by(agent, link.number)
    if asked is None or not (_is_mailed_to(link, agent.steward) or _has_replaced_itself(agent, link, asked)):
        raise errors.LinkBroken(_BROKEN)
    if isinstance(asked, Proposal):
        return Opened(agent, asked, asked.at(consent.clock(agent)))
    return Opened(agent, asked, consent.at_present(agent, asked))


def decide(token: str, *, approve: bool) -> Asked:
    """Decide, once. Raises LinkBroken, NotOpen, ConsentNeeded, Invalid, Erased."""
    agent, link = _proven(token)
    with editing.locked(agent) as row:
        _require_steward(row, link)
        if timezone.now() >= link.made_at + LAPSES:
            raise errors.LinkBroken("This link is too old to decide by.")
        actor = Actor.steward(row.steward)
        if isinstance(asked_by(row, link.number), Proposal):
            return (proposals.accept if approve else proposals.decline)(row, link.number, actor)
        return (consent.approve if approve else consent.deny)(row, link.number, actor)


def revoke(token: str) -> Standing:
    """End the grant now. Raises LinkBroken, NotOpen."""
    agent, link = _proven(token)
    with consent.over_stays_over(agent), editing.locked(agent) as row:
        _require_steward(row, link)
        return consent.revoke(row, link.number, Actor.steward(row.steward))


def _proven(token: str) -> tuple[Agent, ConsentLink]:
    """The row a token proves, and its agent. Whatever is wrong with a token, the answer is the same."""
    prefix, _, secret = token[:_MOST].partition("_")
    is_formed = len(prefix) == _PREFIX and prefix.isalnum() and secret.isascii()
    link = ConsentLink.objects.filter(prefix=prefix).first() if is_formed else None
    expected = bytes(link.mac) if link else b"\0" * 32
    told = _told(link.agent_id, link.number, prefix, secret) if link else ""
    proven = [hmac.compare_digest(expected, mac) for mac in _macs(told)]
    agent = Agent.objects.select_related("tenant").filter(pk=link.agent_id).first() if link and any(proven) else None
    if link is None or agent is None:
        raise errors.LinkBroken(_BROKEN)
    return agent, link


_BROKEN = "This link is not valid."


def _require_steward(agent: Agent, link: ConsentLink) -> None:
    """Raise LinkBroken for a link that was mailed to somebody else than the agent's present steward."""
    if not _is_mailed_to(link, agent.steward):
        raise errors.LinkBroken(_BROKEN)


def _is_mailed_to(link: ConsentLink, steward: str) -> bool:
    expected = bytes(link.steward_mac)
    return any(hmac.compare_digest(expected, mac) for mac in _macs(f"steward/{link.agent_id}/{steward}"))


def _has_replaced_itself(agent: Agent, link: ConsentLink, asked: Asked) -> bool:
    """Whether the steward it was mailed to is one no more by what it was about: they may still see that."""
    if not isinstance(asked, Proposal) or asked.state != ProposalState.ACCEPTED or "steward" not in asked.proposed:
        return False
    with suppress(DomainError):  # who it was is sealed: of an erased silo nobody knows
        return _is_mailed_to(link, letters.steward_at(agent, asked.settled_by, letters.BEFORE))
    return False


def _told(agent_id: int, number: int, prefix: str, secret: str) -> str:
    return f"consent-link/{agent_id}/{number}/{prefix}/{secret}"


def _macs(told: str) -> list[bytes]:
    """Under every pepper of the keyring, newest first: a new one does not end the links that are out."""
    return [hmac.digest(pepper.secret, told.encode(), "sha256") for pepper in keyring().pepper]
