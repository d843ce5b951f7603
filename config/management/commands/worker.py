"""Carry out what waits in the queue: refinement of due agents, letters, the sweep."""

from __future__ import annotations

import gc
import logging
import signal
from importlib import import_module
from typing import Any, NoReturn

import django_q.cluster
from django.conf import settings
from django_q.signals import post_spawn

from config import queue
from config.commandline import Task
from config.errors import FAILED, USAGE
from config.pool import Cluster, join_workers


class Command(Task):
    help = (
        "Carry out what waits in the queue, until it is stopped: refine agents that are due, write to stewards, and "
        "look every SWEEP_MINUTES who has become due. QUEUE_WORKERS processes work at the same time; start it on as "
        "many machines as you like. SIGTERM or Ctrl-C lets what is under way end for STOP_SECONDS, and then closes "
        "running sessions, whose agents another worker takes over; SIGTERM to every process of its group closes them "
        "at once. When one of its processes is killed it ends with exit code 1: have it "
        "started anew."
    )
    log_level = logging.INFO

    def run(self, **options: Any) -> int | None:
        try:
            queue.depth()
        except queue.QueueUnreachable as failure:
            self.fail(str(failure), USAGE)
        queue.keep_schedules()
        post_spawn.connect(_close_on_request)
        django_q.cluster.scheduler = queue.queue_due
        for module in ("refinement.tasks", "memory.tasks"):  # once for all processes, which then share them
            import_module(module)
        gc.freeze()
        cluster = Cluster()
        with join_workers(_give_again):
            cluster.start()
            cluster.sentinel.join()
        return FAILED if cluster.sentinel.exitcode else None


def _give_again() -> None:
    """A worker that is alone has what dead ones took done after all. What a worker elsewhere is doing, it does twice.

    Redis keeps nothing of what was taken: a sweep wakes for those who stand in line.
    """
    if not settings.REDIS_URL:
        queue.give_again()
    queue.put(queue.SWEEP)


def _close_on_request(**_: Any) -> None:
    """In each process that works: being asked to end closes its session, for others to go on with its agent."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would come in the midst of the closing
    raise queue.Stopped(FAILED)
