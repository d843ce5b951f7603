"""Agents set up by their tenant: made, bounded, given a first key. What decides who can read is the agent's side's.

`Configuring` is what the agents' page takes on: the buttons, and the addresses they lead to. Each thing done is an
entry of the agent's trail, by the person who did it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.admin import ModelAdmin

from audit.proposals import PROPOSABLE
from audit.trail import Actor
from config.wording import several
from memory.access.roles import Action
from memory.admin import ask_access
from memory.admin.base.actions import LISTED, Deed, Told, actor_of, each
from memory.admin.base.forms_pages import Sheet, SheetForm, about, button, done, offered, row_or_404, shown_once
from memory.admin.base.help_texts import LIMITS
from memory.admin.base.scope import ids_seen_by, seen_by
from memory.admin.keys import LabelForm
from memory.admin.tenants import LARGEST, LimitsForm
from memory.agents import lifecycle
from memory.consent import proposals
from memory.errors import Invalid, NotOpen
from memory.mail import letters, wording
from memory.models import Agent, Tenant
from memory.search.words import LANGUAGES
from refinement.llm.base import ModelNotConfigured
from refinement.llm.catalog import parse as parse_model

ON_LIST = ("add_agent",)
ON_AGENT = ("set_up", "propose", "keys", "hand_out_key")
LOG = ("last_n", "max_entries", "context_tokens")
TENANT_SETS = ("budget_tokens", "target_tokens", "refine_every", "paused", *LOG, *LIMITS)
HOW_TO_USE = (
    "The runtime sends it with every request: Authorization: Bearer KEY",
    "It makes the silo its own by exchanging the key, which ends this one: "
    'POST /api/v1/agent/keys with the body {"exchange": true}',
)


class BudgetForm(LimitsForm):
    otherwise = "its tenant's limit, or else {}"
    budget_tokens = forms.IntegerField(
        min_value=1, max_value=LARGEST, initial=8_000, help_text="core memory beyond it makes a refinement due"
    )
    target_tokens = forms.IntegerField(
        min_value=1, max_value=LARGEST, initial=5_000, help_text="what a refinement aims for; no more than the budget"
    )
    refine_every = forms.DurationField(
        required=False,
        initial="7 00:00:00",
        help_text="days and hours:minutes:seconds, such as 7 00:00:00; from one hour to ten years; empty: off",
    )


class Entries(forms.IntegerField):
    """How many of a log; 0 where nothing is given."""

    def clean(self, value: Any) -> int:
        return super().clean(value) or 0


class LogForm(BudgetForm):
    """With what `gc` leaves of a log."""

    last_n = Entries(
        min_value=0,
        max_value=LARGEST,
        required=False,
        help_text="newest entries of its log of runs that gc keeps; 0: the next",
    )
    max_entries = Entries(
        min_value=0, max_value=LARGEST, required=False, help_text="… where that is 0; 0 too: gc trims nothing"
    )
    context_tokens = forms.IntegerField(
        min_value=1,
        max_value=lifecycle.MOST_CONTEXT,
        required=False,
        help_text="of its log that gc sends to the model; empty: all",
    )


class SettingsForm(LogForm):
    """What a tenant may set, as over the API."""

    field_order = TENANT_SETS
    paused = forms.BooleanField(required=False, help_text="nothing is refined until it is resumed")


class NewAgentForm(LogForm):
    field_order = ("tenant", "agent", "model", "language", "steward", *TENANT_SETS)
    tenant: forms.ModelChoiceField[Tenant] = forms.ModelChoiceField(Tenant.objects.none())
    agent = forms.CharField(max_length=64, help_text="its name: lower-case letters, digits, '-' and '_'")
    model = forms.CharField(max_length=200, help_text="provider/model-name, such as builtin/dedupe")
    language = forms.CharField(
        max_length=32,
        initial="english",
        widget=forms.Select(choices=[(name, name) for name in sorted(LANGUAGES)]),
        help_text="of its memories, for search; other: words are taken as they stand",
    )
    steward = forms.EmailField(required=False, help_text="who speaks for it until its runtime exchanges its key")

    def __init__(self, *args: Any, tenants: QuerySet[Tenant], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants.order_by("slug")  # type: ignore[attr-defined]


class ProposalForm(SheetForm):
    """What the agent's side decides, and others may propose to it."""

    model = forms.CharField(max_length=200, help_text="provider/model-name; whoever runs it reads what is refined")
    steward = forms.EmailField(required=False, help_text="the address of the person who speaks for the agent")
    is_steward_only = forms.BooleanField(
        required=False, label="Its steward alone consents", help_text="and not its runtime"
    )
    memory_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Memory file",
        help_text="its runs are logged there, not sealed, for whoever can read the file; under its tenant's folder of "
        "the operator's, such as notes.md; empty: in its memory",
    )
    vault_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Vault",
        help_text="a folder with a file for each thing it remembers, for whoever can read them; what is private stays "
        "sealed; under its tenant's folder of the operator's, such as vault; empty: none",
    )


class Withdraw(Deed):
    """Takes back what one proposed oneself, before its side decides."""

    name, label, needs = "withdraw_proposal", "Withdraw the proposal", Action.CONFIGURE

    def offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key) and proposals.open_one(row) is not None

    def may(self, page: Any, request: HttpRequest, row: Agent) -> bool:
        """One's own alone: another's is that person's, and the agent's side's to decline."""
        proposal = proposals.open_one(row)
        is_others = proposal is not None and not proposals.is_own(proposal, actor_of(request))
        return super().may(page, request, row) and not is_others

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        found = [(row, proposal) for row in rows if (proposal := proposals.open_one(row))]
        yield f"{several(len(found), 'proposal')} withdrawn. No link accepts what was proposed any more, nor a runtime."
        for row, proposal in found[:LISTED]:
            yield f"{row.label}: {'; '.join(wording.proposed(proposal.proposed))}."

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        def withdraw(row: Agent) -> str:
            proposal = proposals.open_one(row)
            if proposal is None:
                raise NotOpen("There is no open proposal any more.")
            proposals.decline(row, proposal.number, actor)
            return f"proposal {proposal.number} is withdrawn."

        yield from each(rows, withdraw)


