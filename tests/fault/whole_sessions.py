"""Shared by the tests of whole sessions: providers, agents whose refinement is due, and what holds at every end."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent, Memory
from refinement.models import Outcome, RefinementSession
from tests.conftest import OPERATOR
from tests.model_server import Call
from tests.refining import change, notice, sound
from tests.steps import fresh

PROVIDERS = ("openai", "anthropic", "ollama")
EACH_PROTOCOL = pytest.mark.parametrize("provider", PROVIDERS, indirect=True)
DONE = Call("complete_refinement", {"summary": "Saved 999,999 tokens in 500 merges."})
MINUTE = timedelta(minutes=1)
Play = Callable[..., RefinementSession]


def due(tenant: str, name: str, model: str = "builtin/dedupe", **settings: Any) -> Agent:
    """A new agent whose refinement is due."""
    agent, _ = lifecycle.create(tenant, name, model=model, actor=OPERATOR, **settings)
    change(agent, due_at=timezone.now() - MINUTE, due_reason="weekly")
    return agent


def assert_ended_well(agent: Agent, session: RefinementSession) -> None:
    """The session is closed with a code. The agent has a notice if it completed the session, or if the session changed
    something. The trail is sound."""
    assert session.outcome != Outcome.OPEN
    assert re.fullmatch(r"[a-z_]{0,40}", session.reason)
    is_told = session.outcome == Outcome.COMPLETED or session.changes + session.protected + session.promoted > 0
    assert Memory.objects.filter(agent_id=agent.pk, source="system").count() == is_told
    assert not is_told or notice(agent).startswith("Refinement ")
    assert fresh(agent).due_at is not None
    assert sound(agent)


def ending(session: RefinementSession) -> tuple[str, str]:
    return session.outcome, session.reason
