"""Count the requests that the service answers, by method and route, for the metrics at /metrics.

The counts are in memory that all processes of one gunicorn share (config/gunicorn.py). They need no file, so a full
disk cannot stop a process. Each process writes only to its own part of this memory.
"""

import struct
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from mmap import mmap
from operator import add

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_BUCKETS = Histogram.DEFAULT_BUCKETS
_RECORD = struct.Struct(f"200s{len(_BUCKETS) + 1}d")  # labels, requests in each bucket, sum of seconds
_PART = 2_000 * _RECORD.size
PARTS = 128  # at most so many processes
_shared = mmap(-1, PARTS * _PART)  # Linux allocates only what is used

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

View = Callable[[HttpRequest], HttpResponseBase]


def _records(part: int) -> Iterator[tuple[int, str, list[float]]]:
    """The records of a part: the place, the labels and the counts of each."""
    for place in range(part * _PART, (part + 1) * _PART, _RECORD.size):
        labels, *counts = _RECORD.unpack_from(_shared, place)
        if not labels[0]:
            return
        yield place, labels.rstrip(b"\0").decode(), counts


_lock = threading.Lock()
_part, _places = 0, dict[str, int]()  # of this process: the place of each record, by its labels


def use_part(part: int) -> None:
    """Count the requests of this process in this part, which no other running process uses. If an earlier process had
    the part, its counts continue."""
    global _part, _places
    _part, _places = part, {labels: place for place, labels, _ in _records(part)}


class Requests(Collector):
    """The requests to all processes."""

    def collect(self) -> Iterator[Metric]:
        labels = ["method", "route", "status"]
        answered = CounterMetricFamily("palimpsest_requests", "Requests answered", labels=labels)
        took = HistogramMetricFamily("palimpsest_request_seconds", "How long requests took", labels=labels[:2])
        by_status: defaultdict[tuple[str, ...], float] = defaultdict(float)
        by_route: defaultdict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0] * (len(_BUCKETS) + 1))
        for _, text, counts in (record for part in range(PARTS) for record in _records(part)):
            values = tuple(text.split("\n"))
            by_status[values] += sum(counts[:-1])
            by_route[values[:2]] = list(map(add, by_route[values[:2]], counts))
        for values, requests in by_status.items():
            answered.add_metric(values, requests)
        for values, counts in by_route.items():
            buckets = list(zip(map(floatToGoString, _BUCKETS), accumulate(counts), strict=False))
            took.add_metric(values, buckets, counts[-1])
        yield answered
        yield took


def counted(answer: View) -> View:
    """Middleware that counts requests."""

    def count(request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = answer(request)
        seconds = time.perf_counter() - started
        labels = "\n".join((*method_and_route(request), str(response.status_code)))
        with _lock:
            place = _places.setdefault(labels, _part * _PART + len(_places) * _RECORD.size)
            if place < (_part + 1) * _PART:
                _, *counts = _RECORD.unpack_from(_shared, place)
                counts[bisect_left(_BUCKETS, seconds)] += 1
                counts[-1] += seconds
                _RECORD.pack_into(_shared, place, labels.encode(), *counts)
        return response

    return count


def method_and_route(request: HttpRequest) -> tuple[str, str]:
    """A request's method, and the pattern of its URL. The path itself is not used, because it may contain anything."""
    match = getattr(request, "resolver_match", None)
    return (request.method or "") if request.method in _METHODS else "other", match.route if match else "none"
