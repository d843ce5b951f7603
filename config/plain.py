"""Pages outside the admin's theme: pages with content, pages without sign-in, and error pages.

They use templates/plain.html. Their Content-Security-Policy allows only the service's own files. Neither browsers nor
proxies cache them.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from config.errors import DomainError

View = Callable[..., HttpResponse]


def plain(view: View) -> View:
    """Add the headers of these pages to each response of a view. A domain error is shown on an error page."""

    @wraps(view)
    def plain_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            answer = view(request, *args, **kwargs)
        except DomainError as refusal:
            answer = render(request, "refused.html", {"refusal": str(refusal)}, status=409)
        answer["Cache-Control"] = "no-store, private"
        answer._csp_replace = settings.STRICT_POLICY  # type: ignore[attr-defined]  # django-csp's own mark
        return answer

    return plain_view


def _error_page(status: int) -> View:
    """The view of an error page. The page is the same for every reason, so that it does not reveal what exists."""

    @plain
    def answer(*_: Any, **__: Any) -> HttpResponse:
        # The request is not used, because it may be invalid. So messages wait for the next page.
        return HttpResponse(render_to_string(f"{status}.html"), status=status)

    return answer


forbidden, missing = _error_page(403), _error_page(404)


@plain
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001  Django's signature
    """The page for a request that Django refuses. It says more only if the host name in the address is the reason."""
    context = {"is_unknown_host": isinstance(exception, DisallowedHost)}
    return HttpResponse(render_to_string("400.html", context), status=400)


def failed(request: HttpRequest) -> HttpResponse:
    """The page after an unexpected exception: status 503 if the database cannot be used, and 500 otherwise."""
    return _error_page(503 if isinstance(sys.exc_info()[1], OperationalError | InterfaceError) else 500)(request)
