"""Memories without what they say: numbers, kinds, weights, dates; to protect, and to restore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib.admin import register
from django.db.models import F, OuterRef, Subquery
from django.http import HttpRequest
from unfold.decorators import display

from audit.trail import Actor
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import LinkAction, MemoryAction
from memory.admin.base.page import AdminForm, OfAgent, OfTenant, Scoped, ask_access_address, column
from memory.admin.removal import AskRedaction
from memory.models import Agent, Memory, Recall, Source
from memory.writing import operations
from memory.writing.edits import Edited


def _weighed(rows: Sequence[Memory]) -> str:
    agents, tokens = len({row.agent_id for row in rows}), sum(row.tokens for row in rows)
    return f"{several(len(rows), 'memory', 'memories')} of {several(agents, 'agent')}, {tokens:,} tokens"


class Protect(MemoryAction):
    name, label, needs = "protect", "Protect", Action.STEER

    def is_offered(self, row: Memory) -> bool:
        return not (row.constitutional or row.discarded_at or row.source == Source.SYSTEM)

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        yield f"{_weighed(rows)}: to be constitutional. No session discards, merges or rewrites them."
        if already := sum(row.constitutional for row in rows):
            yield f"{already:,} of them {'is' if already == 1 else 'are'} already."
        if gone := sum(row.discarded_at is not None for row in rows):
            yield f"{gone:,} of them {'is' if gone == 1 else 'are'} discarded, which is told and left out."

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, given: dict[str, Any]) -> str:
        return _changed(operations.protect(agent, numbers, by), "protected")


class WithReason(AdminForm):
    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea({"rows": 3}),
        help_text="why; kept in the trail, where the agent and its steward find it. Do not repeat what a memory says.",
    )


class RemoveProtection(MemoryAction):
    name, label, needs, form, is_destructive = "unprotect", "Remove protection", Action.STEER, WithReason, True

    def is_offered(self, row: Memory) -> bool:
        return row.constitutional

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        yield f"{_weighed(rows)}: no longer constitutional. A session may discard, merge or rewrite them from now on."

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, given: dict[str, Any]) -> str:
        return _changed(operations.unprotect(agent, numbers, by, reason=given["reason"]), "no longer protected")


class Restore(MemoryAction):
    name, label, needs = "restore", "Restore", Action.STEER

    def is_offered(self, row: Memory) -> bool:
        return row.discarded_at is not None and row.redacted_at is None

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        gone = [row for row in rows if row.discarded_at]
        core = sum(row.tokens for row in gone if row.kind == "core")
        yield f"{several(len(gone), 'discarded memory', 'discarded memories')} brought back, {core:,} tokens of core."
        if redacted := sum(row.redacted_at is not None for row in rows):
            yield f"{redacted:,} redacted, which nothing brings back: told, and left out."

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, given: dict[str, Any]) -> str:
        return _changed(operations.restore(agent, numbers, by), "restored")


def _changed(edit: Edited, what: str) -> str:
    if edit.seq is None:
        return "nothing to change."
    return f"{several(len(edit.memories), 'memory', 'memories')} {what}, as entry {edit.seq} of its trail."


class AskToRead(LinkAction):
    """Leads to where access is asked for, with these memories filled in."""

    name, label, needs = "ask_to_read", "Ask to read", Action.ASK
    same, warning = "agent_id", "Choose memories of one agent."

    def address(self, rows: Sequence[Memory]) -> str:
        numbers = ",".join(map(str, sorted(row.number for row in rows)))
        return ask_access_address(rows[0].agent_id, kind="memories", numbers=numbers)


@register(Memory)
class MemoryPage(Scoped):
    tenant = "agent__tenant_id"
    deferred = ("sealed", "digest")
    row_actions = (Protect(), RemoveProtection(), Restore(), AskToRead(), AskRedaction())
    list_display = (
        "number",
        "owner",
        "kind",
        "category",
        "project",
        "tokens",
        "origin",
        "recalled",
        "state",
        "version",
    )
    list_select_related = ("agent__tenant",)
    list_filter = ("kind", "category", "scope", "source", "constitutional", OfTenant, OfAgent)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["number", "owner", "state", "kind", "category", "scope", "project", "source", "tokens"],
        "When": ["origin", "created_at", "discarded_at", "redacted_at"],
        "Trail": ["version", "superseded_by"],
    }

    def get_queryset(self, request: HttpRequest) -> Any:
        recall = Recall.objects.filter(agent_id=OuterRef("agent_id"), number=OuterRef("number"))
        told = {name: Subquery(recall.values(name)) for name in ("times", "last_at")}
        return super().get_queryset(request).annotate(**told)

    def named(self, row: Memory) -> str:
        return f"memory {row.number} of {row.agent.label}"

    owner = column("agent.label", "agent")

    @display(description="recalled", ordering=F("times").desc(nulls_last=True), empty_value="")
    def recalled(self, memory: Memory) -> str | None:
        times, last_at = vars(memory)["times"], vars(memory)["last_at"]
        return f"{times:,}, last on {last_at:%Y-%m-%d}" if times else None

    @display(description="state", label={"protected": "success", "discarded": "warning", "redacted": "danger"})
    def state(self, memory: Memory) -> str | None:
        if memory.redacted_at:
            return "redacted"
        return "discarded" if memory.discarded_at else "protected" if memory.constitutional else None
