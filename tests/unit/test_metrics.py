"""/metrics: only for the operator, the same from every process, and without names."""

import json
import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_q.models import Schedule

from config import queue
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from refinement import backlog, loop, scheduling
from refinement.models import Provider, RefinementSession
from refinement.providers import Availability
from tests import refining, steps
from tests.conftest import House
from tests.model_server import ModelServer, Status, tidy
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.steps import fresh
from tests.unit.test_health import RedisBroker

pytestmark = [pytest.mark.database, pytest.mark.django_db]

TOKEN = "scrape-me"
FULL, PLAIN = f"{MARKER} the team always meets at 09:45 on the quay", f"{MARKER} the team meets at 09:45 on the quay"


@pytest.fixture
def client(settings: Any) -> Client:
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.METRICS_TOKEN = TOKEN
    return Client(raise_request_exception=False)


def scraped(client: Client) -> str:
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    return answer.content.decode()


def figure(text: str, name: str, *, default: float | None = None) -> float:
    found = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    if not found and default is not None:
        return default
    [value] = found
    return float(value)


def test_without_a_token_in_the_settings_there_is_no_such_address(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    missing = client.get("/nowhere")
    for header in ("", "Bearer ", f"Bearer {TOKEN}"):
        answer = client.get("/metrics", headers={"Authorization": header})
        assert (answer.status_code, answer.content) == (404, missing.content)


def test_a_request_without_the_token_is_refused(client: Client, house: House) -> None:
    agents_key = f"Bearer {house.ada_key}"
    for header in ("", "Bearer", "Bearer x", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ü", agents_key):
        answer = client.get("/metrics", headers={"Authorization": header})
        assert (answer.status_code, answer.content) == (401, b"")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_requests_are_counted_by_pattern(client: Client, house: House) -> None:
    labels = 'method="GET",route="api/v1/memories/<int:number>"'
    found, missing = (f'palimpsest_requests_total{{{labels},status="{status}"}}' for status in (200, 404))
    seconds = f"palimpsest_request_seconds_count{{{labels}}}"
    steps.remember(house.ada, "tea")
    before = scraped(client)
    for number in (1, 2, 3):
        client.get(f"/api/v1/memories/{number}", headers={"Authorization": f"Bearer {house.ada_key}"})
    after = scraped(client)
    added = [figure(after, name) - figure(before, name, default=0) for name in (found, missing, seconds)]
    assert added == [1, 2, 3]


def test_requests_add_no_labels(client: Client) -> None:
    client.generic("ZEBRACROSSING", "/healthz")
    client.get("/secret-place")
    client.get("/api/v1/secret-place")
    text = scraped(client)
    assert 'palimpsest_requests_total{method="other",route="healthz",status="405"}' in text
    assert 'route="none",status="404"' in text
    assert not re.search("ZEBRACROSSING|secret-place", text)


def test_sessions_tokens_and_calls_are_counted_and_a_failed_session_is_a_warning(
    client: Client, ada: Agent, bob: Agent, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    steps.remember(ada, FULL, PLAIN)
    refining.change(ada, high_water_tokens=0)
    loop.refine(ada, trigger="manual")
    steps.remember(bob, FULL)
    refining.change(bob, model="openai/scripted")
    with ModelServer(Status(500)) as server, logbook.kept(logging.INFO) as log:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.MODEL_CALL_SECONDS = 1
        with django_capture_on_commit_callbacks(execute=True):
            loop.refine(fresh(bob), trigger="manual")
    [line] = [json.loads(line) for line in log.text.splitlines() if "refinement session closed" in line]
    assert (line["level"], line["outcome"], line["reason"]) == ("warning", "failed", "model_unavailable")
    text = scraped(client)
    assert figure(text, 'palimpsest_sessions{outcome="completed",reason=""}') == 1
    assert figure(text, 'palimpsest_sessions{outcome="failed",reason="model_unavailable"}') == 1
    saved = RefinementSession.objects.get(agent=ada).lost_tokens
    assert figure(text, "palimpsest_tokens_saved_total") == saved > 0
    assert figure(text, "palimpsest_model_errors") == 1
    calls = sum(RefinementSession.objects.values_list("model_calls", flat=True))
    assert figure(text, "palimpsest_model_calls_total") == calls > 0


def test_saved_tokens_include_duplicates_and_are_never_counted_down(client: Client, ada: Agent) -> None:
    others = [f"{thing} in the harbour, which nobody had ever seen" for thing in ("A boat", "Two gulls", "Mist")]
    steps.remember(ada, FULL, PLAIN, PLAIN, *others)
    session = loop.refine(ada, trigger="manual")
    assert session.lost_tokens > 0 < session.repeated_tokens
    saved = session.tokens_before - session.tokens_after
    assert figure(scraped(client), "palimpsest_tokens_saved_total") == saved
    rollback.roll_back(fresh(ada), What("session", 1), steps.PERSON, include_constitutional=True, reason="a test")
    assert figure(scraped(client), "palimpsest_tokens_saved_total") == saved


def test_model_tokens_are_counted(client: Client, ada: Agent, settings: Any) -> None:
    steps.remember(ada, FULL, PLAIN)
    refining.change(ada, model="openai/scripted", high_water_tokens=0)
    with ModelServer(tidy) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        session = loop.refine(fresh(ada), trigger="manual")
    text = scraped(client)
    for name in ("prompt", "completion", "cached"):
        assert figure(text, f"palimpsest_model_{name}_tokens_total") == getattr(session, f"{name}_tokens")
    assert session.prompt_tokens > 0


def test_due_agents_and_queued_tasks_are_counted(client: Client, ada: Agent) -> None:
    text = scraped(client)
    assert [figure(text, f"palimpsest_{name}") for name in ("due_agents", "due_seconds", "queue_depth")] == [0, 0, 0]
    refining.change(ada, due_at=timezone.now() - timedelta(hours=2))
    queue.put(queue.SWEEP)
    text = scraped(client)
    assert [figure(text, f"palimpsest_{name}") for name in ("due_agents", "queue_depth", "queue_up")] == [1, 1, 1]
    assert 7_200 <= figure(text, "palimpsest_due_seconds") < 7_300


def test_the_backlog_running_sessions_and_failures_are_counted(client: Client, ada: Agent, bob: Agent) -> None:
    assert figure(scraped(client), "palimpsest_sweep_late_seconds") == 0
    for agent in (ada, bob):
        refining.change(agent, due_at=timezone.now())
    backlog.sweep()
    scheduling.take()
    Provider.objects.create(name="openai/gpt", has_answered=True)
    for _ in range(2):
        Availability("openai/gpt", ada).failed(60, is_unreachable=True)
    queue.keep_schedules()
    Schedule.objects.update(next_run=timezone.now() - timedelta(hours=1))
    text = scraped(client)
    assert figure(text, "palimpsest_waiting_agents") == 1
    for provider, (running, is_down) in {"builtin": (1, 0), "openai": (0, 1), "ollama": (0, 0)}.items():
        assert figure(text, f'palimpsest_sessions_in_flight{{provider="{provider}"}}') == running
        assert figure(text, f'palimpsest_provider_down{{provider="{provider}"}}') == is_down
    assert 3_600 <= figure(text, "palimpsest_sweep_late_seconds") < 3_700


def test_a_queue_that_is_down_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.queue._broker", lambda: RedisBroker("redis://127.0.0.1:1/0"))
    text = scraped(client)
    assert figure(text, "palimpsest_queue_up") == 0
    assert "palimpsest_queue_depth" not in text


def test_it_needs_six_queries_and_names_nobody(client: Client, house: House, django_assert_num_queries: Any) -> None:
    steps.remember(house.ada, FULL, PLAIN)
    refining.change(house.bob, due_at=timezone.now())
    for _ in range(8):
        queue.put(queue.SWEEP)
        loop.refine(fresh(house.ada), trigger="manual")
    scraped(client)  # to count a request, which adds its labels
    with django_assert_num_queries(6):  # sessions; due, waiting and closed; the next sweep; the queue
        text = scraped(client)
    assert not re.search(rf"acme|globex|\bada\b|\bbob\b|dedupe|{MARKER}", text)
    labels = set(re.findall(r'[{,](\w+)="', text))
    assert labels == {"method", "route", "status", "le", "outcome", "reason", "provider"}
