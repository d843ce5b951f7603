"""The queue of background tasks. A task has a name. Its arguments are numbers, and it returns a code.

The queue is in the database or in Redis. It delivers a task at least once, so each task checks whether there is still
something to do. If the queue is in the database, the task is stored in the transaction that queues it. If the queue is
in Redis, the task is queued when that transaction is committed.
"""

import ast
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, partial, wraps
from mmap import mmap
from typing import Any

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Min, Q, QuerySet
from django.utils import timezone
from django_q.brokers import Broker, get_broker
from django_q.exceptions import TimeoutException
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler
from django_q.signing import BadSignature, SignedPackage
from django_q.tasks import async_task

from config.errors import USAGE, ConfigurationError, DomainError

log = structlog.get_logger("palimpsest.queue")

SWEEP = "refinement.tasks.sweep"
REFINE_AGENT = "refinement.tasks.refine_agent"
CLOSE_STALE = "refinement.tasks.close_stale"
SEND_LETTERS = "memory.tasks.send_letters"
WRITE_HEADS = "memory.tasks.write_heads"
IMPORT_MEMORIES = "memory.tasks.import_memories"
EMBED_MEMORIES = "refinement.tasks.embed_memories"
SEND_WEBHOOKS = "refinement.tasks.send_webhooks"
SEND_DIGESTS = "refinement.tasks.send_digests"
NOTICES = (SEND_WEBHOOKS, SEND_DIGESTS)
TASKS = frozenset(
    {SWEEP, REFINE_AGENT, CLOSE_STALE, SEND_LETTERS, WRITE_HEADS, IMPORT_MEMORIES, EMBED_MEMORIES, *NOTICES}
)

LOCK_SECONDS = 5  # that a task waits for an agent's lock, which a large rollback holds for a minute
STALE_MINUTES, HEADS_MINUTES = 1, 60
LONGEST_WAIT = timedelta(hours=6)  # of a task that is queued later
LATE = timedelta(minutes=2)  # for a sweep: a worker checks its schedules every half minute


class QueueUnreachable(DomainError):
    """Redis does not answer."""

    code = "queue_unreachable"
    exit_code = USAGE


class Stopped(SystemExit):
    """The worker must end. A signal handler raises this. The running session is then closed, and another worker
    continues with its agent."""


_ending = mmap(-1, 1)  # shared by the processes of a worker, which are forked; a killed process leaves no lock


def begin_nothing_new() -> None:
    """From now on, no process of this worker begins a new task, because the worker is about to end."""
    _ending[0] = 1


def is_ending() -> bool:
    """Whether the worker is about to end. Other workers then do the waiting tasks."""
    return _ending[0] == 1


def reconnect() -> None:
    """Close the connection, which is unusable if `Stopped` interrupted a statement."""
    if not connection.in_atomic_block:
        connection.close()


def until_answered(do: Callable[[], object]) -> None:
    """Call `do`. If the database does not answer, call it again every second, for LEASE_SECONDS at most."""
    for _ in range(settings.LEASE_SECONDS):
        with suppress(OperationalError, InterfaceError):
            do()
            return
        time.sleep(1)
        reconnect()


class NotATask(ConfigurationError):
    """This is not a task of the service, so it is not queued."""

    code = "not_a_task"


def task(do: Callable[..., str]) -> Callable[..., str]:
    """Make a function a task. A task returns a code and raises nothing.

    django-q2 logs the text of exceptions, which may quote content.
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
            log.error("task failed", operation=do.__name__, exc_info=fault)
            return "fault"
        log.error("task failed", operation=do.__name__, code=code)
        return code

    return entry


def put(name: str, *numbers: int, lost: Callable[[], object] | None = None) -> None:
    """Queue a task. If Redis does not take it, `lost` is called, after the commit."""
    if settings.REDIS_URL:
        transaction.on_commit(partial(push, name, *numbers, lost=lost))
    else:
        with transaction.atomic():
            async_task(name, *numbers, broker=_broker())


def push(name: str, *numbers: int, lost: Callable[[], object] | None = None) -> None:
    """Queue a task, or log that it cannot be queued. An error would be too late, because the transaction is committed.
    SWEEP and CLOSE_STALE find what waits in the database, when Redis answers again."""
    try:
        async_task(name, *numbers, broker=_broker())
    except redis_error():
        log.error("task not queued", operation=name, number=numbers[0] if numbers else 0)
        if lost is not None:
            lost()


def put_later(name: str, *numbers: int, wait: timedelta) -> None:
    """Queue a task after the time `wait`. Until then, the task waits in the database."""
    Schedule.objects.create(func=name, args=str(numbers), next_run=timezone.now() + wait)


def is_put_later(name: str, *numbers: int) -> bool:
    """Whether a task waits in the database. Without numbers: whether any task with this name waits."""
    rows = Schedule.objects.filter(func=name)
    return bool((rows.filter(args=str(numbers)) if numbers else rows).exists())


def depth() -> int:
    """The number of tasks that no worker has taken. Raises QueueUnreachable."""
    try:
        return int(_broker().queue_size())
    except redis_error():
        raise QueueUnreachable("The queue cannot be reached: check REDIS_URL.") from None


def queue_due(broker: Broker | None = None) -> None:
    """Queue the tasks of the schedules that are due.

    This first removes rows that cannot be queued, because django-q2's own function stops at the first such row.
    """
    try:
        now, year = timezone.now(), timedelta(days=365)  # PostgreSQL has dates that Python cannot read
        Schedule.objects.filter(Q(next_run__gt=now + year) | Q(next_run__lt=now - year)).update(next_run=now)
        _remove_foreign()
        _bring_back()
    except Exception as fault:  # the database failed: django-q2 logs it, too, and the next pass tries again
        log.error("schedules not looked through", exc_info=fault)
    scheduler(broker=broker)


def _remove_foreign() -> None:
    """Remove schedules that do not run one of the service's tasks."""
    for row in Schedule.objects.all():
        if not _is_ours(row):
            Schedule.objects.filter(pk=row.pk).delete()
            log.error("schedule removed", code=NotATask.code, number=row.pk)


