"""Run the tasks of the queue: the refinement of due agents, letters to stewards, and the sweep, which looks for due
agents."""

import gc
import logging
import os
import signal
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NoReturn

from django.conf import settings
from django.db import OperationalError
from django_q import cluster, pusher
from django_q.brokers.orm import ORM
from django_q.signals import post_spawn

from config import queue
from config.commandline import Task
from config.database import FULL, advice
from config.errors import FAILED
from config.pool import Sentinel, join_workers

RETRY_SECONDS = 4  # after Redis did not answer, or the disk was full


class Command(Task):
    help = (
        "Run the tasks of the queue: refine due agents, write to stewards, and every SWEEP_MINUTES look for agents "
        "that are due. A worker has QUEUE_WORKERS processes. Several machines can run workers. After SIGTERM or "
        "Ctrl-C, running sessions have STOP_SECONDS to end. Then the worker closes them, and another worker continues "
        "with their agents. SIGTERM to all processes of the group closes the sessions at once. If one process of the "
        "worker is killed, the worker ends with exit code 1. Then a supervisor should start a new worker."
    )
    log_level = logging.INFO

    def handle(self, *args: Any, **options: Any) -> None:
        """Wait while Redis does not answer or the disk is full. Then work."""
        while True:
            try:
                return super().handle(*args, **options)
            except queue.QueueUnreachable as unreachable:
                self.say(f"{unreachable} The worker waits.")
            except OperationalError as error:
                if advice(error) != FULL:
                    raise
                self.say(f"The worker waits: {FULL}")
            time.sleep(RETRY_SECONDS)

    def run(self, **options: Any) -> int | None:
        queue.depth()
        queue.keep_schedules()
        post_spawn.connect(_prepare)
        cluster.scheduler = queue.queue_due  # django-q2 has no settings for these
        cluster.Sentinel = Sentinel
        ORM.acknowledge = queue.remove
        pusher.SignedPackage = SimpleNamespace(loads=queue.decode)
        pusher.sleep = lambda _: time.sleep(RETRY_SECONDS)
        for module in ("refinement.tasks", "memory.tasks"):  # loaded once, for all processes
            import_module(module)
        gc.freeze()
        first = cluster.Cluster()
        with join_workers(queue.give_again):
            first.start()
            first.sentinel.join()
        return FAILED if first.sentinel.exitcode else None


def _prepare(**_: Any) -> None:
    """Prepare a process that runs tasks: make its priority lower than that of web processes, and make SIGTERM close the
    session."""
    os.nice(settings.WORKER_NICE)
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the closing
    raise queue.Stopped(FAILED)
