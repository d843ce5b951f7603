"""The form to request access to an agent's memories. The agent's side decides (`memory.consent.requests`)."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.dateformat import format as date_format
from django.utils.html import format_html
from unfold.widgets import UnfoldAdminRadioSelectWidget

from audit.consent import LEAST_PURPOSE, MOST_NUMBERS, MOST_PURPOSE, Person, Scope, same_address
from audit.models import AccessRequest
from memory.admin.base.filters import is_number
from memory.admin.base.forms import AdminForm, form_page
from memory.admin.tenants import whole_number
from memory.consent import requests
from memory.errors import Invalid, MailNotSent
from memory.mail import letters
from memory.models import Agent
from memory.policy.validation import parse_numbers
from refinement.models import RefinementSession

MAX_NUMBER = 2**53
LATEST = 25  # sessions in the list
SCOPE_FIELDS = {"silo": (), "memories": ("numbers",), "session": ("session",), "entries": ("first", "last")}


class AskForm(AdminForm):
    title, crumb, button = "Ask to read {row.label}", "Ask for access", "Send the request"
    shown_if = [(name, "kind", kind) for kind, names in SCOPE_FIELDS.items() for name in names]
    purpose = forms.CharField(
        min_length=LEAST_PURPOSE,
        max_length=MOST_PURPOSE,
        widget=forms.Textarea({"rows": 4}),
        help_text=(
            f"Why you need to read, in at least {LEAST_PURPOSE} characters. The agent's side reads this text before it "
            "decides. The text is stored permanently. Describe the problem, and do not quote memories."
        ),
    )
    kind = forms.ChoiceField(
        label="Scope",
        choices=[
            ("memories", "Selected memories"),
            ("session", "Changes of one session"),
            ("entries", "Changes of some audit entries"),
            ("silo", "Everything that the agent remembers"),
        ],
        initial="memories",
        widget=UnfoldAdminRadioSelectWidget,
        help_text="Ask only for what you need.",
    )
    numbers = forms.CharField(required=False, max_length=20_000, help_text="Numbers of memories, such as 3, 17, 20-25.")
    session = forms.TypedChoiceField(
        required=False,
        coerce=int,
        help_text=f"The list has the latest {LATEST} sessions. For an older one, choose “Ask to read it” on its page.",
    )
    first = whole_number(least=1, most=MAX_NUMBER, label="First entry")
    last = whole_number(least=1, most=MAX_NUMBER, label="Last entry")
    seconds = forms.TypedChoiceField(
        label="For how long",
        coerce=int,
        choices=[(900, "15 minutes"), (1800, "30 minutes"), (3600, "1 hour"), (7200, "2 hours"), (14400, "4 hours")],
        initial=3600,
        help_text="The time starts when the agent's side consents.",
    )

    def __init__(self, *args: Any, agent: Agent, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["session"].choices = _sessions(agent, str(self.initial.get("session", "")))  # type: ignore[attr-defined]

    def clean_numbers(self) -> tuple[int, ...]:
        try:
            return tuple(parse_numbers("numbers", self.cleaned_data["numbers"], MOST_NUMBERS))
        except Invalid as wrong:
            raise forms.ValidationError(f"This {wrong.problem}.") from None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind = cleaned.get("kind", "silo")
        for name in SCOPE_FIELDS[kind]:
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, "This scope needs a value here.")
        fields: dict[str, Any] = {name: cleaned.get(name) for name in SCOPE_FIELDS[kind]}
        return cleaned | {"scope": Scope(kind, **fields)}


def _sessions(agent: Agent, named: str) -> list[tuple[int | str, str]]:
    """The latest sessions as choices, newest first. The session that the address names is one of them."""
    rows = RefinementSession.objects.filter(agent=agent).order_by("-number")
    rows = rows.only("number", "opened_at", "tokens_before", "tokens_after")
    found = list(rows[:LATEST])
    if is_number(named) and int(named) not in {row.number for row in found}:
        found += rows.filter(number=named)
    return [(row.number, _described(row)) for row in found] or [("", "This agent has had no session")]


def _described(row: RefinementSession) -> str:
    sizes = f"{row.tokens_before:,} \N{RIGHTWARDS ARROW} {row.tokens_after:,} tokens"
    return f"Session {row.number}, {date_format(row.opened_at, 'j M Y H:i')} UTC, {sizes}"


def page(admin: Any, request: HttpRequest, agent: Agent) -> HttpResponse:
    """Show the form. A valid POST stores the access request and redirects to the page of this request."""
    person: Any = request.user
    who = _who_decides(agent)

    def save(values: dict[str, Any]) -> HttpResponse:
        fields = {name: values[name] for name in ("purpose", "scope", "seconds")}
        number = requests.ask_to_read(agent, Person(person.pk, person.email), **fields).number
        messages.success(request, f"Request sent. It is entry {number} of the agent's audit trail. {who}")
        row = AccessRequest.objects.get(agent_id=agent.pk, number=number)
        return redirect("admin:audit_accessrequest_change", row.pk)

    text = (
        'You can read memories of <a href="{}">{}</a> only after the agent\'s side consents. Every read is recorded in '
        "the audit trail, and the agent receives a notice. The access ends automatically."
    )
    lead: list[str] = [
        format_html(text, admin.row_url(agent), agent.label),
        format_html("<strong>Who decides?</strong> {}", who),
    ]
    if same_address(agent.steward, person.email):
        lead.append("You are the agent's steward. You cannot decide about your own request: its runtime must decide.")
    form = {"initial": request.GET.dict(), "agent": agent}
    return form_page(admin, request, AskForm, save, row=agent, lead=lead, warning=mail_warning(agent), **form)


def _who_decides(agent: Agent) -> str:
    if not agent.steward:
        return "The agent has no steward. Its runtime decides, through the API."
    if agent.is_steward_only:
        return f"Only the agent's steward decides, with a mailed link to {agent.steward} that is valid for 72 hours."
    link = f"The steward, {agent.steward}, gets a mailed link that is valid for 72 hours."
    return f"The agent's steward or its runtime decides. {link}"


def mail_warning(agent: Agent) -> str:
    """Return a warning if the request will be refused because the steward cannot get mail. Otherwise return ""."""
    is_refused = agent.steward and letters.are_printed()
    return f"This request will be refused. {MailNotSent()}" if is_refused else ""
