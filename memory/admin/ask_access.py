"""Asking to read what an agent remembers: for a purpose, a scope and a time. Its side decides (`consent.grants`)."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from unfold.widgets import UnfoldAdminRadioSelectWidget

from audit.consent import LEAST_PURPOSE, MOST_NUMBERS, MOST_PURPOSE, Person, Scope, same_address
from audit.models import AccessRequest
from memory.admin.base.page import AdminForm, form_page
from memory.consent import grants
from memory.errors import MailNotSent
from memory.mail import letters
from memory.models import Agent

MOST_NUMBER = 2**53
PLACES = {"silo": (), "memories": ("numbers",), "session": ("session",), "entries": ("first", "last")}


def place(label: str = "") -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=MOST_NUMBER, label=label or None)


class AskForm(AdminForm):
    title, button = "Ask to read {row.label}", "Ask"
    purpose = forms.CharField(
        min_length=LEAST_PURPOSE,
        max_length=MOST_PURPOSE,
        widget=forms.Textarea({"rows": 4}),
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
    numbers = forms.CharField(required=False, max_length=20_000, help_text="of chosen memories, as 3, 17, 20-25")
    session = place()
    first = place("First entry")
    last = place("Last entry")
    seconds = forms.TypedChoiceField(
        label="For how long",
        coerce=int,
        choices=[(900, "15 minutes"), (1800, "30 minutes"), (3600, "1 hour"), (7200, "2 hours"), (14400, "4 hours")],
        initial=3600,
        help_text="from when it is consented to",
    )

    def clean_numbers(self) -> tuple[int, ...]:
        try:
            return numbers_in(self.cleaned_data["numbers"])
        except ValueError:
            told = f"must be up to {MOST_NUMBERS:,} numbers and ranges, as 3, 17, 20-25"
            raise forms.ValidationError(told) from None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind = cleaned.get("kind", "silo")
        for name in PLACES[kind]:
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, "is needed for this")
        places: dict[str, Any] = {name: cleaned.get(name) for name in PLACES[kind]}
        return cleaned | {"scope": Scope(kind, **places)}


def numbers_in(text: str) -> tuple[int, ...]:
    """ "3, 17, 20-22" → 3, 17, 20, 21, 22. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, re.split(r"[,\s]+", text)):
        run = re.fullmatch(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", part)
        if run is None:
            raise ValueError
        first, last = int(run[1]), int(run[2] or run[1])
        if not 0 < first <= last or last - first >= MOST_NUMBERS:
            raise ValueError
        found.update(range(first, last + 1))
    if len(found) > MOST_NUMBERS:
        raise ValueError
    return tuple(sorted(found))


def page(admin: Any, request: HttpRequest, agent: Agent) -> HttpResponse:
    """The form, and what became of it."""
    person: Any = request.user
    who = _who_decides(agent)

    def save(given: dict[str, Any]) -> HttpResponse:
        asked = {name: given[name] for name in ("purpose", "scope", "seconds")}
        number = grants.ask(agent, Person(person.pk, person.email), **asked).number
        messages.success(request, f"Asked, as request {number}. {who}")
        row = AccessRequest.objects.get(agent_id=agent.pk, number=number)
        return redirect("admin:audit_accessrequest_change", row.pk)

    told = (
        'You ask the side of <a href="{}">{}</a> for consent to read. {} Nothing is shown before that; every read is '
        "recorded and told to the agent; it ends by itself."
    )
    lead: list[str] = [format_html(told, admin.address_of(agent), agent.label, who)]
    if same_address(agent.steward, person.email):
        lead.append("You are its steward: nobody decides about their own request, so its runtime must.")
    given = request.GET.dict()
    return form_page(admin, request, AskForm, save, row=agent, lead=lead, warning=in_the_way(agent), initial=given)


def _who_decides(agent: Agent) -> str:
    if not agent.steward:
        return "Its runtime decides, over the API: it has no steward."
    if agent.is_steward_only:
        return "Its steward alone decides, by a link that is mailed now and good for 72 hours."
    return "Its steward decides, by a link that is mailed now and good for 72 hours; or its runtime, over the API."


def in_the_way(agent: Agent) -> str:
    """Why nothing can be asked of its steward as things are: told before the form is filled in."""
    is_refused = agent.steward and letters.are_printed()
    return f"As things are, this will be refused. {MailNotSent()}" if is_refused else ""
