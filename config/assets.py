"""Serves static files. The first request reads the list of files."""

from functools import cache

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]


def asset(request: HttpRequest, **_: str) -> HttpResponseBase:
    """Serve a static file. This is a view, not a middleware, so that other requests do not pass through it."""
    response: HttpResponseBase = _files()(request)
    return response


@cache
def _files() -> WhiteNoiseMiddleware:
    return WhiteNoiseMiddleware(_not_found)


def _not_found(_: HttpRequest) -> HttpResponseBase:
    raise Http404
