"""The queue's tasks for refinement. To deliver a task twice has no effect."""

from __future__ import annotations

from contextlib import ExitStack

from config.queue import task
from memory.recording import automatic
from memory.vault import writer
from refinement import backlog, worker
from refinement import session as sessions


@task
def sweep() -> str:
    """Add due agents to the backlog."""
    backlog.sweep()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine the next agent of the backlog, not necessarily this one."""
    return worker.refine_next(agent_id)


@task
def close_stale() -> str:
    """End sessions that nobody drives any more, and wake workers for their agents.

    It also writes missing vault files, reminds agents of overdue memories, and writes the memories of recorded sessions
    that have ended.
    """
    sessions.close_stale()
    backlog.remove_lost()
    backlog.wake()
    with ExitStack() as each:  # all are called, even if one fails
        each.callback(writer.catch_up)
        each.callback(automatic.send_notices)
        each.callback(automatic.end_quiet)
    return "closed"
