"""Count the requests that the service answers, by method and route, for the metrics at /metrics.

The counts are in files in a folder that all processes of one gunicorn share (config/gunicorn.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from prometheus_client import CollectorRegistry, Counter, Histogram

registry = CollectorRegistry()
_answered = Counter("palimpsest_requests", "Requests answered", ["method", "route", "status"], registry=registry)
_took = Histogram("palimpsest_request_seconds", "How long requests took", ["method", "route"], registry=registry)

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

View = Callable[[HttpRequest], HttpResponseBase]


def counted(answer: View) -> View:
    """Middleware that counts requests."""

    def count(request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = answer(request)
        method, route = method_and_route(request)
        _took.labels(method, route).observe(time.perf_counter() - started)
        _answered.labels(method, route, response.status_code).inc()
        return response

    return count


def method_and_route(request: HttpRequest) -> tuple[str, str]:
    """A request's method, and the pattern of its URL. The path itself is not used, because it may contain anything."""
    match = getattr(request, "resolver_match", None)
    return (request.method or "") if request.method in _METHODS else "other", match.route if match else "none"
