"""Which tasks can be queued, when a transaction queues them, and that no content is kept."""

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import django_q.cluster
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.dispatch import Signal
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.exceptions import TimeoutException
from django_q.models import OrmQ, Schedule, Task
from django_q.monitor import save_task
from django_q.scheduler import scheduler
from django_q.tasks import async_task
from redis.exceptions import ConnectionError as RedisDown

from config import queue
from config.database import FULL
from config.errors import DomainError
from config.management.commands import worker
from config.pool import join_workers
from memory.agents import lifecycle
from memory.mail import outbox
from memory.models import Agent, AgentKey
from memory.search import embedding
from memory.transfer import import_jobs
from tests import queueing
from tests.privacy import logbook
from tests.privacy.marker import unique
from tests.steps import ME, fresh

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _stay_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the queue open new connections. The test's transaction needs this one."""
    for place in ("scheduler", "monitor"):
        monkeypatch.setattr(f"django_q.{place}.close_old_django_connections", lambda: None)


@pytest.fixture
def redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(queue, "_broker", lambda: None)


class Refused(DomainError):
    code = "refused_so"


def test_tasks_are_not_delivered_again_while_they_run_or_after_they_failed() -> None:
    assert 0 < Conf.TIMEOUT * 3 < Conf.RETRY, "a task may wait for two others in its worker"
    assert (Conf.MAX_ATTEMPTS, Conf.ACK_FAILURES, Conf.CATCH_UP, Conf.SAVE_LIMIT) == (3, True, False, -1)
    assert settings.TASK_SECONDS > settings.MODEL_CALL_SECONDS
    assert (Conf.WORKERS, Conf.QUEUE_LIMIT, Conf.POLL) == (2, 2, 1)


def test_a_rollback_of_the_transaction_removes_its_task() -> None:
    with transaction.atomic():
        queue.put(queue.REFINE_AGENT, 7)
        assert queueing.waiting() == [(queue.REFINE_AGENT, (7,))]
        transaction.set_rollback(True)
    assert queueing.waiting() == []


