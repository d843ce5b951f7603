"""The health addresses for load balancers and people: what they show and what they keep to themselves."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import time_machine
from django.db import InterfaceError, OperationalError, connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django_q.models import Schedule

from config import __version__, at_once, queue
from config.database import advice
from memory.agents import lifecycle
from memory.errors import Invalid
from memory.models import Agent
from refinement import probe
from refinement.models import Provider
from refinement.monitoring import health
from refinement.providers import Availability
from tests import refining
from tests.conftest import OPERATOR, House
from tests.privacy import logbook
from tests.privacy.marker import unique

pytestmark = pytest.mark.database

START = "start 'manage.py worker'"
NEVER = f"no worker has started yet: {START}"
NOT_MIGRATED = (503, "not migrated: run manage.py migrate")


@pytest.fixture
def client(settings: Any) -> Client:
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.DEBUG = False
    return Client(raise_request_exception=False)


def ready(client: Client, part: str) -> tuple[int, str]:
    response = client.get("/readyz")
    return response.status_code, response.json()[part]


def test_one_address_occupies_few_threads(client: Client, settings: Any) -> None:
    settings.WEB_THREADS = 4
    assert at_once.begin({("page", "127.0.0.1"): 1})
    assert client.get("/readyz").status_code == 429
    at_once.end([("page", "127.0.0.1")])
    assert client.get("/healthz").status_code == 200


def test_healthz_needs_no_database_and_no_keys(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.KEYS_DIR = tmp_path
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    response = client.head("/healthz")
    assert (response.status_code, response.content, client.post("/healthz").status_code) == (200, b"", 405)
    assert client.get("/")["Location"] == "/admin/"


def test_readyz_names_each_part_stopped_workers_and_unavailable_models(client: Client, ada: Agent) -> None:
    response = client.get("/readyz")
    parts = {
        "status": "ok",
        "version": __version__,
        "database": "ok",
        "keys": "ok",
        "queue": "ok",
        "disk": "ok",
        "workers": NEVER,
        "models": "ok",
    }
    assert (response.status_code, response.json()) == (200, parts)
    queue.keep_schedules()
    assert ready(client, "workers") == (200, "ok")
    Schedule.objects.update(next_run=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert ready(client, "workers") == (
        200,
        f"no worker has looked for due agents since 2026-01-02 03:04:05 UTC: {START}",
    )
    with time_machine.travel("2026-01-02T03:04:05Z", tick=False):
        refining.change(ada, model="ollama/gpt")
        Provider.objects.create(name="ollama/gpt", has_answered=True)
        Availability("ollama/gpt", ada).failed(60)
        until = "2026-01-02 03:05:05 UTC"
        assert ready(client, "models") == (200, f"a model of ollama does not respond and is not called until {until}")


def test_many_models_of_one_tenant_do_not_delay_readyz(
    client: Client, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    problems = probe.problems

    def counted(models: set[str]) -> dict[str, str]:
        asked.append(len(models))
        return problems(models)

    monkeypatch.setattr(probe, "problems", counted)
    monkeypatch.setattr(health, "MOST_MODELS", 5)
    monkeypatch.setattr(lifecycle, "MOST_AGENTS", 8)
    for number in range(7):
        lifecycle.create("acme", f"a{number}", model=f"openai/{number}", actor=OPERATOR)
    assert ready(client, "models")[0] == 200
    assert asked == [5]
    with pytest.raises(Invalid, match="already has 8 agents"):
        lifecycle.create("acme", "more", model="builtin/dedupe", actor=OPERATOR)


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_it_is_unready_without_a_database(
    error: Any, client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error("server at 10.0.0.7 closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(type(connections["default"]), "cursor", fails)
        response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "unready")
    assert response.json()["database"].startswith("cannot be used: check that it runs")
    assert b"10.0.0.7" not in response.content


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('FATAL:  database "x" does not exist', "the database in DATABASE_URL does not exist"),
        ('FATAL:  role "x" does not exist', "refuses the user or the password"),
        ('FATAL:  password authentication failed for user "x"', "refuses the user or the password"),
        ("database is locked", "check that it runs"),
        ('FATAL:  database "x" is not currently accepting connections', "accepts no connections"),
        ("unable to open database file", "read-only"),
    ],
)
def test_a_text_of_the_database_is_translated_and_not_quoted(text: str, words: str) -> None:
    assert words in advice(OperationalError(f"connection to server at 10.0.0.7 failed: {text}"))


def test_it_is_unready_without_all_migrations(client: Client, db: None) -> None:
    MigrationRecorder(connection).record_applied("refinement", "9999_future")
    assert ready(client, "database") == (200, "ok")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE memory_agent RENAME TO memory_renamed")
        assert ready(client, "database") == NOT_MIGRATED
        transaction.set_rollback(True)
    MigrationRecorder(connection).record_unapplied("refinement", "0001_initial")
    assert ready(client, "database") == NOT_MIGRATED


def test_it_is_unready_without_keys_and_names_no_agent(
    client: Client, house: House, settings: Any, tmp_path: Path
) -> None:
    settings.KEYS_DIR = tmp_path / "lost"
    response = client.get("/readyz")
    assert response.status_code == 503
    text, parts = response.content.decode(), response.json()
    assert not any(word in text for word in ("acme", "globex", "ada", "sqlite", "postgres", str(tmp_path), "silo"))
    assert [parts[part] == "ok" for part in ("database", "keys", "queue")] == [True, False, True]
    assert "manage.py check" in parts["keys"]
    settings.SILO_KEYS = "c2VjcmV0"
    response = client.get("/readyz")
    assert (response.status_code, b"c2VjcmV0" in response.content) == (503, False)


class RedisBroker:
    """A broker whose server does not run."""

    def __init__(self, url: str) -> None:
        self.server = redis.from_url(url)

    def queue_size(self) -> int:
        return int(self.server.llen("queue"))


def test_it_is_unready_without_a_queue(client: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.queue._broker", lambda: RedisBroker("redis://127.0.0.1:1/0"))
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["queue"].startswith("cannot be reached")
    assert b"127.0.0.1" not in response.content


def test_an_unknown_path_reveals_nothing(client: Client) -> None:
    responses = [client.get(path) for path in ("/another", "/healthz/", "/api/v2/agent", "/%00")]
    assert {(response.status_code, response.content) for response in responses} == {(404, responses[0].content)}
    text = responses[0].content.decode()
    assert [word for word in ("another", "healthz", "readyz", "Traceback", "urlconf", "DEBUG") if word in text] == []


def test_health_answers_have_the_security_headers(client: Client, db: None) -> None:
    expected = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
    expected |= {"Referrer-Policy": "same-origin"}
    for address in ("/healthz", "/readyz"):
        headers = client.get(address).headers
        assert {name: headers[name] for name in expected} == expected
        assert "Set-Cookie" not in headers


def test_a_health_check_without_tls_is_not_redirected(client: Client, db: None, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/admin/").status_code == 301
    assert {client.get(path).status_code for path in ("/healthz", "/readyz")} <= {200, 503}


def test_logs_name_the_method_and_route_and_quote_no_request(client: Client, db: None) -> None:
    marker = unique()
    with logbook.kept(logging.INFO) as log:
        for ask in (client.get, client.post):
            ask(f"/{marker}")
            ask(f"/readyz?{marker}")
            ask("/healthz", HTTP_HOST=f"{marker}.example")
    assert log.text
    assert marker not in log.text
    with logbook.kept(logging.INFO) as log:
        client.get("/api/v1/memories/7")
        client.post("/healthz")
    lines = [json.loads(line) for line in log.text.splitlines() if '"HTTP ' in line]
    assert [(line["event"], line["method"], line["route"]) for line in lines] == [
        ("HTTP 401", "GET", "api/v1/memories/<int:number>"),
        ("HTTP 405", "POST", "healthz"),
    ]
