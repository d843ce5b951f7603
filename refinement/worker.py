"""What a worker does when it is woken: it refines the next agent, and wakes another worker for the one after it."""

from __future__ import annotations

import structlog

from config.queue import Stopped, is_ending, reconnect
from memory.models import Agent
from refinement import backlog, loop, probe, providers, schedule, scheduling
from refinement.errors import AgentBusy
from refinement.models import Waiting

NOT_DUE = "not_due"

log = structlog.get_logger("palimpsest.refinement")


def refine_next(agent_id: int) -> str:
    """The outcome of the session, or `not_due` if nothing was to be done. The named agent waits with the others."""
    backlog.look(agent_id)
    try:
        while not is_ending() and (turn := scheduling.take()) is not None:
            backlog.go_on()  # an idle worker may take the next agent
            outcome = _refine(turn)
            if outcome != NOT_DUE:
                return outcome
        return NOT_DUE
    finally:
        backlog.go_on()


def _refine(turn: Waiting) -> str:
    try:
        agent = Agent.objects.select_related("tenant").get(pk=turn.pk)
        if providers.is_doubted(agent.model) and not probe.answers(agent.model):
            scheduling.give_back(turn)
            return NOT_DUE
        outcome = _open_and_drive(agent)
    except AgentBusy:
        return NOT_DUE  # it counts as lost later (`backlog.forget_lost`): workers do not try it again and again
    except Stopped:
        reconnect()
        scheduling.give_back(turn)
        raise
    except BaseException:
        scheduling.end(turn)
        raise
    scheduling.end(turn)
    return outcome


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
