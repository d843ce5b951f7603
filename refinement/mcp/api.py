"""Calls of the API's own views, in a request that is already authenticated and counted. So a tool has the same checks,
errors and results as the path of the API."""

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse
from django.urls import resolve
from django.utils.http import urlencode
from rest_framework import status
from rest_framework.response import Response

from memory.api.base.views import AgentView

ROOT = "/api/v1/"
_KEPT = ("REMOTE_ADDR", "SERVER_NAME", "SERVER_PORT", "wsgi.url_scheme", "wsgi.errors", "gunicorn.socket")


class Refused(Exception):
    """The API refused. `data` is the body of its response, without content of memories. Or it is a text for the model,
    from a tool that returns texts."""

    def __init__(self, code: int, data: Any) -> None:
        super().__init__(code)
        self.status, self.data = code, data

    @property
    def reason(self) -> str:
        """What the first error says."""
        return str(self.data["errors"][0]["detail"])


def invalid(attr: str, detail: str) -> Refused:
    """A refusal in the form of the API's own errors."""
    error = {"code": "invalid", "detail": detail, "attr": attr}
    return Refused(status.HTTP_422_UNPROCESSABLE_ENTITY, {"type": "validation_error", "errors": [error]})


class Api(NamedTuple):
    """Calls the API for the agent of `outer`, the view that has checked the agent's key."""

    outer: AgentView

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self.call("GET", path, query=query)

    def call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, once: str = ""
    ) -> Any:
        """Return the data of the response, or its text. `once` is an Idempotency-Key. Raises Refused."""
        request = self._request(method, path, body, query or {}, once)
        match = resolve(request.path_info)
        view: Any = match.func.view_class(**match.func.view_initkwargs)  # type: ignore[attr-defined]
        view.setup(request, **match.kwargs)
        view.request = view.initialize_request(request, **match.kwargs)
        view.key, view.agent, view.actor = self.outer.key, self.outer.agent, self.outer.actor
        view.turns, view.headers, view.format_kwarg = self.outer.turns, {}, None
        try:
            response = getattr(view, method.lower())(view.request, **match.kwargs)
        except Exception as error:  # noqa: BLE001  as in APIView.dispatch
            response = view.handle_exception(error)
        self.outer.shows_later |= view.shows_later or method == "GET"
        return _data(response)

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function that is no path of the API, with the same errors. It shows memories. Raises Refused."""
        self.outer.shows_later = True
        try:
            return function()
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001  as in APIView.dispatch
            return _data(AgentView.handle_exception(self.outer, error))

    def _request(self, method: str, path: str, body: Any, query: Mapping[str, Any], once: str) -> WSGIRequest:
        content = b"" if body is None else json.dumps(body).encode()
        outer = self.outer.request.META
        environ = {name: outer[name] for name in _KEPT if name in outer}
        environ |= {"REQUEST_METHOD": method, "PATH_INFO": f"{ROOT}{path}", "QUERY_STRING": urlencode(query)}
        environ |= {"CONTENT_LENGTH": str(len(content)), "wsgi.input": BytesIO(content)}
        environ |= {"CONTENT_TYPE": "application/json", "HTTP_IDEMPOTENCY_KEY": once}
        return WSGIRequest(environ)


def _data(response: HttpResponse) -> Any:
    data = response.data if isinstance(response, Response) else response.content.decode()
    if not status.is_success(response.status_code):
        raise Refused(response.status_code, data)
    return data
