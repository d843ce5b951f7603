"""The processes of a worker. They differ from django-q2's processes in one point: a worker ends when one of its
processes is killed."""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import structlog
from django.conf import settings
from django_q import cluster

from config import queue
from config.errors import FAILED

log = structlog.get_logger("palimpsest.worker")

FILING_SECONDS = 3.0  # for the results of the last tasks
LAST_SECONDS = 10  # from the request to end until a process is killed


class Sentinel(cluster.Sentinel):  # type: ignore[misc]
    """The process that starts the other processes of a worker and watches them.

    The processes share queues. While a process waits for a task or reports a result, it holds the lock of a queue. If
    the process is killed at this time, the lock is never released. django-q2 would start another process. Then the
    new process and all the others would wait forever. So the worker ends, and its supervisor starts a new worker with
    new queues.
    """

    def guard(self) -> None:
        # A supervisor may send SIGTERM to all processes of the worker. If the signal killed this process while it reads
        # `stop_event`, the first process would wait forever when it sets the event.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=self._watch, args=[os.getppid()], daemon=True).start()
        super().guard()

    def _watch(self, first: int) -> None:
        """End the worker when one of its processes is killed. A killed process may still hold the lock of its timer.
        Then the guard waits forever for this lock. So a separate thread watches the processes."""
        while not queue.is_ending():
            if os.getppid() != first:
                log.error("the first process of the worker died: the worker ends")
                self._finish()
            for process in [*self.pool, self.monitor, self.pusher]:
                if process.exitcode:
                    log.error("a process of the worker died: the worker ends", code=process.exitcode)
                    self._finish()
            time.sleep(0.5)

    def reincarnate(self, process: Any) -> None:
        is_fetching = process is self.pusher
        if not process.exitcode:  # else `_watch` ends the worker
            super().reincarnate(process)
        if is_fetching and settings.REDIS_URL:  # Redis did not answer, and may have lost its tasks
            queue.push(queue.SWEEP)
            queue.push(queue.CLOSE_STALE)

    def _finish(self) -> NoReturn:
        """Begin no new tasks. Give running tasks STOP_SECONDS to end. Then end the worker."""
        queue.begin_nothing_new()
        self.pusher.kill()
        until = time.monotonic() + settings.STOP_SECONDS
        while any(process.is_alive() and process.timer.value > 0 for process in self.pool) and time.monotonic() < until:
            time.sleep(0.1)
        self._end(FAILED)

    def stop(self) -> None:
        queue.begin_nothing_new()
        threading.Thread(target=self._end_in_time, daemon=True).start()
        super().stop()

    def _end_in_time(self) -> None:
        """End the worker after a limited time. django-q2 itself waits forever for running tasks, and for queues that no
        process empties."""
        until = time.monotonic() + settings.STOP_SECONDS
        while any(process.is_alive() for process in list(self.pool)) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(min(FILING_SECONDS, max(0.0, until - time.monotonic())))
        self._end(0)

    def _end(self, code: int) -> NoReturn:
        """Make the processes close their running sessions. Kill the processes that are left. Exit, and do not wait for
        the queues."""
        pool = list(self.pool)
        for process in pool:
            process.terminate()
        until = time.monotonic() + LAST_SECONDS
        for process in pool:
            process.join(max(0.0, until - time.monotonic()))
        for process in [*pool, self.pusher, self.monitor]:
            process.kill()
        os._exit(code)


@contextmanager
def join_workers(first: Callable[[], None]) -> Iterator[None]:
    """Register this worker during the block. If no other worker runs on this machine, call `first` before.

    The system releases a file lock when the last process that holds it dies. All processes of a worker share its lock.
    """
    settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
    with (settings.VAR_DIR / "worker.lock").open("ab") as file:  # if `first` fails, the lock ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            first()
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
