"""Asking to read what an agent remembers: for a purpose, a scope and a time. Its side decides (`consent.grants`)."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from audit.consent import LEAST_PURPOSE, MOST_NUMBERS, MOST_PURPOSE, Person, Scope, same_address
from audit.models import AccessRequest
from config.errors import DomainError
from memory.access.roles import Action
from memory.admin.base.scope import ids_seen_by
from memory.consent import grants
from memory.errors import Invalid, MailNotSent
from memory.mail import letters
from memory.models import Agent

MOST_NUMBER = 2**53
_FIELDS = {"purpose": "purpose", "seconds": "minutes", "numbers": "numbers", "entries": "first"}


class Ask(forms.Form):
    purpose = forms.CharField(
        min_length=LEAST_PURPOSE,
        max_length=MOST_PURPOSE,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text=(
            f"why you need to read, in {LEAST_PURPOSE} characters or more. The agent's side decides by it; it is kept "
            "for ever. Name the fault or the question, not what a memory may say."
        ),
    )
    kind = forms.ChoiceField(
        label="What",
        choices=[
            ("memories", "chosen memories"),
            ("session", "what one session did"),
            ("entries", "what some entries of the trail did"),
            ("silo", "everything it remembers"),
        ],
        initial="memories",
        widget=UnfoldAdminRadioSelectWidget,
        help_text="ask for as little as will do",
    )
    numbers = forms.CharField(
        required=False,
        max_length=20_000,
        widget=UnfoldAdminTextInputWidget,
        help_text="of chosen memories, as 3, 17, 20-25",
    )
    session = forms.IntegerField(
        required=False, min_value=1, max_value=MOST_NUMBER, widget=UnfoldAdminIntegerFieldWidget
    )
    first = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_NUMBER,
        label="First entry",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    last = forms.IntegerField(
        required=False, min_value=1, max_value=MOST_NUMBER, label="Last entry", widget=UnfoldAdminIntegerFieldWidget
    )
    minutes = forms.TypedChoiceField(
        label="For how long",
        coerce=int,
        choices=[(15, "15 minutes"), (30, "30 minutes"), (60, "1 hour"), (120, "2 hours"), (240, "4 hours")],
        initial=60,
        widget=UnfoldAdminSelectWidget,
        help_text="from when it is consented to",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        needed = {"memories": ["numbers"], "session": ["session"], "entries": ["first", "last"]}
        for name in needed.get(cleaned.get("kind", ""), []):
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, "is needed for this")
        if cleaned.get("kind") == "memories" and cleaned.get("numbers"):
            try:
                cleaned["listed"] = listed(cleaned["numbers"])
            except ValueError:
                self.add_error("numbers", f"must be up to {MOST_NUMBERS:,} numbers and ranges, as 3, 17, 20-25")
        return cleaned

    def scope(self) -> Scope:
        given = self.cleaned_data
        return {
            "silo": lambda: Scope("silo"),
            "memories": lambda: Scope("memories", numbers=tuple(given["listed"])),
            "session": lambda: Scope("session", session=given["session"]),
            "entries": lambda: Scope("entries", first=given["first"], last=given["last"]),
        }[given["kind"]]()


def listed(text: str) -> list[int]:
    """ "3, 17, 20-22" → [3, 17, 20, 21, 22]. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        run = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", part)
        if run is None:
            raise ValueError
        first, last = int(run[1]), int(run[2] or run[1])
        if not 0 < first <= last or last - first >= MOST_NUMBERS:
            raise ValueError
        found.update(range(first, last + 1))
    if not 0 < len(found) <= MOST_NUMBERS:
        raise ValueError
    return sorted(found)


def shown(page: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """The form, and what became of it."""
    agent = Agent.objects.select_related("tenant").filter(pk=pk).first()
    if agent is None or agent.tenant_id not in ids_seen_by(request, Action.ASK):
        raise Http404
    if request.method == "POST":
        form = Ask(request.POST)
        if form.is_valid() and (number := _asked(request, agent, form)):
            messages.success(request, f"Asked, as request {number}. {_who_decides(agent)}")
            row = AccessRequest.objects.get(agent_id=agent.pk, number=number)
            return HttpResponseRedirect(reverse("admin:audit_accessrequest_change", args=[row.pk]))
    else:
        names = ("kind", "numbers", "session", "first", "last")
        form = Ask(initial={name: request.GET[name] for name in names if name in request.GET})
    person: Any = request.user
    context = page.admin_site.each_context(request) | {
        "title": f"Ask to read {agent.label}",
        "opts": page.opts,
        "agent": agent,
        "agent_address": page.address(agent),
        "form": form,
        "who_decides": _who_decides(agent),
        "is_own_steward": same_address(agent.steward, person.email),
        "in_the_way": in_the_way(agent),
    }
    return TemplateResponse(request, "admin/ask.html", context)


def in_the_way(agent: Agent) -> str:
    """Why its steward is asked nothing as things are, whatever is filled in: told before it is."""
    is_refused = agent.steward and letters.are_printed()
    return f"As things are, this will be refused. {MailNotSent()}" if is_refused else ""


def _asked(request: HttpRequest, agent: Agent, form: Ask) -> int:
    """The request's number; 0 when it was refused, which the form then says."""
    person: Any = request.user
    given = form.cleaned_data
    try:
        standing = grants.ask(
            agent,
            Person(person.pk, person.email),
            purpose=given["purpose"],
            scope=form.scope(),
            seconds=60 * given["minutes"],
        )
    except Invalid as wrong:
        form.add_error(_FIELDS.get(wrong.field), wrong.problem)
    except DomainError as refused:
        form.add_error(None, str(refused))
    else:
        return standing.number
    return 0


def _who_decides(agent: Agent) -> str:
    if not agent.steward:
        return "Its runtime decides, over the API: it has no steward."
    if agent.is_steward_only:
        return "Its steward alone decides, by a link that is mailed now and good for 72 hours."
    return "Its steward decides, by a link that is mailed now and good for 72 hours; or its runtime, over the API."
