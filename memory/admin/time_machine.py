"""The Time Machine's page: choose what is to be taken back, see in numbers what that means, confirm it.

What is chosen stands in the address, so that the page with the numbers can be opened again. The rollback is a POST, and
is done only if nothing was added to the trail since the numbers were shown.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.formats import localize
from unfold.widgets import UnfoldAdminRadioSelectWidget

from audit.models import AuditEntry
from config.errors import DomainError
from memory.admin.base.page import AdminForm, actor_of
from memory.errors import Conflicting, Constitutional
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.time_machine.selection import Undone
from refinement import session as sessions
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession

LATEST = 50  # entries to choose from; the others by their number, or by a date
SESSIONS = 10
MOST_NUMBER = 2**53
KINDS = {
    "moment": "everything since a moment",
    "since_entry": "everything after an entry",
    "entry": "one entry",
    "session": "one session",
    "import": "one import or migration, by its first entry",
}
IN_WORDS = {
    "moment": "everything since {}",
    "since_entry": "everything after entry {}",
    "entry": "entry {}",
    "session": "session {}",
    "import": "the import that begins with entry {}",
}
FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
ADVICE = {
    Conflicting.code: "Later entries changed some of the same memories: choose below what becomes of those.",
    Constitutional.code: "It would change memories that are constitutional now: tick the box below, and say why.",
}


class ChooseForm(AdminForm):
    """What is to be taken back."""

    kind = forms.ChoiceField(choices=KINDS.items(), label="Take back", initial="moment")
    at = forms.CharField(
        max_length=40, label="Which", help_text="a number; or a date and time, as 2026-11-22 14:30:00 UTC"
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind, at = cleaned.get("kind"), cleaned.get("at")
        try:
            if kind == "moment" and at:
                moment = forms.DateTimeField(input_formats=FORMATS).clean(at.strip().removesuffix(" UTC"))
                cleaned["what"] = What.moment(moment.astimezone(UTC))
            elif kind and at:
                cleaned["what"] = What(kind, forms.IntegerField(min_value=0, max_value=MOST_NUMBER).clean(at))
        except forms.ValidationError as wrong:
            self.add_error("at", wrong)
        return cleaned


class RollBackForm(AdminForm):
    """How it is to be done."""

    conflicts = forms.ChoiceField(
        choices=[
            ("", "Refuse, if there are any"),
            ("skip", "Leave those memories as they are now"),
            ("force", "Restore them all the same"),
        ],
        required=False,
        label="Memories that later entries changed",
        widget=UnfoldAdminRadioSelectWidget,
    )
    include_constitutional = forms.BooleanField(required=False, label="Also memories that are constitutional now")
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.Textarea({"rows": 2}),
        help_text="kept in the trail; needed for constitutional memories. Do not repeat what a memory says.",
    )
    head = forms.IntegerField(min_value=0, max_value=MOST_NUMBER, widget=forms.HiddenInput({"id": "head"}))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("include_constitutional") and not cleaned.get("reason"):
            self.add_error("reason", "is needed for constitutional memories")
        return cleaned


def page(admin: Any, request: HttpRequest, agent: Agent) -> HttpResponse:
    """The page of one agent."""
    choose = ChooseForm(request.GET if "kind" in request.GET else None)
    if not choose.is_valid():
        return _answer(admin, request, agent, {"choose": choose} | _latest(agent))
    what: What = choose.cleaned_data["what"]
    form, refusal = RollBackForm(request.POST or None), ""
    given = form.cleaned_data if form.is_valid() else {}
    choices = {
        "skip_conflicts": given.get("conflicts") == "skip",
        "force": given.get("conflicts") == "force",
        "include_constitutional": bool(given.get("include_constitutional")),
    }
    if given and "look" not in request.POST:  # which shows what the choices would mean
        try:
            return _rolled_back(request, agent, what, reason=given["reason"], head=given["head"], **choices)
        except DomainError as refused:
            refusal = str(refused)
    try:
        figures = rollback.preview(agent, what, **choices)
    except DomainError as refused:
        told = {"choose": choose, "refused": refusal or str(refused)}
        return _answer(admin, request, agent, told | _latest(agent))
    if "look" in request.POST:
        form = RollBackForm(request.POST.dict() | {"head": figures.head})
    elif not form.is_bound:
        form = RollBackForm(initial={"head": figures.head})
    at = localize(what.at) if what.kind == "moment" else what.at
    told = {"figures": figures, "form": form, "refused": refusal, "advice": ADVICE.get(figures.refused, "")}
    told |= {"what": IN_WORDS[what.kind].format(at), "change": f"{figures.tokens_after - figures.tokens_before:+,}"}
    return _answer(admin, request, agent, told)


def _rolled_back(request: HttpRequest, agent: Agent, what: What, **given: Any) -> HttpResponse:
    if what.kind == "session":
        sessions.end_lapsed(agent)  # nobody drives it any more
    done = rollback.roll_back(agent, what, actor_of(request.user), **given)
    figures = (
        f"{done.restored:,} restored, {done.discarded:,} discarded, {done.rewritten:,} rewritten, protection changed "
        f"on {done.protection_changed:,}; {done.tokens_before:,} → {done.tokens_after:,} core tokens."
    )
    messages.success(request, f"{agent.label}: taken back, as entry {done.entry} of its trail. {figures}")
    entry = AuditEntry.objects.only("pk").get(agent_id=agent.pk, seq=done.entry or 0)
    return redirect("admin:audit_auditentry_change", entry.pk)


def _answer(admin: Any, request: HttpRequest, agent: Agent, told: dict[str, Any]) -> HttpResponse:
    context = admin.admin_site.each_context(request) | {
        "title": f"Time Machine of {agent.label}",
        "opts": admin.opts,
        "agent": agent,
        "agent_address": admin.address_of(agent),
    }
    return TemplateResponse(request, "admin/time_machine.html", context | told)


def _latest(agent: Agent) -> dict[str, Any]:
    """What there is to choose from: the latest entries and sessions, each with what undid it."""
    undone = Undone.of(agent)
    changing = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest")
    entries = changing.order_by("-seq")[:LATEST]
    ended = RefinementSession.objects.filter(agent=agent).exclude(outcome=Outcome.OPEN)
    rows = ended.defer("shown", "plan", "summaries").order_by("-number")[:SESSIONS]
    undone_sessions.mark(rows)
    return {
        "entries": [(entry, entry.operation.replace("_", " "), undone.by(entry.seq)) for entry in entries],
        "sessions": [(row, row.outcome.replace("_", " "), row.changes + row.duplicates_removed) for row in rows],
    }
