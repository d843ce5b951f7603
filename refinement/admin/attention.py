"""What the overview says about agents that need attention: why, and what to do. It has no content."""

from dataclasses import dataclass

from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from memory.access.roles import Action
from memory.admin.base import links
from memory.admin.base.permissions import visible_tenant_ids
from memory.models import Agent
from refinement import probe, schedule
from refinement.models import Outcome, RefinementSession

MOST = 20  # agents


@dataclass(frozen=True, slots=True)
class Item:
    """An agent, why it needs attention, and what to do: a text, and a link if there is a page for it."""

    agent: Agent
    why: str
    advice: str
    url: str = ""


def items(request: HttpRequest, agents: QuerySet[Agent]) -> list[Item]:
    """The agents with failures, without usable models, with suspended keys, or over their budgets."""
    is_over = Q(core_tokens__gt=F("budget_tokens"))
    found = agents.filter(is_over | Q(failures_in_a_row__gt=0) | Q(keys_suspended=True), memory_enabled=True)
    rows = list(found.exclude(wrapped_key=b"").select_related("tenant").order_by("-failures_in_a_row", "pk")[:MOST])
    problems = probe.problems({row.model for row in rows if row.model})
    troubled = (Outcome.FAILED, Outcome.INCOMPLETE, Outcome.ABANDONED)
    sessions = RefinementSession.objects.filter(agent__in=rows, outcome__in=troubled).order_by("number")
    last = {each.agent_id: each for each in sessions.only("agent_id", "number", "outcome", "reason", "problem")}
    steer = set(visible_tenant_ids(request, Action.STEER))
    return [_item(row, problems.get(row.model, ""), last.get(row.pk), row.tenant_id in steer) for row in rows]


def _item(agent: Agent, problem: str, last: RefinementSession | None, may_steer: bool) -> Item:
    page = reverse("admin:memory_agent_change", args=[agent.pk])
    own = page if may_steer else ""
    if agent.keys_suspended:
        return Item(agent, "Its keys are suspended, so its runtime cannot store or read.", "Lift the suspension", own)
    if problem:
        return Item(agent, f"Its model {agent.model} cannot be used. {problem}", "Propose another model", own)
    if agent.failures_in_a_row and last:
        why = last.problem or (last.reason.replace("_", " ") if last.reason else last.outcome)
        return Item(
            agent, f"Its last session failed: {why}", "See the session", links.url(agent.pk, "session", last.number)
        )
    over = f"Over its budget: {agent.core_tokens:,} of {agent.budget_tokens:,} tokens"
    if agent.paused:
        return Item(agent, f"{over}, and paused.", "Resume it", own)
    if not agent.model:
        return Item(agent, f"{over}, and it has no model.", "Propose a model", own)
    if schedule.why(agent):
        return Item(agent, f"{over}.", "It is due, and waits for a worker", page)
    after = f" Its next refinement is due on {agent.due_at:%d %B %Y}." if agent.due_at else ""
    return Item(agent, f"{over}.{after}", "Refine it now", own)
