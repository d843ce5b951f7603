"""What workers are given to do for refinement. A task delivered twice does nothing the second time."""

from __future__ import annotations

from config.queue import task
from memory.models import Agent
from refinement import line, loop, probe, providers, schedule, turns
from refinement import session as sessions
from refinement.models import Waiting

NOT_DUE = "not_due"


@task
def sweep() -> str:
    """Have the agents that are due stand in line."""
    line.sweep()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine the agent whose turn it is, of all that stand in line; it need not be the one that is named.

    What became of it is the session's outcome.
    """
    line.look(agent_id)
    try:
        return _refine_next()
    finally:
        line.go_on()


def _refine_next() -> str:
    while (turn := turns.take()) is not None:
        outcome = _refine(turn)
        if outcome != NOT_DUE:
            return outcome
    return NOT_DUE


def _refine(turn: Waiting) -> str:
    agent = Agent.objects.select_related("tenant").get(pk=turn.pk)
    if providers.is_doubted(turn.provider) and not probe.answers(agent.model):
        turns.give_back(turn)
        return NOT_DUE
    try:
        return _open_and_drive(agent)
    finally:
        turns.end(turn)


def _open_and_drive(agent: Agent) -> str:
    try:
        session = turns.open_due(agent)
    except Exception:  # else it would be due, and fail, at every sweep
        schedule.put_off(agent)
        raise
    return NOT_DUE if session is None else loop.drive(session).outcome


@task
def close_stale() -> str:
    """End the sessions whose drivers are gone, and wake whoever may have been waiting for that."""
    sessions.close_stale()
    line.forget_lost()
    line.wake()
    return "closed"
