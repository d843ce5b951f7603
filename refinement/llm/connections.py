"""Connections to model servers and webhooks. There is one client for each process and address of a model server.

Reads and writes end at the call's deadline. A client follows no redirects, because the new address would get the key.
All tenants share a client, so it keeps no cookies. A client ignores proxy variables and .netrc. It uses SSL_CERT_FILE.
"""

import atexit
import os
import ssl
import threading
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpcore
import httpx

IDLE_SECONDS = 30.0
WRITE_BYTES = 64 * 1024

_current_call = threading.local()


def set_deadline(deadline: float) -> None:
    """Set the time after which all reads and writes of this thread fail. `deadline` is a time of `time.monotonic`."""
    _current_call.deadline = deadline


def seconds_left(timeout: float | None, error: type[httpcore.TimeoutException]) -> float:
    """The seconds that one operation may take: its own timeout, or the remaining time of the call if that is less."""
    left: float = _current_call.deadline - time.monotonic()
    if left <= 0:
        raise error
    return left if timeout is None else min(timeout, left)


class _DeadlineStream(httpcore.NetworkStream):
    """A connection with a deadline. The timeouts of httpx begin again at each byte, so they do not stop a slow
    server."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, seconds_left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            self._stream.write(buffer[start : start + WRITE_BYTES], seconds_left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = seconds_left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, seconds))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Network(httpcore.SyncBackend):
    """Opens connections with a deadline."""

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore.NetworkStream:
        kwargs["timeout"] = seconds_left(kwargs.get("timeout"), httpcore.ConnectTimeout)
        return _DeadlineStream(super().connect_tcp(*args, **kwargs))


# The key has the process id, because a forked process must not share its parent's connections.
_clients: dict[tuple[int, str], httpx.Client] = {}


def client_for(base_url: str) -> httpx.Client:
    """This process's client for an address. The client keeps no credentials. Each request brings its own."""
    key = (os.getpid(), base_url)
    return _clients.get(key) or _clients.setdefault(key, new_client(base_url, Network()))


def new_client(base_url: str, network: Network) -> httpx.Client:
    """A client without proxies, cookies and redirects. Call `set_deadline` before each request, in the same thread."""
    # Certificate authorities are slow to load, so they are loaded only for HTTPS.
    is_secure = base_url.startswith("https:")
    context = httpx.create_ssl_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    transport = httpx.HTTPTransport(verify=context, trust_env=False)
    transport._pool = httpcore.ConnectionPool(
        ssl_context=context, max_connections=100, keepalive_expiry=IDLE_SECONDS, network_backend=network
    )
    return httpx.Client(
        transport=transport,
        trust_env=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=())),
        headers={"User-Agent": "palimpsest", "Accept": "application/json", "Accept-Encoding": "identity"},
    )


def close_clients() -> None:
    """Close this process's connections to model servers. The next call opens new ones."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()


atexit.register(close_clients)
