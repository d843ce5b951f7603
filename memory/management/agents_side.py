"""The agent's side at the command line: the agent's own key, in the environment."""

from __future__ import annotations

import os
from pathlib import Path

from audit.trail import Actor
from memory.access.authentication import agent_key, is_key_of, request_key
from memory.errors import KeyRejected
from memory.models import Agent
from memory.policy.paths import INDEX

KEY = "PALIMPSEST_AGENT_KEY"


def has_agents_key(agent: Agent) -> bool:
    """Whether the agent's key is in the environment."""
    return is_key_of(agent, os.environ.get(KEY, ""))


def agents_side(agent: Agent) -> Actor:
    """The agent itself, proven by its key in the environment. Raises KeyRejected."""
    if not has_agents_key(agent):
        raise KeyRejected(f"This is for {agent.label} itself: set {KEY} to its valid key.")
    key = agent_key(os.environ[KEY])
    request_key.set(key)  # checked again once the agent is locked
    return Actor.agent(key.prefix)


def shown_path(agent: Agent, path: str) -> str:
    """A vault file's path. Without the agent's key only its folder, because a file name may hold words of a memory."""
    if not path or Path(path).name == INDEX or has_agents_key(agent):
        return path
    return str(Path(path).parent / "…")
