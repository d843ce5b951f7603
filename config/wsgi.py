"""The web process. It refuses to start if keys are missing or the trail's triggers are missing, and says why."""

import os
import sys
from collections.abc import Callable
from typing import IO, Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.db import DatabaseError
from django.http import HttpResponse, HttpResponseBase
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]

from config.database import FULL, advice

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

_GIVES_UP = 3  # with this exit code gunicorn stops; with others it starts another process
_ENDLESS = str(2**53)  # more than the length of any body: gunicorn ends it after the last chunk
_API = ("/api/", "/v1/", "/mcp")  # a browser sends a form with its length. Small chunks of a form take CPU time


class _Chunks:
    """The body of a request in chunks. An invalid chunk raises OSError, and so does a body that ends too early."""

    def __init__(self, body: IO[bytes]) -> None:
        self._body = body

    def read(self, size: int) -> bytes:
        return self._received(self._body.read, size)

    def readline(self, size: int) -> bytes:
        return self._received(self._body.readline, size)

    def _received(self, receive: Callable[[int], bytes], size: int) -> bytes:
        try:
            return receive(size)
        except ParseException:
            raise OSError("A chunk is invalid.") from None


class Handler(WSGIHandler):
    """Django's handler with two fixes. The handler reads a body that is sent to the API in chunks. Django ignores such
    a body, because the body has no length. The handler also removes the body from the response to a HEAD request."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> HttpResponseBase:
        is_chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower()
        if is_chunked and environ.get("wsgi.input_terminated") and environ["PATH_INFO"].startswith(_API):
            environ["CONTENT_LENGTH"] = _ENDLESS
            environ["wsgi.input"] = _Chunks(environ["wsgi.input"])
        response = super().__call__(environ, start_response)
        if environ["REQUEST_METHOD"] == "HEAD" and isinstance(response, HttpResponse):
            response.content = b""  # gunicorn warns of a body; the header with its length is already set
        return response


class _Waiting(Handler):
    """The handler of a process that started on a full disk. Until its checks pass, it serves only health checks."""

    is_sound = False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> HttpResponseBase:
        self.is_sound = self.is_sound or not _problem()
        if self.is_sound or environ["PATH_INFO"] in ("/healthz", "/readyz"):
            return super().__call__(environ, start_response)
        text = f"The service waits: {FULL}\n".encode()
        start_response("503 Service Unavailable", [("Content-Length", str(len(text))), ("Retry-After", "4")])
        return HttpResponse(text)


def _problem() -> str:
    """Why the service does not start. Empty if the start checks pass."""
    try:
        django.setup()
        from config.checks import require_sound  # needs the apps that the line above loads

        require_sound()
    except ImproperlyConfigured as wrong:
        return str(wrong)
    except DatabaseError as error:
        return advice(error)
    return ""


found = _problem()
if found not in ("", FULL):  # on a full disk, start: what needs no disk works
    sys.stderr.write(f"Palimpsest does not start: {found}\n")
    sys.exit(_GIVES_UP)
application = _Waiting() if found else Handler()
