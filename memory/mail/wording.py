"""What a steward is asked, in plain words: the same in the letter and on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from audit.consent import Scope
from audit.models import ActorKind
from audit.removals import Removal
from memory.models import Agent
from memory.policy.categories import PRIVATE, SCOPES

_LISTED = 20  # numbers that are named one by one


def scope(asked: Scope) -> str:
    """What could be read."""
    if asked.kind == "memories":
        many = len(asked.numbers)
        what = "one memory" if many == 1 else f"{many:,} listed memories"
        return f"{what} and its history" if many == 1 else f"{what} and their history"
    return {
        "silo": "everything it remembers, and all that it ever remembered",
        "session": f"what session {asked.session} changed, before and after",
        "entries": f"what entries {asked.first:,} to {asked.last:,} of its trail changed, before and after",
    }[asked.kind]


def numbered(memories: Sequence[int]) -> str:
    """Which memories, by number; empty where none are listed."""
    more = len(memories) - _LISTED
    return ", ".join(map(str, memories[:_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def every(memories: Sequence[int]) -> str:
    """… each of them, where a yes to those left out would be a yes unseen."""
    return ", ".join(map(str, memories))


def removed(asked: Removal) -> str:
    """What would be removed."""
    if asked.is_erasure:
        return "everything it remembers, and all that it ever remembered: the key to it is destroyed"
    many = len(asked.memories)
    what, whose = ("one memory says", "its history") if many == 1 else (f"{many:,} memories say", "their history")
    return f"what {what}, in {whose} as well"


def asker(kind: str, label: str, asked_by: str) -> str:
    """A person by the address; an operator by whom they say they ask for, in whatever words."""
    if kind == ActorKind.PERSON:
        return label
    return "an operator" if asked_by == label else f"an operator, for {quoted(asked_by)}"


_UNQUOTED = dict.fromkeys(map(ord, "\u201c\u201d"), "'")
_UNQUOTED |= dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "")


def quoted(text: str) -> str:
    """A person's words, which cannot end their own quotation; nor set the direction of what stands around it."""
    return "\u201c" + text.translate(_UNQUOTED) + "\u201d"


def duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    told = [_counted(hours, "hour"), _counted(minutes, "minute")]
    return " and ".join(part for part in told if part)


def _counted(many: int, what: str) -> str:
    return "" if not many else f"{many} {what}" + ("s" if many > 1 else "")


def proposer(kind: str, label: str) -> str:
    """A person by the address; an operator, or a program, by what it is."""
    return label if kind == ActorKind.PERSON else f"an operator, or a program of its tenant ({label})"


def changes(agent: Agent, proposed: dict[str, Any]) -> list[str]:
    """What accepting would change, each in a sentence, beginning with what is so now."""
    return [_CHANGES[name](agent, value) for name, value in sorted(proposed.items())]


def proposed(values: dict[str, Any]) -> list[str]:
    """The same once it is over, when what was so before is not known any more."""
    told = {
        "model": f"its model: {values.get('model')}",
        "steward": f"its steward: {values.get('steward') or 'nobody'}",
        "is_steward_only": f"its steward alone consents: {'yes' if values.get('is_steward_only') else 'no'}",
        "memory_path": f"its memory file: {values.get('memory_path') or 'none'}",
        "vault_path": f"its vault: {values.get('vault_path') or 'none'}",
    }
    return [told[name] for name in sorted(values)]


def _model(agent: Agent, model: str) -> str:
    return f"its model would change from {agent.model} to {model}: what it refines is read by that model's provider"


def _steward(agent: Agent, steward: str) -> str:
    now = agent.steward or "nobody"
    if not steward:
        return f"its steward would change from {now} to nobody: its runtime would decide alone who reads"
    return f"its steward would change from {now} to {steward}: {steward} would decide who reads, and {now} no longer"


def _steward_only(_: Agent, alone: bool) -> str:
    if alone:
        return "its steward alone would consent for it, and no longer its runtime"
    return "its runtime, a program, would consent for it as well as its steward"


def _memory_path(agent: Agent, path: str) -> str:
    if not path:
        return f"its runs would be logged in its memory again, sealed, and no longer in the file {agent.memory_path}"
    there = ", which is there already and is taken for its own with all it says" if Path(path).exists() else ""
    return f"its runs would be logged in the file {path}{there}, for whoever can read it, and no longer sealed"


def _vault_path(agent: Agent, path: str) -> str:
    if not path:
        return f"what it remembers would no longer be written to files in {agent.vault_path}; those that are there stay"
    return (
        f"what it remembers, of every category, would be written to files in {path}, for whoever can read them; what "
        f"is private ({', '.join(_PRIVATE)}) is sealed in them too"
    )


_PRIVATE = [name for name, scope in SCOPES.items() if scope == PRIVATE]
_CHANGES: dict[str, Callable[[Agent, Any], str]] = {
    "model": _model,
    "steward": _steward,
    "is_steward_only": _steward_only,
    "memory_path": _memory_path,
    "vault_path": _vault_path,
}
