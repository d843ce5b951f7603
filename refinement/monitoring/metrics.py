"""What Prometheus is told at /metrics: figures alone, and no name of a tenant or an agent in any label.

Requests are counted by the process that answers them, into files that all processes under one gunicorn share
(config/gunicorn.py). Everything else is asked of the database and the queue when it is read, so that it is right
whichever process answers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Min, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from config.logs import called
from config.queue import QueueUnreachable, depth, next_sweep
from refinement import providers, schedule
from refinement.llm.catalog import PROVIDERS
from refinement.models import RefinementSession, Waiting

FILES = "PROMETHEUS_MULTIPROC_DIR"  # the variable by which prometheus-client knows where processes share their counts

_own = CollectorRegistry()
_answered = Counter("palimpsest_requests", "Requests answered", ["method", "route", "status"], registry=_own)
_took = Histogram("palimpsest_request_seconds", "How long requests took", ["method", "route"], registry=_own)

View = Callable[[HttpRequest], HttpResponseBase]


def counted(answer: View) -> View:
    """Middleware that counts requests. A route is a pattern of ours, never a path as it was asked for."""

    def count(request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = answer(request)
        method, route = called(request)
        _took.labels(method, route).observe(time.perf_counter() - started)
        _answered.labels(method, route, response.status_code).inc()
        return response

    return count


@require_safe
def shown(request: HttpRequest) -> HttpResponse:
    """For whoever shows METRICS_TOKEN. Where none is set there is no such address."""
    if not settings.METRICS_TOKEN:
        raise Http404
    if not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {settings.METRICS_TOKEN}"):
        return HttpResponse(status=401, headers={"WWW-Authenticate": 'Bearer realm="palimpsest metrics"'})
    told = CollectorRegistry()
    told.register(_Shared() if os.environ.get(FILES) else _Own())
    told.register(_Kept())
    return HttpResponse(generate_latest(told), content_type=CONTENT_TYPE_LATEST)


class _Shared(Collector):
    """The requests of all processes under this gunicorn."""

    def collect(self) -> Iterable[Metric]:
        found: Iterable[Metric] = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
        return found


class _Own(Collector):
    """The requests of this process, where it is the only one."""

    def collect(self) -> Iterable[Metric]:
        return _own.collect()


class _Kept(Collector):
    """What the database and the queue tell, in as many queries however much there is."""

    def describe(self) -> Iterable[Metric]:
        return []  # or registering would collect

    def collect(self) -> Iterator[Metric]:
        yield from _sessions()
        yield from _due()
        yield from _line()
        yield from _queue()


def _sessions() -> Iterator[Metric]:
    counts = GaugeMetricFamily(
        "palimpsest_sessions",
        "Refinement sessions by outcome and, as a code, its reason",
        labels=["outcome", "reason"],
    )
    rows: list[Any] = list(
        RefinementSession.objects.order_by()
        .values("outcome", "reason")
        .annotate(
            sessions=Count("pk"),
            saved=Sum(F("lost_tokens") + F("repeated_tokens")),
            **{name: Sum(name) for name in _OF_MODELS},
        )
    )
    for row in rows:
        counts.add_metric([row["outcome"], row["reason"]], row["sessions"])
    yield counts
    yield CounterMetricFamily(
        "palimpsest_tokens_saved",
        "Of core memory, by sessions and the exact duplicates they removed; rollbacks take nothing off it",
        value=sum(row["saved"] for row in rows),
    )
    for name, (metric, told) in _OF_MODELS.items():
        yield CounterMetricFamily(metric, told, value=sum(row[name] for row in rows))
    failed = sum(row["sessions"] for row in rows if row["reason"].startswith("model_"))
    yield GaugeMetricFamily("palimpsest_model_errors", "Sessions that ended for their model's fault", value=failed)


_OF_MODELS = {
    "model_calls": ("palimpsest_model_calls", "Calls to models, failed ones too"),
    "prompt_tokens": ("palimpsest_model_prompt_tokens", "Tokens that models read"),
    "cached_tokens": ("palimpsest_model_cached_tokens", "Of those, out of a provider's cache"),
    "completion_tokens": ("palimpsest_model_completion_tokens", "Tokens that models wrote"),
}


def _due() -> Iterator[Metric]:
    due = schedule.due().order_by().aggregate(agents=Count("pk"), first=Min("due_at"))
    late = (timezone.now() - due["first"]).total_seconds() if due["first"] else 0
    yield GaugeMetricFamily("palimpsest_due_agents", "Agents that are due for refinement", value=due["agents"])
    yield GaugeMetricFamily("palimpsest_due_seconds", "How long the longest overdue has been due", value=late)


def _line() -> Iterator[Metric]:
    """Who stands in line for a worker, who is at it, and the providers that are left alone."""
    counted = Waiting.objects.values_list("provider").annotate(Count("pk"), Count("taken_at"))
    taken = {provider: taken for provider, _, taken in counted}
    waiting = sum(all_of_them for _, all_of_them, _ in counted) - sum(taken.values())
    yield GaugeMetricFamily("palimpsest_waiting_agents", "Agents that wait for a worker", value=waiting)
    busy = GaugeMetricFamily("palimpsest_sessions_in_flight", "Agents that workers have taken", labels=["provider"])
    down = GaugeMetricFamily(
        "palimpsest_provider_down", "Whether a provider, or a model of it, is left alone", labels=["provider"]
    )
    shut = {providers.of(name) for name in providers.shut()}
    for name in PROVIDERS:
        busy.add_metric([name], taken.get(name, 0))
        down.add_metric([name], name in shut)
    yield busy
    yield down
    expected = next_sweep()
    late = (timezone.now() - expected).total_seconds() if expected else 0
    yield GaugeMetricFamily(
        "palimpsest_sweep_late_seconds", "For how long a worker should have looked who is due", value=max(0, late)
    )


def _queue() -> Iterator[Metric]:
    try:
        tasks = depth()
    except QueueUnreachable:
        yield GaugeMetricFamily("palimpsest_queue_up", "Whether the queue can be reached", value=0)
        return
    yield GaugeMetricFamily("palimpsest_queue_up", "Whether the queue can be reached", value=1)
    yield GaugeMetricFamily("palimpsest_queue_depth", "Tasks that wait for a worker", value=tasks)
