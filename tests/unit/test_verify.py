"""What verifying needs, and what it does not report."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.db import OperationalError, connection
from pytest_django import Settings

from audit import verify
from audit.trail import Actor
from config.keyfiles import new_key
from config.keyring import keyring
from memory.models import Agent
from memory.silo.silo import Silo
from memory.time_machine import replay
from memory.writing import operations
from tests import steps
from tests.steps import problems, remember
from tests.tampering import entries, found, memories

pytestmark = pytest.mark.database


@pytest.mark.postgresql
def test_an_abandoned_verification_leaves_no_cursor_open(past: Agent) -> None:
    """If the garbage collector closes a cursor during another statement, it waits for itself for ever."""
    memories(past).update(tokens=1000)
    abandoned = replay.problems(steps.fresh(past))
    next(abandoned)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] > 0
        abandoned.close()
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] == 0


def test_a_lost_database_connection_is_an_error_and_not_a_problem(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Agent) -> Any:
        raise OperationalError("the connection is closed")
        yield

    monkeypatch.setattr("memory.time_machine.replay._states", fail)
    with pytest.raises(OperationalError):
        problems(past)


def test_a_trail_of_another_audit_key_is_found_and_of_an_older_one_verifies(past: Agent, settings: Settings) -> None:
    old = keyring().audit[0]
    settings.AUDIT_KEY = new_key()
    assert any(old.id in p.problem for p in found(past))
    settings.AUDIT_KEY = f"{new_key()},{base64.b64encode(old.secret).decode()}"
    remember(past, "after the change of keys")
    assert problems(past) == []
    assert steps.last_entry(past).key_id == keyring().audit[0].id


def test_tampering_with_one_agent_is_not_reported_for_another(past: Agent, bob: Agent) -> None:
    memories(past).update(tokens=1000)
    found(past)
    assert problems(bob) == []


def test_verifying_needs_no_data_key(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("verifying opens a silo")

    monkeypatch.setattr(Silo, "for_agent", classmethod(fail))
    assert problems(past) == []
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"opens nothing")
    assert problems(past) == []


def test_every_agent_with_a_trail_is_listed(past: Agent, bob: Agent) -> None:
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "globex/bob")]
    entries(past).filter(seq=1).delete()
    entries(bob).delete()
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "")]


@pytest.mark.parametrize("detail", [{"n": 1.5, "s": 'é\u2028"', "l": [1, None, True], "o": {"a": {}}}, {"big": 2**53}])
def test_any_json_detail_verifies(ada: Agent, detail: dict[str, Any]) -> None:
    operations.notify(ada, "told", operation="session_closed", actor=Actor.system("x"), detail=detail)
    assert steps.last_entry(ada).detail == json.loads(json.dumps(detail))
    assert problems(ada) == []
