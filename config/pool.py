"""The processes of a worker, as django-q runs them, but that a worker does not go on when one of them was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import IO, Any, NoReturn

import structlog
from django.conf import settings
from django_q import cluster

from config import queue
from config.errors import FAILED

log = structlog.get_logger("palimpsest.worker")

FILING_SECONDS = 3  # that what was done last is filed within
LAST_SECONDS = 10  # after which a process that does not end is killed


class Sentinel(cluster.Sentinel):  # type: ignore[misc]
    """Whoever waits for a task holds the lock of the queue between the processes, and so does whoever files a result.

    One that is killed takes the lock with it: those who are left, and whoever came in its place, would wait for ever.
    So the worker ends, and its supervisor starts another, whose queue is new.
    """

    def start(self) -> None:
        # A supervisor may ask all processes at once to end. That one by itself, in the midst of a look at an event that
        # the first process then sets, left it waiting for ever.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Without a lock, which a killed process would take with it.
        self.ending = cluster.get_mp_context().RawValue("b", 0)
        threading.Thread(target=self._watch_first, args=[os.getppid()], daemon=True).start()
        super().start()

    def _watch_first(self, parent: int) -> None:
        """Where the first process was killed nobody is left who could ask this one to end."""
        while os.getppid() == parent:
            time.sleep(1)
        log.error("the first process of the worker died: the worker ends")
        self._let_finish()

    def spawn_worker(self) -> None:
        timer = cluster.Value("f", -1)
        given = (self.ending, self.task_queue, self.result_queue, timer, self.timeout)
        process = cluster.get_mp_context().Process(target=_worker, args=given, name=f"Process-{uuid.uuid4().hex}")
        process.daemon, process.timer = cluster.Conf.DAEMONIZE_WORKERS, timer
        self.pool.append(process)
        process.start()

    def spawn_pusher(self) -> Any:
        return self.spawn_process(_pusher, self.task_queue, self.event_out, self.broker)

    def spawn_monitor(self) -> Any:
        return self.spawn_process(_monitor, self.result_queue, self.broker)

    def reincarnate(self, process: Any) -> None:
        if process.exitcode:  # None: it took too long, and is ended now; 0: it ended by itself, its locks given back
            self._give_up(process.exitcode)
        super().reincarnate(process)

    def _give_up(self, code: int) -> None:
        log.error("a process of the worker died: the worker ends", code=code)
        self._let_finish()

    def _let_finish(self) -> NoReturn:
        """What is under way may end by itself for STOP_SECONDS, and nothing new is begun; then all of it ends."""
        self.ending.value = 1
        self.pusher.terminate()
        until = time.monotonic() + settings.STOP_SECONDS
        while any(_is_busy(process) for process in self.pool) and time.monotonic() < until:
            time.sleep(0.1)
        self._end_now(FAILED)

    def stop(self) -> None:
        """What is under way may end by itself for STOP_SECONDS, and nothing new is begun; then its sessions are closed,
        for others to go on."""
        self.ending.value = 1
        stopped = threading.Event()
        threading.Thread(target=self._end_in_time, args=[stopped], daemon=True).start()
        super().stop()
        stopped.set()

    def _end_in_time(self, stopped: threading.Event) -> None:
        """django-q waits for its queue to be empty, however long, and though nobody is left to empty it."""
        until, alone = time.monotonic() + settings.STOP_SECONDS, 0.0
        while not stopped.wait(0.5):
            alone = 0.0 if any(process.is_alive() for process in list(self.pool)) else alone + 0.5
            if alone >= FILING_SECONDS or time.monotonic() >= until:
                self._end_now(0)

    def _end_now(self, code: int) -> NoReturn:
        """Without waiting for the queues between the processes, which nobody empties any more."""
        _end(list(self.pool))
        for process in (self.pusher, self.monitor):
            process.kill()
        os._exit(code)


def _worker(ending: Any, *given: Any) -> None:
    queue.heed(ending)
    os.nice(settings.WORKER_NICE)  # who asks for something waits for it; refinement can
    cluster.worker(*given)


def _pusher(*given: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cluster.pusher(*given)


def _monitor(*given: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cluster.monitor(*given)


def _end(pool: Iterable[Any]) -> None:
    """Have processes close what they do, and end; kill what does not."""
    for process in pool:
        process.terminate()
    until = time.monotonic() + LAST_SECONDS
    for process in pool:
        while process.is_alive() and time.monotonic() < until:
            time.sleep(0.1)
        process.kill()  # one that waits for a lost lock


def _is_busy(process: Any) -> bool:
    return bool(process.is_alive() and process.timer.value > 0)


class Cluster(cluster.Cluster):  # type: ignore[misc]
    def start(self) -> int:
        cluster.Sentinel = Sentinel  # django-q has no setting for it
        return int(super().start())


def join_workers(first: Callable[[], None]) -> IO[bytes]:
    """Be one of the workers that live: keep what is returned. Who finds no other on this machine does `first`.

    The system takes a lock away when the last process that has it dies, however it dies. A worker's processes share its
    lock: as long as one of them is left the worker is not lost.
    """
    settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (settings.VAR_DIR / "worker.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        first()
    fcntl.flock(file, fcntl.LOCK_SH)
    return file
