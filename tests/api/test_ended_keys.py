"""A key that is revoked during its request, while the body arrives or while the request waits for the lock."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.test.client import FakePayload

from memory import errors
from memory.access.authentication import agent_key, new_request, prefix_of, request_key
from memory.access.tenants import issue_key, revoke_key
from memory.agents import lifecycle, rule_changes
from memory.api.base.idempotency import Kept
from memory.api.base.views import CHALLENGE
from memory.consent import claims, requests
from memory.models import Agent, AgentKey, TenantKey
from memory.search import reading
from memory.silo.silo import Read, Silo
from memory.writing import edits, operations
from tests import steps
from tests.access_requests import granted
from tests.api.calling import BASE, Answer, Caller
from tests.conftest import OPERATOR, House
from tests.rules.recordings import off
from tests.steps import ME, fresh
from tests.tampering import sql

pytestmark = pytest.mark.database


class Slow(FakePayload):
    """A body. Another request runs before its last part is read."""

    def __init__(self, content: bytes, meanwhile: Callable[[], object]) -> None:
        super().__init__(content)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def read(self, size: int | None = None) -> bytes:
        if self._meanwhile is not None:
            other, self._meanwhile = self._meanwhile, None
            with new_request():
                other()
        return super().read(size)


def slowly(key: str, method: str, path: str, body: Any, meanwhile: Callable[[], object], **headers: str) -> Answer:
    content = json.dumps(body).encode()
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}", **headers})
    environ: Any = {"wsgi.input": Slow(content, meanwhile)}
    response = client.generic(method, BASE + path, content, content_type="application/json", **environ)
    return Answer(response.status_code, response.headers, response.content)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "agent/keys", {}),
        ("POST", "agent/keys", {"exchange": True}),
        ("PATCH", "agent", {"steward": "eve@acme.test", "is_steward_only": True}),
        ("POST", "memories", {"content": "mine"}),
        ("POST", "memories/batch", {"memories": [{"content": "mine"}]}),
        ("PATCH", "memories/1", {"content": "mine"}),
        ("POST", "memories/search", {"q": "secret"}),
        ("POST", "refinement-sessions", {}),
    ],
)
def test_a_key_exchanged_while_the_body_arrives_is_rejected(house: House, method: str, path: str, body: Any) -> None:
    keys: list[str] = []

    def exchange() -> None:
        keys.append(claims.exchange(agent_key(house.ada_key), ME).key)
        steps.remember(fresh(house.ada), "a secret that came later")

    answer = slowly(house.ada_key, method, path, body, exchange)
    assert (answer.status, answer.codes) == (401, ["key_rejected"])
    assert (answer.headers["WWW-Authenticate"], b"secret" in answer.content) == (CHALLENGE, False)
    assert AgentKey.objects.filter(agent=house.ada, revoked_at=None).count() == 1
    assert agent_key(keys[0]).agent.steward == ""
    assert steps.active(house.ada) == [1]


ENDS = [partial(claims.exchange, keep=["memory_path"]), lambda row, actor: lifecycle.suspend_keys(row.agent, actor)]


@pytest.mark.parametrize("end", ENDS)
def test_an_ended_key_logs_no_run(house: House, tmp_path: Path, settings: Any, end: Callable[..., object]) -> None:
    settings.VAULT_ROOTS, path = [str(tmp_path)], tmp_path / "ada.md"
    steps.signed_update(Agent.objects.filter(pk=house.ada.pk), memory_path=str(path))
    body = {"task": "late", "result": ""}
    answer = slowly(house.ada_key, "POST", "runs", body, lambda: end(agent_key(house.ada_key), ME))
    assert (answer.codes, path.exists()) == (["key_rejected"], False)


def test_an_older_row_that_sql_puts_back_during_a_request_gets_nothing_newer(house: House) -> None:
    steps.remember(house.ada, "tea")
    old = Agent.objects.filter(pk=house.ada.pk).values().get()

    def exchange() -> None:
        claims.exchange(agent_key(house.ada_key), ME)
        steps.remember(fresh(house.ada), "a secret that came later")
        Agent.objects.filter(pk=old.pop("id")).update(**old)

    answer = slowly(house.ada_key, "POST", "memories/search", {"q": "secret"}, exchange)
    assert (answer.codes, b"came later" in answer.content) == (["authority_broken"], False)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", "memories/search"), ("GET", "memories"), ("GET", "context"), ("POST", "retrieve")),
        *(("GET", "export"), ("GET", "export?format=mem0"), ("GET", "export?format=letta")),
    ],
)
def test_a_key_exchanged_during_a_read_gets_nothing_newer(
    house: House, method: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = Silo.for_agent, []

    def slow(agent: Agent) -> Silo:
        if not done:
            done.append(True)
            with new_request():
                claims.exchange(agent_key(house.ada_key), ME)
                steps.remember(fresh(house.ada), "a secret that came later")
        return real(agent)

    monkeypatch.setattr(Silo, "for_agent", slow)
    body = {"memories/search": {"q": "secret"}, "retrieve": {"query": "secret"}}.get(path)
    answer = Caller(house.ada_key).ask(method, path, body)
    assert (done, answer.status, b"secret" in answer.content) == ([True], 401, False)


def test_a_key_exchanged_during_its_request_sees_no_newer_grant(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    expire, numbers = requests.expire, list[int]()

    def slow(agent: Agent) -> None:
        with new_request():
            claims.exchange(agent_key(house.ada_key), ME)
            numbers.append(granted(fresh(house.ada)))
            requests.revoke(fresh(house.ada), numbers[0], ME)
        expire(agent)

    monkeypatch.setattr(requests, "expire", slow)
    answer = Caller(house.ada_key).post(f"grants/{fresh(house.ada).audit_seq + 4}/revoke")
    assert numbers == [fresh(house.ada).audit_seq - 1]
    assert answer.status == 401


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_tenant_key_revoked_while_the_body_arrives_is_rejected(house: House, is_put_back: bool) -> None:
    key = issue_key("acme")

    def revoke() -> None:
        revoke_key("acme", prefix_of(key))
        if is_put_back:  # with SQL
            TenantKey.objects.update(revoked_at=None)

    answer = slowly(key, "POST", "agents", {"agent": "eve", "model": "builtin/dedupe"}, revoke)
    assert (answer.status, Agent.objects.filter(slug="eve").exists()) == (401, False)


@pytest.mark.parametrize("end", ["revoke", "suspend"])
def test_a_key_ended_while_the_request_waits_for_the_lock_is_rejected(house: House, end: str) -> None:
    row = agent_key(house.ada_key)
    with new_request():
        request_key.set(row)
        with edits.locked(house.ada):
            pass
        if end == "revoke":
            lifecycle.issue_key(fresh(house.ada), ME)
            lifecycle.revoke_key(fresh(house.ada), row.prefix, OPERATOR)
        else:
            lifecycle.suspend_keys(fresh(house.ada), OPERATOR)
        with pytest.raises(errors.KeyRejected), edits.locked(house.ada):
            raise AssertionError("the agent was locked")
    with edits.locked(house.ada):
        pass


def test_a_suspended_key_stores_nothing_although_sql_foresees_the_suspension(house: House) -> None:
    """A worker reads the key of an import, and nothing checks the row of the agent that comes with it."""
    sql("UPDATE memory_agent SET audit_seq = audit_seq + 1")
    row = AgentKey.objects.select_related("agent__tenant").get(prefix=prefix_of(house.ada_key))
    sql("UPDATE memory_agent SET audit_seq = audit_seq - 1")
    lifecycle.suspend_keys(fresh(house.ada), OPERATOR)
    with new_request():
        request_key.set(row)
        with pytest.raises(errors.KeyRejected), edits.locked(house.ada):
            raise AssertionError("the agent was locked")


def test_a_repeated_request_of_an_ended_key_gets_nothing(house: House) -> None:
    lifecycle.issue_key(house.ada, ME)
    body, once = {"content": "mine"}, {"Idempotency-Key": "k"}
    assert slowly(house.ada_key, "POST", "memories", body, lambda: None, **once).status == 201

    def revoke() -> None:
        lifecycle.revoke_key(fresh(house.ada), prefix_of(house.ada_key), ME)

    assert slowly(house.ada_key, "POST", "memories", body, revoke, **once).status == 401


def test_a_repeated_request_that_waited_during_a_claim_gets_nothing_newer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the stored result only under the lock. Then the agent is claimed, and the memory changes."""
    once, find, found = {"Idempotency-Key": "k"}, Kept.find, []
    assert slowly(house.ada_key, "POST", "memories", {"content": "mine"}, lambda: None, **once).status == 201

    def late(kept: Kept, agent: Agent) -> list[Any] | None:
        found.append(find(kept, agent))
        return found[-1] if len(found) > 1 else None

    def read(agent: Agent, numbers: Sequence[int]) -> list[Read]:
        with new_request():
            claims.exchange(agent_key(house.ada_key), ME)
            operations.revise(fresh(house.ada), 1, ME, content="a secret that came later")
        return several(agent, numbers)

    several = reading.several
    monkeypatch.setattr(Kept, "find", late)
    monkeypatch.setattr(reading, "several", read)
    answer = slowly(house.ada_key, "POST", "memories", {"content": "mine"}, lambda: None, **once)
    assert (answer.status, len(found), b"secret" in answer.content) == (401, 2, False)


