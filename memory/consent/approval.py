"""Carry out a request that the agent's side approves. The API and the steward's link use this module."""

from audit.consent import PROPOSAL, Request
from audit.models import Operation
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import erasure, redaction, requests
from memory.models import Agent
from memory.run_log import runs
from memory.writing import edits


def approve(
    agent: Agent, number: int, actor: Actor, *, include_constitutional: bool = False, shown: str | None = None
) -> Request:
    """Approve a request in the name of the agent's side. Returns the request with its new state.

    A grant begins, the proposed change is made, or the content is removed. `shown` is as in `redaction.redact`. Raises
    ConsentRequired, NotOpen, RequestNotFound, Invalid, Redacted, Constitutional, TrailChanged, Erased.
    """
    with edits.locked(agent) as row:
        request = requests.get(row, number)
        if request is not None and request.is_erasure:
            erasure.erase(row, number, actor)
        elif request is not None and request.is_removal:
            redaction.redact(row, number, actor, include_constitutional=include_constitutional, shown=shown)
        else:
            edits.require_key(row)
            request = requests.require_decidable(row, number, actor)
            if request.operation == PROPOSAL:
                runs.require_new(request.proposed.get("memory_path", ""), request.asker_kind)
                lifecycle.change(row, actor, proposal=number, **request.proposed)
            else:
                requests.write(row, Operation.ACCESS_GRANTED, actor, {"request": number})
        return requests.find(row, number)


def shown(agent: Agent, *operations: str, since: int = 1) -> list[Request]:
    """The requests in their present state, for the agent's side. Those that are open are checked, because the agent's
    side may approve them. Raises NotOpen, RequestNotFound."""
    requests.expire(agent)
    found = [each for each in requests.present(agent, *operations, since=since) if each.number <= agent.audit_seq]
    requests.require_intact(agent, *found)
    return found
