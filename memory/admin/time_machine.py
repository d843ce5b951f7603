"""The Time Machine's page: choose what is to be taken back, see in numbers what that means, confirm it.

What is chosen stands in the address, so that a page that says what a rollback would mean can be looked at again; it is
done by POST, and only if nothing was added to the trail since the numbers were shown.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import localize
from unfold.widgets import (
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from audit.models import AuditEntry
from config.errors import DomainError
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import actor_of
from memory.admin.base.links import time_machine_address
from memory.admin.base.scope import ids_seen_by
from memory.errors import Conflicting, Constitutional
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import Figures, What
from memory.time_machine.undone import Undone
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


class Choose(forms.Form):
    """What is to be taken back."""

    kind = forms.ChoiceField(choices=KINDS.items(), label="Take back", widget=UnfoldAdminSelectWidget)
    at = forms.CharField(
        max_length=40,
        label="Which",
        help_text="a number; or a date and time, as 2026-11-22 14:30:00 UTC",
        widget=UnfoldAdminTextInputWidget,
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if "kind" in cleaned and "at" in cleaned:
            try:
                cleaned["what"] = _what(cleaned["kind"], cleaned["at"])
            except forms.ValidationError as wrong:
                self.add_error("at", wrong)
        return cleaned


def _what(kind: str, at: str) -> What:
    if kind == "moment":
        moment = forms.DateTimeField(input_formats=_FORMATS).clean(at.strip().removesuffix(" UTC"))
        return What.moment(moment.astimezone(UTC))
    number: int = forms.IntegerField(min_value=0, max_value=MOST_NUMBER).clean(at)
    return _BY_NUMBER[kind](number)


_BY_NUMBER = {
    "since_entry": What.since_entry,
    "entry": What.entry,
    "session": What.session,
    "import": What.imported,
}


_FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]


class Settle(forms.Form):
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
    include_constitutional = forms.BooleanField(
        required=False, label="Also memories that are constitutional now", widget=UnfoldBooleanWidget
    )
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        help_text="kept in the trail; needed for constitutional memories. Do not repeat what a memory says.",
    )
    head = forms.IntegerField(
        min_value=0, max_value=MOST_NUMBER, required=False, widget=forms.HiddenInput(attrs={"id": "head"})
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("include_constitutional") and not cleaned.get("reason", "").strip():
            self.add_error("reason", "is needed for constitutional memories")
        return cleaned


def shown(page: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """The page of one agent."""
    agent = Agent.objects.select_related("tenant").filter(pk=pk).first()
    if agent is None or agent.tenant_id not in ids_seen_by(request, Action.STEER):
        raise Http404
    choose = Choose(request.GET) if "kind" in request.GET else Choose(initial={"kind": "moment"})
    if not choose.is_bound or not choose.is_valid():
        return _answer(page, request, agent, choose)
    what: What = choose.cleaned_data["what"]
    settle = Settle(request.POST) if request.method == "POST" else Settle()
    if settle.is_bound and settle.is_valid():
        return _confirmed(page, request, agent, choose, what, settle)
    return _previewed(page, request, agent, choose, what, settle)


def _confirmed(
    page: Any, request: HttpRequest, agent: Agent, choose: Choose, what: What, settle: Settle
) -> HttpResponse:
    """Do it; or show why not, with the numbers as they are now."""
    given = settle.cleaned_data
    if "look" in request.POST:  # what the choices would mean
        return _previewed(page, request, agent, choose, what, settle)
    try:
        if what.kind == "session":
            sessions.end_lapsed(agent)  # nobody drives it any more
        done = rollback.roll_back(
            agent,
            what,
            actor_of(request),
            skip_conflicts=given["conflicts"] == "skip",
            force=given["conflicts"] == "force",
            include_constitutional=given["include_constitutional"],
            reason=given["reason"].strip(),
            head=given["head"],
        )
    except DomainError as refused:
        return _previewed(page, request, agent, choose, what, settle, str(refused))
    messages.success(request, f"{agent.label}: taken back, as entry {done.entry} of its trail. {_summary(done)}")
    entry = AuditEntry.objects.only("pk").get(agent_id=agent.pk, seq=done.entry or 0)
    return HttpResponseRedirect(reverse("admin:audit_auditentry_change", args=[entry.pk]))


def _previewed(
    page: Any, request: HttpRequest, agent: Agent, choose: Choose, what: What, settle: Settle, refused: str = ""
) -> HttpResponse:
    given = settle.cleaned_data if settle.is_bound and settle.is_valid() else {}
    try:
        figures = rollback.preview(
            agent,
            what,
            skip_conflicts=given.get("conflicts") == "skip",
            force=given.get("conflicts") == "force",
            include_constitutional=bool(given.get("include_constitutional")),
        )
    except DomainError as wrong:
        return _answer(page, request, agent, choose, refused=refused or str(wrong))
    if not settle.is_bound:
        settle = Settle(initial={"head": figures.head})
    return _answer(page, request, agent, choose, figures=figures, settle=settle, refused=refused)


def _answer(page: Any, request: HttpRequest, agent: Agent, choose: Choose, **more: Any) -> HttpResponse:
    figures: Figures | None = more.get("figures")
    context = page.admin_site.each_context(request) | {
        "title": f"Time Machine of {agent.label}",
        "opts": page.opts,
        "agent": agent,
        "agent_address": page.address(agent),
        "here": time_machine_address(agent),
        "holds": f"{agent.core_count:,} core memories of {agent.core_tokens:,} tokens. Its trail has "
        f"{several(agent.audit_seq, 'entry', 'entries')}",
        "choose": choose,
        "what": _in_words(choose) if figures else "",
        "told": _told(figures, agent) if figures else [],
        "conflicts": figures.conflicts if figures else (),
        "constitutional": figures.constitutional if figures else (),
        "advice": _ADVICE.get(figures.refused, "") if figures else "",
        "head": figures.head if figures else 0,
        **more,
    }
    if figures is None:
        context |= {"entries": _entries(agent), "sessions": _sessions(agent)}
    return TemplateResponse(request, "admin/time_machine.html", context)


_ADVICE = {
    Conflicting.code: "Later entries changed some of the same memories: choose below what becomes of those.",
    Constitutional.code: "It would change memories that are constitutional now: tick the box below, and say why.",
}


def _in_words(choose: Choose) -> str:
    kind, at = choose.cleaned_data["kind"], choose.cleaned_data["at"]
    return {
        "moment": f"everything since {localize(choose.cleaned_data['what'].at)}",
        "since_entry": f"everything after entry {at}",
        "entry": f"entry {at}",
        "session": f"session {at}",
        "import": f"the import that begins with entry {at}",
    }[kind]


def _told(figures: Figures, agent: Agent) -> list[tuple[str, str]]:
    change = figures.tokens_after - figures.tokens_before
    told = [
        ("Restored", f"{figures.restored:,}"),
        ("Discarded", f"{figures.discarded:,}"),
        ("Rewritten", f"{figures.rewritten:,}"),
        ("Protection set or cleared", f"{figures.protection_changed:,}"),
        ("Core tokens", f"{figures.tokens_before:,} → {figures.tokens_after:,} ({change:+,})"),
    ]
    if figures.tokens_after > agent.budget_tokens:
        told.append(("Over its budget of", f"{agent.budget_tokens:,}"))
    if figures.rests:
        told.append(
            ("Refined again", "not for a day, unless it grows by a tenth or somebody asks; pause it to keep it")
        )
    if figures.redacted:
        told.append(("Redacted since, and left so", f"{len(figures.redacted):,}"))
    return told


def _summary(figures: Figures) -> str:
    return (
        f"{figures.restored:,} restored, {figures.discarded:,} discarded, {figures.rewritten:,} rewritten, protection "
        f"changed on {figures.protection_changed:,}; {figures.tokens_before:,} → {figures.tokens_after:,} core tokens."
    )


def _entries(agent: Agent) -> list[dict[str, Any]]:
    """The latest entries, each with the addresses that take it back, or everything after it."""
    undone = Undone(agent)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest")
    return [
        {
            "entry": entry,
            "done": entry.operation.replace("_", " "),
            "by": undone.by(entry.seq),
            "only": time_machine_address(agent, "entry", entry.seq),
            "whole": time_machine_address(agent, "import", entry.detail["import"]) if "import" in entry.detail else "",
            "after": time_machine_address(agent, "since_entry", entry.seq),
        }
        for entry in entries.order_by("-seq")[:LATEST]
    ]


def _sessions(agent: Agent) -> list[dict[str, Any]]:
    rows = RefinementSession.objects.filter(agent=agent).exclude(outcome=Outcome.OPEN)
    rows = rows.defer("shown", "plan", "summaries").order_by("-number")[:SESSIONS]
    undone_sessions.note(rows)
    return [
        {
            "session": row,
            "outcome": row.outcome.replace("_", " "),
            "by": row.undone_by,
            "changed": row.changes + row.duplicates_removed,
            "tokens": f"{row.tokens_before:,} → {row.tokens_after:,}",
            "address": time_machine_address(agent, "session", row.number),
        }
        for row in rows
    ]
