"""What may be queued, when it is queued, and what is kept of it."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import django_q.cluster
import pytest
from django.conf import settings
from django.db import OperationalError, transaction
from django.dispatch import Signal
from django.utils import timezone
from django_q.conf import Conf
from django_q.exceptions import TimeoutException
from django_q.models import OrmQ, Schedule, Success, Task
from django_q.monitor import save_task
from django_q.scheduler import scheduler
from django_q.tasks import async_task
from redis.exceptions import ConnectionError as RedisDown

from config import queue
from config.errors import DomainError
from config.management.commands import worker
from config.pool import join_workers
from tests import queueing
from tests.privacy import logbook
from tests.privacy.marker import unique

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _stay_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue's processes begin with connections of their own; the test's transaction lives on this one."""
    for place in ("scheduler", "monitor"):
        monkeypatch.setattr(f"django_q.{place}.close_old_django_connections", lambda: None)


class Refused(DomainError):
    code = "refused_so"


def test_nothing_repeats_for_ever() -> None:
    """Trap (70-style): without these a job is given out again while it runs, and again after it failed."""
    assert 0 < Conf.TIMEOUT * 3 < Conf.RETRY, "two others may be waited for in the worker before"
    assert (Conf.MAX_ATTEMPTS, Conf.ACK_FAILURES, Conf.CATCH_UP, Conf.SAVE_LIMIT) == (3, True, False, -1)
    assert settings.TASK_SECONDS > settings.MODEL_CALL_SECONDS
    assert (Conf.WORKERS, Conf.QUEUE_LIMIT, Conf.POLL) == (2, 2, 1)


def test_a_task_is_part_of_the_transaction_that_queues_it() -> None:
    with transaction.atomic():
        queue.put(queue.REFINE_AGENT, 7)
        assert queueing.waiting() == [(queue.REFINE_AGENT, (7,))]
        transaction.set_rollback(True)
    assert queueing.waiting() == []


