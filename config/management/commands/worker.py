"""Run the tasks of the queue: the refinement of due agents, letters to stewards, and the sweep, which looks for due
agents."""

from __future__ import annotations

import gc
import logging
import os
import signal
from importlib import import_module
from typing import Any, NoReturn

from django.conf import settings
from django_q import cluster
from django_q.signals import post_spawn

from config import queue
from config.commandline import Task
from config.errors import FAILED
from config.pool import Sentinel, join_workers


class Command(Task):
    help = (
        "Run the tasks of the queue: refine due agents, write to stewards, and every SWEEP_MINUTES look for agents "
        "that are due. A worker has QUEUE_WORKERS processes. Several machines can run workers. After SIGTERM or "
        "Ctrl-C, running sessions have STOP_SECONDS to end. Then the worker closes them, and another worker continues "
        "with their agents. SIGTERM to all processes of the group closes the sessions at once. If one process of the "
        "worker is killed, the worker ends with exit code 1. Then a supervisor should start a new worker."
    )
    log_level = logging.INFO

    def run(self, **options: Any) -> int | None:
        queue.depth()
        queue.keep_schedules()
        post_spawn.connect(_prepare)
        cluster.scheduler = queue.queue_due  # django-q2 has no settings for these
        cluster.Sentinel = Sentinel
        for module in ("refinement.tasks", "memory.tasks"):  # loaded once, for all processes
            import_module(module)
        gc.freeze()
        first = cluster.Cluster()
        with join_workers(_give_again):
            first.start()
            first.sentinel.join()
        return FAILED if first.sentinel.exitcode else None


def _give_again() -> None:
    """Put the tasks of dead workers back into the queue. A task that still runs on another machine then runs twice.

    Redis does not keep a task that a worker has taken. Therefore a sweep queues new tasks for due agents.
    """
    if not settings.REDIS_URL:
        queue.give_again()
    queue.put(queue.SWEEP)


def _prepare(**_: Any) -> None:
    """Prepare a process that runs tasks: make its priority lower than that of web processes, and make SIGTERM close the
    session."""
    os.nice(settings.WORKER_NICE)
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the closing
    raise queue.Stopped(FAILED)