class Configuring(ModelAdmin):  # type: ignore[misc]  # Unfold comes without types
    actions_list = ON_LIST
    actions_detail = ON_AGENT

    def has_configure_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Who is shown the buttons."""
        ids = ids_seen_by(request, Action.CONFIGURE)
        if object_id is None:
            return bool(ids)
        agent = self.get_object(request, object_id)
        return agent is not None and agent.tenant_id in ids

    def has_hand_out_permission(self, request: HttpRequest, object_id: str) -> bool:
        agent = self.get_object(request, object_id)
        is_empty = agent is not None and agent.wrapped_key and not agent.core_count + agent.journal_count
        return bool(is_empty) and self.has_configure_permission(request, object_id)

    def configured(self, request: HttpRequest, object_id: str) -> Agent:
        """The agent, for who may configure it. Another tenant's is as one that is not there."""
        agent: Agent = row_or_404(self, request, object_id)
        if agent.tenant_id not in ids_seen_by(request, Action.CONFIGURE):
            raise PermissionDenied
        return agent

    @button("Add an agent", "new", to="configure")
    def add_agent(self, request: HttpRequest) -> HttpResponse:
        tenants = seen_by(request, Action.CONFIGURE)
        if not tenants.exists():
            raise PermissionDenied
        sheet = Sheet(
            title="Add an agent",
            button="Add it",
            back=reverse("admin:memory_agent_changelist"),
            said=["Its model, its steward and its language are its own side's to change, once it is there."],
            warned=_of_stewards(),
        )

        def do(given: dict[str, Any]) -> HttpResponse:
            made, key = _made(request, given)
            back = reverse("admin:memory_agent_change", args=[made.pk])
            return shown_once(request, title=f"The first key of {made.label}", secret=key, said=HOW_TO_USE, back=back)

        return offered(self, request, sheet, do, NewAgentForm, tenants=tenants, initial=about(request))

    @button("Settings", "settings", to="configure")
    def set_up(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.configured(request, object_id)
        back = reverse("admin:memory_agent_change", args=[agent.pk])
        said = ["Its model, its steward and who may consent are its own side's to change."]
        sheet = Sheet(title=f"Settings of {agent.label}", button="Save", back=back, said=said)

        def do(given: dict[str, Any]) -> HttpResponse:
            lifecycle.change(agent, actor_of(request), **given)
            return done(request, f"The settings of {agent.label} are saved.", back)

        return offered(
            self, request, sheet, do, SettingsForm, initial={name: getattr(agent, name) for name in TENANT_SETS}
        )

    @button("Propose a change", "propose", to="configure")
    def propose(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.configured(request, object_id)
        back = reverse("admin:memory_agent_change", args=[agent.pk])
        said = [
            "Its own side decides these, for they decide who can read. Nothing changes until its runtime or its "
            "steward accepts, within 72 hours. A proposal that is open is replaced by this one.",
        ]
        title, warned = f"Propose a change of {agent.label}", ask_access.in_the_way(agent) or _of_stewards()
        sheet = Sheet(title=title, button="Propose it", back=back, said=said, warned=warned)

        def do(given: dict[str, Any]) -> HttpResponse:
            _require_model(given["model"])
            proposals.propose(agent, actor_of(request), **given)
            return done(request, "It is proposed to the agent's side. Until it decides you can withdraw it here.", back)

        now = {name: getattr(agent, name) for name in PROPOSABLE}
        return offered(self, request, sheet, do, ProposalForm, initial=now)

    @button("Keys", "keys", to="configure")
    def keys(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.configured(request, object_id)
        return redirect(f"{reverse('admin:memory_agentkey_changelist')}?agent={agent.label}")

    @button("First key", "first-key", to="hand_out")
    def hand_out_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.configured(request, object_id)
        back = reverse("admin:memory_agent_change", args=[agent.pk])
        said = ["A key is handed out while the silo is empty. From then on its own side alone issues keys."]
        sheet = Sheet(title=f"A first key to {agent.label}", button="Make the key", back=back, said=said)

        def do(given: dict[str, Any]) -> HttpResponse:
            key = lifecycle.first_key(agent, actor_of(request), label=given["label"])
            return shown_once(request, title=f"A first key to {agent.label}", secret=key, said=HOW_TO_USE, back=back)

        return offered(self, request, sheet, do, LabelForm)


def _of_stewards() -> str:
    """What naming a steward means where no letter leaves the console."""
    if not letters.are_printed():
        return ""
    return (
        "Mail is written to the console here: while an agent has a steward, whatever would be asked of them is refused "
        "until the operator sets EMAIL_URL, as to smtp+tls://USER:PASSWORD@HOST:587."
    )


def _require_model(model: str) -> None:
    try:
        parse_model(model)
    except ModelNotConfigured as refusal:
        raise Invalid("model", f"is not one that can be called. {str(refusal).rstrip('.')}") from None


def _made(request: HttpRequest, given: dict[str, Any]) -> tuple[Agent, str]:
    _require_model(given["model"])
    tenant, slug = given.pop("tenant").slug, given.pop("agent")
    return lifecycle.create(tenant, slug, actor=actor_of(request), **given)
