"""Run the service's commands as a shell does: arguments as text in; exit code, output and errors out."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import get_commands, load_command_class
from django.db import connections

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = {"audit", "config", "memory", "refinement"}
NAMES = sorted(name for name, app in get_commands().items() if app in APPS)
_NOT_INHERITED = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY")
MANAGE = [sys.executable, "-W", "error", "manage.py"]


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The value of the only line on standard output."""
        [line] = self.out.splitlines()
        return json.loads(line)


def run(name: str, *args: str, stdin: bytes = b"") -> Ran:
    """Run a command in this process as `manage.py` does: argument parser, system checks, exit code."""
    out, err = io.StringIO(), io.StringIO()
    # A command closes its connections when it ends, but the test's transaction uses one of them.
    keep_connections = mock.patch.object(connections, "close_all")
    replace_stdin = mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    with redirect_stdout(out), redirect_stderr(err), replace_stdin, keep_connections:
        try:
            load_command_class(get_commands()[name], name).run_from_argv(["manage.py", name, *args])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def failed(ran: Ran, code: int, *words: str) -> str:
    """Assert that the command failed with this code, without a result or a traceback. Returns its last error line."""
    assert (ran.code, ran.out) == (code, ""), ran
    assert "Traceback" not in ran.err, ran.err
    assert ran.err, "there is no error message"
    for word in words:
        assert word in ran.err
    return ran.err.splitlines()[-1]


@dataclass(frozen=True)
class Installation:
    """A separate service in a folder: keys, database, environment. Each of its commands runs in its own process."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        return inherited | {"VAR_DIR": str(self.folder), "KEYS_DIR": str(self.folder / "keys")}

    def execute(self, *command: str, cwd: Path = ROOT, stdin: bytes = b"", **variables: str) -> Ran:
        variables = self.environment | variables
        done = subprocess.run(
            command, cwd=cwd, env=variables, input=stdin, capture_output=True, check=False, timeout=120
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def manage(self, name: str, *args: str, stdin: bytes = b"", **variables: str) -> Ran:
        return self.execute(*MANAGE, name, *args, stdin=stdin, **variables)

    def shell(self, line: str, **variables: str) -> Ran:
        """Run a line of shell in which $manage is `manage.py`, for redirections."""
        return self.execute("/bin/sh", "-c", line, manage=" ".join(MANAGE), **variables)
