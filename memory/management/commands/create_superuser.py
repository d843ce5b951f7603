"""Make the first of those who sign in to the admin, or give one of them a new password and second factor."""

from __future__ import annotations

import getpass
import io
import secrets
import sys
import textwrap
from typing import Any

import qrcode
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.db import transaction

from config.commandline import Task, is_attended
from config.errors import USAGE
from memory.accounts import people
from memory.errors import Invalid
from memory.models import Authenticator, Person

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

    def run(self, *, email: str, name: str, **options: Any) -> None:
        there = Person.objects.filter(email=email.strip().casefold()).first()
        if not is_attended():
            self.fail("A password and a code are asked for: this needs a terminal.", USAGE)
        person = self._superuser(there, email, name)
        password = self._password(person)
        told = secrets.token_hex(16)
        code = self._code(people.candidate(person, told))
        with transaction.atomic():  # in which nobody is asked anything: on SQLite all others wait for its end
            if there is None:
                person = Person.objects.create_superuser(email, name=name)
            people.set_password(person, password)
            people.install(people.candidate(person, told), code)
        self.say(f"{person.email} can sign in at /admin/ now.")

    @staticmethod
    def _superuser(there: Person | None, email: str, name: str) -> Person:
        """Who is meant; somebody new is not kept yet."""
        if there is None:
            new = Person(email=email.strip().casefold(), name=name, is_superuser=True)
            try:
                new.clean_fields(exclude=["password"])
            except ValidationError as wrong:
                raise Invalid("email", "; ".join(wrong.messages)) from None
            return new
        if not there.is_superuser:
            raise Invalid("email", "is that of somebody who is no superuser: their tenant's owner sets up people")
        return there

    def _password(self, person: Person) -> str:
        while True:
            first = getpass.getpass("Password (12 characters or more): ", sys.stderr)
            if first != getpass.getpass("Once more: ", sys.stderr):
                self.say("These were not the same.")
                continue
            try:
                validate_password(first, person)
            except ValidationError as weak:
                self.say(" ".join(weak.messages))
            else:
                return first

    def _code(self, factor: Authenticator) -> str:
        address = people.otpauth_url(factor)
        drawn = qrcode.QRCode(border=2)
        drawn.add_data(address)
        picture = io.StringIO()
        drawn.print_ascii(out=picture, invert=True)
        for line in picture.getvalue().splitlines():
            self.say(line.replace("\u00a0", " "))  # which is no printable character
        self.say("Scan this with an authenticator app, or enter this key there by hand:")
        self.say(" ".join(textwrap.wrap(people.secret_text(factor), 4)))
        self.say(f"The same as an address: {address}")
        for _ in range(TRIES):
            code = getpass.getpass("The six digits it shows now: ", sys.stderr)
            if people.is_present_code(factor, code):
                return code
            self.say("code: is not the authenticator's present one")
        return self.fail("Nothing was changed.", USAGE)
