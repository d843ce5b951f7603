"""Changing an agent's memory rules: by a person alone, and in the trail with who and when (seed 004).

No key sets them, of an agent or of a tenant, and nothing turns a switch on by itself.
"""

from __future__ import annotations

import json
from typing import Any

from audit.models import ActorKind, Operation
from audit.trail import Actor
from memory import editing
from memory.errors import PersonsOnly
from memory.models import Agent
from memory.rules import document, gate, places
from memory.rules.categories import SCOPES
from memory.vault import following
from memory.vault.shown import MASKING

QUESTION = "Memory functionality is currently disabled. Would you like to enable it? (y/n)"  # the seed's
GOOD_FOR = "With memory an agent keeps what it learned, and does not have to be told again."

_PEOPLE = (ActorKind.PERSON, ActorKind.OPERATOR)


def whole(agent: Agent) -> document.Document:
    """The agent's rules in full, as settings.json has them."""
    return document.whole(gate.rules_of(agent), enabled=agent.memory_enabled)


def change(agent: Agent, actor: Actor, *, enabled: bool | None = None, rules: document.Document | None = None) -> Agent:
    """Set the master switch, or the rest, or both. `rules` is a whole document or what is to differ from the defaults.

    What is as it was is no change, and no entry. Raises Invalid, PersonsOnly.
    """
    if actor.kind not in _PEOPLE:
        raise PersonsOnly
    kept = None if rules is None else document.checked(rules)
    with editing.locked(agent) as row:
        before = gate.rules_of(row)
        told: dict[str, Any] = {} if kept is None else document.changes(before, kept)
        if enabled is not None and enabled != row.memory_enabled:
            told[document.MASTER] = enabled
        if not told:
            return row
        with editing.begin(row, Operation.AGENT_CHANGED, actor, is_notice=True) as edit:
            edit.agent.memory_enabled = row.memory_enabled if enabled is None else enabled
            if kept is not None:
                edit.agent.rules = json.dumps(kept, ensure_ascii=False, sort_keys=True) if kept else ""
            edit.agent.save(update_fields=["memory_enabled", "rules"])
            if any(path.endswith(".enabled") and value is True for path, value in told.items()):
                following.begin_anew(row)  # what happened meanwhile has no file yet
            now = gate.rules_of(edit.agent)
            moved = [name for name in SCOPES if places.is_private(name, before) != places.is_private(name, now)]
            if moved:
                following.begin_anew_elsewhere(row, moved)
            if told.get(f"memory_rules.{'.'.join(MASKING)}") is True:
                following.begin_anew_masked(row)
            edit.detail = {"rules": told}
            edit.finish(always=True)
        return edit.agent


def turned_on(before: Agent, *, enabled: bool | None, rules: document.Document | None) -> list[str]:
    """The switches that a change would turn on, by path: what a person has to agree to."""
    kept = gate.rules_of(before) if rules is None else document.checked(rules)
    told = document.changes(gate.rules_of(before), kept)
    if enabled and not before.memory_enabled:
        told[document.MASTER] = True
    return [path for path, value in told.items() if path.endswith(".enabled") and value is True]


def set_one(agent: Agent, actor: Actor, path: str, text: str) -> Agent:
    """Set one key, to a value as it is typed at a command line. Raises Invalid, PersonsOnly."""
    with editing.locked(agent) as row:
        return change(row, actor, rules=document.with_value(gate.rules_of(row), path, text))
