"""Changing an agent's memory rules: by a person alone, and in the trail with who and when (seed 004).

No key sets them, of an agent or of a tenant, and nothing turns a switch on by itself. A change is made of the rules as
they stand once the agent is locked: what somebody else switched off meanwhile stays off, unless it was agreed to.
"""

from __future__ import annotations

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
from memory.vault import writer
from memory.vault.rendering import MASKING
from memory.writing import edits
from memory.writing.edits import Edited

QUESTION = "Memory functionality is currently disabled. Would you like to enable it? (y/n)"  # the seed's
GOOD_FOR = "With memory an agent keeps what it learned, and does not have to be told again."

_PEOPLE = (ActorKind.PERSON, ActorKind.OPERATOR)
_SIDE = (ActorKind.AGENT, ActorKind.STEWARD)
_MASKING = ".".join(("memory_rules", *MASKING))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of an agent's rules: of the master switch; of all the rest, by a whole document or by what is
    to differ from the defaults; of one key, by a value as it is typed at a command line."""

    enabled: bool | None = None
    rules: settings_document.Document | None = None
    key: str = ""
    value: str = ""

    def kept(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is kept then of rules that are these now. Raises Invalid."""
        if self.key:
            return settings_document.with_value(before, self.key, self.value)
        return before if self.rules is None else settings_document.checked(self.rules)


def whole(agent: Agent) -> settings_document.Document:
    """The agent's rules in full, as settings.json has them."""
    return settings_document.whole(switches.rules_of(agent), enabled=agent.memory_enabled)


def turned_on(agent: Agent, wanted: Wanted) -> list[str]:
    """The switches that this would turn on, by path: what a person has to agree to. Raises Invalid."""
    before = switches.rules_of(agent)
    on = settings_document.switched_on(before, wanted.kept(before))
    return [*on, settings_document.MASTER] if wanted.enabled and not agent.memory_enabled else on


def make(
    agent: Agent, actor: Actor, wanted: Wanted, *, agreed: Collection[str] = (), side: Actor | None = None
) -> Edited:
    """Change the rules as they stand. `agreed`: the switches that a person agreed to turn on, and no others are. `side`
    is the agent's, where it is there to agree that more is shown in the files of its vault.

    What is as it was is no change, and no entry. Raises Invalid, PersonRequired, NotConfirmed, AgentConsentRequired.
    """
    if actor.kind not in _PEOPLE:
        raise PersonRequired
    with edits.locked(agent) as row:
        before = switches.rules_of(row)
        now = wanted.kept(before)
        told = settings_document.changes(before, now)
        if wanted.enabled is not None and wanted.enabled != row.memory_enabled:
            told[settings_document.MASTER] = wanted.enabled
        if not told:
            return Edited(None, (), row)
        on = turned_on(row, wanted)
        if unknown := sorted(set(on) - set(agreed)):
            raise NotConfirmed(unknown)
        shown = _shown_by(before, now, has_vault=bool(row.vault_path))
        if shown and (side is None or side.kind not in _SIDE):
            raise AgentConsentRequired(
                f"{' and '.join(shown)}: the files of its vault would show more. Only the agent's side can agree to "
                "that: set PALIMPSEST_AGENT_KEY to its key."
            )
        with edits.begin(row, Operation.AGENT_CHANGED, actor, is_notice=True) as edit:
            edit.agent.memory_enabled = row.memory_enabled if wanted.enabled is None else wanted.enabled
            edit.agent.rules = json.dumps(now, ensure_ascii=False, sort_keys=True) if now else ""
            edit.agent.save(update_fields=["memory_enabled", "rules"])
            _have_files_follow(row, before, now, is_on=bool(on))
            edit.detail = {"rules": told} | ({"agreed_by": side.label} if shown and side is not None else {})
            return edit.finish(always=True)


def _shown_by(before: Mapping[str, Any], now: Mapping[str, Any], *, has_vault: bool) -> list[str]:
    """The changed settings that make files show more. Readable names need consent before there is a vault, too."""
    named = [READABLE_NAMES] if _is_readable(now) and not _is_readable(before) else []
    if not has_vault:
        return named
    shown = [
        f"memory_rules.categories.{name}.storage_location"
        for name in SCOPES
        if paths.is_private(name, before) and not paths.is_private(name, now)
    ]
    is_unmasked = settings_document.is_on(before, *MASKING) and not settings_document.is_on(now, *MASKING)
    return [*shown, *([_MASKING] if is_unmasked else []), *named]


def _is_readable(rules: Mapping[str, Any]) -> bool:
    return settings_document.value(rules, READABLE_NAMES) is True


def _have_files_follow(row: Agent, before: Mapping[str, Any], now: Mapping[str, Any], *, is_on: bool) -> None:
    if is_on:
        writer.begin_anew(row)  # what happened meanwhile has no file yet
    moved = [name for name in SCOPES if paths.is_private(name, before) != paths.is_private(name, now)]
    if moved:
        writer.rewrite(row, moved)
    is_masked = settings_document.is_on(now, *MASKING) and not settings_document.is_on(before, *MASKING)
    if is_masked or _is_readable(now) != _is_readable(before):
        writer.rewrite(row)


def change(
    agent: Agent, actor: Actor, *, enabled: bool | None = None, rules: settings_document.Document | None = None
) -> Agent:
    """Set the master switch, which whoever names it agrees to; or the rest, which turns nothing on; or both. Raises
    what `make` does."""
    agreed = (settings_document.MASTER,) if enabled else ()
    return make(agent, actor, Wanted(enabled, rules), agreed=agreed).agent
