"""`create_superuser` at a real terminal: a password twice, a QR code and a code. A cancelled run creates nobody."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from base64 import b32decode
from collections.abc import Callable
from typing import Any

import pytest
from django_otp.oath import TOTP

from tests.commands.calling import MANAGE, ROOT, Installation, failed

PASSWORD = "a good long passphrase"
CODE = "The six digits it shows now:"


class Terminal:
    """Waits for a prompt, then types."""

    def __init__(self, service: Installation, *arguments: str) -> None:
        self._fd, end = pty.openpty()
        self.output = ""
        command = [*MANAGE, "create_superuser", *arguments]
        streams: Any = {"stdin": end, "stdout": end, "stderr": end}
        self.process = subprocess.Popen(command, cwd=ROOT, env=service.environment, start_new_session=True, **streams)
        os.close(end)

    def wait_for(self, text: str, seconds: float = 40) -> None:
        until = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < until, self.output
            if select.select([self._fd], [], [], 0.5)[0]:
                try:
                    self.output += os.read(self._fd, 65_536).decode("utf-8", "replace")
                except OSError:
                    assert text in self.output, self.output

    def answer(self, prompt: str, text: str) -> None:
        self.wait_for(prompt)
        self.output = self.output.partition(prompt)[2]
        os.write(self._fd, text.encode() + b"\n")

    def exit_code(self) -> int:
        code = self.process.wait(40)
        os.close(self._fd)
        return code


def emails(service: Installation) -> list[str]:
    script = "from memory.models import *; print(list(Person.objects.values_list('email')))"
    return re.findall(r"'([^']+)'", service.manage("shell", "-c", script).out)


@pytest.fixture
def terminal(service: Installation) -> Callable[..., Terminal]:
    return lambda *arguments: Terminal(service, *arguments)


def test_a_superuser_sets_a_password_and_a_second_factor(terminal: Any, service: Installation) -> None:
    person = terminal("Root@Acme.test")
    person.answer("Password", "short")
    person.answer("Once more:", "short")
    person.wait_for("too short")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", "another thing")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", PASSWORD)
    person.wait_for(CODE)
    assert "otpauth://totp/Palimpsest%3Aroot%40acme.test?secret=" in person.output
    assert "█" in person.output or "▀" in person.output, "there is a QR code"
    [secret] = re.findall(r"secret=([A-Z2-7]+)", person.output)
    person.answer(CODE, f"{TOTP(b32decode(secret)).token():06d}")
    person.wait_for("root@acme.test can sign in at /admin/ now.")
    assert (person.exit_code(), emails(service)) == (0, ["root@acme.test"])


def test_after_three_wrong_codes_nobody_is_created(terminal: Any, service: Installation) -> None:
    person = terminal("root@acme.test")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", PASSWORD)
    for _ in range(3):
        person.answer(CODE, "000000")
    person.wait_for("Nothing was changed.")
    assert (person.exit_code(), emails(service)) == (2, [])


def test_without_a_terminal_or_with_djangos_command_nobody_is_created(service: Installation) -> None:
    failed(service.manage("create_superuser", "root@acme.test"), 2, "needs a terminal")
    ran = service.manage("createsuperuser", "--noinput", "--email", "root@acme.test")
    error = failed(ran, 2)
    assert error == "error: use 'manage.py create_superuser EMAIL', which also sets up a second factor"
    assert emails(service) == []
