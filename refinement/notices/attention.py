"""What needs the attention of a tenant's people: failed sessions, full memories, suspended keys, waiting requests."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from audit.consent import LAPSES
from audit.models import AccessRequest, State
from config.wording import several
from memory.models import Agent
from refinement.models import Outcome, RefinementSession
from refinement.notices import webhooks
from refinement.notices.models import OverBudget, Webhook
from refinement.session import INTERRUPTED

LONG = timedelta(hours=24)  # over budget
MOST = 50  # items of each kind
ROWS = 1_000  # in one statement
_FAILED = Q(outcome__in=(Outcome.FAILED, Outcome.ABANDONED)) & ~Q(reason=INTERRUPTED)


class Item(NamedTuple):
    """An agent that needs attention, why, and the URL of a page about it."""

    agent: str
    text: str
    url: str


def watch() -> None:
    """Note which agents are over their budgets. Once an agent is over its budget for 24 hours, its tenant's webhook
    gets an event. A task calls this every minute."""
    now, seen = timezone.now(), OverBudget.objects.all()
    over = _agents().filter(core_tokens__gt=F("budget_tokens"))
    if gone := list(seen.exclude(pk__in=over.values("pk")).values_list("pk", flat=True)[:ROWS]):
        seen.filter(pk__in=gone).delete()
    new = over.exclude(pk__in=seen.values("pk")).values_list("pk", flat=True)[:ROWS]
    OverBudget.objects.bulk_create([OverBudget(agent_id=pk, since=now) for pk in new], ignore_conflicts=True)
    if ahead := list(seen.filter(since__gt=now).values_list("pk", flat=True)):
        seen.filter(pk__in=ahead).update(since=now)  # the clock was ahead
    waiting = seen.filter(is_reported=False).values("pk")
    for agent in _long_over(now).filter(pk__in=waiting, tenant__in=Webhook.objects.exclude(url="").values("pk"))[:ROWS]:
        with transaction.atomic():
            if seen.filter(pk=agent.pk, is_reported=False).update(is_reported=True):
                webhooks.add_over_budget(agent, vars(agent)["since"])


def items(tenants: Sequence[int]) -> Iterator[Item]:
    """What needs attention in these tenants. Everybody who sees a tenant also sees its access requests."""
    agents, now = _agents().filter(tenant__in=tenants), timezone.now()
    newer = RefinementSession.objects.filter(agent=OuterRef("agent"), number__gt=OuterRef("number"))
    failed = RefinementSession.objects.filter(~Exists(newer.exclude(outcome=Outcome.OPEN)), _FAILED, agent__in=agents)
    for session in failed.select_related("agent__tenant").order_by("agent__tenant__slug", "agent__slug")[:MOST]:
        reason = session.reason.replace("_", " ")
        text = f"session {session.number} {session.outcome} ({reason})"
        yield Item(session.agent.label, text, webhooks.admin_url(session))
    for agent in _long_over(now).filter(tenant__in=tenants)[:MOST]:
        since = f"{vars(agent)['since']:%d %B %Y at %H:%M} UTC"
        text = f"over its budget since {since} ({agent.core_tokens:,} of {agent.budget_tokens:,} tokens)"
        yield Item(agent.label, text, webhooks.admin_url(agent))
    for agent in agents.filter(keys_suspended=True)[:MOST]:
        yield Item(agent.label, "its keys are suspended", webhooks.admin_url(agent))
    waiting: Any = AccessRequest.objects.filter(tenant_id__in=tenants, state=State.REQUESTED, asked_at__gt=now - LAPSES)
    counted = waiting.values_list("agent_label").annotate(Count("pk")).order_by("agent_label")
    for label, count in counted[:MOST]:
        url = f"{settings.PUBLIC_URL}/admin/audit/accessrequest/?agent={label}&state__exact=requested"
        yield Item(label, several(count, "access request waits", "access requests wait"), url)


def _agents() -> QuerySet[Agent]:
    agents = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
    return agents.order_by("tenant__slug", "slug")


def _long_over(now: datetime) -> QuerySet[Agent]:
    """The agents that are over their budgets for 24 hours, with the column `since`."""
    since = Subquery(OverBudget.objects.filter(pk=OuterRef("pk")).values("since"))
    agents = _agents().annotate(since=since).filter(since__lte=now - LONG)
    return agents.filter(core_tokens__gt=F("budget_tokens"))
