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
from django.utils.html import format_html
from unfold.decorators import action
from unfold.widgets import UnfoldAdminRadioSelectWidget

from audit.models import Change
from config.errors import DomainError
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin.base import links
from memory.admin.base.forms import AdminForm
from memory.admin.base.permissions import actor_of, permission
from memory.admin.base.texts import time_machine_url
from memory.admin.tenants import whole_number
from memory.admin.time_machine_lists import latest
from memory.errors import Conflict, Constitutional
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.selection import What, entries_of
from refinement import session as sessions

MOST = 2**53
KINDS = {
    "moment": "everything after a date and time",
    "from_entry": "one entry and everything later",
    "entry": "only one entry",
    "session": "one session",
    "session_from": "one entry and the rest of its session",
    "import": "one import or migration",
}
LABELS = {
    "moment": "undo everything after {}",
    "from_entry": "undo entry {} and everything later",
    "entry": "undo only entry {}",
    "session": "roll back session {}",
    "session_from": "undo entry {} and the rest of its session",
    "import": "undo the import that began with entry {}",
}
CONFLICTS = {"skip": "Leave these memories as they are", "force": "Undo the later changes of these memories, too"}
OTHERS = {"entry": "from_entry", "from_entry": "entry"}  # the other choice for the same entry
ADVICE = {
    Conflict.code: "Choose below what to do with the memories that later entries changed.",
    Constitutional.code: "The rollback changes protected memories. Tick the box below and give a reason.",
}


class ChooseForm(AdminForm):
    """The form in which a person chooses what to roll back."""

    shown_if = [
        ("moment", "kind", "moment"),
        ("session", "kind", "session"),
        ("entry", "kind", "from_entry entry session_from import"),
    ]
    kind = forms.ChoiceField(choices=KINDS.items(), label="Undo", initial="moment")
    moment = forms.DateTimeField(
        required=False,
        label="Date and time in UTC",  # time_machine.js makes it local
        widget=forms.DateTimeInput({"type": "datetime-local", "step": 1}, format="%Y-%m-%dT%H:%M:%S"),
    )
    session = whole_number(
        "one of the latest sessions; you can roll back an older session on its page",
        most=MOST,
        widget=forms.Select,
    )
    entry = whole_number(
        "for an import or a migration, the number of its first entry",
        least=1,
        most=MOST,
        label="Number of the entry",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind = cleaned.get("kind", "")
        name = kind if kind in self.fields else "entry"
        at = cleaned.get(name)
        if at is None:
            if name not in self.errors:
                self.add_error(name, "Enter a value.")
        elif kind == "from_entry":
            cleaned |= {"at": at, "what": What("since_entry", at - 1)}
        elif kind:
            cleaned |= {"at": at, "what": What(kind, at.astimezone(UTC) if kind == "moment" else at)}
        return cleaned


class RollBackForm(AdminForm):
    """The form with the options of the rollback."""

    conflicts = forms.ChoiceField(
        choices=CONFLICTS,
        required=False,
        label="Memories that later entries changed",
        widget=UnfoldAdminRadioSelectWidget,
    )
    include_constitutional = forms.BooleanField(required=False, label="Also roll back protected memories")
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.Textarea({"rows": 2}),
        help_text="optional; the reason stays in the audit trail. Do not quote memories.",
    )
    head = forms.IntegerField(min_value=0, max_value=MOST, widget=forms.HiddenInput({"id": "head"}))

    def keep_needed(self, figures: rollback.Figures) -> None:
        """Remove the options that make no difference to this rollback."""
        if not figures.conflicts:
            del self.fields["conflicts"]
        if figures.constitutional:
            self.fields["reason"].help_text = "required for protected memories; the reason stays in the audit trail"
        else:
            del self.fields["include_constitutional"]

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
        return _render(admin, request, agent, latest(agent, choose))
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
        context = latest(agent, choose) | {"refused": refusal or str(refused)}
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
    return redirect("admin:numbered", agent.pk, "entry", done.entry or 0)


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
