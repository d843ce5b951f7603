"""Memory switched on and off by a person (seed 004): said what it means, and confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from audit.trail import Actor
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import Deed, Told, each
from memory.agents import rule_changes
from memory.models import Agent


class SwitchOff(Deed):
    name, label, needs = "memory_off", "Switch memory off", Action.CONFIGURE

    def offered(self, row: Agent) -> bool:
        return row.memory_enabled and bool(row.wrapped_key)

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} neither remember nor recall anything, until a person switches memory on."
        yield "What they remember stays as it is, and can be exported. Only a person switches memory on again."

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        yield from each(rows, lambda row: _switched(row, actor, is_on=False))


class SwitchOn(Deed):
    name, label, needs = "memory_on", "Switch memory on", Action.CONFIGURE

    def offered(self, row: Agent) -> bool:
        return not row.memory_enabled and bool(row.wrapped_key)

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} remember and recall again. {rule_changes.GOOD_FOR}"

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        yield from each(rows, lambda row: _switched(row, actor, is_on=True))


def _switched(row: Agent, actor: Actor, *, is_on: bool) -> str:
    rule_changes.change(row, actor, enabled=is_on)
    return f"memory is {'on' if is_on else 'off'}."
