"""Short words for the tests of recording."""

from __future__ import annotations

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
    """Its rules below memory_rules, as a person sets them: auto_recording__enabled=True. All is agreed to, by its side,
    too."""
    rules: dict[str, Any] = {}
    for path, value in paths.items():
        *above, last = path.split("__")
        inner = rules
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return agreed(agent, {"memory_rules": rules})


def agreed(agent: Agent, rules: dict[str, Any]) -> Agent:
    """These rules, with all that they turn on, agreed to by a person and by the agent's side."""
    row, wanted = fresh(agent), Wanted(rules=rules)
    rule_changes.make(row, PERSON, wanted, agreed=rule_changes.turned_on(row, wanted), side=ME)
    return fresh(agent)


def off(agent: Agent, category: str, **more: Any) -> Agent:
    return settings(agent, **{f"categories__{category}__enabled": False}, **more)


def talk(agent: Agent, prompt: str = PROMPT, response: str = RESPONSE, **values: Any) -> Recorded:
    """Recorded because somebody asked for it."""
    return record(fresh(agent), Interaction(prompt, response, **values), ME, requested=True)


def overhear(agent: Agent, prompt: str = PROMPT, response: str = RESPONSE, **values: Any) -> Recorded:
    """Recorded automatically."""
    return record(fresh(agent), Interaction(prompt, response, **values), ME)


def said(agent: Agent, number: int | None) -> str:
    assert number is not None
    return says(agent, number).content


def sessions(agent: Agent) -> list[RecordedSession]:
    return list(RecordedSession.objects.filter(agent_id=agent.pk).order_by("pk"))


def of_category(agent: Agent, category: str) -> list[Memory]:
    rows = Memory.objects.filter(agent_id=agent.pk, category=category, discarded_at__isnull=True)
    return list(rows.order_by("number"))


def rules(deed: str, *args: str, agent: str = "acme/ada", stdin: bytes = b"") -> Ran:
    """A command of memory rules, such as `store` or `status`."""
    return run(*COMMANDS[deed].split(), agent, *args, stdin=stdin)


def at_a_terminal(answer: str, deed: str, *args: str) -> Ran:
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        return rules(deed, *args, stdin=answer.encode())
