"""The roads through the queue: tasks, their results, letters and metrics, with a marked memory about."""

from __future__ import annotations

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
from tests.privacy.test_marker import Fault, echo, hostile, remembered
from tests.privacy.watch import Watch

pytestmark = pytest.mark.database


@pytest.fixture
def server(settings: Any) -> Any:
    with ModelServer(tidy) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.MODEL_CALL_SECONDS = 2
        yield server


def worked_off(watch: Watch) -> list[str]:
    """Have django-q's own functions carry out what waits, in this process; what each task returned."""
    given, results = Queue(), Queue()
    waiting = [(row, SignedPackage.loads(row.payload)) for row in OrmQ.objects.order_by("pk")]
    for row, task in waiting:
        watch.outputs.append(f"{task!r}")
        given.put(task | {"ack_id": row.pk})
    given.put("STOP")
    worker(given, results, _Timer(), 60)
    done = [results.get(timeout=30) for _ in waiting]
    watch.outputs += [f"{task!r}" for task in done]
    for task in done:
        results.put(task)
    results.put("STOP")
    monitor(results, queue._broker())
    assert OrmQ.objects.count() == len(waiting) - len(done) == 0
    return [task["result"] for task in done]


class _Timer:
    """What a worker tells its guard by."""

    value = 0.0

    def get_lock(self) -> Any:
        from threading import Lock

        return Lock()


def test_a_refinement_through_the_queue(watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model="openai/scripted", high_water_tokens=0)
    backlog.request(ada)
    assert worked_off(watch) == ["completed"]
    assert RefinementSession.objects.get().merged == 2
    assert Task.objects.count() == 0


def test_a_hostile_model_through_the_queue(watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model="openai/scripted")
    for script in [hostile(watch.marker), *echo(watch.marker).values()]:
        server.script = script
        refining.change(ada, due_at=timezone.now())
        Provider.objects.all().delete()  # else one that failed twice is left alone
        tasks.sweep()
        [outcome] = worked_off(watch)
        assert outcome in ("completed", "failed", "incomplete")


def test_a_program_that_fails_in_a_task(
    watch: Watch, ada: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        try:
            raise ValueError(watch.text("first"))
        except ValueError:
            raise Fault(watch.text("then"))  # noqa: B904  a careless one

    remembered(watch, ada)
    refining.change(ada, model="openai/scripted", high_water_tokens=0)
    backlog.request(ada)
    with monkeypatch.context() as patch:
        patch.setattr(operations, "consolidate", fails)
        assert worked_off(watch) == ["fault"]
    assert RefinementSession.objects.get().reason == "interrupted"
    assert Task.objects.count() == 0


def test_letters_and_metrics(watch: Watch, ada: Agent, settings: Any) -> None:
    settings.METRICS_TOKEN, settings.ALLOWED_HOSTS = "scrape-me", ["testserver"]
    remembered(watch, ada)
    lifecycle.change(ada, steps.ME, steward="sue@acme.test")
    lifecycle.change(ada, steps.ME, model="builtin/dedupe2", system_prompt="Be brief.", is_steward_only=True)
    lifecycle.issue_key(ada, steps.ME, label="laptop")
    assert worked_off(watch) == ["sent"] * 3
    assert len(mail.outbox) == 3
    watch.outputs += [f"{message.message()}" for message in mail.outbox]
    assert not any("Be brief" in message.body or "laptop" in message.body for message in mail.outbox)
    client = Client(headers={"Authorization": "Bearer scrape-me"})
    client.post("/api/v1/memories/search", {"q": watch.marker}, content_type="application/json")
    watch.outputs.append(client.get("/metrics").content.decode())
    assert "palimpsest_sessions" in watch.outputs[-1]
