"""Letters that ask a steward to decide: the only place where a link's token is, beside the steward's mailbox.

Written when they are sent, out of the trail, and never of what a memory says. What a person gave as their purpose is
quoted after the link and called theirs: they could write a link of their own into it.
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
    """Write to the agent's steward about a request, or a proposal; a code for what became of it.

    Raises OSError when it cannot be sent, MailNotSent.
    """
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    asked = links.asked_by(agent, number)
    if asked is None:
        return "unknown"
    letters.require_sent(agent)
    if not agent.steward or any(same_address(agent.steward, asker) for asker in askers(asked)):  # who do not decide
        return "nobody_to_ask"
    try:
        token = links.make(agent, number)
    except (errors.NotOpen, errors.Erased):
        return "over"
    link = f"{settings.PUBLIC_URL}/consent/{token}"
    subject, body = _written(agent, asked, link)
    send_mail(" ".join(f"{agent.label}: {subject}".split()), body, None, [agent.steward])
    return "sent"


def askers(asked: links.Asked) -> tuple[str, ...]:
    """Whose wish it is, by their addresses or labels."""
    if isinstance(asked, Removal):
        return letters.askers(asked.asker, asked.asked_by)
    return (asked.person if isinstance(asked, Standing) else asked.proposer,)


def _written(agent: Agent, asked: links.Asked, link: str) -> tuple[str, str]:
    """Subject and body."""
    if isinstance(asked, Standing):
        return _request(agent, asked, link)
    return _removal(agent, asked, link) if isinstance(asked, Removal) else _proposal(agent, asked, link)


def _request(agent: Agent, asked: Standing, link: str) -> tuple[str, str]:
    listed = wording.numbered(asked.scope.numbers)
    return f"{asked.person} asks to read what it remembers", (
        f"You are asked this as the steward of the agent {agent.label}.\n\n"
        f"{asked.person} asks to read {wording.scope(asked.scope)}{f' ({listed})' if listed else ''}, for "
        f"{wording.duration(asked.seconds)} from when you say yes.\n\n"
        f"{_deciding(link, asked.asked_at + LAPSES)}"
        f"Why, in their own words, which the service did not check:\n\n    {wording.quoted(asked.purpose)}\n"
    )


def _proposal(agent: Agent, asked: Proposal, link: str) -> tuple[str, str]:
    who = wording.proposer(asked.proposer_kind, asked.proposer)
    changes = "".join(f"- {line}\n" for line in wording.changes(agent, asked.proposed))
    return "a change of what its side decides is proposed", (
        f"You are asked this as the steward of the agent {agent.label}.\n\n"
        f"{who} proposes this:\n\n{changes}\n"
        f"{_deciding(link, asked.asked_at + LAPSES)}"
    )


def _removal(agent: Agent, asked: Removal, link: str) -> tuple[str, str]:
    listed = wording.numbered(asked.memories)
    return "somebody asks to remove what it remembers, for good", (
        f"You are asked this as the steward of the agent {agent.label}.\n\n"
        f"{wording.asker(asked.asker_kind, asked.asker, asked.asked_by)} asks to remove, for good, "
        f"{wording.removed(asked)}{f' (numbers {listed})' if listed else ''}. Nothing brings it back.\n\n"
        f"{_deciding(link, timezone.now() + LAPSES, 'To do nothing removes nothing.')}"
        f"Why, in their own words, which the service did not check:\n\n    {wording.quoted(asked.reason)}\n"
    )


def _deciding(link: str, until: datetime, otherwise: str = "To do nothing means no.") -> str:
    return (
        f"Look at it, and say yes or no, here:\n\n    {link}\n\n"
        f"The link decides until {until:%d %B %Y at %H:%M} UTC. To open it decides nothing. {otherwise} "
        "Give it to nobody: whoever has it can decide in your name.\n\n"
    )
