"""Ask a steward by mail to decide about a request or a proposal. The token of the link is only in this mail.

The text is made from the audit trail when the mail is sent, without content of memories. The requester's purpose or
reason comes after the link and in quotes, because this text could contain another link.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone

from audit.consent import LAPSES, Standing, same_address
from audit.proposals import Proposal
from audit.removals import Removal
from memory import errors
from memory.consent import links
from memory.mail import letters, wording
from memory.models import Agent


def send(agent_id: int, number: int) -> str:
    """Mail the agent's steward a link to decide about a request or a proposal. Returns a result code.

    Raises OSError, MailNotSent.
    """
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    request = links.find_request(agent, number)
    if request is None:
        return "unknown"
    letters.require_mail(agent)
    if not agent.steward or any(same_address(agent.steward, each) for each in requesters(request)):
        return "nobody_to_ask"
    try:
        token = links.make(agent, number)
    except (errors.NotOpen, errors.Erased):
        return "over"
    link = f"{settings.PUBLIC_URL}/consent/{token}"
    subject, body = _text(agent, request, link)
    send_mail(" ".join(f"{agent.label}: {subject}".split()), body, None, [agent.steward])
    return "sent"


def requesters(request: links.Request) -> tuple[str, ...]:
    """Return the possible requesters, as addresses or labels. A steward with one of these addresses may not decide."""
    if isinstance(request, Removal):
        return letters.requesters(request.asker, request.asked_by)
    return (request.person if isinstance(request, Standing) else request.proposer,)


def _text(agent: Agent, request: links.Request, link: str) -> tuple[str, str]:
    """Return the subject and the body of the mail."""
    if isinstance(request, Standing):
        return _access(agent, request, link)
    return _removal(agent, request, link) if isinstance(request, Removal) else _proposal(agent, request, link)


_REASON = "The reason, in the requester's own words. The service has not checked this text"


def _access(agent: Agent, request: Standing, link: str) -> tuple[str, str]:
    listed = wording.numbered(request.scope.numbers)
    return f"{request.person} asks to read its memories", (
        f"You receive this mail because you are the steward of the agent {agent.label}.\n\n"
        f"{request.person} asks to read {wording.scope(request.scope)}{f' ({listed})' if listed else ''}, for "
        f"{wording.duration(request.seconds)} after your approval.\n\n"
        f"{_instructions(link, request.asked_at + LAPSES)}"
        f"{_REASON}:\n\n    {wording.quoted(request.purpose)}\n"
    )


def _proposal(agent: Agent, request: Proposal, link: str) -> tuple[str, str]:
    who = wording.proposer(request.proposer_kind, request.proposer)
    changes = "".join(f"- {line}\n" for line in wording.changes(agent, request.proposed))
    return "a change of settings is proposed", (
        f"You receive this mail because you are the steward of the agent {agent.label}.\n\n"
        f"{who} proposes this:\n\n{changes}\n"
        f"{_instructions(link, request.asked_at + LAPSES)}"
    )


def _removal(agent: Agent, request: Removal, link: str) -> tuple[str, str]:
    listed = wording.numbered(request.memories)
    return "somebody asks to delete memories permanently", (
        f"You receive this mail because you are the steward of the agent {agent.label}.\n\n"
        f"{wording.requester(request.asker_kind, request.asker, request.asked_by)} asks to permanently delete "
        f"{wording.removed(request)}{f' (numbers {listed})' if listed else ''}. Nobody can restore deleted content.\n\n"
        f"{_instructions(link, timezone.now() + LAPSES, 'If you do nothing, nothing is deleted.')}"
        f"{_REASON}:\n\n    {wording.quoted(request.reason)}\n"
    )


def _instructions(link: str, until: datetime, default: str = "If you do nothing, the answer is no.") -> str:
    return (
        f"Open this link to approve or deny:\n\n    {link}\n\n"
        f"The link is valid until {until:%d %B %Y at %H:%M} UTC. Opening it decides nothing. {default} "
        "Do not share the link: anybody who has it can decide in your name.\n\n"
    )
