"""Helpers for the tests of recording and of its settings."""

from typing import Any
from unittest import mock

from memory.agents import rule_changes
from memory.agents.rule_changes import Wanted
from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent, Memory, RecordedSession
from memory.recording.interactions import Interaction
from memory.recording.recorder import Recorded, record
from tests.commands.calling import Ran, run
from tests.steps import ME, PERSON, fresh, says

PROMPT = "From now on always use tabs, Ann."  # of medium significance
RESPONSE = "I will."


def settings(agent: Agent, **paths: Any) -> Agent:
    """Replace its settings below memory_rules: auto_recording__enabled=True. A person and its own side agree."""
    document: dict[str, Any] = {}
    for path, value in paths.items():
        *parents, last = path.split("__")
        inner = document
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return agreed(agent, {"memory_rules": document})


def agreed(agent: Agent, rules: dict[str, Any]) -> Agent:
    """Set these rules. A person and the agent's side agree to everything that they turn on."""
    row, wanted = fresh(agent), Wanted(rules=rules)
    rule_changes.make(row, PERSON, wanted, agreed=rule_changes.turned_on(row, wanted), side=ME)
    return fresh(agent)


def off(agent: Agent, category: str, **more: Any) -> Agent:
    return settings(agent, **{f"categories__{category}__enabled": False}, **more)


def talk(agent: Agent, prompt: str = PROMPT, response: str = RESPONSE, **values: Any) -> Recorded:
    """Record an interaction on request."""
    return record(fresh(agent), Interaction(prompt, response, **values), ME, requested=True)


def auto_record(agent: Agent, prompt: str = PROMPT, response: str = RESPONSE, **values: Any) -> Recorded:
    return record(fresh(agent), Interaction(prompt, response, **values), ME)


def text_of(agent: Agent, number: int | None) -> str:
    assert number is not None
    return says(agent, number).content


said, overhear = text_of, auto_record  # the names that other folders use


def sessions(agent: Agent) -> list[RecordedSession]:
    return list(RecordedSession.objects.filter(agent_id=agent.pk).order_by("pk"))


def of_category(agent: Agent, category: str) -> list[Memory]:
    rows = Memory.objects.filter(agent_id=agent.pk, category=category, discarded_at__isnull=True)
    return list(rows.order_by("number"))


def rules(command: str, *args: str, agent: str = "acme/ada", stdin: bytes = b"") -> Ran:
    """Run a command of memory rules, such as `store` or `status`."""
    return run(*COMMANDS[command].split(), agent, *args, stdin=stdin)


def at_a_terminal(answer: str, command: str, *args: str) -> Ran:
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        return rules(command, *args, stdin=answer.encode())
