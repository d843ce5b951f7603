"""What the tests of `gc` say of logs, and of what a command told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from audit.trail import Actor
from memory.models import Agent
from tests.commands.calling import Ran

ME = Actor.operator("tests")
REPORT = "## Patterns Found\nTea.\n\n## Repeated Work\nNone.\n\n## Recommendations\nMore tea."
Make = Callable[..., Agent]


def log_of(agent: Agent) -> bytes:
    return Path(agent.memory_path).read_bytes()


def told(ran: Ran) -> list[str]:
    return ran.out.splitlines()


def separators(ran: Ran) -> list[str]:
    return [line for line in told(ran) if line.startswith("===")]


def refused(ran: Ran, code: int, words: str) -> None:
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert "Traceback" not in ran.err