def _bring_back() -> None:
    """If the next run of a task is too far away, make the task due now. This happens if the clock was ahead before."""
    now = timezone.now()
    for row in Schedule.objects.filter(next_run__gt=now):
        longest = timedelta(minutes=row.minutes) if row.minutes else LONGEST_WAIT
        if row.next_run > now + longest:
            Schedule.objects.filter(pk=row.pk).update(next_run=now)
    OrmQ.objects.filter(lock__gt=now + timedelta(seconds=settings.Q_CLUSTER["retry"])).update(lock=now)


def _is_ours(row: Schedule) -> bool:
    more = row.kwargs or row.hook or row.intended_date_kwarg or row.cluster
    if more or row.schedule_type not in (Schedule.ONCE, Schedule.MINUTES):
        return False
    try:
        numbers = ast.literal_eval(row.args or "()")
    except Exception:  # noqa: BLE001  invalid Python may raise any error
        return False
    return _is_known(row.func, numbers if isinstance(numbers, tuple) else (numbers,))


def _is_known(name: str, numbers: Iterable[Any]) -> bool:
    return name in TASKS and all(type(number) is int for number in numbers)


def require_known(task: dict[str, Any], **_: Any) -> None:
    """Refuse a function that is not a task of the service. Otherwise a schedule that somebody inserts with SQL could
    call any function. (Tasks in the queue are signed.) Raises NotATask."""
    if task["kwargs"] or not set(task) <= _PARTS or not _is_known(task["func"], task["args"]):
        raise NotATask("This is not a task of Palimpsest.")


def decode(text: Any) -> Any:
    """Decode a task of the queue. Raises BadSignature. Then django-q2 drops and logs the task. Any other exception
    would end the worker."""
    try:
        task = SignedPackage.loads(text)
        require_known(task)
    except Exception:  # noqa: BLE001  invalid data may raise any error
        raise BadSignature from None
    return task


def remove(broker: Broker, task: int) -> None:
    """Remove a finished task from the database. If this fails, the task later runs again, and finds nothing to do. An
    error would end the worker."""
    with suppress(OperationalError, InterfaceError):
        broker.delete(task)


_PARTS = {"id", "name", "func", "args", "kwargs", "started", "group", "cluster", "ack_failure"}


def keep_schedules() -> None:
    """Make sure that each schedule of the service exists exactly once, even if several workers start at the same
    time."""
    _remove_foreign()
    for name, func, minutes in (
        ("palimpsest: sweep", SWEEP, settings.SWEEP_MINUTES),
        ("palimpsest: close stale", CLOSE_STALE, STALE_MINUTES),
        ("palimpsest: heads", WRITE_HEADS, HEADS_MINUTES),
    ):
        rows = Schedule.objects.filter(name=name)
        rows.filter(next_run__lt=timezone.now()).update(next_run=timezone.now())  # no worker ran at that time
        if not rows.update(func=func, schedule_type=Schedule.MINUTES, minutes=minutes, repeats=-1):
            Schedule.objects.create(name=name, func=func, schedule_type=Schedule.MINUTES, minutes=minutes)
        rows.filter(pk__gt=rows.aggregate(first=Min("pk"))["first"]).delete()


def next_sweep() -> datetime | None:
    """The time at which a worker will next look for due agents. If no worker runs, this time is in the past. If no
    worker has started yet, it is None."""
    moments: QuerySet[Schedule, datetime] = Schedule.objects.filter(func=SWEEP).values_list("next_run", flat=True)
    return moments.order_by("pk").first()


def unattended() -> str:
    """The reason why queued tasks are not carried out. It is "" while a worker regularly looks for due agents."""
    expected = next_sweep()
    if expected is None:
        return "no worker has started yet"
    if not -timedelta(minutes=settings.SWEEP_MINUTES) <= timezone.now() - expected <= LATE:
        return f"no worker has looked for due agents since {expected:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def give_again() -> None:
    """Put the tasks of dead workers back into the queue. A task that still runs on another machine then runs twice.

    Redis does not keep a task that a worker has taken. Therefore a sweep queues new tasks for due agents.
    """
    if not settings.REDIS_URL:
        OrmQ.objects.filter(lock__gt=timezone.now()).update(lock=timezone.now())
    put(SWEEP)


@cache
def _broker() -> Broker:
    return get_broker()


def redis_error() -> type[Exception]:
    """The base class of all Redis errors. The Redis library is loaded only if it is needed."""
    from redis.exceptions import RedisError

    return RedisError
