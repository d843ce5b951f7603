"""Carries out a removal request: a redaction or an erasure. The API and the steward's link use this module."""

from __future__ import annotations

from audit.removals import Removal
from audit.trail import Actor
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent


def agree(agent: Agent, request: Removal, actor: Actor, *, include_constitutional: bool) -> Removal:
    """Carry out a removal request in the name of the agent's side. Returns the request with its new state.

    Raises ConsentRequired, RequestNotFound, Redacted, Constitutional, Erased.
    """
    if request.is_erasure:
        erasure.erase(agent, request.number, actor)
    else:
        redaction.redact(agent, request.number, actor, include_constitutional=include_constitutional)
    return removal_requests.find(agent, request.number)
