"""Links by which a steward decides about a request, to read or to remove, or a proposal: made when they are mailed,
proven by a MAC, good for one decision.

Opening one decides nothing. Once it is decided, a link shows what became of it and, while the grant holds, revokes it.
It ends with the steward it was mailed to: who came after has a link of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from audit.consent import LAPSES, Standing, standings
from audit.models import AccessState, ConsentLink
from audit.proposals import Proposal, ProposalState
from audit.proposals import proposals as proposed
from audit.removals import Removal, RemovalState, removals
from audit.trail import Actor
from config.errors import DomainError
from memory import errors
from memory.access.authentication import PREFIX_CHARACTERS, is_proven, macs, new_prefix
from memory.consent import grants, proposals, removal, removal_requests, steps
from memory.mail import letters
from memory.models import Agent
from memory.writing import edits

_SECRET = 32  # bytes
_MOST = 200  # characters that are looked at of a token


Asked = Standing | Proposal | Removal
_OPEN = (AccessState.REQUESTED, ProposalState.OPEN, RemovalState.OPEN)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a link is about, as it stands now."""

    agent: Agent
    asked: Asked
    state: AccessState | ProposalState | RemovalState
    until: datetime  # it decides


def make(agent: Agent, number: int) -> str:
    """A token for the agent's present steward, about an open request or proposal; kept nowhere.

    Raises NotOpen, ConsentRequired, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        if not row.steward:
            raise errors.ConsentRequired("This agent has no steward.")
        asked = asked_by(row, number)
        if asked is None or asked.at(steps.clock(row)) not in _OPEN:
            raise errors.NotOpen(f"There is no open request {number}.")
        prefix, secret = new_prefix(), secrets.token_hex(_SECRET)  # of which a mail program cuts nothing off
        link = ConsentLink(agent_id=row.pk, number=number, prefix=prefix, made_at=timezone.now())
        link.mac = macs(_text(link, secret))[0]
        link.steward_mac = macs(f"steward/{row.pk}/{row.steward}")[0]
        link.save(force_insert=True)
        return f"{prefix}_{secret}"


def asked_by(agent: Agent, number: int) -> Asked | None:
    """What the entry of this number asked, or proposed."""
    finders: tuple[Callable[[int, int], Mapping[int, Asked]], ...] = (standings, proposed, removals)
    for found in finders:
        if number in (asked := found(agent.pk, number)):
            return asked[number]
    return None


def look(token: str) -> Opened:
    """What a link is about. Decides nothing. Raises InvalidLink."""
    agent, link = _proven(token)
    asked = asked_by(agent, link.number)
    if asked is None or not (_is_mailed_to(link, agent.steward) or _has_replaced_itself(agent, link, asked)):
        raise errors.InvalidLink(_BROKEN)
    state = grants.at_present(agent, asked) if isinstance(asked, Standing) else asked.at(steps.clock(agent))
    return Opened(agent, asked, state, _until(link))


def decide(token: str, *, approve: bool) -> Asked:
    """Decide, once. Raises InvalidLink, NotOpen, RequestNotFound, ConsentRequired, Invalid, Erased."""
    with _by_steward(token) as (row, link, actor):
        if timezone.now() >= _until(link):
            raise errors.InvalidLink("This link is too old to decide by.")
        asked = asked_by(row, link.number)
        if isinstance(asked, Removal) and approve:  # constitutional memories, too: the page shows which ones are
            return removal.agree(row, asked, actor, include_constitutional=True)
        if isinstance(asked, Removal):
            return removal_requests.decline(row, asked.number, actor)
        if isinstance(asked, Proposal):
            return (proposals.accept if approve else proposals.decline)(row, link.number, actor)
        return (grants.approve if approve else grants.deny)(row, link.number, actor)


def _until(link: ConsentLink) -> datetime:
    return link.made_at + LAPSES


def revoke(token: str) -> Standing:
    """End the grant now. Raises InvalidLink, NotOpen."""
    with _by_steward(token) as (row, link, actor):
        return grants.revoke(row, link.number, actor)


def _proven(token: str) -> tuple[Agent, ConsentLink]:
    """The row a token proves, and its agent. Whatever is wrong with a token, the answer is the same."""
    prefix, _, secret = token[:_MOST].partition("_")
    is_formed = len(prefix) == PREFIX_CHARACTERS and prefix.isalnum() and secret.isascii()
    link = ConsentLink.objects.filter(prefix=prefix).first() if is_formed else None
    expected = bytes(link.mac) if link else b"\0" * 32
    if not is_proven(expected, _text(link, secret) if link else "") or link is None:
        raise errors.InvalidLink(_BROKEN)
    agent = Agent.objects.select_related("tenant").filter(pk=link.agent_id).first()
    if agent is None:
        raise errors.InvalidLink(_BROKEN)
    return agent, link


_BROKEN = "This link is not valid."


@contextmanager
def _by_steward(token: str) -> Iterator[tuple[Agent, ConsentLink, Actor]]:
    """The agent's row, locked, for whom the link was mailed to. Raises InvalidLink unless that is its steward now."""
    agent, link = _proven(token)
    with grants.over_stays_over(agent), edits.locked(agent) as row:
        if not _is_mailed_to(link, row.steward):
            raise errors.InvalidLink(_BROKEN)
        yield row, link, Actor.steward(row.steward)


def _is_mailed_to(link: ConsentLink, steward: str) -> bool:
    return is_proven(bytes(link.steward_mac), f"steward/{link.agent_id}/{steward}")


def _has_replaced_itself(agent: Agent, link: ConsentLink, asked: Asked) -> bool:
    """Whether the steward it was mailed to is one no more by what it was about: they may still see that."""
    if not isinstance(asked, Proposal) or asked.state != ProposalState.ACCEPTED or "steward" not in asked.proposed:
        return False
    with suppress(DomainError):  # who it was is sealed: of an erased silo nobody knows
        return _is_mailed_to(link, letters.steward_at(agent, asked.settled_by, letters.BEFORE))
    return False


def _text(link: ConsentLink, secret: str) -> str:
    """All that a link is worth, its time, too: an old one would decide again, were its row made younger."""
    return f"consent-link/{link.agent_id}/{link.number}/{link.prefix}/{link.made_at.isoformat()}/{secret}"
