"""Connections to model servers: bounded in time as a whole call is, and shared by nothing that must not share them.

Nothing here follows a redirect (the key would go along), keeps a cookie (one client serves every tenant), or reads
proxy variables or .netrc (a proxy meant for the web must not see calls to 127.0.0.1); SSL_CERT_FILE is honoured.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpcore
import httpx

IDLE_SECONDS = 30.0
WRITE_BYTES = 64 * 1024

# Their lines at INFO hold addresses, and at DEBUG a server's response headers.
for _chatty in ("httpx", "httpcore"):
    logging.getLogger(_chatty).setLevel(logging.WARNING)


# --- time -------------------------------------------------------------------------------------------------------

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Whatever is sent and read within ends at `deadline` (of `time.monotonic`)."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def _bounded(timeout: float | None, late: type[httpcore.TimeoutException]) -> float:
    """The seconds one socket operation may take: its own timeout, and never more than the call has left."""
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise late
    return left if timeout is None else min(timeout, left)


class _BoundedStream(httpcore.NetworkStream):
    """A connection whose every operation ends with the call: httpx's own timeouts start anew at each byte."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _bounded(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            piece = buffer[start : start + WRITE_BYTES]
            self._stream.write(piece, _bounded(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _bounded(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _BoundedNetwork(httpcore.SyncBackend):
    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *rest: Any, **more: Any
    ) -> _BoundedStream:
        left = _bounded(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(super().connect_tcp(host, port, left, *rest, **more))


# --- connections ------------------------------------------------------------------------------------------------


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _Transport(httpx.HTTPTransport):
    def __init__(self, base_url: str) -> None:
        # Reading the authorities takes a while. Without them a context trusts nobody.
        context = _trusted() if base_url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().__init__(verify=context, trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=100,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=_BoundedNetwork(),
        )


# By process as well: a worker forked from one that has open connections must not share them.
_clients: dict[tuple[int, str], httpx.Client] = {}


def client_for(base_url: str) -> httpx.Client:
    """The one client of this process for a base URL. Credentials go with each call, never with the client."""
    key = (os.getpid(), base_url)
    return _clients.get(key) or _clients.setdefault(key, _new_client(base_url))


def _new_client(base_url: str) -> httpx.Client:
    return httpx.Client(
        transport=_Transport(base_url),
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=())),
        headers={"User-Agent": "palimpsest", "Accept": "application/json", "Accept-Encoding": "identity"},
    )


def close_clients() -> None:
    """Close this process's connections to model servers; the next call opens new ones."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()


atexit.register(close_clients)
