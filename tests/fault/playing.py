"""What the tests of whole sessions share: the protocols, and what holds however a session ended."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from memory.models import Agent, Memory
from refinement.models import Outcome, RefinementSession
from tests.model_server import Call
from tests.refining import notice, sound
from tests.steps import fresh

PROVIDERS = ("openai", "anthropic", "ollama")
EACH_PROTOCOL = pytest.mark.parametrize("provider", PROVIDERS, indirect=True)
DONE = Call("complete_refinement", {"summary": "Saved 999,999 tokens in 500 merges."})
Play = Callable[..., RefinementSession]


def ended_well(agent: Agent, session: RefinementSession) -> None:
    """What holds whatever happened: closed, with a code, the agent told once, the trail sound."""
    assert session.outcome != Outcome.OPEN
    assert re.fullmatch(r"[a-z_]{0,40}", session.reason)
    assert Memory.objects.filter(agent_id=agent.pk, source="system").count() == 1
    assert notice(agent).startswith("Refinement ")
    assert fresh(agent).due_at is not None
    assert sound(agent)


def ending(session: RefinementSession) -> tuple[str, str]:
    return session.outcome, session.reason
