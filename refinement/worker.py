"""What a worker does that is woken: refine the agent whose turn it is, and see to it that somebody goes on."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from config.queue import Stopped, is_ending, reconnect
from memory.models import Agent
from refinement import backlog, loop, probe, providers, schedule, scheduling
from refinement.errors import AgentBusy
from refinement.models import Waiting

NOT_DUE = "not_due"

log = structlog.get_logger("palimpsest.refinement")


def refine_next(agent_id: int) -> str:
    """What became of it: the session's outcome, or that nobody was due. The agent that is named stands in line, too."""
    backlog.look(agent_id)
    try:
        return _refine_one()
    finally:
        backlog.go_on()


def _refine_one() -> str:
    while not is_ending() and (turn := scheduling.take()) is not None:
        backlog.go_on()  # whoever is idle may take the next
        outcome = _refine(turn)
        if outcome != NOT_DUE:
            return outcome
    return NOT_DUE


def _refine(turn: Waiting) -> str:
    leave: Callable[[Waiting], None] = scheduling.end
    try:
        agent = Agent.objects.select_related("tenant").get(pk=turn.pk)
        if providers.is_doubted(agent.model) and not probe.answers(agent.model):
            leave = scheduling.give_back
            return NOT_DUE
        return _open_and_drive(agent)
    except AgentBusy:
        leave = scheduling.keep
        return NOT_DUE
    except Stopped:
        leave = scheduling.give_back
        reconnect()
        raise
    finally:
        leave(turn)


def _open_and_drive(agent: Agent) -> str:
    try:
        session = scheduling.open_due(agent)
    except AgentBusy:
        raise
    except Exception:  # else it would be due, and fail, at every sweep
        schedule.put_off(agent)
        raise
    if session is None:
        return NOT_DUE
    log.info("refinement session opened", agent=agent.pk, session=session.number, reason=session.trigger)
    return loop.drive(session).outcome