def test_with_redis_it_is_queued_once_that_is_committed(
    settings: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[Any] = []
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(queue, "async_task", lambda *args, **_: sent.append(args))
    monkeypatch.setattr(queue, "_broker", lambda: None)
    with django_capture_on_commit_callbacks() as callbacks:
        queue.put(queue.REFINE_AGENT, 7)
        assert sent == []
    for each in callbacks:
        each()
    assert sent == [(queue.REFINE_AGENT, 7)]


def test_a_redis_that_is_down_fails_nothing_that_is_committed(
    settings: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def down(*_: Any, **__: Any) -> None:
        raise RedisDown("10.0.0.7 refused")

    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(queue, "async_task", down)
    monkeypatch.setattr(queue, "_broker", lambda: None)
    with logbook.kept(logging.INFO) as log, django_capture_on_commit_callbacks(execute=True):
        queue.put(queue.REFINE_AGENT, 7)
    assert "task not queued" in log.text
    assert '"number": 7' in log.text
    assert "10.0.0.7" not in log.text


@pytest.mark.parametrize(
    ("func", "args", "more"),
    [
        ("os.system", (1,), {}),
        (queue.SWEEP, ("text",), {}),
        (queue.SWEEP, (True,), {}),
        (queue.SWEEP, (), {"word": 1}),
        (queue.SWEEP, (), {"q_options": {"hook": "os.system"}}),
        (queue.SWEEP, (), {"q_options": {"chain": [("os.system", (1,))]}}),
        (queue.SWEEP, (), {"q_options": {"save": True}}),
    ],
)
def test_only_our_own_tasks_with_numbers_are_queued(func: str, args: Any, more: dict[str, Any]) -> None:
    with pytest.raises(queue.NotATask):
        async_task(func, *args, **more)
    assert queueing.waiting() == []


FOREIGN = [
    {"func": "os.system", "args": "'true',"},
    {"func": "os.system"},
    {"func": queue.SWEEP, "args": "'text'"},
    {"func": queue.SWEEP, "args": "True"},
    {"func": queue.SWEEP, "args": "no Python ("},
    {"func": queue.SWEEP, "args": "[1]"},
    {"func": queue.SWEEP, "hook": "os.system"},
    {"func": queue.SWEEP, "kwargs": "word=1"},
    {"func": queue.SWEEP, "intended_date_kwarg": "word"},
    {"func": queue.SWEEP, "schedule_type": "?"},
]


def put_in(row: dict[str, str]) -> None:
    """By SQL: nothing of the model's is asked."""
    due = timezone.now() - timedelta(days=2)
    Schedule.objects.bulk_create([Schedule(**({"schedule_type": Schedule.MINUTES, "next_run": due} | row))])


def test_a_foreign_schedule_runs_nothing_and_keeps_no_other_waiting() -> None:
    """As the worker's guard calls it, with django-q's own pass after it."""
    for row in FOREIGN:
        put_in(row)
    put_in({"func": queue.TELL_STEWARD, "args": "(1, 2)"})
    put_in({"func": queue.REFINE_AGENT, "args": "7", "schedule_type": Schedule.ONCE})
    with logbook.kept(logging.INFO) as log:
        queue.queue_due(broker=queue._broker())
    assert sorted(queueing.waiting()) == [(queue.TELL_STEWARD, (1, 2)), (queue.REFINE_AGENT, (7,))]
    assert list(Schedule.objects.values_list("func", flat=True)) == [queue.TELL_STEWARD]
    assert log.text.count('"event": "schedule removed"') == len(FOREIGN)
    assert "os.system" not in log.text


def test_foreign_schedules_are_removed_when_a_worker_starts() -> None:
    for row in FOREIGN:
        put_in(row)
    queue.keep_schedules()
    assert set(Schedule.objects.values_list("func", flat=True)) == {queue.SWEEP, queue.CLOSE_STALE}
    assert Schedule.objects.count() == 2


def test_a_database_that_fails_ends_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls it would end the worker."""

    def fails() -> None:
        raise OperationalError("10.0.0.7 refused")

    put_in({"func": queue.SWEEP})
    monkeypatch.setattr(queue, "_remove_foreign", fails)
    with logbook.kept(logging.INFO) as log:
        queue.queue_due()
    assert queueing.waiting() == [(queue.SWEEP, ())]
    assert '"exception": "OperationalError"' in log.text
    assert "10.0.0.7" not in log.text


def test_the_worker_has_the_schedules_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the guard looks its pass up by name."""

    class Started:
        sentinel = SimpleNamespace(join=lambda: None, exitcode=0)

        def start(self) -> None:
            assert django_q.cluster.scheduler is queue.queue_due

    monkeypatch.setattr(django_q.cluster, "scheduler", scheduler)
    monkeypatch.setattr(django_q.cluster, "Sentinel", django_q.cluster.Sentinel)
    monkeypatch.setattr(django_q.cluster, "Cluster", Started)
    monkeypatch.setattr(worker, "post_spawn", Signal())  # or a later test lowers the priority of this process
    assert worker.Command().run() is None


def test_the_schedules_are_there_once_however_often_they_are_made(settings: Any) -> None:
    Schedule.objects.create(name="palimpsest: sweep", func="an.older.name", next_run=timezone.now())
    settings.SWEEP_MINUTES = 3
    for _ in range(2):
        queue.keep_schedules()
    rows = Schedule.objects.order_by("name").values_list("func", "schedule_type", "minutes", "repeats")
    assert list(rows) == [(queue.CLOSE_STALE, "I", 5, -1), (queue.SWEEP, "I", 3, -1)]


def test_of_schedules_made_at_the_same_time_the_first_stays() -> None:
    for _ in range(3):
        Schedule.objects.create(name="palimpsest: sweep", func=queue.SWEEP, next_run=timezone.now())
    first = Schedule.objects.order_by("pk").first()
    queue.keep_schedules()
    assert Schedule.objects.get(name="palimpsest: sweep") == first
    later = timezone.now() + timedelta(minutes=7)
    Schedule.objects.update(next_run=later)
    queue.keep_schedules()
    assert set(Schedule.objects.values_list("next_run", flat=True)) == {later}


def test_a_task_for_later_waits_until_then() -> None:
    queue.put_later(queue.TELL_STEWARD, 1, 2, 0, 3, wait=timedelta(minutes=1))
    scheduler()
    assert queueing.waiting() == []
    Schedule.objects.update(next_run=timezone.now() - timedelta(seconds=1))
    scheduler()
    assert queueing.waiting() == [(queue.TELL_STEWARD, (1, 2, 0, 3))]
    assert Schedule.objects.count() == 0


@pytest.mark.parametrize(
    ("raised", "code"), [(Refused, "refused_so"), (KeyError, "fault"), (TimeoutException, "timed_out")]
)
def test_what_a_task_raises_becomes_a_code(raised: type[BaseException], code: str) -> None:
    said = unique()

    def fails() -> str:
        try:
            raise ValueError(said)
        except ValueError:
            raise raised(said)  # noqa: B904  a careless one

    with logbook.kept(logging.DEBUG) as log:
        assert queue.task(fails)() == code
    assert "task failed" in log.text
    assert said not in log.text


def test_a_request_to_end_is_no_result() -> None:
    """SIGTERM in a process that works: it ends, and the task is given out again."""

    def ended() -> str:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        queue.task(ended)()


def test_results_are_not_kept(settings: Any) -> None:
    queue.put(queue.SWEEP)
    row = OrmQ.objects.get()
    task = queueing.SignedPackage.loads(row.payload) | {
        "ack_id": row.pk,
        "result": "swept",
        "success": True,
        "stopped": timezone.now(),
    }
    save_task(task, queue._broker())
    assert (Task.objects.count(), Success.objects.count()) == (0, 0)


@pytest.mark.parametrize("said", ["Failed 'x' (y) - {} : Traceback", RuntimeError("{}")])
def test_the_queues_own_lines_carry_no_result(said: Any) -> None:
    marker = unique()
    with logbook.kept(logging.INFO) as log:
        logging.getLogger("django-q").error(said.format(marker) if isinstance(said, str) else RuntimeError(marker))
    assert log.text.count('"logger": "django-q"') == 1
    assert marker not in log.text


def test_what_a_dead_worker_took_is_given_again_by_one_that_is_alone(settings: Any, tmp_path: Any) -> None:
    settings.VAR_DIR = tmp_path
    queue.put(queue.REFINE_AGENT, 7)
    _taken()
    with join_workers(queue.give_again):
        assert queue.depth() == 1
        _taken()
        with join_workers(queue.give_again):
            assert queue.depth() == 0, "the other may be at it"
    with join_workers(queue.give_again):
        assert queue.depth() == 1


def _taken() -> None:
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))


def test_a_worker_that_is_alone_begins_with_a_sweep(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis keeps nothing of what was taken."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    sent: list[str] = []
    monkeypatch.setattr(queue, "put", sent.append)
    worker._give_again()
    assert sent == [queue.SWEEP]
