"""Texts about requests and proposals, for the steward's mail and page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit.consent import PROPOSAL, Request, Scope
from audit.models import ActorKind
from config.wording import several
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


def contents(requested: Scope, agent: str) -> str:
    """Return a short text that says what the person could read, for a question to the steward."""
    many, entries = len(requested.numbers), requested.last - requested.first + 1
    return {
        "silo": f"everything that {agent} remembers",
        "memories": f"{several(many, 'memory', 'memories')} of {agent}",
        "session": f"what changed in one session of {agent}",
        "entries": f"what {several(entries, 'audit entry', 'audit entries')} changed in {agent}",
    }[requested.kind]


def numbered(memories: Sequence[int]) -> str:
    """List at most 20 of the numbers, and say how many more there are. Return "" if there are no numbers."""
    more = len(memories) - _MAX_LISTED
    return ", ".join(map(str, memories[:_MAX_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def removed(request: Request) -> str:
    """Return a text that says what is deleted if the agent's side agrees."""
    if request.is_erasure:
        return "all its memories, present and past, by destroying their key"
    if request.version:
        return "the content and the path of one version of a memory"
    many = len(request.memories)
    what, whose = ("one memory", "its history") if many == 1 else (f"{many:,} memories", "their history")
    return f"the content of {what}, including {whose}"


def requester(request: Request) -> str:
    """Describe the requester: a person by the address, an operator as "an operator". For a proposal, add the label. If
    the operator of a removal asks for another person, add the quoted name of this person."""
    if request.asker_kind == ActorKind.PERSON:
        return request.asker
    if request.operation == PROPOSAL:
        return f"an operator or a program of its tenant ({request.asker})"
    return "an operator" if request.asked_by == request.asker else f"an operator, for {quoted(request.asked_by)}"


_UNQUOTED = dict.fromkeys(map(ord, "\u201c\u201d"), "'")
_UNQUOTED |= dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "")


def quoted(text: str) -> str:
    """Put a person's text in quotes. Replace curly double quotes inside the text, and remove direction marks: both
    could affect the words around the text."""
    return "\u201c" + text.translate(_UNQUOTED) + "\u201d"


def duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return " and ".join(several(many, what) for many, what in ((hours, "hour"), (minutes, "minute")) if many)


def changes(agent: Agent, proposed: dict[str, Any]) -> list[str]:
    """Describe the effect of each proposed value, compared with the present value."""
    return [_change(agent, name, value) for name, value in sorted(proposed.items())]


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


def _change(agent: Agent, name: str, new: Any) -> str:
    now = getattr(agent, name) or ("nobody" if name == "steward" else "none")
    match name, new:
        case "model", _:
            return f"its model changes from {now} to {new}: during refinement, the provider of {new} can read memories"
        case "steward", "":
            return f"its steward changes from {now} to nobody: only its runtime then decides who can read"
        case "steward", _:
            then = f"{new} then decides who can read, and {now} no longer decides"
            return f"its steward changes from {now} to {new}: {then}"
        case "is_steward_only", True:
            return "only its steward can consent, and its runtime no longer can"
        case "is_steward_only", _:
            return "both its steward and its runtime (a program) can consent"
        case "memory_path", "":
            return f"its log of runs moves from the file {now} to its memory, encrypted"
        case "memory_path", _:
            file = f"{new} (the file exists, and its content becomes part of the log)" if Path(new).exists() else new
            return f"its log of runs moves to the file {file}, where it is in clear text and no longer encrypted"
        case _, "":
            return f"its memories are no longer written to files in {now}; existing files stay"
    private = ", ".join(category for category, scope in SCOPES.items() if scope == PRIVATE)
    where = f"in clear text; private memories ({private}) stay encrypted in the files"
    return f"its memories are written to files in {new}, {where}"
