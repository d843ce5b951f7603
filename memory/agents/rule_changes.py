"""Changes an agent's memory rules. Only a person can change the rules. The trail records the person and the time.

An API key cannot change the rules, and no switch is turned on automatically. The agent is locked
during a change, so that the change applies to the current rules. A change is refused if it would turn on a switch
without the person's agreement. This can happen if somebody else has just turned off this switch.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from audit.models import ActorKind, Operation
from audit.trail import Actor
from memory.errors import AgentConsentRequired, NotConfirmed, PersonRequired
from memory.models import Agent
from memory.policy import paths, settings_document, switches
from memory.policy.categories import SCOPES
from memory.policy.settings_document import READABLE_NAMES
from memory.search import embedding
from memory.vault import writer
from memory.vault.rendering import MASKING
from memory.writing import edits
from memory.writing.edits import Edited

QUESTION = "Memory functionality is currently disabled. Would you like to enable it? (y/n)"
GOOD_FOR = "With memory, an agent keeps what it learned, so nobody has to repeat it."

_PEOPLE = (ActorKind.PERSON, ActorKind.OPERATOR)
_SIDE = (ActorKind.AGENT, ActorKind.STEWARD)
_BASE_PATH = "storage.base_path"
_MASKING = ".".join(("memory_rules", *MASKING))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested change. `enabled` is for the master switch, and `rules` is for all other settings.

    To change one setting, `key` is its path, and `value` is the text from the command line. In this case, `rules` is
    ignored.
    """

    enabled: bool | None = None
    rules: settings_document.Document | None = None
    key: str = ""
    value: str = ""

    def applied(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """The stored rules after the change. Raises Invalid."""
        if self.key:
            return settings_document.with_value(before, self.key, self.value)
        return before if self.rules is None else settings_document.checked(self.rules)


def whole(agent: Agent) -> settings_document.Document:
    """The agent's complete settings document."""
    return settings_document.whole(switches.rules_of(agent), enabled=agent.memory_enabled)


def turned_on(agent: Agent, wanted: Wanted) -> list[str]:
    """The paths of the switches that the change turns on. A person must agree to them. Raises Invalid."""
    before = switches.rules_of(agent)
    on = settings_document.switched_on(before, wanted.applied(before))
    return [*on, settings_document.MASTER] if wanted.enabled and not agent.memory_enabled else on


def make(
    agent: Agent, actor: Actor, wanted: Wanted, *, agreed: Collection[str] = (), side: Actor | None = None
) -> Edited:
    """Change the rules. If the new rules are equal to the old rules, nothing is written.

    `agreed` has the switches that a person agreed to turn on. `side` is the actor who agreed for the agent's side.
    This agreement is required if the files of a vault, present or later, reveal more after the change.

    Raises Invalid, PersonRequired, NotConfirmed, AgentConsentRequired.
    """
    if actor.kind not in _PEOPLE:
        raise PersonRequired
    with edits.locked(agent) as row:
        before = switches.rules_of(row)
        now = wanted.applied(before)
        changes = settings_document.changes(before, now)
        if wanted.enabled is not None and wanted.enabled != row.memory_enabled:
            changes[settings_document.MASTER] = wanted.enabled
        if not changes:
            return Edited(None, (), row)
        on = turned_on(row, wanted)
        if unknown := sorted(set(on) - set(agreed)):
            raise NotConfirmed(unknown)
        revealing = _revealing(before, now)
        if revealing and (missing := _missing_consent(row, side)):
            raise AgentConsentRequired(f"{' and '.join(revealing)} would let files reveal more. {missing}")
        with edits.begin(row, Operation.AGENT_CHANGED, actor, is_notice=True) as edit:
            edit.agent.memory_enabled = row.memory_enabled if wanted.enabled is None else wanted.enabled
            edit.agent.rules = as_text(now)
            edit.agent.save(update_fields=["memory_enabled", "rules"])
            _update_vault(row, before, now, is_on=bool(on))
            embedding.restart(row)
            edit.detail = {"rules": changes} | ({"agreed_by": side.label} if revealing and side is not None else {})
            return edit.finish(always=True)


def _missing_consent(agent: Agent, side: Actor | None) -> str:
    """Why `side` cannot agree for the agent's side, or ""."""
    if side is None or side.kind not in _SIDE:
        return "Only the agent's side can agree to this: set PALIMPSEST_AGENT_KEY to its key."
    if side.kind == ActorKind.AGENT and agent.is_steward_only and agent.steward:
        return "Only the steward may consent for this agent. The steward must first let its runtime consent, too."
    return ""


def _revealing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The changed settings that make the files of a vault, or of a later vault, reveal more."""
    named = [READABLE_NAMES] if _is_readable(now) and not _is_readable(before) else []
    public = [
        f"memory_rules.categories.{name}.storage_location"
        for name in SCOPES
        if paths.is_private(name, before) and not paths.is_private(name, now)
    ]
    is_unmasked = settings_document.is_on(before, *MASKING) and not settings_document.is_on(now, *MASKING)
    return [*public, *([_MASKING] if is_unmasked else []), *named]


def as_text(rules: Mapping[str, Any]) -> str:
    return json.dumps(rules, ensure_ascii=False, sort_keys=True) if rules else ""


def less_revealing(rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rules, with the default folder of a vault, and the defaults of all settings that make its files reveal
    more."""
    return settings_document.with_defaults(rules, [_BASE_PATH, *_revealing({}, rules)])


def _is_readable(rules: Mapping[str, Any]) -> bool:
    return settings_document.value(rules, READABLE_NAMES) is True


def _update_vault(row: Agent, before: Mapping[str, Any], now: Mapping[str, Any], *, is_on: bool) -> None:
    """Queue the files that the change affects."""
    if is_on:
        writer.reset(row)  # memories that changed while the switch was off have no files yet
    moved = [name for name in SCOPES if paths.is_private(name, before) != paths.is_private(name, now)]
    if moved:
        writer.rewrite(row, moved)
    is_masked = settings_document.is_on(now, *MASKING) and not settings_document.is_on(before, *MASKING)
    if is_masked or _is_readable(now) != _is_readable(before):
        writer.rewrite(row)


def change(
    agent: Agent, actor: Actor, *, enabled: bool | None = None, rules: settings_document.Document | None = None
) -> Agent:
    """Set the master switch, the other settings, or both. `enabled=True` counts as agreement to turn memory on. `rules`
    must not turn on a switch. Raises the errors of `make`."""
    agreed = (settings_document.MASTER,) if enabled else ()
    return make(agent, actor, Wanted(enabled, rules), agreed=agreed).agent
