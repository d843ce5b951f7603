"""Agents that need attention: why, and what to do. The overview and the digest show them. Nothing here has content."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import BooleanField, Count, Exists, ExpressionWrapper, F, Min, OuterRef, Q, QuerySet, Subquery
from django.urls import reverse
from django.utils import timezone

from audit.consent import lapses_at, open_now, waiting_removals
from audit.models import AccessRequest, AuditEntry, Operation, State
from config.wording import several
from memory.models import Agent
from refinement import probe, schedule
from refinement.models import Outcome, RefinementSession
from refinement.notices import webhooks
from refinement.notices.models import OverBudget, Webhook

LONG = timedelta(hours=24)  # over budget
ROWS = 1_000  # in one statement
DEDUPE = "builtin/dedupe"
_IS_OVER = Q(core_tokens__gt=F("budget_tokens"))
_SIZES = [f"size_{place}" for place in range(4)]  # after the last completed sessions, newest first
_GROWS = Q(core_tokens__gt=F("target_tokens"), is_rolled_back=False, paused=False)
_GROWS &= Q(*[(f"{newer}__gt", F(older)) for newer, older in pairwise(_SIZES)])
_TROUBLED = {Outcome.FAILED: "failed", Outcome.INCOMPLETE: "ended early", Outcome.ABANDONED: "was abandoned"}


class Item(NamedTuple):
    """An agent, why it needs attention, and what to do. `path` leads to the page where this is done. If `steers` is
    true, this needs the permission STEER. `since` is the time from which it needs attention, if this is known."""

    agent: Agent
    why: str
    advice: str
    path: str
    steers: bool = True
    since: datetime | None = None


class Asked(NamedTuple):
    """Requests that wait for the side of an agent, and the page that shows them. An access request lapses: `word` is
    "until", and `time` says when the first one lapses. A removal request never lapses: `word` is "since"."""

    agent_id: int
    label: str
    number: int  # of requests
    text: str
    path: str
    word: str
    time: datetime


def watch() -> None:
    """Note which agents are over their budgets. Once an agent is over its budget for 24 hours, its tenant's webhook
    gets an event. A task calls this every minute."""
    now, seen = timezone.now(), OverBudget.objects.all()
    over = _agents().filter(_IS_OVER)
    if gone := list(seen.exclude(pk__in=over.values("pk")).values_list("pk", flat=True)[:ROWS]):
        seen.filter(pk__in=gone).delete()
    new = over.exclude(pk__in=seen.values("pk")).values_list("pk", flat=True)[:ROWS]
    OverBudget.objects.bulk_create([OverBudget(agent_id=pk, since=now) for pk in new], ignore_conflicts=True)
    if ahead := list(seen.filter(since__gt=now).values_list("pk", flat=True)):
        seen.filter(pk__in=ahead).update(since=now)  # the clock was ahead
    waiting = seen.filter(is_reported=False).values("pk")
    long = over.filter(pk__in=waiting, since__lte=now - LONG)
    for agent in long.filter(tenant__in=Webhook.objects.exclude(url="").values("pk"))[:ROWS]:
        with transaction.atomic():
            if seen.filter(pk=agent.pk, is_reported=False).update(is_reported=True):
                webhooks.add_over_budget(agent, vars(agent)["since"])


def items(tenants: Collection[int], most: int, **only: Any) -> list[Item]:
    """What needs attention in these tenants: for at most `most` agents, in the order of their names. `only` has more
    conditions for the agents.

    An agent over its budget is in the list if it has no model that can be called, if no refinement is due, or after
    24 hours. An agent above its target is in the list if each of its last refinements left it larger.
    """
    agents = _agents().filter(tenant__in=tenants, **only)
    models = set(agents.filter(_IS_OVER).exclude(model="").values_list("model", flat=True).distinct())
    problems = probe.problems(models)
    now = timezone.now()
    is_stuck = Q(paused=True) | Q(model__in=["", *problems]) | Q(since__lte=now - LONG)
    is_stuck |= Q(due_at=None) | Q(due_at__gt=now)
    listed = Q(keys_suspended=True) | Q(failures_in_a_row__gt=0) | _IS_OVER & is_stuck | Q(grows=True)
    rows = list(agents.filter(listed)[:most])
    last = RefinementSession.objects.in_bulk({vars(each)["last_id"] for each in rows} - {None})
    return [
        item
        for agent in rows
        for item in _items(agent, problems.get(agent.model, ""), last.get(vars(agent)["last_id"]))
    ]


def requests(tenants: Collection[int], most: int) -> list[Asked]:
    """The requests that wait for the side of an agent: of each kind, for at most `most` agents. Everybody who sees a
    tenant also sees its requests."""
    return sorted([*_access_requests(tenants, most), *_removal_requests(tenants, most)], key=attrgetter("label"))


def _access_requests(tenants: Collection[int], most: int) -> Iterator[Asked]:
    waiting: Any = AccessRequest.objects.filter(open_now(), tenant_id__in=tenants)
    agents = waiting.values_list("agent_id", "agent_label").annotate(Count("pk"), Min("asked_at"))
    for agent_id, label, count, first in agents.order_by("agent_label")[:most]:
        path = reverse("admin:audit_accessrequest_changelist", query={"agent": label, "state__exact": State.REQUESTED})
        text = several(count, "access request waits", "access requests wait")
        yield Asked(agent_id, label, count, text, path, "until", lapses_at(first))


def _removal_requests(tenants: Collection[int], most: int) -> Iterator[Asked]:
    agents = Agent.objects.filter(tenant__in=tenants).exclude(wrapped_key=b"").order_by("tenant__slug", "slug")
    for (agent_id, label), waiting in waiting_removals(agents, most).items():
        count = len(waiting)
        text = several(count, "removal request waits", "removal requests wait")
        path = reverse("admin:memory_agent_change", args=[agent_id])
        yield Asked(agent_id, label, count, text, path, "since", waiting[0].asked_at)


def _agents() -> QuerySet[Agent]:
    """The agents that can be refined. `since` is the time from which an agent is over its budget, and `last_id` the id
    of its last session with trouble. `size_0` to `size_3` are the sizes of core memory after its last completed
    sessions, `is_rolled_back` says whether there was a rollback after the last one, and `grows` whether each left it
    larger."""
    sessions = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome__in=[*_TROUBLED])
    ended = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome=Outcome.COMPLETED, store=None)
    sizes = ended.order_by("-number").values("tokens_after")
    rollbacks = AuditEntry.objects.filter(agent_id=OuterRef("pk"), operation=Operation.ROLLED_BACK)
    agents = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
    agents = agents.annotate(
        since=Subquery(OverBudget.objects.filter(pk=OuterRef("pk")).values("since")),
        last_id=Subquery(sessions.order_by("-number").values("pk")[:1]),
        **{name: Subquery(sizes[place : place + 1]) for place, name in enumerate(_SIZES)},
        is_rolled_back=Exists(rollbacks.filter(at__gt=OuterRef("last_refined_at"))),
    )
    return agents.annotate(grows=ExpressionWrapper(_GROWS, BooleanField())).order_by("tenant__slug", "slug")


def _items(agent: Agent, problem: str, last: RefinementSession | None) -> Iterator[Item]:
    page = webhooks.admin_path(agent)
    if agent.keys_suspended:
        why = "Its keys are suspended, so its runtime cannot store or read."
        yield Item(agent, why, "Lift the suspension", page)
    is_over = agent.core_tokens > agent.budget_tokens
    if is_over and problem:
        why = f"Its model {agent.model} cannot be used. {problem} The operator of the service can change this."
        yield Item(agent, why, "Propose another model", _form(agent, "propose"))
    elif agent.failures_in_a_row and last:
        yield _failed(agent, last)._replace(since=last.closed_at)
    elif vars(agent)["grows"] and (agent.model or not is_over):
        more = vars(agent)[_SIZES[0]] - vars(agent)[_SIZES[-1]]
        grown = f"{more:,} tokens more in {len(_SIZES) - 1} sessions"
        why = f"Core memory grows faster than refinement shortens it: {grown}."
        yield Item(agent, why, "Propose another model", _form(agent, "propose"))
    elif is_over:
        yield _over_budget(agent, page)._replace(since=vars(agent)["since"])


def _failed(agent: Agent, last: RefinementSession) -> Item:
    why = last.problem or (last.reason.replace("_", " ") if last.reason else last.outcome)
    said = f"session {_TROUBLED[Outcome(last.outcome)]}: {why.rstrip('.')}."
    if last.model != agent.model:
        said = f"With its former model {last.model}, its last {said} Its model is now {agent.model}."
        return Item(agent, said, "Refine it now", webhooks.admin_path(agent))
    return Item(agent, f"Its last {said}", "See the session", webhooks.admin_path(last), steers=False)


def _over_budget(agent: Agent, page: str) -> Item:
    over = f"Over its budget: {agent.core_tokens:,} of {agent.budget_tokens:,} tokens"
    if agent.paused and vars(agent)["is_rolled_back"]:
        why = f"{over}, and paused after a rollback. A refinement would probably make the same changes again."
        return Item(agent, why, "Raise its budget", _form(agent, "settings"))
    hint = ""
    if agent.model == DEDUPE:
        hint = f" {DEDUPE} merges only duplicates, so it may stay over its budget. Then it needs another model."
    if agent.paused:
        return Item(agent, f"{over}, and paused.{hint}", "Resume it", page)
    if not agent.model:
        return Item(agent, f"{over}, and it has no model.", "Propose a model", _form(agent, "propose"))
    if schedule.why(agent):
        return Item(agent, f"{over}. It is due, and waits for a worker.", "See why it waits", page, steers=False)
    if (vars(agent)[_SIZES[0]] or 0) > agent.budget_tokens:
        why = f"{over}. Its last refinement could not make it small enough. A larger budget would help, too."
        return Item(agent, why, "Propose another model", _form(agent, "propose"))
    after = f" Its next refinement is due on {agent.due_at:%d %B %Y}." if agent.due_at else ""
    if vars(agent)["is_rolled_back"]:
        why = f"{over}, after a rollback.{after} It would probably make the same changes again."
        return Item(agent, why, "Pause it, or raise its budget", page)
    return Item(agent, f"{over}.{after}{hint}", "Refine it now", page)


def _form(agent: Agent, name: str) -> str:
    return webhooks.admin_path(agent).replace("/change/", f"/{name}/")
