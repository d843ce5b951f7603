"""Agreeing to a request of removal, whichever it is: by the API's road and by the steward's link."""

from __future__ import annotations

from audit.removals import Removal
from audit.trail import Actor
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent


def agree(agent: Agent, asked: Removal, actor: Actor, *, include_constitutional: bool) -> Removal:
    """Carry it out, on the agent's side; the request as it stands then.

    Raises ConsentRequired, RequestNotFound, Redacted, Constitutional, Erased.
    """
    if asked.is_erasure:
        erasure.erase(agent, asked.number, actor)
    else:
        redaction.redact(agent, asked.number, actor, include_constitutional=include_constitutional)
    return removal_requests.find(agent, asked.number)