def test_an_exchange_that_is_sent_again_while_the_first_one_runs_gets_its_response(house: House) -> None:
    first: list[Answer] = []
    ask = partial(slowly, house.ada_key, "POST", "agent/keys", {"exchange": True})
    once = {"Idempotency-Key": "3f0c9a8d5e7b41c2"}
    second = ask(lambda: first.append(ask(lambda: None, **once)), **once)
    assert (second.status, second.json) == (201, first[0].json)


@pytest.mark.parametrize("what", ["memory", "category"])
def test_a_search_whose_body_arrives_slowly_reads_nothing_that_was_switched_off(house: House, what: str) -> None:
    steps.remember(house.ada, "a secret", category="technical")

    def switch_off() -> None:
        if what == "memory":
            rule_changes.change(fresh(house.ada), steps.PERSON, enabled=False)
        else:
            off(house.ada, "technical")

    answer = slowly(house.ada_key, "POST", "memories/search", {"q": "secret"}, switch_off)
    assert (answer.codes, b"a secret" in answer.content) == ([f"{what}_disabled"], False)


def test_a_claim_forgets_the_requests_of_the_former_holder(house: House) -> None:
    once, body = {"Idempotency-Key": "k"}, {"content": "mine"}
    first = slowly(house.ada_key, "POST", "memories", body, lambda: None, **once).json
    key = claims.exchange(agent_key(house.ada_key), ME).key
    assert slowly(key, "POST", "memories", body, lambda: None, **once).json["id"] != first["id"]
