"""Texts about requests and proposals, for the steward's mail and page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from audit.consent import Scope
from audit.models import ActorKind
from audit.removals import Removal
from memory.models import Agent
from memory.policy.categories import PRIVATE, SCOPES

_MAX_LISTED = 20  # numbers


def scope(requested: Scope) -> str:
    """Return a text that says what the person could read after approval."""
    if requested.kind == "memories":
        many = len(requested.numbers)
        what = "one memory" if many == 1 else f"{many:,} listed memories"
        return f"{what} and its history" if many == 1 else f"{what} and their history"
    return {
        "silo": "all its memories, present and past",
        "session": f"what session {requested.session} changed, before and after the change",
        "entries": f"what audit entries {requested.first:,} to {requested.last:,} changed, before and after the change",
    }[requested.kind]


def numbered(memories: Sequence[int]) -> str:
    """List at most 20 of the numbers, and say how many more there are. Return "" if there are no numbers."""
    more = len(memories) - _MAX_LISTED
    return ", ".join(map(str, memories[:_MAX_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def all_numbers(memories: Sequence[int]) -> str:
    """List all numbers of the memories. Nobody should approve a number that is not shown."""
    return ", ".join(map(str, memories))


def removed(request: Removal) -> str:
    """Return a text that says what is deleted if the agent's side agrees."""
    if request.is_erasure:
        return "all its memories, present and past, by destroying their key"
    many = len(request.memories)
    what, whose = ("one memory", "its history") if many == 1 else (f"{many:,} memories", "their history")
    return f"the content of {what}, including {whose}"


def requester(kind: str, label: str, asked_by: str) -> str:
    """Describe the requester: a person by the address, an operator as "an operator". If the operator asks for another
    person, add the quoted name of this person."""
    if kind == ActorKind.PERSON:
        return label
    return "an operator" if asked_by == label else f"an operator, for {quoted(asked_by)}"


_UNQUOTED = dict.fromkeys(map(ord, "\u201c\u201d"), "'")
_UNQUOTED |= dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "")


def quoted(text: str) -> str:
    """Put a person's text in quotes. Replace curly double quotes inside the text, and remove direction marks: both
    could affect the words around the text."""
    return "\u201c" + text.translate(_UNQUOTED) + "\u201d"


def duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    parts = [_counted(hours, "hour"), _counted(minutes, "minute")]
    return " and ".join(part for part in parts if part)


def _counted(many: int, what: str) -> str:
    return "" if not many else f"{many} {what}" + ("s" if many > 1 else "")


def proposer(kind: str, label: str) -> str:
    """Describe the proposer: the address of a person, or the label of an operator or program."""
    return label if kind == ActorKind.PERSON else f"an operator or a program of its tenant ({label})"


def changes(agent: Agent, proposed: dict[str, Any]) -> list[str]:
    """Describe the effect of each proposed value, compared with the present value."""
    return [_CHANGES[name](agent, value) for name, value in sorted(proposed.items())]


def proposed(values: dict[str, Any]) -> list[str]:
    """Describe only the proposed values. The earlier values of a closed proposal are no longer known."""
    texts = {
        "model": f"its model: {values.get('model')}",
        "steward": f"its steward: {values.get('steward') or 'nobody'}",
        "is_steward_only": f"only its steward consents: {'yes' if values.get('is_steward_only') else 'no'}",
        "memory_path": f"its memory file: {values.get('memory_path') or 'none'}",
        "vault_path": f"its vault: {values.get('vault_path') or 'none'}",
    }
    return [texts[name] for name in sorted(values)]


def _model(agent: Agent, model: str) -> str:
    return (
        f"its model changes from {agent.model} to {model}: during refinement, the provider of {model} can read memories"
    )


def _steward(agent: Agent, steward: str) -> str:
    now = agent.steward or "nobody"
    if not steward:
        return f"its steward changes from {now} to nobody: only its runtime then decides who can read"
    return (
        f"its steward changes from {now} to {steward}: {steward} then decides who can read, and {now} no longer decides"
    )


def _steward_only(_: Agent, alone: bool) -> str:
    if alone:
        return "only its steward can consent, and its runtime no longer can"
    return "both its steward and its runtime (a program) can consent"


def _memory_path(agent: Agent, path: str) -> str:
    if not path:
        return f"its log of runs moves from the file {agent.memory_path} to its memory, encrypted"
    existing = " (the file exists, and its content becomes part of the log)" if Path(path).exists() else ""
    return f"its log of runs moves to the file {path}{existing}, where it is in clear text and no longer encrypted"


def _vault_path(agent: Agent, path: str) -> str:
    if not path:
        return f"its memories are no longer written to files in {agent.vault_path}; existing files stay"
    return (
        f"its memories are written to files in {path}, in clear text; private memories ({', '.join(_PRIVATE)}) stay "
        "encrypted in the files"
    )


_PRIVATE = [name for name, scope in SCOPES.items() if scope == PRIVATE]
_CHANGES: dict[str, Callable[[Agent, Any], str]] = {
    "model": _model,
    "steward": _steward,
    "is_steward_only": _steward_only,
    "memory_path": _memory_path,
    "vault_path": _vault_path,
}
