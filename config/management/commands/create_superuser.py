"""Make the first of those who sign in to the admin, or give one of them a new password and second factor."""

from __future__ import annotations

import getpass
import io
import sys
import textwrap
from typing import Any

import qrcode
from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.db import transaction

from config.commandline import USAGE, Task, is_attended
from memory import people
from memory.errors import Invalid
from memory.models import Person

TRIES = 3  # codes that may be mistyped


class Command(Task):
    help = (
        "Make a superuser, who manages tenants and people and reads no memory; of one who is there, set a new password "
        "and second factor, which ends what they asked for and were granted. Asks for the password, shows a QR code "
        "for an authenticator app, and asks for a code of it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL", help="the address they sign in with")
        parser.add_argument("--name", default="", help="as others see them")

    def run(self, *, email: str, name: str, **options: Any) -> int | None:
        there = Person.objects.filter(email=email.strip().casefold()).first()
        if not is_attended():
            self.fail("A password and a code are asked for: this needs a terminal.", USAGE)
        with transaction.atomic():  # nobody is made whose second factor does not work
            person = self._superuser(there, email, name)
            self._set_password(person)
            self._enrol(person)
        self.say(f"{person.email} can sign in at /admin/ now.")
        return None

    @staticmethod
    def _superuser(there: Person | None, email: str, name: str) -> Person:
        if there is None:
            try:
                return Person.objects.create_superuser(email, name=name)
            except ValidationError as wrong:
                raise Invalid("email", "; ".join(wrong.messages)) from None
        if not there.is_superuser:
            raise Invalid("email", "is that of somebody who is no superuser: their tenant's owner sets up people")
        return there

    def _set_password(self, person: Person) -> None:
        while True:
            first = getpass.getpass("Password (12 characters or more): ", sys.stderr)
            if first != getpass.getpass("Once more: ", sys.stderr):
                self.say("These were not the same.")
                continue
            try:
                people.set_password(person, first)
            except ValidationError as weak:
                self.say(" ".join(weak.messages))
            else:
                return

    def _enrol(self, person: Person) -> None:
        factor = people.enrol(person)
        address = people.address(factor)
        drawn = qrcode.QRCode(border=2)
        drawn.add_data(address)
        picture = io.StringIO()
        drawn.print_ascii(out=picture, invert=True)
        for line in picture.getvalue().splitlines():
            self.say(line.replace("\u00a0", " "))  # which is no printable character
        self.say("Scan this with an authenticator app, or enter this key there by hand:")
        self.say(" ".join(textwrap.wrap(people.written(factor), 4)))
        self.say(f"The same as an address: {address}")
        for _ in range(TRIES):
            code = getpass.getpass("The six digits it shows now: ", sys.stderr)
            try:
                people.confirm(factor, code)
            except Invalid as wrong:
                self.say(str(wrong))
            else:
                return
        self.fail("Nothing was changed.", USAGE)
