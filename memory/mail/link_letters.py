"""Ask a steward by mail to decide about a request or a proposal. The token of the link is only in this mail.

The text is made from the audit trail when the mail is sent, without content of memories. The requester's purpose or
reason comes after the link and in quotes, because this text could contain another link.
"""

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone

from audit.consent import LAPSES, PROPOSAL, Request
from memory import errors
from memory.consent import links, requests
from memory.mail import letters, wording
from memory.models import Agent
from memory.writing import edits


def send(agent_id: int, number: int) -> str:
    """Mail the agent's steward a link to decide about a request or a proposal. Returns a result code.

    Raises OSError, MailNotSent.
    """
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    with edits.locked(agent) as row:  # so that the mail goes to the steward for whom the link is made
        request = requests.get(row, number)
        if request is None:
            return "unknown"
        letters.require_mail(row)
        if not row.steward or requests.is_by(row.steward, request.asker, request.asked_by):
            return "nobody_to_ask"
        try:
            requests.require_intact(row, request)
            token = links.make(row, number)
        except (errors.NotOpen, errors.RequestNotFound, errors.Erased):
            return "over"
        subject, what = _text(row, request)
    send_mail(" ".join(f"{row.label}: {subject}".split()), _body(row, request, what, token), None, [row.steward])
    return "sent"


def _text(agent: Agent, request: Request) -> tuple[str, str]:
    """Return the subject of the mail, and the sentence that says what the request asks for."""
    who = wording.requester(request)
    if request.operation == PROPOSAL:
        changes = "\n".join(f"- {line}" for line in wording.changes(agent, request.proposed))
        return "a change of settings is proposed", f"{who} proposes this:\n\n{changes}"
    listed = wording.numbered(request.memories or request.scope.numbers)
    if request.is_removal:
        return "somebody asks to delete memories permanently", (
            f"{who} asks to permanently delete {wording.removed(request)}{f' (numbers {listed})' if listed else ''}. "
            "Nobody can restore deleted content."
        )
    return f"{who} asks to read its memories", (
        f"{who} asks to read {wording.scope(request.scope)}{f' ({listed})' if listed else ''}, for "
        f"{wording.duration(request.seconds)} after your approval."
    )


_REASON = "The reason, in the requester's own words. The service has not checked this text:\n\n    {}\n"


def _body(agent: Agent, request: Request, what: str, token: str) -> str:
    until = timezone.now() + LAPSES if request.is_removal else request.decide_until
    default = "nothing is deleted" if request.is_removal else "the answer is no"
    return (
        f"You receive this mail because you are the steward of the agent {agent.label}.\n\n{what}\n\n"
        f"Open this link to approve or deny:\n\n    {settings.PUBLIC_URL}/consent/{token}\n\n"
        f"The link is valid until {until:%d %B %Y at %H:%M} UTC. Opening it decides nothing. If you do nothing, "
        f"{default}. Do not share the link: anybody who has it can decide in your name.\n\n"
        + (_REASON.format(wording.quoted(request.reason)) if request.reason else "")
    )
