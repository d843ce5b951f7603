"""The metrics for Prometheus at /metrics. No label contains the name of a tenant or an agent.

Requests are counted in config/request_metrics.py. All other figures are read from the database and the queue at each
request.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Min, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config import request_metrics
from config.queue import QueueUnreachable, depth, next_sweep
from refinement import providers, schedule
from refinement.llm.catalog import PROVIDERS
from refinement.models import RefinementSession, Waiting


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics. The request must have METRICS_TOKEN as its bearer token. If METRICS_TOKEN is not set, the status is
    404."""
    if not settings.METRICS_TOKEN:
        raise Http404
    if not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {settings.METRICS_TOKEN}"):
        return HttpResponse(status=401, headers={"WWW-Authenticate": 'Bearer realm="palimpsest metrics"'})
    registry = CollectorRegistry()
    registry.register(request_metrics.Requests())
    registry.register(_Stored())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Stored(Collector):
    """The figures from the database and the queue. The number of queries does not depend on the number of agents."""

    def collect(self) -> Iterator[Metric]:
        return chain(_sessions(), _due(), _backlog(), _queue())


def _sessions() -> Iterator[Metric]:
    counts = GaugeMetricFamily("palimpsest_sessions", "Sessions by outcome and reason", labels=["outcome", "reason"])
    sums: dict[str, Any] = {name: Sum(name) for name in _OF_MODELS}
    sums |= {"sessions": Count("pk"), "saved": Sum(F("lost_tokens") + F("repeated_tokens"))}
    rows: list[Any] = list(RefinementSession.objects.order_by().values("outcome", "reason").annotate(**sums))
    for row in rows:
        counts.add_metric([row["outcome"], row["reason"]], row["sessions"])
    yield counts
    yield CounterMetricFamily(
        "palimpsest_tokens_saved",
        "Core tokens saved by sessions, including exact duplicates; rollbacks do not reduce this number",
        value=sum(row["saved"] for row in rows),
    )
    for name, (metric, help) in _OF_MODELS.items():
        yield CounterMetricFamily(metric, help, value=sum(row[name] for row in rows))
    failed = sum(row["sessions"] for row in rows if row["reason"].startswith("model_"))
    yield GaugeMetricFamily("palimpsest_model_errors", "Sessions that ended with a model error", value=failed)


_OF_MODELS = {
    "model_calls": ("palimpsest_model_calls", "Calls to models, including failed ones"),
    "prompt_tokens": ("palimpsest_model_prompt_tokens", "Tokens that models read"),
    "cached_tokens": ("palimpsest_model_cached_tokens", "Tokens that models read from a provider's cache"),
    "completion_tokens": ("palimpsest_model_completion_tokens", "Tokens that models wrote"),
}


def _due() -> Iterator[Metric]:
    due = schedule.due().order_by().aggregate(agents=Count("pk"), first=Min("due_at"))
    late = (timezone.now() - due["first"]).total_seconds() if due["first"] else 0
    yield GaugeMetricFamily("palimpsest_due_agents", "Agents that are due for refinement", value=due["agents"])
    yield GaugeMetricFamily("palimpsest_due_seconds", "How long the longest waiting agent has been due", value=late)


def _backlog() -> Iterator[Metric]:
    """The figures of the backlog: waiting agents, agents that workers have taken, closed providers, and late sweeps."""
    rows = list(Waiting.objects.values_list("provider").annotate(Count("pk"), Count("taken_at")))
    taken = {provider: taken for provider, _, taken in rows}
    waiting = sum(count - taken for _, count, taken in rows)
    yield GaugeMetricFamily("palimpsest_waiting_agents", "Agents that wait for a worker", value=waiting)
    busy = GaugeMetricFamily("palimpsest_sessions_in_flight", "Agents that workers have taken", labels=["provider"])
    down = GaugeMetricFamily("palimpsest_provider_down", "Whether it or a model of it is closed", labels=["provider"])
    closed = {providers.of(name) for name in providers.closed()}
    for name in PROVIDERS:
        busy.add_metric([name], taken.get(name, 0))
        down.add_metric([name], name in closed)
    yield busy
    yield down
    expected = next_sweep()
    late = (timezone.now() - expected).total_seconds() if expected else 0
    yield GaugeMetricFamily("palimpsest_sweep_late_seconds", "How long the next sweep is overdue", value=max(0, late))


def _queue() -> Iterator[Metric]:
    try:
        tasks = depth()
    except QueueUnreachable:
        yield GaugeMetricFamily("palimpsest_queue_up", "Whether the queue can be reached", value=0)
        return
    yield GaugeMetricFamily("palimpsest_queue_up", "Whether the queue can be reached", value=1)
    yield GaugeMetricFamily("palimpsest_queue_depth", "Tasks that wait for a worker", value=tasks)
