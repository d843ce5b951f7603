"""Agents: what they weigh, whether they are due, and the pages that add them and set them up.

What decides who can read is the agent's side's to change: a tenant proposes it. Each change is an entry of the trail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter, register
from django.db.models import F, QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from audit.consent import LAPSES
from audit.proposals import PROPOSABLE
from config.wording import several
from memory.access.roles import Action
from memory.admin import agent_actions, ask_access, removal, time_machine
from memory.admin.agent_forms import TENANT_SETS, FirstKeyForm, NewAgentForm, ProposalForm, SettingsForm
from memory.admin.base.page import (
    WHY,
    OfTenant,
    Scoped,
    actor_of,
    ask_access_address,
    budget_bar,
    column,
    form_page,
    seen_by,
    shown_once,
    time_machine_address,
    who_decides,
)
from memory.agents import lifecycle
from memory.consent import proposals
from memory.errors import Invalid
from memory.mail import letters, wording
from memory.models import Agent, DueReason, Vault, VaultFile
from refinement import allowance, providers, schedule, scheduling, undone_sessions
from refinement.llm.base import ModelNotConfigured
from refinement.llm.catalog import parse as parse_model
from refinement.models import Outcome, RefinementSession, Waiting


class Needing(SimpleListFilter):
    """Agents that somebody should look at."""

    title, parameter_name = "need", "need"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("over", "over budget"), ("due", "due for refinement")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> QuerySet[Agent]:
        if self.value() == "over":
            return queryset.filter(core_tokens__gt=F("budget_tokens"))
        return queryset.filter(pk__in=schedule.overdue().values("pk")) if self.value() == "due" else queryset


def _permission(needs: Action) -> Callable[..., bool]:
    """As Unfold asks for it: to do this to one agent, or to any."""

    def has_permission(page: Scoped, request: HttpRequest, object_id: str | None = None) -> bool:
        return page.may(request, needs, page.row_or_404(request, object_id) if object_id else None)

    return has_permission


@register(Agent)
class AgentPage(Scoped):
    tenant = "tenant_id"
    row_actions = (
        agent_actions.RefineNow(),
        agent_actions.Pause(),
        agent_actions.Resume(),
        agent_actions.Verify(),
        agent_actions.SwitchOn(),
        agent_actions.SwitchOff(),
        agent_actions.WithdrawProposal(),
        removal.AskErasure(),
        removal.Withdraw(),
    )
    actions_list = ("add_agent",)
    actions_detail = ("set_up", "propose", "keys", "hand_out_key", "time_machine", "ask")
    list_display = ("name", "weight", "share", "due", "last_refined_at", "state", "model")
    list_select_related = ("tenant",)
    list_filter = (Needing, "paused", "memory_enabled", OfTenant)
    search_fields = ("slug", "tenant__slug")
    search_help_text = "the name of an agent or of its tenant"
    ordering = ("tenant__slug", "slug")
    sections: ClassVar[Any] = {
        "": ["weight", "state", "due_or_not", "due_at", "last_refined_at", "last_session", "links"],
        "Tokens": ["core_tokens", "target_tokens", "budget_tokens", "high_water_tokens", "retention"],
        "Memories": ["core_count", "journal_count", "constitutional_count", "constitutional_tokens"],
        "Whose": ["model", "language", "steward", "is_steward_only", "proposed", "to_remove", "refine_every"],
        "Log of runs": ["logged_in", "last_n", "max_entries", "context_tokens"],
        "Vault": ["files_in"],
        "Trail": ["audit_seq", "audit_at", "created_at"],
    }

    def named(self, row: Agent) -> str:
        return f"agent {row.label}"

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """What stands in the header, which a phone folds away: without what stands beside the buttons."""
        shown = super().get_actions_detail(request, object_id)
        return [each for each in shown if each.path not in ("time-machine", "ask")]

    def related_pages(self, request: HttpRequest, row: Agent) -> list[tuple[str, str]]:
        found = []
        if self.may(request, Action.STEER, row):
            found.append(("Time Machine", time_machine_address(row.pk)))
        if self.may(request, Action.ASK, row):
            found.append(("Ask for access", ask_access_address(row.pk)))
        return found

    has_configure_permission = _permission(Action.CONFIGURE)
    has_steer_permission = _permission(Action.STEER)
    has_ask_permission = _permission(Action.ASK)

    def has_hand_out_permission(self, request: HttpRequest, object_id: str) -> bool:
        agent = self.row_or_404(request, object_id)
        is_empty = bool(agent.wrapped_key) and not agent.core_count + agent.journal_count
        return is_empty and self.may(request, Action.CONFIGURE, agent)

    @action(description="Add an agent", url_path="new", permissions=["configure"])
    def add_agent(self, request: HttpRequest) -> HttpResponse:
        def save(given: dict[str, Any]) -> HttpResponse:
            _require_model(given["model"])
            tenant, slug = given.pop("tenant").slug, given.pop("agent")
            made, key = lifecycle.create(tenant, slug, actor=actor_of(request.user), **given)
            return _first_key(request, made, key, self.address_of(made))

        tenants, initial = seen_by(request, Action.CONFIGURE), {"tenant": request.GET.get("tenant")}
        return form_page(self, request, NewAgentForm, save, warning=_about_stewards(), tenants=tenants, initial=initial)

    @action(description="Settings", url_path="settings", permissions=["configure"])
    def set_up(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(given: dict[str, Any]) -> str:
            lifecycle.change(agent, actor_of(request.user), **given)
            return f"The settings of {agent.label} are saved."

        return form_page(self, request, SettingsForm, save, row=agent, initial=model_to_dict(agent, TENANT_SETS))

    @action(description="Propose a change", url_path="propose", permissions=["configure"])
    def propose(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(given: dict[str, Any]) -> str:
            _require_model(given["model"])
            proposals.propose(agent, actor_of(request.user), **given)
            return "It is proposed to the agent's side. Until it decides you can withdraw it here."

        now, warning = model_to_dict(agent, PROPOSABLE), ask_access.in_the_way(agent) or _about_stewards()
        return form_page(self, request, ProposalForm, save, row=agent, warning=warning, initial=now)

    @action(description="Keys", url_path="keys", permissions=["configure"])
    def keys(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)
        return redirect(f"{reverse('admin:memory_agentkey_changelist')}?agent={agent.label}")

    @action(description="First key", url_path="first-key", permissions=["configure"])
    def hand_out_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(given: dict[str, Any]) -> HttpResponse:
            key = lifecycle.first_key(agent, actor_of(request.user), **given)
            return _first_key(request, agent, key, self.address_of(agent))

        return form_page(self, request, FirstKeyForm, save, row=agent)

    hand_out_key.allowed_permissions = ["hand_out"]  # who sees the button; who opens the page is told why not

    @action(description="Time Machine", url_path="time-machine", permissions=["steer"])
    def time_machine(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return time_machine.page(self, request, self.row_or_404(request, object_id))

    @action(description="Ask for access", url_path="ask", permissions=["ask"])
    def ask(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return ask_access.page(self, request, self.row_or_404(request, object_id))

    name = column("label", "agent", ordering="slug")

    @display(description="core tokens of budget", ordering="core_tokens")
    def weight(self, agent: Agent) -> SafeString:
        return budget_bar(agent)

    def share(self, agent: Agent) -> str:
        return f"{100 * agent.core_tokens / max(1, agent.budget_tokens):.0f}\N{NO-BREAK SPACE}%"

    @display(description="due", label=dict.fromkeys(WHY.values(), "info") | {WHY["over_budget"]: "warning"})
    def due(self, agent: Agent) -> str | None:
        return WHY.get(schedule.why(agent))

    @display(description="due")
    def due_or_not(self, agent: Agent) -> str | None:
        due = self.due(agent)
        if RefinementSession.objects.filter(agent=agent, outcome=Outcome.OPEN).exists():
            return f"{due or 'not due'}; it is being refined"
        if due and agent.due_reason != DueReason.MANUAL and allowance.is_used_up(agent.tenant):
            first = f"{allowance.next_month(timezone.now()):%Y-%m-%d}"
            return f"{due}; waits until {first}, for its tenant's model tokens of this month are used up"
        return f"{due}; {_in_line(agent)}" if due else _left_alone(agent)

    @display(description="state", label={"erased": "danger", "paused": "warning", "memory off": "warning"})
    def state(self, agent: Agent) -> str | None:
        if not agent.wrapped_key:
            return "erased"
        return "memory off" if not agent.memory_enabled else "paused" if agent.paused else None

    @display(description="proposed to its side")
    def proposed(self, agent: Agent) -> str | None:
        proposal = proposals.open_one(agent)
        if proposal is None:
            return None
        what = "; ".join(wording.proposed(proposal.proposed))
        return (
            f"{what}. Until {localize(proposal.asked_at + LAPSES)} it waits for "
            f"{who_decides(agent, f'proposals/{proposal.number}/accept')}."
        )

    @display(description="kept in")
    def logged_in(self, agent: Agent) -> str:
        return f"{agent.memory_path}, for whoever can read the file" if agent.memory_path else "its journal, sealed"

    @display(description="files")
    def files_in(self, agent: Agent) -> str:
        if not agent.vault_path:
            return "none: what it remembers is in no files"
        state = Vault.objects.filter(agent_id=agent.pk).first()
        there = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE).count()
        told = f"{several(there, 'file')} in {agent.vault_path}, for whoever can read them; what is private is sealed"
        return f"{told}. They could not be written ({state.fault}): tried again" if state and state.fault else told

    @display(description="asked to be removed")
    def to_remove(self, agent: Agent) -> str | None:
        return removal.told(agent)

    @display(description="last session")
    def last_session(self, agent: Agent) -> SafeString | None:
        last = RefinementSession.objects.filter(agent=agent).order_by("-number").first()
        if last is None:
            return None
        undone_sessions.mark([last])
        place = reverse("admin:refinement_refinementsession_change", args=[last.pk])
        told = f"{last.tokens_before:,} → {last.tokens_after:,} tokens, {last.outcome.replace('_', ' ')}"
        told += f", rolled back by entry {last.undone_by}" if last.undone_by else ""
        return format_html('<a class="underline" href="{}">session {}</a>: {}', place, last.number, told)

    @display(description="more of it")
    def links(self, agent: Agent) -> SafeString:
        rows = ((reverse(f"admin:{name}_changelist"), agent.label, label) for label, name in _LISTS.items())
        return format_html_join(" · ", '<a class="underline" href="{}?agent={}">{}</a>', rows)


_LISTS = {
    "memories": "memory_memory",
    "sessions": "refinement_refinementsession",
    "audit entries": "audit_auditentry",
    "access requests": "audit_accessrequest",
}


def _first_key(request: HttpRequest, agent: Agent, key: str, back: str) -> HttpResponse:
    return shown_once(
        request,
        title=f"The first key of {agent.label}",
        secret=key,
        lines=[
            "The runtime sends it with every request: Authorization: Bearer KEY",
            "It makes the silo its own by exchanging the key, which ends this one: "
            'POST /api/v1/agent/keys with the body {"exchange": true}',
        ],
        back=back,
    )


def _about_stewards() -> str:
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


def _in_line(agent: Agent) -> str:
    row = Waiting.objects.filter(pk=agent.pk).first()
    if row is None:
        is_waiting = {providers.of(agent.model), agent.model} & set(providers.failing_names())
        return f"called when {agent.model} answers again" if is_waiting else "called at the next sweep"
    if row.taken_at:
        return "a worker has taken it"
    return f"in line for a worker since {localize(row.since)}{_kept_by(row)}"


def _kept_by(row: Waiting) -> str:
    """What keeps it from being its turn, though a worker were idle."""
    now = scheduling.closed()
    if {row.model, row.provider} & now.shut:
        return f"; its turn comes when {row.model} answers again"
    if row.tenant_id in now.tenants:
        return "; its tenant has as many sessions under way as it may"
    return f"; {row.provider} has as many sessions under way as it may" if row.provider in now.providers else ""


def _left_alone(agent: Agent) -> str | None:
    """Why it is not due, where that is for a while; of one that is paused, its state says so."""
    if agent.paused or not agent.memory_enabled or agent.due_at is None or agent.due_at <= timezone.now():
        return None
    if agent.failures_in_a_row and agent.due_reason == DueReason.RETRY:
        return f"after trouble, tried again at {localize(agent.due_at)}"
    if agent.core_tokens <= agent.budget_tokens or agent.quiet_below_tokens is None:
        return None
    grown = f"{agent.quiet_below_tokens:,} tokens"
    return f"over budget; left alone until {localize(agent.due_at)}, or until it weighs {grown}"
