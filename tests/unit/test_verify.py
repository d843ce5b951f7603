"""What verifying needs and leaves alone: nothing is found where nothing is wrong, opened, or laid on another."""

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
def test_a_verification_cut_short_leaves_no_cursor_open(past: Agent) -> None:
    """One that the garbage collector closes in the middle of another statement waits for itself for ever."""
    memories(past).update(tokens=1000)
    abandoned = replay.problems(steps.fresh(past))
    next(abandoned)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] > 0
        abandoned.close()
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] == 0


def test_a_database_that_is_gone_is_no_finding(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Agent) -> Any:
        raise OperationalError("the connection is closed")
        yield

    monkeypatch.setattr("memory.time_machine.replay._states", gone)
    with pytest.raises(OperationalError):
        problems(past)


def test_a_trail_made_under_another_audit_key_is_found(past: Agent, settings: Settings) -> None:
    old = keyring().audit[0]
    settings.AUDIT_KEY = new_key()
    assert any(old.id in p.problem for p in found(past))


def test_an_older_audit_key_still_verifies(past: Agent, settings: Settings) -> None:
    old = base64.b64encode(keyring().audit[0].secret).decode()
    settings.AUDIT_KEY = f"{new_key()},{old}"
    remember(past, "after the change of keys")
    assert problems(past) == []
    assert steps.last_entry(past).key_id == keyring().audit[0].id


def test_tampering_with_one_agent_is_not_laid_on_the_other(past: Agent, bob: Agent) -> None:
    memories(past).update(tokens=1000)
    found(past)
    assert problems(bob) == []


def test_verifying_opens_nothing_and_needs_no_data_key(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Silo, "for_agent", classmethod(_never))
    assert problems(past) == []
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"opens nothing")
    assert problems(past) == []


def _never(*_: Any) -> Any:
    raise AssertionError("verification asked for a silo")


def test_every_agent_with_a_trail_is_listed(past: Agent, bob: Agent) -> None:
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "globex/bob")]
    entries(past).filter(seq=1).delete()
    entries(bob).delete()
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "")]


@pytest.mark.parametrize("detail", [{"n": 1.5, "s": 'é\u2028"', "l": [1, None, True], "o": {"a": {}}}, {"big": 2**53}])
def test_any_detail_that_is_json_verifies(ada: Agent, detail: dict[str, Any]) -> None:
    operations.notify(ada, "told", operation="session_closed", actor=Actor.system("x"), detail=detail)
    assert steps.last_entry(ada).detail == json.loads(json.dumps(detail))
    assert problems(ada) == []


def test_the_entrys_time_never_goes_back(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2030-01-01T00:00:00Z")
    remember(ada, "later")
    time_machine.move_to("2029-01-01T00:00:00Z")
    remember(ada, "the clock was set back")
    first, second = entries(ada).order_by("-seq")[:2]
    assert first.at == second.at
    assert problems(ada) == []
