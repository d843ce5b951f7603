"""The Time Machine. A person chooses what to roll back, sees a preview, and confirms.

The choice is in the URL, so that a person can open the preview again. The rollback is a POST request. It fails if the
audit trail has grown since the preview.
"""

from datetime import UTC
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.formats import localize
from unfold.decorators import action
from unfold.widgets import UnfoldAdminRadioSelectWidget

from audit.models import AuditEntry
from config.errors import DomainError
from config.wording import several
from memory.access.roles import Action
from memory.admin import agent_parts
from memory.admin.base import charts
from memory.admin.base.forms import AdminForm
from memory.admin.base.permissions import actor_of, permission
from memory.admin.base.texts import time_machine_url
from memory.errors import Conflict, Constitutional
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.selection import Undone, What
from refinement import session as sessions
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession

MAX_ENTRIES = 50  # entries in the list; for older entries, the person enters a number or a date
MAX_SESSIONS = 10  # sessions in the list
MAX_NUMBER = 2**53
KINDS = {
    "moment": "everything since a date and time",
    "since_entry": "everything after an entry",
    "entry": "one entry",
    "session": "one session",
    "import": "one import or migration, by its first entry",
}
FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
ADVICE = {
    Conflict.code: "Later entries changed some of these memories again. Choose below what to do with such memories.",
    Constitutional.code: "The rollback changes protected memories. Tick the box below and give a reason.",
}


class ChooseForm(AdminForm):
    """The form in which a person chooses what to roll back."""

    kind = forms.ChoiceField(choices=KINDS.items(), label="Roll back", initial="moment")
    at = forms.CharField(max_length=40, label="Which", help_text="a number, or a time such as 2026-11-22 14:30:00 UTC")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind, at = cleaned.get("kind"), cleaned.get("at")
        try:
            if kind == "moment" and at:
                moment = forms.DateTimeField(input_formats=FORMATS).clean(at.strip().removesuffix(" UTC"))
                cleaned["what"] = What("moment", moment.astimezone(UTC))
            elif kind and at:
                cleaned["what"] = What(kind, forms.IntegerField(min_value=0, max_value=MAX_NUMBER).clean(at))
        except forms.ValidationError as wrong:
            self.add_error("at", wrong)
        return cleaned


class RollBackForm(AdminForm):
    """The form with the options of the rollback."""

    conflicts = forms.ChoiceField(
        choices=[
            ("", "Stop if there are such memories"),
            ("skip", "Skip these memories"),
            ("force", "Roll these memories back anyway"),
        ],
        required=False,
        label="Memories changed by later entries",
        widget=UnfoldAdminRadioSelectWidget,
    )
    include_constitutional = forms.BooleanField(required=False, label="Also roll back protected memories")
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.Textarea({"rows": 2}),
        help_text="the reason stays in the audit trail; it is required for protected memories. Do not quote memories.",
    )
    head = forms.IntegerField(min_value=0, max_value=MAX_NUMBER, widget=forms.HiddenInput({"id": "head"}))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("include_constitutional") and not cleaned.get("reason"):
            self.add_error("reason", "To roll back protected memories, give a reason.")
        return cleaned


