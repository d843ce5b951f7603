"""How tests claim a silo."""

from typing import Any

from memory.consent import claims
from memory.consent.claims import Claim
from memory.models import Agent, AgentKey
from tests.steps import ME


def claim(agent: Agent, **options: Any) -> Claim:
    """Exchange the agent's newest key."""
    key = AgentKey.objects.select_related("agent__tenant").filter(agent=agent, revoked_at=None).latest("pk")
    return claims.exchange(key, ME, **options)
