"""The addresses that load balancers and people ask: what they tell, and what they do not."""

from __future__ import annotations

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

from config import queue
from refinement.providers import Availability
from tests.conftest import House
from tests.privacy import logbook
from tests.privacy.marker import unique

pytestmark = pytest.mark.database

ADDRESSES = ("/healthz", "/readyz")
NEVER = "no worker ever ran: start 'manage.py worker'"


@pytest.fixture
def client(settings: Any) -> Client:
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.DEBUG = False
    return Client(raise_request_exception=False)


def test_alive_needs_nothing(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.KEYS_DIR = tmp_path
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    response = client.head("/healthz")
    assert (response.status_code, response.content) == (200, b"")
    assert client.post("/healthz").status_code == 405
    assert client.get("/")["Location"] == "/admin/"


def test_ready_when_database_and_keys_are(client: Client, db: None) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (
        200,
        {"status": "ok", "database": "ok", "keys": "ok", "queue": "ok", "workers": NEVER, "models": "ok"},
    )


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_unready_when_the_database_is_down(
    error: type[Exception], client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any, **__: Any) -> Any:
        raise error("server at 10.0.0.7 closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(type(connections["default"]), "cursor", down)
        response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "unready")
    assert response.json()["database"].startswith("cannot be used")
    assert b"10.0.0.7" not in response.content


def test_unready_when_the_database_was_never_migrated(client: Client, db: None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE memory_agent RENAME TO memory_elsewhere")
        response = client.get("/readyz")
        transaction.set_rollback(True)
    assert (response.status_code, response.json()["database"]) == (503, "not migrated: run manage.py migrate")


def test_unready_when_the_keys_are_missing_and_nobody_is_named(
    client: Client, house: House, settings: Any, tmp_path: Path
) -> None:
    settings.KEYS_DIR = tmp_path / "lost"
    response = client.get("/readyz")
    assert response.status_code == 503
    said = response.content.decode()
    assert not any(word in said for word in ("acme", "globex", "ada", "sqlite", "postgres", str(tmp_path), "silo"))
    told = response.json()
    assert [told[part] == "ok" for part in ("database", "keys", "queue")] == [True, False, True]
    assert "manage.py check" in told["keys"]
    settings.SILO_KEYS = "c2VjcmV0"
    response = client.get("/readyz")
    assert (response.status_code, b"c2VjcmV0" in response.content) == (503, False)


def test_unready_when_the_queue_cannot_be_reached(
    client: Client, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.queue._broker", lambda: RedisBroker("redis://127.0.0.1:1/0"))
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["queue"].startswith("cannot be reached")
    assert b"127.0.0.1" not in response.content


class RedisBroker:
    """A broker whose server is not there."""

    def __init__(self, url: str) -> None:
        self.server = redis.from_url(url)

    def queue_size(self) -> int:
        return int(self.server.llen("queue"))


def test_unready_while_a_migration_is_not_applied(client: Client, db: None) -> None:
    MigrationRecorder(connection).record_applied("refinement", "9999_to_come")
    assert client.get("/readyz").status_code == 200
    MigrationRecorder(connection).record_unapplied("refinement", "0001_initial")
    response = client.get("/readyz")
    assert (response.status_code, response.json()["database"]) == (503, "not migrated: run manage.py migrate")


def test_a_worker_that_looks_for_nobody_is_told(client: Client, db: None) -> None:
    queue.keep_schedules()
    assert client.get("/readyz").json()["workers"] == "ok"
    Schedule.objects.update(next_run=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    response = client.get("/readyz")
    assert (response.status_code, response.json()["workers"]) == (
        200,
        "no worker has looked for due agents since 2026-01-02 03:04:05 UTC",
    )


def test_a_provider_that_does_not_answer_is_told(client: Client, db: None) -> None:
    with time_machine.travel("2026-01-02T03:04:05Z", tick=False):
        Availability("openai/gpt").failed(60)
        response = client.get("/readyz")
    assert (response.status_code, response.json()["models"]) == (
        200,
        "a model of openai does not respond and is not called until 2026-01-02 03:05:05 UTC",
    )


@pytest.mark.parametrize("path", ["/healthz/", "/api/v2/agent", "/%00"])
def test_an_unknown_path_tells_nothing(path: str, client: Client) -> None:
    response = client.get(path)
    told = response.content.decode()
    assert response.status_code == 404
    assert response.content == client.get("/another").content
    assert not any(word in told for word in ("healthz", "readyz", "Traceback", "urlconf", "nowhere", "DEBUG"))


@pytest.mark.parametrize("address", ADDRESSES)
def test_answers_carry_the_house_headers(address: str, client: Client, db: None) -> None:
    headers = client.get(address).headers
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert "Set-Cookie" not in headers


def test_no_log_line_quotes_what_was_asked(client: Client, db: None) -> None:
    marker = unique()
    with logbook.kept(logging.INFO) as log:
        for ask in (client.get, client.post):
            ask(f"/{marker}")
            ask(f"/readyz?{marker}")
            ask("/healthz", HTTP_HOST=f"{marker}.example")
    assert log.text
    assert marker not in log.text


def test_a_refusal_is_logged_with_its_method_and_route(client: Client, db: None) -> None:
    with logbook.kept(logging.INFO) as log:
        client.get("/api/v1/memories/7")
        client.post("/healthz")
    lines = [json.loads(line) for line in log.text.splitlines() if '"HTTP ' in line]
    assert [(line["event"], line["method"], line["route"]) for line in lines] == [
        ("HTTP 401", "GET", "api/v1/memories/<int:number>"),
        ("HTTP 405", "POST", "healthz"),
    ]
