"""The queue's tasks for refinement. If the queue delivers a task twice, the second delivery does no harm."""

from contextlib import ExitStack

from audit import disk
from config.queue import keep_schedules, task
from memory.mail import outbox
from memory.recording import automatic
from memory.search.embedding import queue_late
from memory.transfer import import_jobs
from memory.vault import writer
from refinement import backlog, embedding, worker
from refinement import session as sessions
from refinement.notices import attention, digest, webhooks


@task
def sweep() -> str:
    """Add due agents to the backlog."""
    keep_schedules()  # somebody may have changed them
    backlog.sweep()
    return "swept"


@task
def refine_agent(agent_id: int) -> str:
    """Refine the next agent of the backlog. This agent may be different from `agent_id`."""
    return worker.refine_next(agent_id)


@task
def embed_memories(agent_id: int) -> str:
    """Make the vectors of the next agent of a tenant. This agent may be different from `agent_id`."""
    return embedding.embed_next(agent_id)


@task
def send_webhooks(turn: int) -> str:
    """Deliver a few of the events that are due to the webhooks of their tenants. `turn` is the number of this task."""
    return webhooks.send(turn)


@task
def send_digests() -> str:
    """Mail the digests that are due."""
    return digest.send_due()


@task
def close_stale() -> str:
    """End sessions whose lease has expired, and wake workers for the waiting agents.

    This task also writes missing vault files, reminds agents of overdue memories, stores the memories of recorded
    sessions that have ended, continues import jobs and vectors that a killed worker left, queues letters, digests and
    the deliveries of webhooks, and empties SQLite's log, which may still have content that was removed.
    """
    ended = sessions.close_stale()
    backlog.add_lost()
    for session in ended:
        backlog.add_if_due(session.agent_id)
    backlog.wake()
    with ExitStack() as each:  # all are called, even if one fails
        each.callback(writer.catch_up)
        each.callback(automatic.send_notices)
        each.callback(automatic.end_quiet)
        each.callback(import_jobs.queue_late)
        each.callback(queue_late)
        each.callback(outbox.queue_late)
        each.callback(digest.queue_due)
        each.callback(webhooks.queue_late)
        each.callback(attention.watch)
        each.callback(disk.empty_log)
    return "closed"
