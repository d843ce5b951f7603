"""The work of a worker. It refines the next agent of the backlog, and wakes another worker for the agent after that."""

import time

import structlog
from django.db import InterfaceError, OperationalError

from config.queue import Stopped, is_ending, reconnect, until_answered
from memory.errors import AuthorityBroken, TrailShortened
from memory.models import Agent
from refinement import backlog, dreams, loop, probe, providers, schedule, scheduling
from refinement.errors import AgentBusy
from refinement.llm.base import NoModel
from refinement.models import Waiting

NOT_DUE = "not_due"
MOST_SECONDS = 10.0  # of a task in which no session was opened

log = structlog.get_logger("palimpsest.refinement")


def refine_next(agent_id: int) -> str:
    """Refine the next agent of the backlog. If the agent `agent_id` is due, it is added to the backlog before the next
    agent is chosen. Returns the session's outcome, or `not_due` if no session was opened within MOST_SECONDS."""
    backlog.add_if_due(agent_id)
    until = time.monotonic() + MOST_SECONDS
    try:
        while not is_ending() and time.monotonic() < until and (turn := scheduling.take()) is not None:
            if (outcome := _refine(turn)) != NOT_DUE:
                return outcome
        return NOT_DUE
    finally:
        backlog.wake_next()


def _refine(turn: Waiting) -> str:
    try:
        backlog.wake_next()  # an idle worker may take the next agent
        agent = Agent.objects.select_related("tenant").get(pk=turn.pk)
        if not backlog.if_due(agent.pk):  # somebody canceled a dream, or paused the agent
            scheduling.end(turn)
            return NOT_DUE
        if trouble := probe.trouble(agent):
            if trouble.is_configuration and not isinstance(trouble, NoModel):
                providers.refuse(agent.model, trouble)
            # The next sweep adds an agent with another model again.
            (scheduling.give_back if turn.model == agent.model else scheduling.end)(turn)
            return NOT_DUE
        outcome = _open_and_drive(agent)
    except (AuthorityBroken, TrailShortened) as broken:
        log.error("agent not refined", agent=turn.pk, code=broken.code)
        schedule.set_aside(turn.pk)
        scheduling.end(turn)
        return NOT_DUE
    except AgentBusy:
        return NOT_DUE  # it stays taken until `backlog.add_lost`, so that workers do not retry it at once
    except Stopped:
        reconnect()
        scheduling.give_back(turn)
        raise
    except BaseException:
        reconnect()
        until_answered(lambda: scheduling.end(turn))  # otherwise nobody refines the agent for LEASE_SECONDS
        raise
    until_answered(lambda: scheduling.end(turn))
    return outcome


def _open_and_drive(agent: Agent) -> str:
    try:
        session = dreams.begin(agent) or scheduling.open_due(agent)
    except (AgentBusy, AuthorityBroken, TrailShortened, OperationalError, InterfaceError):
        raise
    except Exception:  # otherwise it fails again at every sweep
        schedule.delay(agent)
        raise
    if session is None:
        return NOT_DUE
    log.info("refinement session opened", agent=agent.pk, session=session.number, reason=session.trigger)
    return loop.drive(session).outcome
