"""What workers are given to do for refinement. A task delivered twice does nothing the second time."""

from __future__ import annotations

from contextlib import ExitStack

from config.queue import task
from memory.recording import overdue, quiet_sessions
from memory.vault import writer
from refinement import backlog, worker
from refinement import session as sessions


@task
def sweep() -> str:
    """Have the agents that are due stand in line."""
    backlog.sweep()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine the agent whose turn it is, of all that stand in line; it need not be the one that is named."""
    return worker.refine_next(agent_id)


@task
def close_stale() -> str:
    """End the sessions whose drivers are gone, and wake whoever may have been waiting for that.

    Agents are told of overdue memories, too, sessions of talk that fell silent have their memory, and vaults that are
    behind follow: this comes regularly, however busy the service is.
    """
    sessions.close_stale()
    backlog.forget_lost()
    backlog.wake()
    with ExitStack() as each:  # where one fails the others are done all the same, and then the failure is told
        each.callback(writer.catch_up)
        each.callback(overdue.remind)
        each.callback(quiet_sessions.end_quiet)
    return "closed"
