"""The web process. It refuses to start with silos it could not open or a trail left unguarded, and says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO, Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, HttpResponseBase
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

_GIVES_UP = 3  # the exit code after which gunicorn stops, too, instead of trying again for ever
_ENDLESS = str(2**53)  # more than any body has: it ends where the server says so


class _Chunks:
    """A body in chunks. What is wrong with them is an OSError, as with every other body that does not come whole."""

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
            raise OSError("The chunks are broken.") from None


class Handler(WSGIHandler):
    """Django's, which would take a body in chunks, its length untold, for none. An answer to HEAD has no body."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> HttpResponseBase:
        if environ.get("wsgi.input_terminated") and "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
            environ["CONTENT_LENGTH"] = _ENDLESS
            environ["wsgi.input"] = _Chunks(environ["wsgi.input"])
        response = super().__call__(environ, start_response)
        if environ["REQUEST_METHOD"] == "HEAD" and isinstance(response, HttpResponse):
            response.content = b""  # its length is told already; gunicorn warns of a body
        return response


def _sound_application() -> WSGIHandler:
    django.setup()
    from config.checks import RefusesToStart, require_sound  # needs the apps that the line above loads

    try:
        require_sound()
    except (
        RefusesToStart
    ) as refused:  # no other SystemExit: a worker that is slow to start is ended by one, and replaced
        sys.stderr.write(f"{refused}\n")
        sys.exit(_GIVES_UP)
    return Handler()


try:
    application = _sound_application()
except ImproperlyConfigured as wrong:
    sys.stderr.write(f"Palimpsest does not start: {wrong}\n")
    sys.exit(_GIVES_UP)
