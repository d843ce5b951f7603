"""The page of memories, with actions to protect and restore them. It shows only metadata, never content."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin import register
from django.db.models import F, OuterRef, Subquery
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.models import AuditEntry, Change
from audit.trail import Actor
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin.base import changes, charts, links
from memory.admin.base.actions import LinkAction, MemoryAction
from memory.admin.base.filters import AgentFilter, PeriodFilter, TenantFilter
from memory.admin.base.forms import AdminForm
from memory.admin.base.page import Part, ScopedAdmin, Status, column
from memory.admin.base.texts import ask_access_url
from memory.admin.removal import AskRedaction
from memory.models import Agent, Kind, Layer, Memory, Recall, Source
from memory.time_machine import lineage
from memory.writing import operations
from memory.writing.edits import Edited


def _summary(rows: Sequence[Memory]) -> str:
    agents, tokens = len({row.agent_id for row in rows}), sum(row.tokens for row in rows)
    return f"{several(len(rows), 'memory', 'memories')} of {several(agents, 'agent')}, {tokens:,} tokens"


def _skipped(what: str, many: int, why: str = "") -> Iterable[str]:
    return [f"{what}, therefore skipped: {many:,}. {why}".strip()] if many else []


class Protect(MemoryAction):
    name, label, needs = "protect", "Protect", Action.STEER

    def is_offered(self, row: Memory) -> bool:
        return row.layer in Kind.values and not (row.constitutional or row.source == Source.SYSTEM)

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        changed = self.changed(rows)
        yield f"Protects {_summary(changed)}. No session discards, merges or rewrites protected memories."
        active = [row for row in rows if row.layer in Kind.values]
        already = sum(row.constitutional for row in active)
        yield from _skipped("Discarded or beneath", len(rows) - len(active))
        yield from _skipped("Already protected", already)
        yield from _skipped("Notices of the service", len(active) - already - len(changed))

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, values: dict[str, Any]) -> str:
        return _changed(operations.protect(agent, numbers, by), "protected")


class WithReason(AdminForm):
    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea({"rows": 3}),
        help_text="the reason stays in the audit trail. The agent and its steward can read it. Do not quote memories.",
    )


class RemoveProtection(MemoryAction):
    name, label, needs, form, is_destructive = "unprotect", "Remove protection", Action.STEER, WithReason, True

    def is_offered(self, row: Memory) -> bool:
        return row.constitutional

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        changed = self.changed(rows)
        yield f"Removes the protection of {_summary(changed)}. After that, sessions may discard, merge or rewrite them."
        yield from _skipped("Not protected", len(rows) - len(changed))

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, values: dict[str, Any]) -> str:
        return _changed(operations.unprotect(agent, numbers, by, reason=values["reason"]), "no longer protected")


class Restore(MemoryAction):
    name, label, needs = "restore", "Restore", Action.STEER

    def is_offered(self, row: Memory) -> bool:
        return row.discarded_at is not None and row.redacted_at is None

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        changed, redacted = self.changed(rows), sum(row.redacted_at is not None for row in rows)
        core = sum(row.tokens for row in changed if row.kind == Kind.CORE and not row.beneath_at)
        yield f"Restores {several(len(changed), 'discarded memory', 'discarded memories')}. Core tokens: {core:,}."
        yield from _skipped("Redacted", redacted, "Redacted content cannot be restored.")
        yield from _skipped("Not discarded", len(rows) - len(changed) - redacted)

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, values: dict[str, Any]) -> str:
        return _changed(operations.restore(agent, numbers, by), "restored")


def _changed(edit: Edited, what: str) -> str:
    if edit.seq is None:
        return "nothing to change."
    return f"{several(len(edit.memories), 'memory', 'memories')} {what}, as entry {edit.seq} of the audit trail."


class AskToRead(LinkAction):
    """Opens the form for an access request. The form already has the numbers of the chosen memories."""

    name, label, needs = "ask_to_read", "Ask to read", Action.ASK
    same, warning = "agent_id", "Select memories of one agent only."

    def address(self, rows: Sequence[Memory]) -> str:
        numbers = ",".join(map(str, sorted(row.number for row in rows)))
        return ask_access_url(rows[0].agent_id, kind="memories", numbers=numbers)


class LayerFilter(admin.SimpleListFilter):
    title = parameter_name = "layer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, str(label)) for value, label in Layer.choices]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.in_layers([self.value()]) if self.value() in Layer.values else queryset


_STATES = {"protected": "success", "beneath": "info", "discarded": "warning", "redacted": "danger"}
_MEANINGS = {"in use": "good", "protected": "good", "discarded": "warn", "redacted": "bad"}


@register(Memory)
class MemoryPage(ScopedAdmin):
    tenant = "agent__tenant_id"
    deferred = ("sealed", "digest")
    row_actions = (Protect(), RemoveProtection(), Restore(), AskToRead(), AskRedaction())
    list_display = (*("number", "owner", "kind", "category", "project"), *("tokens", "origin", "recalled", "state"))
    list_select_related = ("agent__tenant",)
    list_filter = (
        *(LayerFilter, "category", "constitutional", PeriodFilter, TenantFilter, AgentFilter),
        *("kind", "scope", "source"),
    )
    time, numbered_by = "created_at", "number"
    search_fields = ("agent__slug", "agent__tenant__slug", "category", "project")
    search_help_text = "an agent, a category, a project, or the number of a memory"
    exported = (
        *("number", "agent.label", "layer", "kind", "category", "scope", "project", "source", "tokens", "origin"),
        *("created_at", "constitutional", "beneath_at", "discarded_at", "redacted_at", "superseded_by", "version"),
    )
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["agent_page", "kind", "category", "scope", "project", "source", "recalled"],
        "When": ["origin", "origin_latest", "created_at", "beneath_at", "discarded_at", "redacted_at"],
    }

    def get_queryset(self, request: HttpRequest) -> Any:
        recall = Recall.objects.filter(agent_id=OuterRef("agent_id"), number=OuterRef("number"))
        recall_figures = {name: Subquery(recall.values(name)) for name in ("times", "last_at")}
        return super().get_queryset(request).annotate(**recall_figures)

    def describe(self, row: Memory) -> str:
        return f"memory {row.number} of {row.agent.label}"

    def status(self, request: HttpRequest, row: Memory) -> Status:
        state = self.state(row)
        return Status(row.layer if state == "in use" else state, _MEANINGS.get(state, "faint"), _in_words(row))

    def parts(self, request: HttpRequest, row: Memory) -> list[Part]:
        history = Part("history", "History", _history(row))
        picture = charts.lineage(row.agent, [row.number])
        return [Part("lineage", "Lineage", picture), history] if picture else [history]

    owner = column("agent.label", "agent")

    @display(description="agent")
    def agent_page(self, memory: Memory) -> str:
        return links.agent_link(memory.agent_id, memory.agent.label)

    @display(description="recalled", ordering=F("times").desc(nulls_last=True), empty_value="")
    def recalled(self, memory: Memory) -> str | None:
        times, last_at = vars(memory)["times"], vars(memory)["last_at"]
        return f"{times:,}, last on {last_at:%Y-%m-%d}" if times else None

    @display(description="state", label=_STATES)
    def state(self, memory: Memory) -> str:
        if memory.redacted_at:
            return "redacted"
        if memory.layer not in Kind.values:
            return memory.layer
        return "protected" if memory.constitutional else "in use"


def _in_words(memory: Memory) -> SafeString:
    """How large a memory is, where it comes from, and what became of it."""
    size, by = several(memory.tokens, "token"), memory.superseded_by
    text = format_html("{}, recorded {}.", size, moment(memory.origin, "j F Y"))
    if sources := sorted(lineage.sources(memory.agent, [memory.number])):
        made = Change.objects.filter(agent_id=memory.agent_id, number=memory.number).order_by("seq").values("seq")[:1]
        entries = AuditEntry.objects.filter(agent_id=memory.agent_id, seq=made)
        session = entries.values_list("session", flat=True).first()
        link = links.link(memory.agent_id, "session", session, f"session {session}")
        text = format_html("{}, merged from {}", size, links.memories(memory.agent_id, sources))
        text = format_html("{} in {}.", text, link) if link else format_html("{}.", text)
    if memory.redacted_at:
        return format_html("{} Its content was permanently deleted.", text)
    if by:
        return format_html("{} Replaced by {}.", text, links.link(memory.agent_id, "memory", by))
    return format_html("{} The agent finds it only when it searches.", text) if memory.layer == Layer.BENEATH else text


def _history(memory: Memory) -> SafeString:
    changed = changes.of_memory(memory.agent_id, memory.number)
    entries = AuditEntry.objects.filter(agent_id=memory.agent_id, seq__in=[each.seq for each in changed])
    known = {entry.seq: entry for entry in entries.defer("sealed", "sealed_digest")}
    rows = [(each, known[each.seq]) for each in changed if each.seq in known]
    return SafeString(render_to_string("admin/parts/history.html", {"rows": rows}))
