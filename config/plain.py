"""Pages outside the admin's theme: those that show content, those that people come to without signing in, and those
that stand where there is no page.

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
from django.template.loader import render_to_string

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


def _in_place_of(status: int) -> View:
    """An answer where there is no page. It is the same whatever the reason, so that nobody learns what exists."""

    @plain
    def answer(*_: Any, **__: Any) -> HttpResponse:
        # Without the request, which may be what is wrong; and what is to be told on the next page is not told here.
        return HttpResponse(render_to_string(f"{status}.html"), status=status)

    return answer


bad_request, forbidden, missing = _in_place_of(400), _in_place_of(403), _in_place_of(404)
