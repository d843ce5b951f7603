"""Webhooks of tenants: what is sent, how it is signed, and how often it is tried again."""

import base64
import hashlib
import hmac
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections
from django.urls import reverse
from django.utils import timezone

from config import keyring
from config.queue import SEND_WEBHOOKS, SWEEP, put
from memory.agents import lifecycle
from memory.errors import Invalid
from memory.models import Agent, Tenant, Turn
from refinement.notices import attention, posting, webhooks
from refinement.notices.models import Delivery, OverBudget, Webhook
from tests import queueing, refining, steps
from tests.commands.test_guides import blocks
from tests.hooks import HookServer, Received, deliver, fail, wait
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.steps import ME

pytestmark = pytest.mark.database
DAY = timedelta(hours=24)


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_HOSTS = ["127.0.0.1"]


@pytest.fixture
def server() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


def signatures(secret: str, received: Received) -> list[str]:
    """The signature as the specification "Standard Webhooks" computes it, for each secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.{received.body.decode()}"
    return ["v1," + base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()]


def test_a_failed_session_sends_a_signed_message_without_content(ada: Agent, server: HookServer) -> None:
    secret = webhooks.configure(ada.tenant, server.url)
    steps.remember(ada, f"{MARKER} likes tea")
    session = fail(ada)
    assert deliver() == ["done"]
    [received] = server.requests
    assert received.headers["webhook-signature"].split() == signatures(secret, received)
    assert abs(int(received.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 60
    message = json.loads(received.body)
    page = reverse("admin:refinement_refinementsession_change", args=[session.pk])
    assert (message["type"], set(message)) == ("session.failed", {"type", "timestamp", "data"})
    assert message["data"] == {
        "tenant": "acme",
        "agent": "acme/ada",
        "session": 1,
        "outcome": "failed",
        "reason": "model_unavailable",
        "tokens": session.tokens_after,
        "budget": 8_000,
        "url": f"http://127.0.0.1:8000{page}",
    }
    assert MARKER.encode() not in received.body
    assert not Delivery.objects.exists()
    assert deliver() == []


def test_the_guide_verifies_a_message(ada: Agent, server: HookServer) -> None:
    secret, guide = webhooks.configure(ada.tenant, server.url), dict[str, Any]()
    exec(blocks("docs/how-to/get-notices.md", "python")[0], guide)  # noqa: S102
    fail(ada)
    deliver()
    [received] = server.requests
    assert guide["is_genuine"](secret, *received)
    assert not guide["is_genuine"](secret, received.headers, received.body + b" ")


def test_a_new_pepper_signs_beside_the_old_one(
    ada: Agent, server: HookServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = webhooks.configure(ada.tenant, server.url)
    old = base64.b64encode(keyring.keyring().pepper[0].secret).decode()
    settings.PEPPER_KEY = f"{base64.b64encode(os.urandom(32)).decode()},{old}"
    fail(ada)
    deliver()
    [received] = server.requests
    both = received.headers["webhook-signature"].split()
    assert (len(both), both[1:]) == (2, signatures(secret, received))


def test_nothing_is_stored_or_sent_while_a_webhook_is_off(ada: Agent, bob: Agent, server: HookServer) -> None:
    webhooks.configure(bob.tenant, server.url)  # of another tenant
    fail(ada)
    assert not Delivery.objects.exists()
    fail(bob)
    webhooks.configure(bob.tenant, "")
    fail(bob)
    assert not Delivery.objects.exists()
    assert (deliver(), server.requests) == ([], [])


def test_an_agent_over_its_budget_for_a_day_is_reported_once_until_it_was_back_under(
    ada: Agent, server: HookServer
) -> None:
    webhooks.configure(ada.tenant, server.url)

    def after_a_day(budget: int) -> int:
        refining.change(ada, budget_tokens=budget, target_tokens=budget)
        for _ in range(2):
            attention.watch()
            OverBudget.objects.update(since=timezone.now() - DAY)
        attention.watch()
        deliver()
        return len(server.requests)

    refining.fill(ada, 2, 100)
    assert [after_a_day(budget) for budget in (200, 199, 198, 200, 199)] == [0, 1, 1, 1, 2]
    data = json.loads(server.requests[0].body)["data"]
    page = reverse("admin:memory_agent_change", args=[ada.pk])
    assert (data["tokens"], data["budget"], data["reason"]) == (200, 199, "over_budget")
    assert data["url"].endswith(page)


def test_a_message_is_tried_again_for_a_day_with_growing_pauses(ada: Agent, server: HookServer) -> None:
    webhooks.configure(ada.tenant, server.url)
    fail(ada)
    server.status, pauses = 500, []
    with logbook.kept() as log:
        while Delivery.objects.exists():
            assert deliver() == ["put_off"]
            assert deliver() == [], "it waits"
            if row := Delivery.objects.first():
                pauses.append(round((row.wait_until - timezone.now()) / timedelta(minutes=1)))
                until = max(row.wait_until, webhooks.of(ada.tenant).wait_until)
                wait(until - timezone.now() + timedelta(seconds=1))
    assert pauses == [1, 5, 15, 60, 120, 240, 480, 480, 39]
    assert len({request.headers["webhook-id"] for request in server.requests}) == 1
    assert len(server.requests) == 10
    assert "webhook delivery given up" in log.text
    assert webhooks.of(ada.tenant).problem == "The server answered 500."
    fail(ada)
    wait(DAY)
    server.status = 200
    assert deliver() == ["done"]
    assert webhooks.of(ada.tenant).problem == ""


def test_only_a_2xx_in_time_is_a_success(ada: Agent, server: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(handler: Any) -> None:
        """Send a header for ever, byte by byte: each byte is in time."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not server.is_ended.wait(0.02):
            handler.wfile.write(b"x")

    def endless(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nx")
        server.is_ended.wait(5)

    def attempt() -> str:
        return posting.post(server.url, b"{}", {})

    monkeypatch.setattr(posting, "SECONDS", 1.0)
    assert attempt() == ""
    server.act = endless
    assert attempt() == "", "the body is not read"
    server.act = drip
    assert attempt() == "The server did not answer within 1 seconds."
    server.act, server.status = lambda _: None, 302
    assert attempt() == "The server answered 302."
    assert len(server.requests) == 4, "no redirect is followed"
    server.server_close()
    assert attempt() == "The server could not be reached, or it closed the connection."


@pytest.mark.django_db(transaction=True)
def test_a_message_survives_a_killed_worker(ada: Agent) -> None:
    """The server kills the worker before it answers. The next worker sends the same message."""
    with HookServer() as server:
        webhooks.configure(ada.tenant, server.url)
        fail(ada)
        webhooks.queue_late()
        [task] = [task for task in queueing.waiting() if task[0] == SEND_WEBHOOKS]
        connections.close_all()
        if not (child := os.fork()):
            queueing.carry_out(task)
            os._exit(1)
        server.act = lambda _: os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        assert len(server.requests) == 1
        server.act = lambda _: None
        assert deliver() == ["taken"], "the queue delivers the task of the dead worker again"
        for model in (Webhook, Turn):
            model.objects.update(wait_until=timezone.now())
        assert deliver() == ["done"]
        first, second = server.requests
        assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
        assert not Delivery.objects.exists()


def test_a_tenants_dead_server_has_one_attempt_and_delays_nobody(ada: Agent, bob: Agent, server: HookServer) -> None:
    with HookServer(500) as dead:
        webhooks.configure(ada.tenant, dead.url)
        webhooks.configure(bob.tenant, server.url)
        for _ in range(3):
            fail(ada)
        fail(bob)
        fail(bob)
        assert deliver() == ["put_off", "done"]
        assert (len(dead.requests), len(server.requests)) == (1, 2)
        assert deliver() == []
        wait(DAY)
        assert deliver() == ["put_off"]
        assert Delivery.objects.count() == 0, "all are older than a day"


def test_servers_that_hang_delay_others_for_one_attempt_of_one_worker(
    bob: Agent, server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "SECONDS", 0.1)
    others = [lifecycle.create(f"evil{number}", "eve", model="builtin/dedupe", actor=ME)[0] for number in range(3)]
    for agent in (*others, bob):
        webhooks.configure(agent.tenant, server.url)
        fail(agent)
    deliver()
    with HookServer(act=lambda _: hangs.is_ended.wait(5)) as hangs:
        for attempt in range(3):
            for agent in others:
                webhooks.configure(agent.tenant, hangs.url)  # a new address does not get them ahead of bob
            fail(bob)
            deliver()
            for agent in (*others, bob):
                fail(agent)
            webhooks.queue_late()
            put(SWEEP)
            assert [name for name, _ in queueing.waiting()] == [SEND_WEBHOOKS, SWEEP], "one task of all tenants"
            queueing.carry_out(queueing.take())
            assert [name for name, _ in queueing.waiting()] == [SWEEP, SEND_WEBHOOKS], "after one failure"
            assert (len(server.requests), len(hangs.requests)) == (6 + 2 * attempt, 1 + attempt), "bob is first"
            Delivery.objects.all().delete()
            queueing.work()


def test_many_events_of_a_quick_server_delay_a_new_webhook_for_a_minute(
    ada: Agent, bob: Agent, server: HookServer
) -> None:
    with HookServer() as quick:
        for agent, hook in ((ada, quick), (bob, server)):
            webhooks.configure(agent.tenant, hook.url)
            for _ in range(3):
                fail(agent)
            webhooks._send_next()
        assert (len(quick.requests), len(server.requests)) == (2, 0)
        Webhook.objects.filter(tenant=bob.tenant).update(wait_until=timezone.now() - timedelta(seconds=61))
        webhooks._send_next()
        assert (len(quick.requests), len(server.requests)) == (2, 1)


def test_an_event_is_not_sent_to_an_address_that_was_just_replaced(
    ada: Agent, server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> float:
        if Webhook.objects.get().url != server.url:
            webhooks.configure(ada.tenant, server.url)
        return 0.0

    with HookServer() as old:
        webhooks.configure(ada.tenant, old.url)
        fail(ada)
        monkeypatch.setattr(webhooks, "time", SimpleNamespace(monotonic=replace, time=time.time))
        deliver()
    assert (len(old.requests), len(server.requests)) == (0, 1)


def test_a_webhook_with_a_bad_address_is_refused(ada: Agent, settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_HOSTS = ["hooks.internal"]
    bad = [
        "ftp://a.test/",
        "https://",
        "https://u:p@a.test/",
        "https://a.test/#x",
        "https://a.test\\@b",
        "https://a:0/",
    ]
    bad += ["https://2130706433/", "https://0x7f.1/", "https://127.0.0.1./", "https://1572395042/"]
    bad += ["http://a.test/", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://a.test/\n"]
    for url in bad:
        with pytest.raises(Invalid):
            webhooks.configure(ada.tenant, url)
    assert not Webhook.objects.exists()
    webhooks.configure(ada.tenant, "http://Hooks.internal:8080/x?y=z")


def test_a_secret_is_shown_once_and_replaced_on_request(ada: Agent, server: HookServer) -> None:
    first = webhooks.configure(ada.tenant, server.url)
    assert webhooks.configure(ada.tenant, server.url) == ""
    second = webhooks.configure(ada.tenant, server.url, new_secret=True)
    assert len({first, second}) == 2
    assert {secret[:6] for secret in (first, second)} == {"whsec_"}
    rows = f"{list(Webhook.objects.values())}{list(Tenant.objects.values())}"
    assert second.removeprefix("whsec_") not in rows
    fail(ada)
    deliver()
    [received] = server.requests
    assert received.headers["webhook-signature"].split() == signatures(second, received)
