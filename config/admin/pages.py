"""The pages over agents and what became of their memories: figures and names, never a word."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.models import AccessRequest, AuditEntry
from config.admin.configuring import Configuring
from config.admin.scope import AgentOfRecord, OfAgent, OfTenant, OwnTenant, Scoped, TenantOfRecord
from config.admin.site import site
from memory.models import Agent, Memory
from refinement import schedule
from refinement.models import Outcome, RefinementSession


def _link(name: str, label: str, agent: Agent) -> SafeString:
    return format_html('<a class="underline" href="{}?agent={}">{}</a>', reverse(f"admin:{name}"), agent.label, label)


class AgentPage(Configuring, Scoped):
    tenant = "tenant"
    list_display = ("name", "weight", "share", "due", "last_refined_at", "state", "model")
    list_select_related = ("tenant",)
    list_filter = ("paused", "memory_enabled", OwnTenant)
    search_fields = ("slug", "tenant__slug")
    search_help_text = "the name of an agent or of its tenant"
    ordering = ("tenant__slug", "slug")
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["name", "state", "due", "due_at", "last_refined_at", "links"]}),
        ("Tokens", {"fields": ["core_tokens", "target_tokens", "budget_tokens", "high_water_tokens", "retention"]}),
        ("Memories", {"fields": ["core_count", "journal_count", "constitutional_count", "constitutional_tokens"]}),
        ("Whose", {"fields": ["model", "language", "steward", "is_steward_only", "refine_every"]}),
        ("Trail", {"fields": ["audit_seq", "audit_at", "created_at"]}),
    ]

    @display(description="agent", ordering="slug")
    def name(self, agent: Agent) -> str:
        return agent.label

    @display(description="core tokens of budget", ordering="core_tokens")
    def weight(self, agent: Agent) -> SafeString:
        told = f"{agent.core_tokens:,} of {agent.budget_tokens:,} tokens, target {agent.target_tokens:,}"
        return format_html(
            '<meter min="0" max="{}" high="{}" optimum="0" value="{}" title="{}">{}</meter> {}',
            agent.budget_tokens,
            agent.target_tokens,
            min(agent.core_tokens, agent.budget_tokens),
            told,
            told,
            f"{agent.core_tokens:,} / {agent.budget_tokens:,}",
        )

    @display(description="share")
    def share(self, agent: Agent) -> str:
        return f"{100 * agent.core_tokens / agent.budget_tokens:.0f} %"

    @display(description="due", label={"weekly": "info", "token_budget": "warning", "agent": "info", "manual": "info"})
    def due(self, agent: Agent) -> str | None:
        return schedule.why(agent) or None

    @display(description="state", label={"erased": "danger", "paused": "warning", "memory off": "warning"})
    def state(self, agent: Agent) -> str | None:
        if not agent.wrapped_key:
            return "erased"
        return "memory off" if not agent.memory_enabled else "paused" if agent.paused else None

    @display(description="more of it")
    def links(self, agent: Agent) -> SafeString:
        return format_html(
            "{} · {} · {} · {}",
            _link("memory_memory_changelist", "memories", agent),
            _link("refinement_refinementsession_changelist", "sessions", agent),
            _link("audit_auditentry_changelist", "audit entries", agent),
            _link("audit_accessrequest_changelist", "access requests", agent),
        )


class MemoryPage(Scoped):
    tenant = "agent__tenant"
    list_display = ("number", "owner", "kind", "category", "project", "tokens", "origin", "state", "version")
    list_select_related = ("agent__tenant",)
    list_filter = ("kind", "category", "scope", "source", "constitutional", OfTenant, OfAgent)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["number", "owner", "state", "kind", "category", "scope", "project", "source", "tokens"]}),
        ("When", {"fields": ["origin", "created_at", "discarded_at", "redacted_at"]}),
        ("Trail", {"fields": ["version", "superseded_by"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Memory]:
        return super().get_queryset(request).defer("sealed", "digest")

    @display(description="agent")
    def owner(self, memory: Memory) -> str:
        return memory.agent.label

    @display(description="state", label={"protected": "success", "discarded": "warning", "redacted": "danger"})
    def state(self, memory: Memory) -> str | None:
        if memory.redacted_at:
            return "redacted"
        return "discarded" if memory.discarded_at else "protected" if memory.constitutional else None


class SessionPage(Scoped):
    tenant = "agent__tenant"
    list_display = (
        "number",
        "owner",
        "result",
        "trigger",
        "opened_at",
        "tokens_before",
        "tokens_after",
        "changes",
        "steps",
    )
    list_select_related = ("agent__tenant",)
    list_filter = ("outcome", "mode", "driver", "trigger", OfTenant, OfAgent)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["number", "owner", "result", "reason", "mode", "driver", "trigger", "model"]}),
        ("When", {"fields": ["opened_at", "closed_at"]}),
        ("Tokens", {"fields": ["tokens_before", "tokens_after", "budget_tokens", "target_tokens", "floor_tokens"]}),
        (
            "Edits",
            {"fields": ["duplicates_removed", "merged", "updated", "deleted", "protected", "promoted", "changes"]},
        ),
        (
            "The model",
            {"fields": ["model_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "model_milliseconds"]},
        ),
        ("Calls", {"fields": ["steps", "searches", "failed_calls", "floor_refusals", "timeline"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RefinementSession]:
        return super().get_queryset(request).defer("shown", "plan", "summaries")

    @display(description="agent")
    def owner(self, session: RefinementSession) -> str:
        return session.agent.label

    @display(
        description="outcome",
        ordering="outcome",
        label={
            Outcome.COMPLETED: "success",
            Outcome.OPEN: "info",
            Outcome.FAILED: "danger",
            Outcome.INCOMPLETE: "warning",
        },
    )
    def result(self, session: RefinementSession) -> str:
        return session.outcome

    @display(description="timeline")
    def timeline(self, session: RefinementSession) -> SafeString:
        steps = session.timeline.order_by("pk")[:STEPS]
        rows = [
            format_html(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} ms</td></tr>",
                f"{step.at:%H:%M:%S}",
                step.tool,
                step.result,
                step.memories,
                f"{step.core_tokens:,}",
                f"{step.microseconds / 1_000:,.1f}",
            )
            for step in steps
        ]
        head = (
            "<tr><th>at</th><th>tool</th><th>result</th><th>memories</th><th>core tokens after</th><th>took</th></tr>"
        )
        return SafeString(f'<table class="text-left w-full">{head}{"".join(rows)}</table>')


STEPS = 500  # of a session's, that its page shows


class EntryPage(Scoped):
    tenant = "tenant_id"
    list_display = ("seq", "agent_label", "operation", "who", "session", "changes", "at")
    list_filter = (
        "operation",
        "actor_kind",
        TenantOfRecord,
        AgentOfRecord,
    )
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["seq", "agent_label", "operation", "who", "at", "session", "changes", "detail"]}),
        ("Proof", {"fields": ["key_id", "code"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        return super().get_queryset(request).defer("sealed", "sealed_digest")

    @display(description="actor")
    def who(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    @display(description="MAC")
    def code(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()


class AccessPage(Scoped):
    tenant = "tenant_id"
    list_display = ("number", "agent_label", "person", "state", "asked_at", "until")
    list_filter = (
        "state",
        TenantOfRecord,
        AgentOfRecord,
    )
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["number", "agent_label", "person", "purpose", "scope", "seconds"]}),
        ("State", {"fields": ["state", "asked_at", "decided_at", "decided_by", "until", "ended_at"]}),
    ]


for model, page in {
    Agent: AgentPage,
    Memory: MemoryPage,
    RefinementSession: SessionPage,
    AuditEntry: EntryPage,
    AccessRequest: AccessPage,
}.items():
    site.register(model, page)
