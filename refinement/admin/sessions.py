"""Refinement sessions: what an agent did with its own memory, step by step, in figures."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from memory.access.roles import Action
from memory.admin.base.actions import Deed
from memory.admin.base.links import ask_access_address, one_of, time_machine_address
from memory.admin.base.page import Scoped
from memory.admin.base.scope import OfAgent, OfTenant, ids_seen_by
from memory.models import DueReason
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession

STEPS = 500  # of a session's, that its page shows
CHANGED = ("duplicates_removed", "changes", "protected", "promoted")  # what a session did to memories, in figures


class RollBack(Deed):
    """Leads to the Time Machine, which says in numbers what it would mean."""

    name, label, needs, is_grave = "roll_back", "Roll back session", Action.STEER, True

    def offered(self, row: RefinementSession) -> bool:
        """Where there is something to take back."""
        return row.outcome != Outcome.OPEN and not row.undone_by and any(getattr(row, count) for count in CHANGED)

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        row = one_of(self._rows(page, request, chosen), request)
        return row and HttpResponseRedirect(time_machine_address(row.agent, "session", row.number))


@register(RefinementSession)
class SessionPage(Scoped):
    tenant = "agent__tenant"
    deeds = (RollBack(),)
    list_display = ("number", "owner", "result", "undone", "why", "opened_at", "weight", "changes")
    list_select_related = ("agent__tenant",)
    list_filter = ("outcome", "mode", "driver", "trigger", OfTenant, OfAgent)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["number", "owner", "result", "undone", "reason", "mode", "driver", "why", "model"]}),
        ("When", {"fields": ["opened_at", "closed_at"]}),
        (
            "Tokens",
            {
                "fields": [
                    "tokens_before",
                    "repeated_tokens",
                    "tokens_after",
                    "budget_tokens",
                    "target_tokens",
                    "breaker_state",
                ]
            },
        ),
        (
            "Edits",
            {"fields": ["duplicates_removed", "merged", "updated", "deleted", "protected", "promoted", "changes"]},
        ),
        (
            "The model",
            {"fields": ["model_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "model_milliseconds"]},
        ),
        ("Calls", {"fields": ["replies", "searches", "failed_calls", "floor_refusals"]}),
        ("Timeline", {"fields": ["timeline"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RefinementSession]:
        return super().get_queryset(request).defer("shown", "plan", "summaries")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        undone_sessions.note(found.result_list)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            undone_sessions.note([found])
        return found

    def named(self, row: RefinementSession) -> str:
        return f"session {row.number} of {row.agent.label}"

    def beside(self, request: HttpRequest, row: RefinementSession) -> dict[str, Any]:
        ways = []
        if row.agent.tenant_id in ids_seen_by(request, Action.ASK):
            ways.append(("Ask to read it", f"{ask_access_address(row.agent)}?kind=session&session={row.number}"))
        return super().beside(request, row) | {"ways": ways}

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
        return session.outcome.replace("_", " ")

    @display(description="rolled back")
    def undone(self, session: RefinementSession) -> str | None:
        return f"by entry {session.undone_by}" if session.undone_by else None

    @display(description="why", ordering="trigger")
    def why(self, session: RefinementSession) -> str:
        return DueReason(session.trigger).value.replace("_", " ")

    @display(description="core tokens")
    def weight(self, session: RefinementSession) -> str:
        return f"{session.tokens_before:,} \N{RIGHTWARDS ARROW} {session.tokens_after:,}"

    @display(description="model replies")
    def replies(self, session: RefinementSession) -> int:
        return session.steps

    @display(description="breaker")
    def breaker_state(self, session: RefinementSession) -> str:
        floor, counted = session.floor_tokens, session.counted_tokens
        if not floor:
            return "no floor was set"
        state = "it held: cuts beyond it were refused" if session.floor_refusals else "not reached"
        return f"floor {floor:,} tokens; {counted:,} counted; {state}"

    @display(description="steps")
    def timeline(self, session: RefinementSession) -> SafeString:
        steps = list(session.timeline.order_by("pk")[: STEPS + 1])
        if not steps:
            return format_html("No call was made.")
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} ms</td></tr>",
            (
                (
                    f"{step.at:%H:%M:%S}",
                    step.tool.replace("_", " "),
                    step.result.replace("_", " "),
                    step.memories,
                    f"{step.core_tokens:,}",
                    f"{step.microseconds / 1_000:,.1f}",
                )
                for step in steps[:STEPS]
            ),
        )
        more = format_html("<p>The first {} calls are shown.</p>", STEPS) if len(steps) > STEPS else ""
        return format_html(
            '<div class="pal-wide" tabindex="0" role="region" aria-label="The session\'s calls">'
            '<table class="pal-table"><thead><tr><th>at</th><th>call</th><th>result</th><th>memories</th>'
            "<th>core tokens after</th><th>took</th></tr></thead><tbody>{}</tbody></table></div>{}",
            rows,
            more,
        )
