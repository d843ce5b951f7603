"""Carry out the tasks of the queue: refinement of due agents, letters, the sweep."""

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
        "Carry out the tasks of the queue until it is stopped: refine agents that are due, write to stewards, and look "
        "every SWEEP_MINUTES which agents have become due. QUEUE_WORKERS processes work at the same time; start it on "
        "as many machines as you like. SIGTERM or Ctrl-C gives running sessions STOP_SECONDS to end, and then closes "
        "them: another worker continues with their agents. SIGTERM to every process of its group closes them at once. "
        "When one of its processes is killed, it ends with exit code 1: have a supervisor restart it."
    )
    log_level = logging.INFO

    def run(self, **options: Any) -> int | None:
        queue.depth()
        queue.keep_schedules()
        post_spawn.connect(_prepare)
        cluster.scheduler = queue.queue_due  # django-q2 has no setting for either
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
    """Put back the tasks that dead workers took. A task that a worker on another machine carries out is done twice.

    Redis keeps no tasks that were taken: the sweep queues new ones for the agents that wait.
    """
    if not settings.REDIS_URL:
        queue.give_again()
    queue.put(queue.SWEEP)


def _prepare(**_: Any) -> None:
    """In each process that carries out tasks: yield the processors to web processes; close the session on SIGTERM."""
    os.nice(settings.WORKER_NICE)
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the closing
    raise queue.Stopped(FAILED)
