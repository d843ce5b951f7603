"""The page of agents, and pages to add an agent, to change its settings, and to propose a change.

Only the agent's side can change the settings that decide who can read. A tenant can only propose such a change.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter, register
from django.db.models import F, QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from audit.consent import PROPOSABLE, lapses_at, open_now
from audit.models import AccessRequest
from config.queue import unattended
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action, locked_for
from memory.admin import agent_actions, agent_parts, ask_access, removal
from memory.admin.agent_forms import TENANT_SETS, FirstKeyForm, NewAgentForm, ProposalForm, SettingsForm
from memory.admin.base import links
from memory.admin.base.actions import MAX_LISTED
from memory.admin.base.filters import TenantFilter
from memory.admin.base.forms import form_page, secret_page
from memory.admin.base.page import Part, ScopedAdmin, Status, column
from memory.admin.base.permissions import actor_of, permission, visible_tenants
from memory.admin.base.texts import ask_access_url, budget_bar, next_refinement, time_machine_url, who_decides
from memory.admin.time_machine import TimeMachinePage
from memory.agents import lifecycle
from memory.consent import requests
from memory.errors import Invalid
from memory.mail import letters, wording
from memory.models import Agent, Tenant, Vault, VaultFile
from memory.search import embedding
from refinement import probe, schedule
from refinement.llm.base import ModelNotConfigured
from refinement.llm.catalog import parse as parse_model

_STATES = {"erased": "danger", "keys suspended": "danger", "paused": "warning", "memory off": "warning"}
_STATES |= {"over budget": "danger", "above target": "warning", "within target": "success"}


class AttentionFilter(SimpleListFilter):
    """A filter for agents that need attention. These are over budget, or due for refinement."""

    title, parameter_name = "need", "need"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("over", "over budget"), ("due", "due for refinement")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> QuerySet[Agent]:
        if self.value() == "over":
            return queryset.filter(core_tokens__gt=F("budget_tokens"))
        return queryset.filter(pk__in=schedule.overdue().values("pk")) if self.value() == "due" else queryset


@register(Agent)
class AgentPage(TimeMachinePage, ScopedAdmin):
    tenant = "tenant_id"
    row_actions = (
        agent_actions.Resume(),  # the main button of a paused agent
        agent_actions.RefineNow(),
        agent_actions.Pause(),
        agent_actions.SuspendKeys(),
        agent_actions.LiftSuspension(),
        agent_actions.Verify(),
        agent_actions.SwitchOn(),
        agent_actions.SwitchOff(),
        agent_actions.WithdrawProposal(),
        removal.AskErasure(),
        removal.Withdraw(),
    )
    actions_list = ("add_agent",)
    actions_detail = ("change_settings", "propose", "keys", "create_first_key", "time_machine", "ask")
    list_display = ("name", "standing", "weight", "next_refinement", "called_model")
    list_select_related = ("tenant",)
    list_filter = (AttentionFilter, "paused", "memory_enabled", TenantFilter)
    search_fields = ("slug", "tenant__slug")
    search_help_text = "the name of an agent or of its tenant"
    exported = (
        *("label", "core_tokens", "target_tokens", "budget_tokens", "core_count", "journal_count", "beneath_count"),
        *("model", "paused", "memory_enabled", "due_at", "due_reason", "last_refined_at", "failures_in_a_row"),
    )
    ordering = ("tenant__slug", "slug")
    sections: ClassVar[Any] = {
        "Refinement": ["every", "kept_share", "high_water_tokens", "instruction_tokens"],
        "Set by the agent's side": ["searched_by", "language", "steward", "who_consents", "claimed"],
        "Files": ["logged_in", "kept_entries", "most_entries", "context_tokens", "files_in"],
        "Trail": ["audit_seq", "audit_at", "created_at"],
    }
    folded = ("Files", "Trail")

    main_actions = ("refine_now", "pause", "resume", "lift_suspension", "withdraw_proposal")

    def tabs(self, request: HttpRequest, row: Agent) -> list[tuple[str, str]]:
        return agent_parts.tabs(request, row)

    def status(self, request: HttpRequest, row: Any) -> Status:
        row.waits = unattended()  # `parts` needs it, too
        return agent_parts.status(row, self.state(row))._replace(notes=agent_parts.notes(row, row.waits))

    def parts(self, request: HttpRequest, row: Any) -> list[Part]:
        return agent_parts.parts(row, list(_waiting(row)), row.waits)

    @property
    def empty_text(self) -> str:
        if Tenant.objects.exists():
            return super().empty_text
        text = 'Every agent belongs to a tenant. First <a class="underline" href="{}">add a tenant</a>.'
        return format_html(text, reverse("admin:memory_tenant_add_tenant"))

    def describe(self, row: Agent) -> str:
        return f"agent {row.label}"

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """The actions in the header, without those that `related_pages` shows beside the buttons."""
        actions = super().get_actions_detail(request, object_id)
        return [each for each in actions if each.path not in ("time-machine", "ask", "keys")]

    def related_pages(self, request: HttpRequest, row: Agent) -> list[tuple[str, str]]:
        pages = (("Time Machine", Action.STEER, time_machine_url), ("Ask for access", Action.ASK, ask_access_url))
        return [(label, url(row.pk)) for label, action, url in pages if self.may(request, action, row)]

    has_configure_permission = permission(Action.CONFIGURE)
    has_ask_permission = permission(Action.ASK)

    def has_first_key_permission(self, request: HttpRequest, object_id: str) -> bool:
        agent = self.row_or_404(request, object_id)
        is_empty = bool(agent.wrapped_key) and agent.next_number == 1 and not agent.claimed_at
        return is_empty and self.may(request, Action.CONFIGURE, agent)

    @action(description="Add an agent", url_path="new", permissions=["configure"])
    def add_agent(self, request: HttpRequest) -> HttpResponse:
        def save(values: dict[str, Any]) -> HttpResponse:
            _require_model(values["model"])
            tenant, slug, actor = values.pop("tenant"), values.pop("agent"), actor_of(request.user)
            with locked_for(Action.CONFIGURE, tenant.pk, request.user):  # type: ignore[arg-type]  # signed in
                agent, key = lifecycle.create(tenant.slug, slug, actor=actor, tenant_id=tenant.pk, **values)
            return _first_key_page(request, agent, key, self.row_url(agent))

        tenants = visible_tenants(request, Action.CONFIGURE)
        initial = {"tenant": request.GET.get("tenant"), "model": "builtin/dedupe"}
        fields: dict[str, Any] = _models(tenants) | {"tenants": tenants}
        return form_page(self, request, NewAgentForm, save, warning=_mail_warning(), initial=initial, **fields)

    @action(description="Settings", url_path="settings", permissions=["configure"])
    def change_settings(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> str:
            lifecycle.change(agent, actor_of(request.user), **values)
            return f"Settings of {agent.label} saved."

        text = 'Only the agent\'s side can change the model and the steward. You can <a href="{}">propose a change</a>.'
        lead = [format_html(text, reverse("admin:memory_agent_propose", args=[agent.pk]))]
        initial = model_to_dict(agent, TENANT_SETS)
        return form_page(self, request, SettingsForm, save, row=agent, lead=lead, initial=initial)

    @action(description="Propose a change", url_path="propose", permissions=["configure"])
    def propose(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> str:
            if values["model"] not in ("", agent.model):
                _require_model(values["model"])
            requests.propose(agent, actor_of(request.user), **values)
            return "Proposal sent to the agent's side. You can withdraw it here until the agent's side decides."

        initial, warning = model_to_dict(agent, PROPOSABLE), ask_access.mail_warning(agent) or _mail_warning()
        if requests.open_proposal(agent):
            warning = "A proposal is open. A new one replaces it. The agent's page shows the open proposal."
        models = _models(Tenant.objects.filter(pk=agent.tenant_id), agent.model)
        return form_page(self, request, ProposalForm, save, row=agent, warning=warning, initial=initial, **models)

    @action(description="Keys", url_path="keys", permissions=["configure"])
    def keys(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)
        return redirect(f"{reverse('admin:memory_agentkey_changelist')}?agent={agent.label}")

    @action(description="First key", url_path="first-key", permissions=["configure"])
    def create_first_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        agent = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> HttpResponse:
            key = lifecycle.first_key(agent, actor_of(request.user), **values)
            return _first_key_page(request, agent, key, self.row_url(agent))

        return form_page(self, request, FirstKeyForm, save, row=agent)

    create_first_key.allowed_permissions = ["first_key"]  # hides only the button; the page itself says why it refuses

    @action(description="Ask for access", url_path="ask", permissions=["ask"])
    def ask(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return ask_access.page(self, request, self.row_or_404(request, object_id))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        problems, waits = probe.problems(agent.model for agent in found.result_list), unattended()
        for agent in found.result_list:
            agent.model_problem, agent.waits = problems.get(agent.model, ""), waits
        return found

    name = column("label", "agent", ordering="slug")

    @display(description="model", ordering="model")
    def called_model(self, agent: Any) -> str:
        return ": ".join(filter(None, (agent.model, agent.model_problem)))

    @display(description="core tokens / budget", ordering="core_tokens")
    def weight(self, agent: Agent) -> SafeString:
        return budget_bar(agent)

    @display(description="next refinement")
    def next_refinement(self, agent: Any) -> SafeString | str:
        return next_refinement(agent, agent.model_problem, agent.waits)

    @display(description="state", label=_STATES)
    def standing(self, agent: Agent) -> str:
        return agent_parts.status(agent, self.state(agent)).label

    def state(self, agent: Agent) -> str | None:
        if not agent.wrapped_key:
            return "erased"
        if agent.keys_suspended:
            return "keys suspended"
        return "memory off" if not agent.memory_enabled else "paused" if agent.paused else None

    @display(description="refined every")
    def every(self, agent: Agent) -> str | None:
        return agent_parts.in_words(agent.refine_every) if agent.refine_every else "only when over budget or requested"

    kept_entries = column("last_n", "entries of the log that gc keeps")
    most_entries = column("max_entries", "or at most")

    @display(description="search")
    def searched_by(self, agent: Agent) -> str:
        found = embedding.state(agent)
        if not found.embedder:
            return "by words"
        waiting = f"; {found.waiting:,} wait" if found.waiting else ""
        if found.queries_go_to != found.embedder:
            waiting += f"; until then, queries go to {found.queries_go_to}"
        problem = f". {found.problem}" if found.problem else ""
        return f"by words, and by meaning with {found.embedder}: {found.made:,} memories{waiting}{problem}"

    @display(description="claimed")
    def claimed(self, agent: Agent) -> str | None:
        if not agent.claimed_at:
            return None
        return format_html("{} with {}", moment(agent.claimed_at), agent.claimed_by)

    @display(description="stored in")
    def logged_in(self, agent: Agent) -> str:
        return f"{agent.memory_path}, in clear text" if agent.memory_path else "the agent's memory, encrypted"

    @display(description="files")
    def files_in(self, agent: Agent) -> str:
        if not agent.vault_path:
            return "none"
        state = Vault.objects.filter(agent_id=agent.pk).first()
        written = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE).count()
        text = f"{several(written, 'file')} in {agent.vault_path}, in clear text except private memories"
        return f"{text}. The last write failed ({state.fault}); the service retries" if state and state.fault else text

    @display(description="keeps at least")
    def kept_share(self, agent: Agent) -> str:
        return f"{agent.retention:.0%} of its target, or of the largest size so far if that is less"

    @display(description="who consents")
    def who_consents(self, agent: Agent) -> str:
        if not agent.steward:
            return "the agent's runtime"
        return "only the steward" if agent.is_steward_only else "the steward or the agent's runtime"


def _first_key_page(request: HttpRequest, agent: Agent, key: str, back: str) -> HttpResponse:
    lines = [
        "The agent's runtime sends this key with every request, in the header Authorization: Bearer KEY",
        "First, the runtime should exchange this key for a new key that nobody else knows: POST /api/v1/agent/keys "
        'with the body {"exchange": true, "keep": ["model"]}. After that, this key no longer works.',
    ]
    return secret_page(request, title=f"First key of {agent.label}", secret=key, lines=lines, back=back)


def _waiting(agent: Agent) -> Iterator[SafeString]:
    """What waits for a decision of the agent's side."""
    if proposal := removal.open_proposal(agent):
        what = "; ".join(wording.proposed(proposal.proposed))
        text = "A change is proposed: {}. Until {}, {} can accept it."
        yield format_html(text, what, moment(proposal.decide_until), who_decides(agent))
    for row in AccessRequest.objects.filter(open_now(), agent_id=agent.pk).order_by("pk")[:MAX_LISTED]:
        request = links.link(agent.pk, "access", row.number, f"request {row.number}")
        text = "{} asks to read ({}). Until {}, {} can decide."
        yield format_html(text, row.person, request, moment(lapses_at(row.asked_at)), who_decides(agent))
    if removals := removal.status(agent):
        yield format_html("Removal of content: {}", removals)


def _mail_warning() -> str:
    """Return a warning about requests to stewards if mail goes to the console. Otherwise return ""."""
    why = "Mail is not configured, so the service refuses requests to stewards. The operator must set EMAIL_URL."
    return why if letters.are_printed() else ""


def _models(tenants: QuerySet[Tenant], current: str = "") -> dict[str, list[str]]:
    """What a form offers as models: those that can be called, and the current one."""
    usable = probe.usable(Agent.objects.filter(tenant__in=tenants).values_list("model", flat=True).distinct())
    return {"models": sorted({*usable, current} - {""}), "providers": probe.configured_providers()}


def _require_model(model: str) -> None:
    try:
        parse_model(model)
    except ModelNotConfigured as refusal:
        raise Invalid("other_model", f"is not available. {str(refusal).rstrip('.')}") from None
