"""Calls of the API's own views, within a request that is authenticated and counted already. So a tool has the same
checks, errors and results as the path that it stands for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

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
    """The API's refusal. `data` is the body of its response, without content of memories."""

    def __init__(self, code: int, data: Any) -> None:
        super().__init__(code)
        self.status, self.data = code, data


@dataclass(frozen=True, slots=True)
class Api:
    """Calls the API as the agent of `outer`, the view that has checked the agent's key."""

    outer: AgentView

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body, headers=headers)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the data of the response, or its text. Raises Refused."""
        request = self._request(method, path, body, query or {}, headers or {})
        match = resolve(request.path_info)
        view: Any = match.func.view_class(**match.func.view_initkwargs)  # type: ignore[attr-defined]
        view.setup(request, **match.kwargs)
        view.request = view.initialize_request(request, **match.kwargs)
        view.key, view.agent, view.actor = self.outer.key, self.outer.agent, self.outer.actor
        view.turns, view.headers, view.format_kwarg = self.outer.turns, {}, None
        try:
            response = getattr(view, method.lower())(view.request, **match.kwargs)
        except Exception as error:  # as APIView.dispatch: the API's handler knows them
            response = view.handle_exception(error)
        return _data(response)

    def _request(self, method: str, path: str, body: Any, query: Any, headers: Any) -> WSGIRequest:
        content = b"" if body is None else json.dumps(body).encode()
        environ = self.outer.request.META
        named = {f"HTTP_{name.upper()}": value for name, value in headers.items() if value}
        return WSGIRequest(
            {name: environ[name] for name in _KEPT if name in environ}
            | {"REQUEST_METHOD": method, "PATH_INFO": f"{ROOT}{path}", "QUERY_STRING": urlencode(query, doseq=True)}
            | {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(content)), "wsgi.input": BytesIO(content)}
            | named
        )


def _data(response: HttpResponse) -> Any:
    data = response.data if isinstance(response, Response) else response.content.decode()
    if not status.is_success(response.status_code):
        raise Refused(response.status_code, data)
    return data
