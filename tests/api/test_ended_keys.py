"""A key that ends while a request with it is under way, as its body comes slowly or it waits its turn, does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.test.client import FakePayload

from memory import errors
from memory.access.authentication import agent_key, either_key, new_request, request_key
from memory.access.tenants import issue_key
from memory.agents import lifecycle
from memory.api.base.views import CHALLENGE
from memory.models import Agent, AgentKey, TenantKey
from memory.writing import edits
from tests import steps
from tests.api.calling import BASE, Answer
from tests.conftest import OPERATOR, House
from tests.steps import ME, fresh

pytestmark = pytest.mark.database


class Slow(FakePayload):
    """A body before whose last part something happens."""

    def __init__(self, content: bytes, meanwhile: Callable[[], object]) -> None:
        super().__init__(content)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def read(self, size: int | None = None) -> bytes:
        if self._meanwhile is not None:
            done, self._meanwhile = self._meanwhile, None
            with new_request():  # another's
                done()
        return super().read(size)


def slowly(key: str, method: str, path: str, body: Any, meanwhile: Callable[[], object]) -> Answer:
    content = json.dumps(body).encode()
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})
    more: Any = {"wsgi.input": Slow(content, meanwhile)}
    answer = client.generic(method, BASE + path, content, content_type="application/json", **more)
    return Answer(answer.status_code, answer.headers, answer.content)


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
def test_a_key_that_was_exchanged_while_the_body_came(
    house: House, method: str, path: str, body: dict[str, Any]
) -> None:
    kept: list[str] = []

    def exchange() -> None:
        kept.append(lifecycle.exchange_key(agent_key(house.ada_key), ME))
        steps.remember(fresh(house.ada), "a secret that came later")

    answer = slowly(house.ada_key, method, path, body, exchange)
    assert (answer.status, answer.codes) == (401, ["key_rejected"])
    assert answer.headers["WWW-Authenticate"] == CHALLENGE
    assert b"secret" not in answer.content
    assert AgentKey.objects.filter(agent=house.ada, revoked_at=None).count() == 1
    assert agent_key(kept[0]).agent.steward == ""
    assert steps.active(house.ada) == [1]


def test_a_tenants_key_that_ended_while_the_body_came(house: House) -> None:
    key = issue_key("acme")

    def end() -> None:
        TenantKey.objects.filter(pk=either_key(key).pk).update(revoked_at=fresh(house.ada).created_at)

    made = slowly(key, "POST", "agents", {"agent": "eve", "model": "builtin/dedupe"}, end)
    assert (made.status, Agent.objects.filter(slug="eve").exists()) == (401, False)


def test_a_key_that_ended_while_a_request_waited_its_turn(house: House) -> None:
    row = agent_key(house.ada_key)
    with new_request():
        request_key.set(row)
        with edits.locked(house.ada):
            pass
        lifecycle.revoke_key(fresh(house.ada), row.prefix, OPERATOR)
        with pytest.raises(errors.KeyRejected), edits.locked(house.ada):
            raise AssertionError("it was let in")
    with edits.locked(house.ada):
        pass
