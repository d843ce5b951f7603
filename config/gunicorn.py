"""gunicorn's own settings: an address that cannot be had is told in one line, and a good one once it is bound.

What a broken request said is not logged, and it ends with its terminal. Its processes count requests into files of one
folder, which is emptied once the address is had: one that is taken is another server's, whose files they are.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from gunicorn import glogging, sock  # type: ignore[import-untyped]

from config import environment

_FILES = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus-client when a worker first imports it
_ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault(_FILES, str(Path(environment.text("VAR_DIR", str(_ROOT / "var"))) / "metrics"))


class _Logger(glogging.Logger):  # type: ignore[misc]
    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Without the request line or header that could not be read: gunicorn quotes it."""
        if msg.startswith("Invalid request"):
            msg, args = msg.partition(": ")[0], ()
        super().warning(msg, *args, **kwargs)


logger_class = _Logger

# One thread each, for connections that are kept alive: they cost nothing while they wait, and who asks of a worker is
# answered in turn. Several threads would wait for SQLite's one place to write, which is not had in turn: one write of a
# hundred took forty times as long as most. `--threads` and WEB_CONCURRENCY are the operator's.
worker_class = "config.connections.Worker"
threads = 1
keepalive = 30  # seconds
worker_connections = max(10, min(1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100))  # the rest is for files


def on_starting(server: Any) -> None:
    """Try the addresses: gunicorn itself would try for seconds and then only say that it cannot."""
    if not {"GUNICORN_PID", "LISTEN_PID"} & os.environ.keys():  # else its sockets are handed down to it
        for address in server.cfg.address:
            if isinstance(address, tuple):
                _try(address, server)
    if "GUNICORN_PID" not in os.environ:  # by which a server that is taking over knows the one before it
        _empty(Path(os.environ[_FILES]))


def post_worker_init(_: Any) -> None:
    """What was loaded stays: to look through it for garbage stopped a process for a tenth of a second at times."""
    gc.collect()
    gc.freeze()


def child_exit(_: Any, worker: Any) -> None:
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def when_ready(server: Any) -> None:
    if sys.stderr.isatty():  # the end of the terminal would otherwise be taken for "load the code anew"
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    behind = " (to a proxy that ends TLS)" if environment.switch("SECURE_SSL_REDIRECT", default=False) else ""
    for listener in server.LISTENERS:
        sys.stderr.write(
            f"Palimpsest answers{behind} at {listener}/readyz (stop with Ctrl-C); its admin at {listener}/admin/\n"
        )
    manage = f"{os.path.relpath(sys.executable)} manage.py"
    sys.stderr.write(f"A first agent and its key: {manage} create_agent TENANT/AGENT --model PROVIDER/NAME\n")
    sys.stderr.write(f"A first person who signs in to the admin: {manage} create_superuser EMAIL\n")


def _empty(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in folder.glob("*.db"):
            file.unlink(missing_ok=True)
    except OSError as failure:
        sys.exit(f"error: the folder {folder} cannot be used ({failure.strerror}): see VAR_DIR")


def _try(address: tuple[str, int], server: Any) -> None:
    kind = sock.TCP6Socket if ":" in address[0] else sock.TCPSocket
    try:
        kind(address, server.cfg, server.log).close()
    except (OSError, OverflowError) as failure:
        reason = getattr(failure, "strerror", None) or "no such port"
        sys.exit(f"error: the address {address[0]}:{address[1]} cannot be had ({reason})")
