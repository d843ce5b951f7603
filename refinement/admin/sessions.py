"""The page of refinement sessions, with their steps and figures. It shows no content."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import QuerySet, Sum
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.models import AuditEntry, Operation
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin.base import changes, charts, links
from memory.admin.base.actions import LinkAction
from memory.admin.base.filters import AgentFilter, PeriodFilter, TenantFilter
from memory.admin.base.page import Part, ScopedAdmin, Status, column
from memory.admin.base.texts import ask_access_url, time_machine_url
from memory.models import DueReason
from memory.time_machine.selection import Undone
from refinement import cost, undone_sessions
from refinement.models import Outcome, RefinementSession
from refinement.schedule import NOT_CONFIGURED

MEANINGS = {Outcome.COMPLETED: "good", Outcome.FAILED: "bad", Outcome.INCOMPLETE: "warn", Outcome.ABANDONED: "warn"}
_LABELS = {Outcome.COMPLETED: "success", Outcome.FAILED: "danger", Outcome.INCOMPLETE: "warning", Outcome.OPEN: "info"}
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
    list_display = ("number", "owner", "result", "what_followed", "why", "opened_at", "weight")
    list_select_related = ("agent__tenant",)
    list_filter = ("outcome", PeriodFilter, TenantFilter, AgentFilter, "mode", "driver", "trigger")
    time, numbered_by = "opened_at", "number"
    search_fields = ("agent__slug", "agent__tenant__slug", "model")
    search_help_text = "an agent, a model, or the number of a session"
    exported = (
        *("number", "agent.label", "outcome", "reason", "problem", "trigger", "mode", "driver", "model", "opened_at"),
        *("closed_at", "tokens_before", "tokens_after", "changes", "merged", "updated", "deleted", "demoted"),
        *("protected", "promoted", "left_out", "prompt_tokens", "completion_tokens"),
    )
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "Limits and model": [
            *("mode", "driver", "model", "opened_at", "closed_at"),
            *("repeated_tokens", "memories_before", "memories_after", "breaker_state"),
            *("model_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "model_seconds"),
            *("expected", "replies", "searches", "failed_calls", "floor_refusals"),
        ]
    }
    folded = ("Limits and model",)

    def status(self, request: HttpRequest, row: RefinementSession) -> Status:
        text = " {}, then rolled back {}."
        undone = format_html(text, row.outcome.capitalize(), self.undone(row)) if row.undone_by else ""
        text = '{} session of <a href="{}">{}</a> with {}, {}.{}'
        why, agent = self.why(row).capitalize(), reverse("admin:memory_agent_change", args=[row.agent_id])
        said = format_html(text, why, agent, row.agent.label, row.model, moment(row.opened_at), undone)
        above = _above(row) if row.outcome == Outcome.COMPLETED and not row.undone_by else ""
        said = format_html("{} It ended {}.", said, above) if above else said
        return Status(self.result(row), MEANINGS.get(Outcome(row.outcome), "faint"), said)

    def parts(self, request: HttpRequest, row: RefinementSession) -> list[Part]:
        is_open = row.outcome == Outcome.OPEN
        summary = Part("summary", "Before and after", _summary(row, self.why_ended(row)), live=is_open)
        may_undo = not is_open and self.may(request, Action.STEER, row)
        return [summary, Part("timeline", "Timeline", _timeline(row, may_undo=may_undo))]

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
        own = [("Audit entries", entries_url(row))]
        return [*own, ("Ask to read it", url)] if self.may(request, Action.ASK, row) else own

    owner = column("agent.label", "agent")

    replies = column("steps", "model replies")

    @display(description="outcome", ordering="outcome", label=_LABELS)
    def result(self, session: RefinementSession) -> str:
        return "rolled back" if session.undone_by else str(session.outcome)

    @display(description="rolled back")
    def undone(self, session: RefinementSession) -> SafeString | None:
        return links.link(session.agent_id, "entry", session.undone_by, f"by entry {session.undone_by}")

    @display(description="why it ended so", empty_value="")
    def why_ended(self, session: RefinementSession) -> str:
        if session.reason == NOT_CONFIGURED:
            return "The model's server refused the key or the name of the model."
        return session.problem or session.reason

    @display(description="why it ended so", empty_value="")
    def what_followed(self, session: RefinementSession) -> str:
        undone = f"{session.outcome}, then rolled back by entry {session.undone_by}"
        return undone if session.undone_by else self.why_ended(session) or _above(session)

    @display(description="started because", ordering="trigger")
    def why(self, session: RefinementSession) -> str:
        return DueReason(session.trigger).value.replace("_", " ")

    @display(description="core tokens")
    def weight(self, session: RefinementSession) -> str:
        sizes = f"{session.tokens_before:,} \N{RIGHTWARDS ARROW} {session.tokens_after:,}"
        return sizes.replace(" ", "\N{NO-BREAK SPACE}")

    @display(description="expected cost")
    def expected(self, session: RefinementSession) -> str:
        usage = cost.of_session(session)
        price = cost.price(session.model, usage)
        tokens = f"{usage.prompt:,} prompt tokens, {usage.completion:,} completion tokens"
        return tokens if price is None else f"{tokens}; {price:,.4f}"

    @display(description="seconds in the model")
    def model_seconds(self, session: RefinementSession) -> str | None:
        return f"{session.model_milliseconds / 1_000:,.1f}" if session.model_calls else None

    @display(description="breaker")
    def breaker_state(self, session: RefinementSession) -> str:
        floor, counted = session.floor_tokens, session.counted_tokens
        if not floor:
            return "no floor"
        state = "was reached: further cuts were refused" if session.floor_refusals else "was not reached"
        return f"{counted:,} tokens counted; the floor of {floor:,} tokens {state}"


def _summary(session: RefinementSession, problem: str) -> SafeString:
    marks = {"floor": session.floor_tokens, "target": session.target_tokens, "budget": session.budget_tokens}
    saved = session.tokens_before - session.tokens_after
    context = {
        "headline": f"{session.tokens_before:,} \N{RIGHTWARDS ARROW} {session.tokens_after:,} tokens ({-saved:+,})",
        "bar": charts.bar(session.tokens_after, marks, before=session.tokens_before),
        "problem": problem,
        "kept": "" if session.outcome in (Outcome.OPEN, Outcome.COMPLETED) else _kept(session),
        "above": "" if session.outcome == Outcome.COMPLETED and not session.undone_by else _above(session),
        "figures": [(name, f"{value:,}") for name, value in _counts(session) if value] + _costs(session),
    }
    return SafeString(render_to_string("admin/parts/session.html", context))


def _above(session: RefinementSession) -> str:
    """By how much an ended session is above its target. "" if it is not."""
    over = session.tokens_after - session.target_tokens
    return f"above its target by {several(over, 'token')}" if over > 0 and session.outcome != Outcome.OPEN else ""


def _kept(session: RefinementSession) -> str:
    """What became of the changes of a session that did not complete."""
    if not any(getattr(session, count) for count in CHANGED):
        return "It changed no memory."
    return "" if session.undone_by else "Its changes are kept. You can roll them back."


def _counts(session: RefinementSession) -> list[tuple[str, int]]:
    return [
        ("duplicates removed", session.duplicates_removed),
        ("memories merged", session.merged),
        ("rewritten", session.updated),
        ("moved beneath", session.demoted),
        ("discarded", session.deleted),
        ("protected", session.protected),
        ("promoted", session.promoted),
        ("details left out of core", session.left_out),
        ("memory changes in all", _entries(session).aggregate(sum=Sum("changes"))["sum"] or 0),
    ]


def _entries(session: RefinementSession) -> QuerySet[AuditEntry]:
    """The entries in which the session changed memories."""
    return AuditEntry.objects.filter(agent_id=session.agent_id, session=session.number, changes__gt=0)


def _costs(session: RefinementSession) -> list[tuple[str, str]]:
    used, price = session.used, cost.price(session.model, session.used)
    found = []
    if used.prompt:
        found.append(("model tokens", f"{used.prompt + used.completion:,}"))
    if price is not None and used.prompt:
        found.append(("price", f"{price:,.4f}"))
    if session.closed_at:
        seconds = (session.closed_at - session.opened_at).total_seconds()
        found.append(("duration", f"{seconds:,.0f} s" if seconds >= 1 else "under 1 s"))
    return found


def _timeline(session: RefinementSession, *, may_undo: bool) -> SafeString:
    """The calls of a session, each with the entries that it made: those since the call before it. The last call has the
    entry of the session's end too."""
    steps: list[Any] = list(session.timeline.order_by("pk")[: MAX_STEPS + 1])
    own = _entries(session).order_by("seq")
    entries = list(own.values_list("seq", "at", "operation", "distinct_tokens")[:MAX_STEPS])
    changed = changes.of_entries(session.agent_id, [seq for seq, *_ in entries])
    rows: list[Any] = []
    undone = Undone.of(session.agent)
    for step in steps[:MAX_STEPS]:
        step.name, step.said = step.tool.replace("_", " "), step.result.replace("_", " ")
        made = [seq for seq, at, operation, _ in entries if at <= step.at and operation != Operation.DEDUPLICATED]
        entries = [each for each in entries if each[0] not in made]
        rows.append((step, [_change(session, seq, changed[seq], undone) for seq in made]))
    opening = [each for each in entries if each[2] == Operation.DEDUPLICATED]
    if opening:
        entries = [each for each in entries if each not in opening]
        first = {"at": session.opened_at, "name": "duplicates removed", "result": "ok", "core_tokens": opening[-1][3]}
        rows.insert(0, (first, [_change(session, seq, changed[seq], undone) for seq, *_ in opening]))
    if rows and len(steps) <= MAX_STEPS:
        rows[-1][1].extend(_change(session, seq, changed[seq], undone) for seq, *_ in entries)
    context = {"rows": rows, "agent_id": session.agent_id, "is_cut": len(steps) > MAX_STEPS, "may_undo": may_undo}
    shown = [each for _, found in rows for each in found]
    context |= {"undone": sum(1 for each in shown if each["undone_by"]), "made": len(shown)}
    context["entries_url"] = entries_url(session)
    return SafeString(render_to_string("admin/timeline.html", context))


def _change(session: RefinementSession, seq: int, changed: Any, undone: Undone) -> dict[str, Any]:
    """What an entry changed, the rollback that undid it, and the URL that undoes it and the rest of the session."""
    undo = time_machine_url(session.agent_id, "session_from", seq)
    return {"seq": seq, "line": changes.line(changed), "undone_by": undone.by(seq), "undo": undo}


def entries_url(session: RefinementSession) -> str:
    query = {"agent": session.agent.label, "session": session.number}
    return reverse("admin:audit_auditentry_changelist", query=query)
