"""Calling the service's commands as a shell does: arguments as text in; exit code, output and errors out."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import get_commands, load_command_class
from django.db import connections

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = {"audit", "config", "memory", "refinement"}
NAMES = sorted(name for name, app in get_commands().items() if app in APPS)
_UNWANTED = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY")


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The result: one line of JSON, and nothing else on standard output."""
        [line] = self.out.splitlines()
        return json.loads(line)


def run(name: str, *args: str, stdin: bytes = b"") -> Ran:
    """Run a command in this process by the road `manage.py` takes: argument parser, system checks, exit code."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin))
    # A command closes its connections when it ends; the test's transaction lives on one of them.
    stays_open = mock.patch.object(connections, "close_all")
    with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "stdin", given), stays_open:
        code = _exit_code(name, args)
    return Ran(code, out.getvalue(), err.getvalue())


def _exit_code(name: str, args: tuple[str, ...]) -> int:
    try:
        load_command_class(get_commands()[name], name).run_from_argv(["manage.py", name, *args])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def failed(ran: Ran, code: int, *words: str) -> str:
    """The command failed with this code, printed no result, and told in one line what is wrong. That line."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert "Traceback" not in ran.err
    lines = ran.err.splitlines()
    assert lines, "nothing was said"
    for word in words:
        assert word in ran.err
    return lines[-1]


def _until_closed(terminal: Any) -> Iterator[bytes]:
    with suppress(OSError):  # how the other end's going away looks
        while read := terminal.read(4096):
            yield read


@dataclass(frozen=True)
class Installation:
    """A service of its own under a folder: keys, database, environment. Its commands run in processes of their own."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
        return inherited | {"VAR_DIR": str(self.folder), "KEYS_DIR": str(self.folder / "keys")}

    def manage(self, name: str, *args: str, stdin: bytes = b"", **more: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-W", "error", "manage.py", name, *args],
            cwd=ROOT,
            env=self.environment | more,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def typed(self, name: str, *args: str, answer: str, **more: str) -> Ran:
        """A command at a terminal, where a question is answered. Output and errors both come there."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "manage.py", name, *args],
                cwd=ROOT,
                env=self.environment | more | {"TERM": "dumb"},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
            os.close(theirs)
            terminal.write(answer.encode() + b"\n")
            shown = b"".join(_until_closed(terminal))
        return Ran(process.wait(60), shown.decode(), "")

    def shell(self, line: str) -> Ran:
        """A line of shell in which $manage is `manage.py`: for redirections."""
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=ROOT,
            env=self.environment | {"manage": f"{sys.executable} -W error manage.py"},
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
