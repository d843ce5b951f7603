"""gunicorn's own settings: an address that cannot be had is told in one line, and a good one once it is bound.

What a broken request said is not logged, and `make serve` ends with its terminal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from gunicorn import glogging, sock  # type: ignore[import-untyped]


class _Logger(glogging.Logger):  # type: ignore[misc]
    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Without the request line or header that could not be read: gunicorn quotes it."""
        if msg.startswith("Invalid request"):
            msg, args = msg.partition(": ")[0], ()
        super().warning(msg, *args, **kwargs)


logger_class = _Logger


def on_starting(server: Any) -> None:
    """Try the addresses: gunicorn itself would try for seconds and then only say that it cannot."""
    if {"GUNICORN_PID", "LISTEN_PID"} & os.environ.keys():  # its sockets are handed down to it
        return
    for address in server.cfg.address:
        if isinstance(address, tuple):
            _try(address, server)


def when_ready(server: Any) -> None:
    if sys.stderr.isatty():  # the end of the terminal would otherwise be taken for "load the code anew"
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    for listener in server.LISTENERS:
        sys.stderr.write(f"Palimpsest answers at {listener}/readyz (stop with Ctrl-C).\n")
    sys.stderr.write(
        "A first agent and its key: "
        f"{os.path.relpath(sys.executable)} manage.py create_agent TENANT/AGENT --model PROVIDER/NAME\n"
    )


def _try(address: tuple[str, int], server: Any) -> None:
    kind = sock.TCP6Socket if ":" in address[0] else sock.TCPSocket
    try:
        kind(address, server.cfg, server.log).close()
    except (OSError, OverflowError) as failure:
        reason = getattr(failure, "strerror", None) or "no such port"
        sys.exit(f"error: the address {address[0]}:{address[1]} cannot be had ({reason})")
