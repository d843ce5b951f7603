"""The work of a worker. It refines the next agent of the backlog, and wakes another worker for the agent after that."""

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
    """Refine the next agent of the backlog. If the agent `agent_id` is due, it is added to the backlog before the next
    agent is chosen. Returns the session's outcome, or `not_due` if no session was opened."""
    backlog.add_if_due(agent_id)
    try:
        while not is_ending() and (turn := scheduling.take()) is not None:
            backlog.wake_next()  # an idle worker may take the next agent
            outcome = _refine(turn)
            if outcome != NOT_DUE:
                return outcome
        return NOT_DUE
    finally:
        backlog.wake_next()


def _refine(turn: Waiting) -> str:
    try:
        agent = Agent.objects.select_related("tenant").get(pk=turn.pk)
        if providers.is_failing(agent.model) and not probe.is_available(agent.model):
            scheduling.give_back(turn)
            return NOT_DUE
        outcome = _open_and_drive(agent)
    except AgentBusy:
        return NOT_DUE  # it stays taken until `backlog.remove_lost`, so that workers do not retry it at once
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
    except Exception:  # otherwise it fails again at every sweep
        schedule.delay(agent)
        raise
    if session is None:
        return NOT_DUE
    log.info("refinement session opened", agent=agent.pk, session=session.number, reason=session.trigger)
    return loop.drive(session).outcome
