"""The page of refinement sessions, with their steps and figures. It shows no content."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from unfold.decorators import display

from memory.access.roles import Action
from memory.admin.base.actions import LinkAction
from memory.admin.base.filters import AgentFilter, TenantFilter
from memory.admin.base.page import ScopedAdmin, column
from memory.admin.base.texts import ask_access_url, time_machine_url
from memory.models import DueReason
from refinement import cost, undone_sessions
from refinement.models import Outcome, RefinementSession
from refinement.schedule import NOT_CONFIGURED

MAX_STEPS = 500  # in the timeline of a session's page
CHANGED = ("duplicates_removed", "changes", "protected", "promoted")  # counters of a session's changes to memories


class RollBack(LinkAction):
    """An action that opens the Time Machine with a preview of the rollback."""

    name, label, needs, is_destructive = "roll_back", "Roll back session", Action.STEER, True

    def is_offered(self, row: RefinementSession) -> bool:
        return row.outcome != Outcome.OPEN and not row.undone_by and any(getattr(row, count) for count in CHANGED)

    def address(self, rows: Sequence[RefinementSession]) -> str:
        return time_machine_url(rows[0].agent_id, "session", rows[0].number)


@register(RefinementSession)
class SessionPage(ScopedAdmin):
    tenant = "agent__tenant_id"
    deferred = ("shown", "plan", "summaries")
    row_actions = (RollBack(),)
    list_display = ("number", "owner", "result", "undone", "why", "opened_at", "weight", "changes")
    list_select_related = ("agent__tenant",)
    list_filter = ("outcome", "mode", "driver", "trigger", TenantFilter, AgentFilter)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["number", "owner", "result", "undone", "why_ended", "mode", "driver", "why", "model"],
        "When": ["opened_at", "closed_at"],
        "Tokens": [
            *("tokens_before", "repeated_tokens", "tokens_after"),
            *("budget_tokens", "target_tokens", "breaker_state"),
        ],
        "Edits": [
            *("duplicates_removed", "merged", "updated", "deleted", "demoted", "protected", "promoted"),
            *("left_out", "changes"),
        ],
        "The model": [
            *("model_calls", "prompt_tokens", "cached_tokens", "completion_tokens"),
            *("expected", "price", "model_milliseconds"),
        ],
        "Calls": ["replies", "searches", "failed_calls", "floor_refusals"],
        "Timeline": ["timeline"],
    }

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        undone_sessions.mark(found.result_list)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            undone_sessions.mark([found])
        return found

    def describe(self, row: RefinementSession) -> str:
        return f"session {row.number} of {row.agent.label}"

    def related_pages(self, request: HttpRequest, row: RefinementSession) -> list[tuple[str, str]]:
        url = ask_access_url(row.agent_id, kind="session", session=row.number)
        return [("Ask to read it", url)] if self.may(request, Action.ASK, row) else []

    owner = column("agent.label", "agent")
    replies = column("steps", "model replies")

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

    @display(description="reason")
    def why_ended(self, session: RefinementSession) -> str:
        if session.reason == NOT_CONFIGURED:
            return "The model's server refused the key or the name of the model."
        return session.problem or session.reason

    @display(description="why", ordering="trigger")
    def why(self, session: RefinementSession) -> str:
        return DueReason(session.trigger).value.replace("_", " ")

    @display(description="core tokens")
    def weight(self, session: RefinementSession) -> str:
        return f"{session.tokens_before:,} \N{RIGHTWARDS ARROW} {session.tokens_after:,}"

    @display(description="expected cost")
    def expected(self, session: RefinementSession) -> str:
        usage = cost.of_session(session)
        price = cost.price(session.model, usage)
        tokens = f"{usage.prompt:,} prompt tokens, {usage.completion:,} completion tokens"
        return tokens if price is None else f"{tokens}; {price:,.4f}"

    @display(description="price")
    def price(self, session: RefinementSession) -> str | None:
        price = cost.price(session.model, session.used)
        return None if price is None else f"{price:,.4f}"

    @display(description="breaker")
    def breaker_state(self, session: RefinementSession) -> str:
        floor, counted = session.floor_tokens, session.counted_tokens
        if not floor:
            return "no floor"
        state = "was reached: further cuts were refused" if session.floor_refusals else "was not reached"
        return f"{counted:,} tokens counted; the floor of {floor:,} tokens {state}"

    @display(description="steps")
    def timeline(self, session: RefinementSession) -> SafeString:
        steps = list(session.timeline.order_by("pk")[: MAX_STEPS + 1])
        rows = [
            (
                f"{step.at:%H:%M:%S}",
                step.tool.replace("_", " "),
                step.result.replace("_", " "),
                step.memories,
                f"{step.core_tokens:,}",
                f"{step.microseconds / 1_000:,.1f} ms",
            )
            for step in steps[:MAX_STEPS]
        ]
        return render_to_string("admin/timeline.html", {"rows": rows, "is_cut": len(steps) > MAX_STEPS})
