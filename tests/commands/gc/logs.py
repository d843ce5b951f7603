"""Helpers for the tests of `gc`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from audit.trail import Actor
from memory.models import Agent
from tests.commands.calling import Ran
from tests.model_server import ModelServer

ME = Actor.operator("tests")
REPORT = "## Patterns Found\nTea.\n\n## Repeated Work\nNone.\n\n## Recommendations\nMore tea."
Make = Callable[..., Agent]


def log_of(agent: Agent) -> bytes:
    return Path(agent.memory_path).read_bytes()


def last_line(ran: Ran) -> str:
    return ran.out.splitlines()[-1]


def separators(ran: Ran) -> list[str]:
    return [line for line in ran.out.splitlines() if line.startswith("===")]


def sent_log(server: ModelServer) -> str:
    """The log in the only request to the model."""
    [received] = server.requests
    return str(received.body["messages"][-1]["content"])
