"""Pages outside the admin's theme: those that show content, and those that people come to without signing in.

Plain templates (templates/plain.html) under a Content-Security-Policy that lets nothing in but the service's own files,
never kept by a browser or on the way to it, and never quoted as the page somebody came from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from csp.constants import NONE, SELF
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from config.errors import DomainError

POLICY = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [SELF],
    "img-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
}
View = Callable[..., HttpResponse]


def plain(view: View) -> View:
    """A view whose every answer is such a page, refusals too: a domain error is told on one, without a traceback."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            answer = view(request, *args, **kwargs)
        except DomainError as refusal:
            answer = render(request, "refused.html", {"refusal": str(refusal)}, status=409)
        answer["Cache-Control"] = "no-store, private"
        answer._csp_replace = POLICY  # type: ignore[attr-defined]  # django-csp's own mark
        return answer

    return shown