def test_with_redis_a_task_is_queued_after_the_commit(
    redis: None, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(queue, "async_task", lambda *args, **_: sent.append(args))
    with django_capture_on_commit_callbacks() as callbacks:
        queue.put(queue.REFINE_AGENT, 7)
        assert sent == []
    for each in callbacks:
        each()
    assert sent == [(queue.REFINE_AGENT, 7)]


def test_a_failure_of_redis_after_the_commit_is_logged(
    redis: None, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RedisDown("10.0.0.7 refused")

    monkeypatch.setattr(queue, "async_task", fail)
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


def insert(*rows: dict[str, str]) -> None:
    """As SQL does, without the model's checks."""
    due = timezone.now() - timedelta(days=2)
    for row in rows:
        Schedule.objects.bulk_create([Schedule(**({"schedule_type": Schedule.MINUTES, "next_run": due} | row))])


def test_a_foreign_schedule_runs_nothing_and_does_not_block_others() -> None:
    insert(*FOREIGN, {"func": queue.SEND_LETTERS, "args": "(1, 2)"})
    insert({"func": queue.REFINE_AGENT, "args": "7", "schedule_type": Schedule.ONCE})
    with logbook.kept(logging.INFO) as log:
        queue.queue_due(broker=queue._broker())
    assert sorted(queueing.waiting()) == [(queue.SEND_LETTERS, (1, 2)), (queue.REFINE_AGENT, (7,))]
    assert list(Schedule.objects.values_list("func", flat=True)) == [queue.SEND_LETTERS]
    assert log.text.count('"event": "schedule removed"') == len(FOREIGN)
    assert "os.system" not in log.text


@pytest.mark.postgresql
def test_a_date_that_python_does_not_have_stops_no_worker() -> None:
    insert({"func": queue.SEND_LETTERS, "args": "(1, 2)"})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_q_schedule SET next_run = 'infinity'")
    queue.queue_due(broker=queue._broker())
    assert queueing.waiting() == [(queue.SEND_LETTERS, (1, 2))]


def test_a_worker_replaces_foreign_old_and_repeated_schedules_when_it_starts(settings: Any) -> None:
    settings.SWEEP_MINUTES = 3
    insert(*FOREIGN, {"func": "an.older.name", "name": "palimpsest: close stale"})
    for _ in range(3):
        insert({"func": queue.SWEEP, "name": "palimpsest: sweep"})
    first = Schedule.objects.filter(name="palimpsest: sweep").earliest("pk")
    for _ in range(2):
        queue.keep_schedules()
        rows = Schedule.objects.order_by("name").values_list("func", "schedule_type", "minutes", "repeats")
        assert list(rows) == [
            (queue.CLOSE_STALE, "I", 1, -1),
            (queue.WRITE_HEADS, "I", 60, -1),
            (queue.SWEEP, "I", 3, -1),
        ]
        later = timezone.now() + timedelta(minutes=7)
        Schedule.objects.update(next_run=later)
    assert Schedule.objects.get(name="palimpsest: sweep") == first
    assert set(Schedule.objects.values_list("next_run", flat=True)) == {later}


def test_a_failing_database_does_not_end_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError("10.0.0.7 refused: database or disk is full")

    insert({"func": queue.SWEEP})
    monkeypatch.setattr(queue, "_remove_foreign", fail)
    with logbook.kept(logging.INFO) as log:
        queue.queue_due()
    assert queueing.waiting() == [(queue.SWEEP, ())]
    assert f'"exception": "OperationalError", "reason": "{FULL}"' in log.text
    assert "10.0.0.7" not in log.text


def test_the_worker_uses_our_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        sentinel = SimpleNamespace(join=lambda: None, exitcode=0)

        def start(self) -> None:
            assert django_q.cluster.scheduler is queue.queue_due
            assert get_broker().acknowledge(1) is None, "no error, which would end a process of the worker"

    def fail(*_: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(ORM, "delete", fail)
    monkeypatch.setattr(ORM, "acknowledge", ORM.acknowledge)
    monkeypatch.setattr(django_q.cluster, "scheduler", scheduler)
    monkeypatch.setattr(django_q.cluster, "Sentinel", django_q.cluster.Sentinel)
    monkeypatch.setattr(django_q.cluster, "Cluster", Started)
    monkeypatch.setattr(worker, "post_spawn", Signal())  # its receivers would lower the priority of this process
    assert worker.Command().run() is None


def test_a_delayed_task_waits_until_its_time() -> None:
    queue.put_later(queue.SEND_LETTERS, 1, 2, wait=timedelta(minutes=1))
    scheduler()
    assert queueing.waiting() == []
    Schedule.objects.update(next_run=timezone.now() - timedelta(seconds=1))
    scheduler()
    assert queueing.waiting() == [(queue.SEND_LETTERS, (1, 2))]
    assert Schedule.objects.count() == 0


@pytest.mark.parametrize(
    ("raised", "code"), [(Refused, "refused_so"), (KeyError, "fault"), (TimeoutException, "timed_out")]
)
def test_an_exception_in_a_task_becomes_a_code(raised: type[BaseException], code: str) -> None:
    marker = unique()

    def fail() -> str:
        try:
            raise ValueError(marker)
        except ValueError:
            raise raised(marker)  # noqa: B904  to have a context with content

    with logbook.kept(logging.DEBUG) as log:
        assert queue.task(fail)() == code
    assert "task failed" in log.text
    assert marker not in log.text


def test_a_worker_that_stops_returns_no_result() -> None:
    """The task is delivered again."""

    def stop() -> str:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        queue.task(stop)()


def test_results_are_not_kept(settings: Any) -> None:
    queue.put(queue.SWEEP)
    row = OrmQ.objects.get()
    result = {"ack_id": row.pk, "result": "swept", "success": True, "stopped": timezone.now()}
    save_task(queueing.SignedPackage.loads(row.payload) | result, queue._broker())
    assert Task.objects.count() == 0


@pytest.mark.parametrize("message", ["Failed 'x' (y) - {} : Traceback", RuntimeError("{}")])
def test_log_lines_of_django_q_carry_no_result(message: Any) -> None:
    marker = unique()
    with logbook.kept(logging.INFO) as log:
        logging.getLogger("django-q").error(
            message.format(marker) if isinstance(message, str) else RuntimeError(marker)
        )
    assert log.text.count('"logger": "django-q"') == 1
    assert marker not in log.text


def test_tasks_of_a_dead_worker_are_delivered_again_when_no_other_worker_runs(settings: Any, tmp_path: Any) -> None:
    def take() -> None:
        OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))

    settings.VAR_DIR = tmp_path
    queue.put(queue.REFINE_AGENT, 7)
    take()
    with join_workers(queue.give_again):
        assert queue.depth() == 2, "the task, and a sweep"
        take()
        with join_workers(queue.give_again):
            assert queue.depth() == 0, "the other worker may run it"
    with join_workers(queue.give_again):
        assert queue.depth() == 3


def test_a_worker_that_fails_to_start_can_try_again(settings: Any, tmp_path: Any) -> None:
    """For example on a full disk. It then waited for ever for its own lock."""

    def fail() -> None:
        raise OperationalError("database or disk is full")

    settings.VAR_DIR, called = tmp_path, []
    with pytest.raises(OperationalError), join_workers(fail):
        pass
    with join_workers(lambda: called.append("first")):
        assert called == ["first"]


def test_with_redis_the_only_worker_starts_with_a_sweep(redis: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis forgets a task when a worker takes it."""
    sent: list[str] = []
    monkeypatch.setattr(queue, "put", sent.append)
    queue.give_again()
    assert sent == [queue.SWEEP]


def test_what_redis_did_not_take_is_queued_as_soon_as_it_answers(
    redis: None, ada: Agent, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    """Letters, imports and vectors waited for two minutes more."""
    sent = list[str]()

    def fail(*_: Any, **__: Any) -> None:
        raise RedisDown

    def queue_all() -> None:
        outbox.queue_late()
        import_jobs.queue_late()
        embedding.queue_late()

    key = AgentKey.objects.get(agent=ada)
    for take in (fail, lambda name, *_, **__: sent.append(name)):
        monkeypatch.setattr(queue, "async_task", take)
        with django_capture_on_commit_callbacks(execute=True):
            if take is fail:
                lifecycle.change(ada, ME, steward="sue@acme.test", embedder="local/x")
                import_jobs.add(fresh(ada), key, b"{}", "jsonl", "")
            else:
                queue_all()
    assert {queue.SEND_LETTERS, queue.IMPORT_MEMORIES, queue.EMBED_MEMORIES} <= set(sent)
