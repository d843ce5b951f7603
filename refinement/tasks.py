"""The tasks of refinement. A task that is delivered twice does nothing the second time."""

from __future__ import annotations

from contextlib import ExitStack

from config.queue import task
from memory.recording import automatic
from memory.vault import writer
from refinement import backlog, worker
from refinement import session as sessions


@task
def sweep() -> str:
    """Let the agents that are due wait for a worker."""
    backlog.sweep()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine the next agent of all that wait. It need not be the named one."""
    return worker.refine_next(agent_id)


@task
def close_stale() -> str:
    """End the sessions whose drivers are gone, and wake workers for the agents that waited for that.

    It also does other regular work: it writes vault files that are missing, reminds agents of overdue memories, and
    writes the memories of recorded conversations that have ended.
    """
    sessions.close_stale()
    backlog.forget_lost()
    backlog.wake()
    with ExitStack() as each:  # all are called, and then a failure is raised
        each.callback(writer.catch_up)
        each.callback(automatic.send_notices)
        each.callback(automatic.end_quiet)
    return "closed"
