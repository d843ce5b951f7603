"""Asking that content is removed for good: a tenant's owner asks, with a reason; the agent's side agrees, or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django import forms
from django.utils.formats import localize

from audit.models import ActorKind
from audit.removals import Removal, RemovalState, removals
from audit.trail import Actor
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import LISTED, AdminAction, MemoryAction, by_agent
from memory.admin.base.page import AdminForm, actor_of, who_decides
from memory.consent import erasure, redaction, removal_requests
from memory.consent.removal_requests import REASON_CHARACTERS
from memory.mail import wording
from memory.models import Agent, Memory


class WhyForGood(AdminForm):
    reason = forms.CharField(
        max_length=REASON_CHARACTERS,
        widget=forms.Textarea({"rows": 3}),
        help_text="why; kept for ever, where the agent and its steward find it. Name a ticket, and nobody's data: do "
        "not repeat what is to go.",
    )


class AskRedaction(MemoryAction):
    name, label, needs, form, is_destructive = "ask_redaction", "Ask for removal", Action.REMOVE, WhyForGood, True

    def is_offered(self, row: Memory) -> bool:
        return row.redacted_at is None

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        chosen = by_agent(filter(self.is_offered, rows))
        if left := len(rows) - sum(map(len, chosen.values())):
            yield f"{left:,} of them {'says' if left == 1 else 'say'} nothing any more: told, and left out."
        for agent, numbers in chosen.items():
            yield from _would_remove(agent, numbers)
        yield _NOTHING_YET

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, given: dict[str, Any]) -> str:
        return _asked(agent, removal_requests.ask_redaction(agent, numbers, by, reason=given["reason"]))


def _would_remove(agent: Agent, numbers: list[int]) -> Iterator[str]:
    figures = redaction.preview(agent, numbers)
    yield (
        f"{agent.label}: what {several(len(numbers), 'memory says', 'memories say')} is removed for good once its side "
        f"agrees, {figures.active:,} of them remembered now; {several(figures.changes, 'state')} in its trail emptied; "
        f"{figures.tokens_before:,} → {figures.tokens_after:,} core tokens."
    )
    if figures.constitutional:
        yield f"{agent.label}: constitutional among them: {wording.numbered(figures.constitutional)}."
    if figures.related:
        listed = wording.numbered([each.number for each in figures.related])
        yield f"{agent.label}: these may say the same, and are left, for you to decide: {listed}."
    yield from _left_behind(agent, figures.former_vaults)


def _left_behind(agent: Agent, former_vaults: Iterable[str]) -> Iterator[str]:
    for path in former_vaults:
        yield f"{agent.label}: what is in a former vault is left, for somebody to remove by hand: {path}"


class AskErasure(AdminAction):
    name, label, needs, form, is_destructive = "ask_erasure", "Ask for erasure", Action.REMOVE, WhyForGood, True

    def is_offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        for row in filter(self.is_offered, rows):
            figures = erasure.preview(row)
            yield (
                f"{row.label}: the key to {several(figures.memories, 'memory', 'memories')} is destroyed for good once "
                f"its side agrees; what {several(figures.entries, 'entry', 'entries')} of its trail keep of them opens "
                f"no more. A backup with the key, wrapped by silo key {figures.silo_key}, opens until it ages out."
            )
            if figures.file:
                yield f"{row.label}: its memory file is no part of the silo, and stays: {figures.file}"
            if figures.vault:
                yield f"{row.label}: the files in its vault are removed: {figures.vault}"
            yield from _left_behind(row, figures.former_vaults)
        yield _NOTHING_YET

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        return _asked(row, removal_requests.ask_erasure(row, actor_of(by), reason=given["reason"]))


class Withdraw(AdminAction):
    name, label, needs = "withdraw_removals", "Withdraw requests of removal", Action.REMOVE

    def is_offered(self, row: Agent) -> bool:
        return bool(removal_requests.waiting(row))

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        for row in rows:
            asked = removal_requests.waiting(row)
            yield f"{row.label}: of {several(len(asked), 'open request')}, those of yours end."
            for request in asked[:LISTED]:
                what = _asked_for(request, len(request.left))
                yield f"{row.label}: request {request.number}, {what}, on {localize(request.asked_at)}."
            if len(asked) > LISTED:
                yield f"{row.label}: and {len(asked) - LISTED:,} more."

    def do(self, row: Agent, by: Any, given: dict[str, Any]) -> str:
        actor = actor_of(by)
        waiting = removal_requests.waiting(row)
        own = [each for each in waiting if (each.asker_kind, each.asker) == (actor.kind, actor.label)]
        for request in own:
            removal_requests.decline(row, request.number, actor)
        return f"{several(len(own), 'request')} withdrawn." if own else "none of them is yours."


_NOTHING_YET = "Now, nothing is removed: the agent's side is asked. Once it has agreed, nothing brings it back."


def _asked(agent: Agent, request: Removal) -> str:
    return f"it is asked, as entry {request.number} of its trail. {_who_decides(agent, request)}"


def _who_decides(agent: Agent, request: Removal) -> str:
    return f"It waits for {who_decides(agent, f'removal-requests/{request.number}/agree')}."


def told(agent: Agent) -> str | None:
    """What waits for the agent's side, in a line; where nothing does, what became of the last that did."""
    asked = removals(agent.pk).values()
    opened = [each for each in asked if each.state == RemovalState.OPEN]
    if not opened:
        return _last_settled(asked)
    lines = [
        f"{_asked_for(each, len(each.left))} (entry {each.number}). {_who_decides(agent, each)}"
        for each in opened[:LISTED]
    ]
    if len(opened) > LISTED:
        lines.append(f"And {len(opened) - LISTED:,} more.")
    return " ".join(lines)


def _asked_for(request: Removal, memories: int) -> str:
    what = "erasure" if request.is_erasure else several(memories, "memory", "memories")
    return f"{what}, asked by {request.asked_by}"


def _last_settled(asked: Iterable[Removal]) -> str | None:
    """Of a request that another left nothing of, it is the other that is told."""
    settled = [(each.decided_at, each.number, each) for each in asked if each.state in _BECAME and each.decided_at]
    if not settled:
        return None
    when, _, last = max(settled)
    became, by = _BECAME[last.state], _SIDE.get(last.decided_by)
    if last.state == RemovalState.DECLINED and not by:
        became = "withdrawn"
    end = f"{became} on {localize(when)}" + (f" by its {by}" if by else "")
    return f"{_asked_for(last, len(last.memories))} (entry {last.number}): {end}."


_BECAME = {RemovalState.CARRIED_OUT: "carried out", RemovalState.DECLINED: "denied"}
_SIDE = {ActorKind.AGENT.value: "runtime", ActorKind.STEWARD.value: "steward"}
