"""The Time Machine. A person chooses what to roll back, sees a preview, and confirms.

The choice is in the URL, so that a person can open the preview again. The rollback is a POST request. It fails if the
audit trail has grown since the preview.
"""

from math import ceil
from typing import Any

from django.contrib import messages
from django.db.models import OuterRef, Subquery, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import action

from audit.models import AuditEntry, Change
from config.errors import DomainError
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin import agent_parts
from memory.admin.base import charts, links
from memory.admin.base.permissions import actor_of, permission
from memory.admin.base.texts import time_machine_url
from memory.admin.time_machine_forms import LABELS, OTHERS, ChooseForm, RollBackForm
from memory.errors import Conflict, Constitutional
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.selection import Undone, What, entries_of
from refinement import session as sessions
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession

MAX_ENTRIES = 50  # entries in the list; for older entries, the person enters a number or a date
MAX_SESSIONS = 10  # sessions in the list
ADVICE = {
    Conflict.code: "Choose below what to do with the memories that later entries changed.",
    Constitutional.code: "The rollback changes protected memories. Tick the box below and give a reason.",
}


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
        return _render(admin, request, agent, _latest(agent, choose))
    chosen = choose.cleaned_data
    what: What = chosen["what"]
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
    context = _labels(agent, chosen["kind"], chosen["at"])
    try:
        figures = rollback.preview(agent, what, **choices)
        context |= _preview(agent, what, figures)
    except DomainError as refused:
        if "panel" in request.GET:
            return render(request, "admin/parts/panel.html", context | {"refused": str(refused)})
        context = _latest(agent, choose) | {"refused": refusal or str(refused)}
        return _render(admin, request, agent, context)
    if "panel" in request.GET:
        context["address"] = time_machine_url(agent.pk, "moment", chosen["at"].isoformat())
        return render(request, "admin/parts/panel.html", context)
    if "look" in request.POST:
        form = RollBackForm(request.POST.dict() | {"head": figures.head})
    elif not form.is_bound:
        form = RollBackForm(initial={"head": figures.head})
    form.keep_needed(figures)
    context |= {"form": form, "refused": refusal, "advice": ADVICE.get(figures.refused, "")}
    return _render(admin, request, agent, context)


def _labels(agent: Agent, kind: str, at: Any) -> dict[str, Any]:
    """The label of the preview and of its button. For an entry, also the other choice for this entry."""
    shown = moment(at, "Y-m-d H:i:s") if kind == "moment" else at
    found = {"agent": agent, "what": format_html(LABELS[kind], shown)}
    if other := OTHERS.get(kind):
        found |= {"other": format_html(LABELS[other], shown), "other_url": time_machine_url(agent.pk, other, at)}
    return found


def _preview(agent: Agent, what: What, figures: rollback.Figures) -> dict[str, Any]:
    """What the rollback would do, in words, and the memories."""
    entries, _ = entries_of(agent, what)
    changes = Change.objects.filter(agent_id=agent.pk, seq__among=list(entries))
    numbers = list(changes.order_by("number").values_list("number", flat=True).distinct())
    change, over = figures.tokens_after - figures.tokens_before, figures.tokens_after - agent.budget_tokens
    size = f"Core memory {'becomes' if change else 'stays at'} {several(figures.tokens_after, 'token')}"
    size += f" ({change:+,})" if change else ""
    return {
        "figures": figures,
        "sentence": f"This undoes {several(len(entries), 'entry', 'entries')}: {_effects(figures)}.",
        "size": f"{size}, {over:,} over its budget." if over > 0 else f"{size}.",
        "is_over": over > 0,
        "has_later": what.kind in ("entry", "session", "session_from", "import"),
        "memories": (len(numbers), links.memories(agent.pk, numbers)),
    }


def _effects(figures: rollback.Figures) -> str:
    """What happens to how many memories."""
    counts = (
        (figures.restored, "memory comes back", "memories come back"),
        (figures.discarded, "memory is discarded", "memories are discarded"),
        (figures.rewritten, "memory is rewritten", "memories are rewritten"),
        (figures.moved, "memory moves to another layer", "memories move to another layer"),
        (figures.protection_changed, "memory gets or loses protection", "memories get or lose protection"),
        (len(figures.redacted), "redacted memory stays as it is", "redacted memories stay as they are"),
    )
    return ", ".join(several(count, one, many) for count, one, many in counts if count) or "no memory changes"


def _roll_back(request: HttpRequest, agent: Agent, what: What, **options: Any) -> HttpResponse:
    if what.kind in ("session", "session_from"):
        sessions.end_lapsed(agent)  # the program that runs an open session may have stopped
    done = rollback.roll_back(agent, what, actor_of(request.user), **options)
    text = f"Core memory: {done.tokens_before:,} → {done.tokens_after:,} tokens."
    messages.success(request, f"{agent.label}: rolled back, as entry {done.entry} of the audit trail. {text}")
    entry = AuditEntry.objects.only("pk").get(agent_id=agent.pk, seq=done.entry or 0)
    return redirect("admin:audit_auditentry_change", entry.pk)


def _render(admin: Any, request: HttpRequest, agent: Agent, context: dict[str, Any]) -> HttpResponse:
    base = admin.admin_site.each_context(request) | {
        "title": f"Time Machine of {agent.label}",
        "opts": admin.opts,
        "original": agent,  # for the theme's breadcrumbs
        "crumb": "Time Machine",
        "agent": agent,
        "agent_url": admin.row_url(agent),
    }
    return TemplateResponse(request, "admin/time_machine.html", base | context)


def _latest(agent: Agent, choose: ChooseForm) -> dict[str, Any]:
    """The form, and the latest entries and sessions, for the person to choose from.

    Each undone entry or session has the number of the rollback that undid it.
    """
    undone = Undone.of(agent)
    changing = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest")
    entries = changing.order_by("-seq")[:MAX_ENTRIES]
    own = changing.filter(session=OuterRef("number")).order_by().values("session")
    ended = RefinementSession.objects.filter(agent=agent).exclude(outcome=Outcome.OPEN)
    ended = ended.defer("shown", "plan", "summaries").annotate(
        sum=Subquery(own.annotate(sum=Sum("changes")).values("sum"))
    )
    rows = [
        (row, row.outcome.replace("_", " "), vars(row)["sum"] or 0) for row in ended.order_by("-number")[:MAX_SESSIONS]
    ]
    undone_sessions.mark([row for row, *_ in rows])
    choose.fields["session"].widget.choices = [
        (row.number, f"{row.number}: {row.opened_at:%Y-%m-%d}, {row.tokens_before:,} → {row.tokens_after:,} tokens")
        for row, _, changes in rows
        if changes and not row.undone_by
    ]
    return _timeline(agent, undone, list(entries)) | {
        "choose": choose,
        "entries": [(entry, entry.operation.replace("_", " "), undone.by(entry.seq)) for entry in entries],
        "sessions": rows,
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
    first, last = (1_000 * at.timestamp() for at in (points[0].at, max(timezone.now(), points[-1].at)))
    step = max(1, int(last - first) // 1_000)  # milliseconds; a key moves the slider by one step
    return {
        "chart": charts.tokens_over_time(agent, points, [*edits, *sessions], name="Core memory over time"),
        "slider": {"min": int(last) - step * ceil((last - first) / step), "max": int(last), "step": step},
    }
