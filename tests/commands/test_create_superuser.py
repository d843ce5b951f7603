"""`create_superuser` at a real terminal: a password twice, a QR code, a code; and nobody is made by half of it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from base64 import b32decode
from typing import Any

import pytest
from django_otp.oath import TOTP

from tests.commands.calling import ROOT, Installation

PASSWORD = "a good long passphrase"


class Terminal:
    """A person at a terminal, who reads until they see something and then types."""

    def __init__(self, service: Installation, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        self._fd, self.said = ours, ""
        command = [sys.executable, "manage.py", "create_superuser", *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=service.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def sees(self, text: str, seconds: float = 40) -> None:
        until = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < until, self.said
            if select.select([self._fd], [], [], 0.5)[0]:
                try:
                    self.said += os.read(self._fd, 65_536).decode("utf-8", "replace")
                except OSError:
                    assert text in self.said, self.said

    def types(self, text: str, after: str) -> None:
        self.sees(after)
        self.said = self.said.partition(after)[2]
        os.write(self._fd, text.encode() + b"\n")

    def ends(self) -> int:
        code = self.process.wait(40)
        os.close(self._fd)
        return code


def code(said: str) -> str:
    [secret] = re.findall(r"secret=([A-Z2-7]+)", said)
    return f"{TOTP(b32decode(secret)).token():06d}"


def people(service: Installation) -> list[Any]:
    told = service.manage(
        "shell", "-c", "from memory.models import *; print(list(Person.objects.values_list('email')))"
    )
    return re.findall(r"'([^']+)'", told.out)


@pytest.fixture
def terminal(service: Installation) -> Any:
    return lambda *arguments: Terminal(service, *arguments)


def test_a_superuser_is_made(terminal: Any, service: Installation) -> None:
    person = terminal("Root@Acme.test")
    person.types("short", "Password")
    person.types("short", "Once more:")
    person.sees("too short")
    person.types(PASSWORD, "Password")
    person.types("another thing", "Once more:")
    person.types(PASSWORD, "Password")
    person.types(PASSWORD, "Once more:")
    person.sees("The six digits it shows now:")
    assert "otpauth://totp/Palimpsest%3Aroot%40acme.test?secret=" in person.said
    assert "█" in person.said or "▀" in person.said, "a picture to scan"
    shown = code(person.said)
    person.types(shown, "The six digits it shows now:")
    person.sees("root@acme.test can sign in at /admin/ now.")
    assert person.ends() == 0
    assert people(service) == ["root@acme.test"]


def test_nobody_is_made_whose_code_is_wrong(terminal: Any, service: Installation) -> None:
    person = terminal("root@acme.test")
    person.types(PASSWORD, "Password")
    person.types(PASSWORD, "Once more:")
    for _ in range(3):
        person.types("000000", "The six digits it shows now:")
    person.sees("Nothing was changed.")
    assert person.ends() == 2
    assert people(service) == []


def test_without_a_terminal_it_says_so(service: Installation) -> None:
    ran = service.manage("create_superuser", "root@acme.test")
    assert (ran.code, ran.out) == (2, "")
    assert "needs a terminal" in ran.err


def test_djangos_own_command_names_it_and_makes_nobody(service: Installation) -> None:
    ran = service.manage("createsuperuser", "--noinput", "--email", "root@acme.test")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: use 'manage.py create_superuser EMAIL', which also sets up a second factor\n"
    assert people(service) == []
