"""Ask a steward by mail to decide about a request or a proposal, and confirm the decision. The token of the link is
only in the first mail.

The text is made from the audit trail when the mail is sent, without content of memories. The requester's purpose or
reason comes after the link and in quotes, because this text could contain another link.
"""

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone

from audit.consent import LAPSES, PROPOSAL, Request
from audit.models import ActorKind, State
from config.queue import LOCK_SECONDS
from memory import errors
from memory.access import authority
from memory.consent import links, requests
from memory.mail import letters, wording
from memory.models import Agent
from memory.writing import edits


def send(agent_id: int, number: int) -> str:
    """Mail the agent's steward a link to decide about a request or a proposal. Returns a result code.

    Raises OSError, MailNotSent.
    """
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    with edits.locked(agent, seconds=LOCK_SECONDS) as row:  # so that its steward gets the link
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


def confirm(agent_id: int, number: int) -> str:
    """Mail the steward a confirmation of what they decided with a link. Returns a result code. Raises OSError."""
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    authority.require(agent)
    request = requests.get(agent, number)
    if request is None or request.decided_by != ActorKind.STEWARD or request.state not in _DECIDED:
        return "unknown"
    address = letters.steward_before(agent, request.settled_by)
    if not address or letters.are_printed():
        return "no_steward"
    decided, what = _DECIDED[request.state]
    what = what.format(until=request.until, ended_at=request.ended_at)
    body = (
        f"You receive this mail because you are the steward of the agent {agent.label}.\n\n"
        f"{wording.requester(request)} asked {_wish(request)}. You {decided} this request on "
        f"{request.decided_at:{_TIME}}.\n\n{what}\n\n"
        "If you did not decide this, somebody else has your link. Tell the organisation that runs the agent.\n"
    )
    send_mail(f"{agent.label}: you {decided} a request", body, None, [address])
    return "sent"


_TIME = "%d %B %Y at %H:%M UTC"
_NOTHING = "Nothing was changed, and the request gives nobody access."
_DECIDED = {
    State.ACTIVE: (
        "approved",
        "The access holds until {until:%d %B %Y at %H:%M UTC}. To revoke it earlier, open the link in the mail about "
        "the request again, and press Revoke.",
    ),
    State.EXPIRED: ("approved", "The access expired on {until:%d %B %Y at %H:%M UTC}."),
    State.REVOKED: ("approved", "The access was revoked on {ended_at:%d %B %Y at %H:%M UTC}. Nobody can use it now."),
    State.ACCEPTED: ("approved", "The change is made. You cannot undo it with the link."),
    State.CARRIED_OUT: ("approved", "The content was permanently deleted. Nobody can restore it."),
    State.DENIED: ("denied", _NOTHING),
    State.DECLINED: ("denied", _NOTHING),
}


def _wish(request: Request) -> str:
    """What a request asks for, without the reason."""
    if request.operation == PROPOSAL:
        return f"for this change: {'; '.join(wording.proposed(request.proposed))}"
    if request.is_removal:
        return f"to permanently delete {wording.removed(request)}"
    return f"to read {wording.scope(request.scope)}"
