"""The queue: tasks by name, with numbers for arguments and a code for a result; and nothing else in it.

What waits lies in the database, or in Redis, and is delivered at least once: a task looks for itself whether there is
still something to do. Where the queue is in the database a task is part of the transaction that queues it; where it is
not, it is queued when that is committed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache, partial, wraps
from mmap import mmap
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Min, QuerySet
from django.utils import timezone
from django_q.brokers import Broker, get_broker
from django_q.exceptions import TimeoutException
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler
from django_q.tasks import async_task

from config.errors import USAGE, ConfigurationError, DomainError

log = structlog.get_logger("palimpsest.queue")

SWEEP = "refinement.tasks.sweep"
REFINE_AGENT = "refinement.tasks.refine_agent"
CLOSE_STALE = "refinement.tasks.close_stale"
TELL_STEWARD = "memory.tasks.tell_steward"
ASK_STEWARD = "memory.tasks.ask_steward"
TASKS = frozenset({SWEEP, REFINE_AGENT, CLOSE_STALE, TELL_STEWARD, ASK_STEWARD})

STALE_MINUTES = 5
LATE = timedelta(minutes=2)  # for a sweep: a worker looks over its schedules every half minute


class QueueUnreachable(DomainError):
    """The server that holds the queue does not answer."""

    code = "queue_unreachable"
    exit_code = USAGE


class Stopped(SystemExit):
    """The worker is to end: raised wherever its process is at work. What is under way is closed for others to go on."""


_ending = mmap(-1, 1)  # shared by the processes of a worker, which are forked; a killed process leaves no lock


def begin_nothing_new() -> None:
    """From now on the processes of this worker begin nothing new: the worker is about to end."""
    _ending[0] = 1


def is_ending() -> bool:
    """Whether to begin nothing new: waiting tasks are for other workers."""
    return _ending[0] == 1


def start_anew() -> None:
    """Let go of a connection in the midst of whose statement `Stopped` came: it can be used for nothing more."""
    if not connection.in_atomic_block:
        connection.close()


class NotATask(ConfigurationError):
    """What was to be queued is none of the service's tasks."""

    code = "not_a_task"


def task(do: Callable[..., str]) -> Callable[..., str]:
    """An entry point of the queue: it returns a code, whatever happens.

    What a task raises the queue would keep and log, with the text of every exception on the way.
    """

    @wraps(do)
    def entry(*numbers: int) -> str:
        try:
            return do(*numbers)
        except DomainError as failure:
            code = failure.code
        except TimeoutException:
            code = "timed_out"
        except Exception as fault:
            log.error("task failed", operation=do.__name__, exc_info=(type(fault), fault, fault.__traceback__))
            return "fault"
        log.error("task failed", operation=do.__name__, code=code)
        return code

    return entry


def put(name: str, *numbers: int) -> None:
    """Queue a task."""
    if settings.REDIS_URL:
        transaction.on_commit(partial(_push, name, *numbers))
    else:
        with transaction.atomic():
            async_task(name, *numbers, broker=_broker())


def _push(name: str, *numbers: int) -> None:
    """What cannot be queued now is logged: the transaction it belongs to stands, and the sweep finds who is due."""
    try:
        async_task(name, *numbers, broker=_broker())
    except _unreachable():
        log.error("task not queued", operation=name, number=numbers[0] if numbers else 0)


def put_later(name: str, *numbers: int, wait: timedelta) -> None:
    """Queue a task after a while; it waits in the database."""
    Schedule.objects.create(func=name, args=str(numbers), next_run=timezone.now() + wait)


def is_put_later(name: str) -> bool:
    return bool(Schedule.objects.filter(func=name).exists())


def depth() -> int:
    """How many tasks wait that no worker has taken. Raises QueueUnreachable."""
    with _reached():
        return int(_broker().queue_size())


def queue_due(broker: Broker | None = None) -> None:
    """In the place of django-q's own pass over the schedules, which ends at the first row that cannot be queued and
    leaves every other waiting: such rows are removed before."""
    try:
        _forget_foreign()
        _bring_back()
    except Exception as fault:  # of the database: the pass says so itself, and the next one finds it
        log.error("schedules not looked through", exc_info=(type(fault), fault, fault.__traceback__))
    scheduler(broker=broker)


