"""Settings of gunicorn. Invalid variables stop it, with a message that names the variable.

Logs never quote an invalid request. The web processes count requests in memory that they share.
"""

import gc
import resource
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from gunicorn import glogging, util  # type: ignore[import-untyped]

from config import environment, request_metrics, typed

SILENT_SECONDS = 20  # a client that sends nothing, or takes nothing, for this long is disconnected


class _Logger(glogging.Logger):  # type: ignore[misc]
    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Log a warning. If its text quotes an invalid request line or header, leave out the quoted text."""
        if msg.startswith("Invalid request"):
            msg, args = msg.partition(": ")[0], ()
        super().warning(msg, *args, **kwargs)


logger_class = _Logger
worker_class = "gthread"
try:
    workers = environment.whole("WEB_WORKERS", 2)
    threads = environment.whole("WEB_THREADS", 32)  # a slow client occupies one
    graceful_timeout = environment.whole("STOP_SECONDS", 30)
except ImproperlyConfigured as wrong:
    sys.exit(f"Palimpsest does not start: {wrong}")
control_socket_disable = True
keepalive = 30  # seconds
# Connections of one process. 200 of its open files are left for databases, memory files and logs.
worker_connections = max(10, min(1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200))


def _close(connection: socket.socket, *_: Any) -> None:
    """Close a connection. Gunicorn's own function waits two seconds for the client, and blocks all connections."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.setblocking(False)
        for _drained in range(16):  # without unread data, the client gets the whole response
            if not connection.recv(65_536):
                break
    connection.close()


util.close_graceful = _close


def post_worker_init(_: Any) -> None:
    """Exclude loaded modules from garbage collection. With them, garbage collection stops a process for up to 0.1 s."""
    gc.collect()
    gc.freeze()


def pre_fork(server: Any, worker: Any) -> None:
    """Give the new process a part of the memory with the counts of requests."""
    taken = {other.part for other in server.WORKERS.values()}
    worker.part = min(set(range(request_metrics.PARTS)) - taken)


def post_fork(_: Any, worker: Any) -> None:
    request_metrics.use_part(worker.part)


def when_ready(server: Any) -> None:
    behind = " (to a proxy that ends TLS)" if environment.switch("SECURE_SSL_REDIRECT", default=False) else ""
    for listener in server.LISTENERS:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # Linux passes them on to each connection
            listener.sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", SILENT_SECONDS, 0))
        sys.stderr.write(f"Palimpsest answers{behind} at {listener}/readyz (stop: Ctrl-C). Admin: {listener}/admin/\n")
    sys.stderr.write(f"To create an agent and its key: {typed()} create_agent TENANT/AGENT --model PROVIDER/NAME\n")
    sys.stderr.write(f"To create a person for the admin: {typed()} create_superuser EMAIL\n")
