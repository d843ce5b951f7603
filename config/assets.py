"""The files of the API's page, out of the packages that bring them: read once, by whoever is first asked for one."""

from __future__ import annotations

from functools import cache

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]


def asset(request: HttpRequest, **_: str) -> HttpResponseBase:
    """A view and no middleware, so that requests for anything else do not pass through it."""
    response: HttpResponseBase = _files()(request)
    return response


@cache
def _files() -> WhiteNoiseMiddleware:
    return WhiteNoiseMiddleware(_none)


def _none(_: HttpRequest) -> HttpResponseBase:
    raise Http404