class TimeMachinePage:
    """Adds an action to the page of agents. The action opens the Time Machine."""

    has_steer_permission = permission(Action.STEER)

    @action(description="Time Machine", url_path="time-machine", permissions=["steer"])
    def time_machine(self: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        return _page(self, request, self.row_or_404(request, object_id))


def _page(admin: Any, request: HttpRequest, agent: Agent) -> HttpResponse:
    """Show the form, show the preview, or carry out the rollback."""
    choose = ChooseForm(request.GET if "kind" in request.GET else None)
    if not choose.is_valid():
        if "panel" in request.GET:
            raise Http404
        return _render(admin, request, agent, {"choose": choose} | _latest(agent))
    what: What = choose.cleaned_data["what"]
    form, refusal = RollBackForm(request.POST or None), ""
    options = form.cleaned_data if form.is_valid() else {}
    choices = {
        "skip_conflicts": options.get("conflicts") == "skip",
        "force": options.get("conflicts") == "force",
        "include_constitutional": bool(options.get("include_constitutional")),
    }
    if options and "look" not in request.POST:  # "look" asks for a preview only
        try:
            return _roll_back(request, agent, what, reason=options["reason"], head=options["head"], **choices)
        except DomainError as refused:
            refusal = str(refused)
    at = localize(what.at) if what.kind == "moment" else what.at
    text = f"{KINDS[what.kind]}: {at}"
    try:
        figures = rollback.preview(agent, what, **choices)
    except DomainError as refused:
        if "panel" in request.GET:
            return _panel(request, text, {"refused": str(refused)})
        context = {"choose": choose, "refused": refusal or str(refused)}
        return _render(admin, request, agent, context | _latest(agent))
    change = f"{figures.tokens_after - figures.tokens_before:+,}"
    if "panel" in request.GET:
        address = time_machine_url(agent.pk, what.kind, str(what.at))
        return _panel(request, text, {"figures": figures, "agent": agent, "change": change, "address": address})
    if "look" in request.POST:
        form = RollBackForm(request.POST.dict() | {"head": figures.head})
    elif not form.is_bound:
        form = RollBackForm(initial={"head": figures.head})
    context = {"figures": figures, "form": form, "refused": refusal, "advice": ADVICE.get(figures.refused, "")}
    context |= {"what": text, "change": change}
    return _render(admin, request, agent, context)


def _panel(request: HttpRequest, text: str, context: dict[str, Any]) -> HttpResponse:
    """The preview that the timeline shows beside it. It changes nothing and cannot be confirmed there."""
    return render(request, "admin/parts/panel.html", {"what": text} | context)


def _roll_back(request: HttpRequest, agent: Agent, what: What, **options: Any) -> HttpResponse:
    if what.kind == "session":
        sessions.end_lapsed(agent)  # the program that runs an open session may have stopped
    done = rollback.roll_back(agent, what, actor_of(request.user), **options)
    figures = (
        f"{done.restored:,} restored, {done.discarded:,} discarded, {done.rewritten:,} rewritten, "
        f"{done.moved:,} moved, protection of "
        f"{done.protection_changed:,} changed; {done.tokens_before:,} → {done.tokens_after:,} core tokens."
    )
    messages.success(request, f"{agent.label}: rolled back, as entry {done.entry} of the audit trail. {figures}")
    entry = AuditEntry.objects.only("pk").get(agent_id=agent.pk, seq=done.entry or 0)
    return redirect("admin:audit_auditentry_change", entry.pk)


def _render(admin: Any, request: HttpRequest, agent: Agent, context: dict[str, Any]) -> HttpResponse:
    base = admin.admin_site.each_context(request) | {
        "title": f"Time Machine of {agent.label}",
        "opts": admin.opts,
        "agent": agent,
        "agent_url": admin.row_url(agent),
    }
    return TemplateResponse(request, "admin/time_machine.html", base | context)


def _latest(agent: Agent) -> dict[str, Any]:
    """The latest entries and sessions, for the person to choose from.

    Each undone entry or session has the number of the rollback that undid it.
    """
    undone = Undone.of(agent)
    changing = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest")
    entries = changing.order_by("-seq")[:MAX_ENTRIES]
    ended = RefinementSession.objects.filter(agent=agent).exclude(outcome=Outcome.OPEN)
    rows = ended.defer("shown", "plan", "summaries").order_by("-number")[:MAX_SESSIONS]
    undone_sessions.mark(rows)
    return _timeline(agent, undone, list(entries)) | {
        "entries": [(entry, entry.operation.replace("_", " "), undone.by(entry.seq)) for entry in entries],
        "sessions": [(row, row.outcome.replace("_", " "), row.changes + row.duplicates_removed) for row in rows],
    }


def _timeline(agent: Agent, undone: Undone, latest: list[AuditEntry]) -> dict[str, Any]:
    """The chart of core memory, whose marks lead to previews, and the moments that a person can choose."""
    points = charts.points(agent)
    if not points:
        return {}
    edits = [
        charts.Mark(
            entry.at,
            entry.distinct_tokens,
            time_machine_url(agent.pk, "entry", entry.seq),
            f"entry {entry.seq}: {entry.operation.replace('_', ' ')}, {several(entry.changes, 'memory', 'memories')}",
            "undone" if undone.by(entry.seq) else "edit",
        )
        for entry in reversed(latest)
        if entry.session is None
    ]
    sessions = agent_parts.session_marks(
        agent, MAX_ENTRIES, lambda row: time_machine_url(agent.pk, "session", row.number)
    )
    chart = charts.tokens_over_time(agent, points, [*edits, *sessions], name="Core memory over time")
    until = max(timezone.now(), points[-1].at).timestamp() * 1_000
    moments = [{"seq": each.seq, "at": each.at.isoformat(), "tokens": each.tokens} for each in points]
    moments[0]["until"] = until
    context = {"chart": chart, "points": moments, "last_point": len(points) - 1}
    return context | {"left": charts.LEFT, "right": charts.RIGHT, "width": charts.WIDTH}