def _forget_foreign() -> None:
    """Remove the schedules that could only be refused."""
    for row in Schedule.objects.values("pk", "func", "args", "kwargs", "hook", "intended_date_kwarg", "schedule_type"):
        if not _is_ours(row):
            Schedule.objects.filter(pk=row["pk"]).delete()
            log.error("schedule removed", code=NotATask.code, number=row["pk"])


def _bring_back() -> None:
    """What repeats is due within its minutes: a clock that was ahead would have it wait until it is as late again."""
    for row in Schedule.objects.filter(schedule_type=Schedule.MINUTES):
        now = timezone.now()
        if row.next_run > now + timedelta(minutes=row.minutes):
            Schedule.objects.filter(pk=row.pk).update(next_run=now)


def _is_ours(row: dict[str, Any]) -> bool:
    more = row["kwargs"] or row["hook"] or row["intended_date_kwarg"]
    if row["func"] not in TASKS or more or row["schedule_type"] not in (Schedule.ONCE, Schedule.MINUTES):
        return False
    try:
        numbers = ast.literal_eval(row["args"] or "()")
    except Exception:  # noqa: BLE001  whatever a text that is no Python may raise
        return False
    return all(type(number) is int for number in (numbers if isinstance(numbers, tuple) else (numbers,)))


def keep_schedules() -> None:
    """See to it that each schedule is there once, however many workers start at the same time, and none that is not
    ours."""
    _forget_foreign()
    for name, func, minutes in (
        ("palimpsest: sweep", SWEEP, settings.SWEEP_MINUTES),
        ("palimpsest: close stale", CLOSE_STALE, STALE_MINUTES),
    ):
        rows = Schedule.objects.filter(name=name)
        rows.filter(next_run__lt=timezone.now()).update(next_run=timezone.now())  # no worker was there to look
        if not rows.update(func=func, schedule_type=Schedule.MINUTES, minutes=minutes, repeats=-1):
            Schedule.objects.create(name=name, func=func, schedule_type=Schedule.MINUTES, minutes=minutes)
        rows.filter(pk__gt=rows.aggregate(first=Min("pk"))["first"]).delete()


def next_sweep() -> datetime | None:
    """When a worker looks next who is due; in the past, when none does. None where no worker ever ran."""
    moments: QuerySet[Schedule, datetime] = Schedule.objects.filter(func=SWEEP).values_list("next_run", flat=True)
    return moments.order_by("pk").first()


def unattended() -> str:
    """Why nothing that is queued is done, in words; empty while a worker looks regularly who is due."""
    expected = next_sweep()
    if expected is None:
        return "no worker ever ran: start manage.py worker"
    if timezone.now() - expected > LATE:
        return f"no worker has looked who is due since {expected:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def give_again() -> None:
    """What workers took out of the database, and have not answered for, waits again."""
    OrmQ.objects.filter(lock__gt=timezone.now()).update(lock=timezone.now())


def require_known(task: dict[str, Any], **_: Any) -> None:
    """Refuse what is none of our tasks: a schedule put in by SQL could otherwise call any function there is.

    Raises NotATask. (What waits in the queue is signed.)
    """
    is_ours = task["func"] in TASKS and not task["kwargs"] and all(type(number) is int for number in task["args"])
    if not is_ours or not set(task) <= _PARTS:
        raise NotATask("It is no task of Palimpsest's.")


_PARTS = {"id", "name", "func", "args", "kwargs", "started", "group", "cluster", "ack_failure"}


@cache
def _broker() -> Broker:
    return get_broker()


@cache
def _unreachable() -> type[Exception]:
    """What is raised of a Redis that cannot be reached. Its library is loaded then, and by a broker that needs it."""
    from redis.exceptions import RedisError

    return RedisError


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except _unreachable():
        raise QueueUnreachable("The queue cannot be reached: see that REDIS_URL is right.") from None
