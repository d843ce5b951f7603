"""The queue leaks nothing of a marked memory: tasks, their results, mail and metrics."""

from threading import Lock
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ, Task
from django_q.monitor import monitor
from django_q.queues import Queue
from django_q.signing import SignedPackage
from django_q.worker import worker

from config import queue
from memory.agents import lifecycle
from memory.models import Agent
from memory.writing import operations
from refinement import backlog, tasks
from refinement.models import Provider, RefinementSession
from tests import refining, steps
from tests.model_server import ModelServer, tidy
from tests.privacy.test_marker import echo, hostile, remembered
from tests.privacy.watch import Fault, Watch

pytestmark = pytest.mark.database


@pytest.fixture
def server(settings: Any) -> Any:
    with ModelServer(tidy) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.MODEL_CALL_SECONDS = 2
        yield server


class _Timer:
    """The value that a worker shares with its guard."""

    value = 0.0

    def get_lock(self) -> Any:
        return Lock()


def run_queue(watch: Watch) -> list[str]:
    """Run the waiting tasks with django-q's functions, in this process. Returns their results."""
    waiting, results = Queue(), Queue()
    packages = [(row, SignedPackage.loads(row.payload)) for row in OrmQ.objects.order_by("pk")]
    for row, task in packages:
        watch.outputs.append(f"{task!r}")
        waiting.put(task | {"ack_id": row.pk})
    waiting.put("STOP")
    worker(waiting, results, _Timer(), 60)
    done = [results.get(timeout=30) for _ in packages]
    watch.outputs += [f"{task!r}" for task in done]
    for task in [*done, "STOP"]:
        results.put(task)
    monitor(results, queue._broker())
    assert OrmQ.objects.count() == len(packages) - len(done) == 0
    return [task["result"] for task in done]


def test_a_refinement_through_the_queue_leaks_nothing(watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model="openai/scripted", high_water_tokens=0)
    backlog.request(ada)
    assert run_queue(watch) == ["completed"]
    assert (RefinementSession.objects.get().merged, Task.objects.count()) == (2, 0)


def test_a_hostile_model_through_the_queue_leaks_nothing(watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model="openai/scripted")
    for script in [hostile(watch.marker), *echo(watch.marker).values()]:
        server.script = script
        refining.change(ada, due_at=timezone.now())
        Provider.objects.all().delete()  # a provider that fails twice has a cool-down
        Provider.objects.create(name="openai/scripted", has_answered=True)  # it has answered before
        tasks.sweep()
        [outcome] = run_queue(watch)
        assert outcome in ("completed", "failed", "incomplete", "not_due")


def test_an_exception_in_a_task_leaks_nothing(watch: Watch, ada: Agent, server: ModelServer, monkeypatch: Any) -> None:
    def fails(*_: Any, **__: Any) -> None:
        try:
            raise ValueError(watch.text("first"))
        except ValueError:
            raise Fault(watch.text("then"))  # noqa: B904  with its context, as careless code does

    remembered(watch, ada)
    refining.change(ada, model="openai/scripted", high_water_tokens=0)
    backlog.request(ada)
    with monkeypatch.context() as patched:
        patched.setattr(operations, "consolidate", fails)
        assert run_queue(watch) == ["fault"]
    assert (RefinementSession.objects.get().reason, Task.objects.count()) == ("interrupted", 0)


def test_mail_and_metrics_leak_nothing(watch: Watch, ada: Agent, settings: Any) -> None:
    settings.METRICS_TOKEN, settings.ALLOWED_HOSTS = "scrape-me", ["testserver"]
    remembered(watch, ada)
    lifecycle.change(ada, steps.ME, steward="sue@acme.test")
    lifecycle.change(ada, steps.ME, model="builtin/dedupe2", system_prompt="Be brief.", is_steward_only=True)
    lifecycle.issue_key(ada, steps.ME, label="laptop")
    assert run_queue(watch) == ["done"], "one task sends them"
    assert len(mail.outbox) == 3
    watch.outputs += [f"{message.message()}" for message in mail.outbox]
    assert not any("Be brief" in message.body or "laptop" in message.body for message in mail.outbox)
    client = Client(headers={"Authorization": "Bearer scrape-me"})
    client.post("/api/v1/memories/search", {"q": watch.marker}, content_type="application/json")
    watch.outputs.append(client.get("/metrics").content.decode())
    assert "palimpsest_sessions" in watch.outputs[-1]
