"""Mailed links with which a steward decides about an access request, a removal request or a proposal.

A link is created when it is mailed. A MAC proves that a link is genuine. A link is valid for one decision, and only for
the steward who received it. Opening a link decides nothing. After the decision, the link's page shows the result, and
the steward can revoke an active grant on this page.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from audit.consent import Request, lapses_at
from audit.models import ConsentLink, State
from audit.trail import Actor
from config.errors import DomainError
from config.keyring import is_proven, macs
from memory import errors
from memory.access import authority
from memory.access.authentication import PREFIX_CHARACTERS, new_prefix
from memory.consent import approval, requests
from memory.mail import letters, outbox
from memory.models import Agent, LetterKind
from memory.writing import edits

_SECRET = 32  # bytes
_MAX_TOKEN = 200  # characters


class Opened(NamedTuple):
    """The request that a link is about, in its present state."""

    agent: Agent
    request: Request
    until: datetime  # after this time, the link cannot be used to decide


def make(agent: Agent, number: int) -> str:
    """Create a link for the agent's present steward, about an open request or proposal. Returns the link's token.

    The token is not stored. Raises NotOpen, ConsentRequired, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        if not row.steward:
            raise errors.ConsentRequired("This agent has no steward.")
        request = requests.require_open(row, number)
        prefix, secret = new_prefix(), secrets.token_hex(_SECRET)  # hexadecimal: mail programs do not cut such a URL
        link = ConsentLink(agent_id=row.pk, number=number, prefix=prefix, made_at=timezone.now())
        link.steward_mac = macs(_recipient(row.pk, row.steward, request))[0]
        link.mac = macs(_text(link, secret))[0]
        link.save(force_insert=True)
        return f"{prefix}_{secret}"


def look(token: str) -> Opened:
    """The request of a link, in its present state. This function makes no decision. Raises InvalidLink, NotOpen,
    RequestNotFound."""
    agent, link = _proven(token)
    request = _request(agent, link)
    if not (_is_mailed_to(link, agent.steward, request) or _is_former_steward(agent, link, request)):
        raise errors.InvalidLink(_BROKEN)
    requests.expire(agent)
    return Opened(agent, request.at(requests.clock(agent)), _until(link))


def decide(token: str, *, approve: bool, shown: str | None = None) -> Request:
    """Approve or deny the request of a link, once. `shown` is as in `redaction.redact`. Raises InvalidLink, NotOpen,
    RequestNotFound, ConsentRequired, Invalid, TrailChanged, Erased."""
    with _by_steward(token) as (row, link, actor):
        if timezone.now() >= _until(link):
            raise errors.InvalidLink("This link has expired.")
        if approve:  # the page has listed the constitutional memories
            decided = approval.approve(row, link.number, actor, include_constitutional=True, shown=shown)
        else:
            decided = requests.deny(row, link.number, actor)
        outbox.add(row, LetterKind.DECISION, link.number)
        return decided


def _until(link: ConsentLink) -> datetime:
    return lapses_at(link.made_at)


def revoke(token: str) -> Request:
    """End the grant now. Raises InvalidLink, NotOpen."""
    with _by_steward(token) as (row, link, actor):
        outbox.add(row, LetterKind.DECISION, link.number)
        return requests.revoke(row, link.number, actor)


def _proven(token: str) -> tuple[Agent, ConsentLink]:
    """The agent and the link of a token. Raises InvalidLink, with the same message for every problem."""
    prefix, _, secret = token[:_MAX_TOKEN].partition("_")
    is_formed = len(prefix) == PREFIX_CHARACTERS and prefix.isalnum() and secret.isascii()
    link = ConsentLink.objects.filter(prefix=prefix).first() if is_formed else None
    expected, text = (bytes(link.mac), _text(link, secret)) if link else (b"\0" * 32, "")
    agent = Agent.objects.select_related("tenant").filter(pk=link.agent_id).first() if link else None
    if not is_proven(expected, text) or link is None or agent is None:
        raise errors.InvalidLink(_BROKEN)
    authority.require(agent)
    return agent, link


_BROKEN = "This link is not valid."


def _request(agent: Agent, link: ConsentLink) -> Request:
    """The request of a link. If it is open, it is checked, so that the steward approves what the page shows. Raises
    InvalidLink, NotOpen, RequestNotFound."""
    request = requests.get(agent, link.number)
    if request is None:
        raise errors.InvalidLink(_BROKEN)
    requests.require_intact(agent, request)
    return request


@contextmanager
def _by_steward(token: str) -> Iterator[tuple[Agent, ConsentLink, Actor]]:
    """Lock the agent's row. Raises InvalidLink unless the link was mailed to the present steward."""
    agent, link = _proven(token)
    requests.expire(agent)
    with edits.locked(agent) as row:
        if not _is_mailed_to(link, row.steward, _request(row, link)):
            raise errors.InvalidLink(_BROKEN)
        yield row, link, Actor.steward(row.steward)


def _is_mailed_to(link: ConsentLink, steward: str, request: Request) -> bool:
    return is_proven(bytes(link.steward_mac), _recipient(link.agent_id, steward, request))


def _recipient(agent_id: int, steward: str, request: Request) -> str:
    """The text for the MAC of the steward. It includes the MAC of the request's entry, which the letter shows."""
    return f"steward/{agent_id}/{steward}/{request.mac}"


def _is_former_steward(agent: Agent, link: ConsentLink, request: Request) -> bool:
    """Whether the agent has a new steward because the proposal of this link was accepted. The former steward, who
    received the link, may still see the result."""
    if request.state != State.ACCEPTED or "steward" not in request.proposed:
        return False
    with suppress(DomainError):  # the former address is encrypted, and lost if the agent is erased
        return _is_mailed_to(link, letters.steward_before(agent, request.settled_by), request)
    return False


def _text(link: ConsentLink, secret: str) -> str:
    """The text for the MAC. It includes the time and the steward. So a link is not valid if SQL changed either."""
    return f"link/{link.agent_id}/{link.number}/{link.prefix}/{link.made_at}/{bytes(link.steward_mac).hex()}/{secret}"
