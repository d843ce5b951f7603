"""What workers are given to do for refinement. A task delivered twice does nothing the second time."""

from __future__ import annotations

from config.queue import task
from memory.models import Agent
from refinement import loop, schedule, turns
from refinement import session as sessions


@task
def sweep() -> str:
    """Queue the agents that are due."""
    turns.call_due()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine an agent, if it is due. What became of it is the session's outcome."""
    turns.take(agent_id)
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    try:
        session = turns.open_due(agent)
    except Exception:  # else it would be due, and fail, at every sweep
        schedule.put_off(agent)
        raise
    return "not_due" if session is None else loop.drive(session).outcome


@task
def close_stale() -> str:
    """End the sessions whose drivers are gone."""
    sessions.close_stale()
    return "closed"
