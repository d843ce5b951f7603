"""Agents: what they weigh, whether they are due, and what people may have done with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter, register
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.consent import LAPSES
from audit.trail import Actor
from config.queue import unattended
from config.wording import several
from memory.access.roles import Action
from memory.admin import ask_access, removal, switches, time_machine
from memory.admin.agent_setup import Configuring, Withdraw
from memory.admin.base import who_decides
from memory.admin.base.actions import Deed, Told, each
from memory.admin.base.agent_state import WHY, budget_bar
from memory.admin.base.links import ask_access_address, time_machine_address
from memory.admin.base.page import Scoped
from memory.admin.base.scope import OwnTenant, ids_seen_by
from memory.agents import lifecycle
from memory.consent import proposals
from memory.mail import wording
from memory.models import Agent, DueReason, Vault, VaultFile
from memory.time_machine import replay
from refinement import allowance, backlog, providers, schedule, scheduling, undone_sessions
from refinement.models import Outcome, RefinementSession, Waiting

VERIFIED_AT_ONCE = 20_000  # entries, about a second's; more of them are for the command
PROBLEMS = 5  # of a trail that are told


class RefineNow(Deed):
    name, label, needs = "refine_now", "Refine now", Action.STEER

    def offered(self, row: Agent) -> bool:
        return row.memory_enabled and bool(row.wrapped_key)

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        tokens = sum(row.core_tokens for row in rows)
        yield (
            f"A worker has {several(len(rows), 'agent')} refine their own core memory, {tokens:,} tokens in all, "
            "one session each."
        )
        yield "Each may merge, rewrite and discard; protected memories stay, and every session can be rolled back."
        if paused := sum(row.paused for row in rows):
            yield f"{several(paused, 'agent is', 'agents are')} paused, and refined once all the same."
        if why := unattended():
            yield f"It waits until a worker runs: {why}."

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        def ask(row: Agent) -> str:
            backlog.ask_for(row, actor)
            later = unattended()
            return f"it is refined once a worker runs: {later}." if later else _NEXT

        yield from each(rows, ask)


_NEXT = "a worker refines it next; its session is listed once it has begun."


class Pause(Deed):
    name, label, needs = "pause", "Pause", Action.STEER

    def offered(self, row: Agent) -> bool:
        return not row.paused

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        yield f"{several(len(rows), 'agent')} no longer refined when due. What they remember and recall goes on."

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        yield from each(rows, lambda row: _set_paused(row, actor, is_paused=True))


class Resume(Deed):
    name, label, needs = "resume", "Resume", Action.STEER

    def offered(self, row: Agent) -> bool:
        return row.paused

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        due = sum(row.paused and bool(schedule.why(row)) for row in rows)
        yield f"{several(len(rows), 'agent')} refined again when due, which {due:,} {'is' if due == 1 else 'are'} now."

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        yield from each(rows, lambda row: _set_paused(row, actor, is_paused=False))


def _set_paused(row: Agent, actor: Actor, *, is_paused: bool) -> str:
    lifecycle.change(row, actor, paused=is_paused)
    if is_paused:
        return "paused."
    if not schedule.due().filter(pk=row.pk).exists():
        return "no longer paused."
    backlog.call(row)
    return "no longer paused, and due: a worker refines it next."


class Verify(Deed):
    name, label, needs = "verify", "Verify audit trail", Action.SEE

    def means(self, rows: Sequence[Agent]) -> Iterable[str]:
        entries = sum(row.audit_seq for row in rows)
        yield (
            f"{several(entries, 'entry', 'entries')} of {several(len(rows), 'trail')} are checked, each against the "
            "one before it, and the memories and counters against them. No content is opened, nothing is changed."
        )

    def do(self, rows: Sequence[Agent], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        room = VERIFIED_AT_ONCE
        for row in rows:
            if row.audit_seq > room:
                yield Told(
                    f"{row.label}: not verified here, for it takes long. On the server: manage.py verify_audit "
                    f"{row.label}",
                    went_well=False,
                )
                continue
            room -= row.audit_seq
            yield _verified(row)


def _verified(row: Agent) -> Told:
    found = [problem for problem, _ in zip(replay.problems_of(row.pk), range(PROBLEMS), strict=False)]
    if not found:
        return Told(f"{row.label}: the trail is whole, all {several(row.audit_seq, 'entry', 'entries')} of it.")
    told = "; ".join(f"entry {problem.seq}: {problem.problem}" if problem.seq else problem.problem for problem in found)
    return Told(f"{row.label}: the trail is broken. {told}", went_well=False)


class Needing(SimpleListFilter):
    """Agents that somebody should look at."""

    title, parameter_name = "need", "need"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("over", "over budget"), ("due", "due for refinement")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> QuerySet[Agent]:
        if self.value() == "over":
            return queryset.filter(core_tokens__gt=F("budget_tokens"))
        return queryset.filter(pk__in=schedule.overdue().values("pk")) if self.value() == "due" else queryset


@register(Agent)
class AgentPage(Configuring, Scoped):
    tenant = "tenant"
    deeds = (
        RefineNow(),
        Pause(),
        Resume(),
        Verify(),
        switches.SwitchOn(),
        switches.SwitchOff(),
        Withdraw(),
        removal.AskErasure(),
        removal.Withdraw(),
    )
    list_display = ("name", "weight", "share", "due", "last_refined_at", "state", "model")
    list_select_related = ("tenant",)
    list_filter = (Needing, "paused", "memory_enabled", OwnTenant)
    search_fields = ("slug", "tenant__slug")
    search_help_text = "the name of an agent or of its tenant"
    ordering = ("tenant__slug", "slug")
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["weight", "state", "due_or_not", "due_at", "last_refined_at", "last_session", "links"]}),
        ("Tokens", {"fields": ["core_tokens", "target_tokens", "budget_tokens", "high_water_tokens", "retention"]}),
        ("Memories", {"fields": ["core_count", "journal_count", "constitutional_count", "constitutional_tokens"]}),
        (
            "Whose",
            {"fields": ["model", "language", "steward", "is_steward_only", "proposed", "to_remove", "refine_every"]},
        ),
        ("Log of runs", {"fields": ["logged_in", "last_n", "max_entries", "context_tokens"]}),
        ("Vault", {"fields": ["files_in"]}),
        ("Trail", {"fields": ["audit_seq", "audit_at", "created_at"]}),
    ]

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("<int:pk>/time-machine/", self._view(time_machine.shown), name="time_machine"),
            path("<int:pk>/ask/", self._view(ask_access.shown), name="ask"),
        ]
        return [*own, *super().get_urls()]

    def _view(self, view: Any) -> Any:
        def scoped(request: HttpRequest, pk: int) -> HttpResponse:
            answer: HttpResponse = view(self, request, pk)
            return answer

        return self.admin_site.admin_view(scoped)

    def named(self, row: Agent) -> str:
        return f"agent {row.label}"

    def beside(self, request: HttpRequest, row: Agent) -> dict[str, Any]:
        ways = []
        if row.tenant_id in ids_seen_by(request, Action.STEER):
            ways.append(("Time Machine", time_machine_address(row)))
        if row.tenant_id in ids_seen_by(request, Action.ASK):
            ways.append(("Ask for access", ask_access_address(row)))
        return super().beside(request, row) | {"ways": ways}

    @display(description="agent", ordering="slug")
    def name(self, agent: Agent) -> str:
        return agent.label

    @display(description="core tokens of budget", ordering="core_tokens")
    def weight(self, agent: Agent) -> SafeString:
        return budget_bar(agent)

    @display(description="share")
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
            f"{who_decides.who(agent, f'proposals/{proposal.number}/accept')}."
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
        undone_sessions.note([last])
        place = reverse("admin:refinement_refinementsession_change", args=[last.pk])
        told = f"{last.tokens_before:,} → {last.tokens_after:,} tokens, {last.outcome.replace('_', ' ')}"
        told += f", rolled back by entry {last.undone_by}" if last.undone_by else ""
        return format_html('<a class="underline" href="{}">session {}</a>: {}', place, last.number, told)

    @display(description="more of it")
    def links(self, agent: Agent) -> SafeString:
        return format_html(
            "{} · {} · {} · {}",
            _link("memory_memory_changelist", "memories", agent),
            _link("refinement_refinementsession_changelist", "sessions", agent),
            _link("audit_auditentry_changelist", "audit entries", agent),
            _link("audit_accessrequest_changelist", "access requests", agent),
        )


def _in_line(agent: Agent) -> str:
    row = Waiting.objects.filter(pk=agent.pk).first()
    if row is None:
        is_waiting = {providers.of(agent.model), agent.model} & set(providers.doubted())
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


def _link(name: str, label: str, agent: Agent) -> SafeString:
    return format_html('<a class="underline" href="{}?agent={}">{}</a>', reverse(f"admin:{name}"), agent.label, label)
