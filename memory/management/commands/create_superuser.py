"""Create a superuser, or reset the password and the second factor of an existing superuser."""

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
from config.errors import FAILED, USAGE
from memory.accounts import people
from memory.errors import Invalid
from memory.models import Authenticator, Person

TRIES = 3  # attempts to type the code


class Command(Task):
    help = (
        "Create a superuser, who manages tenants and people but cannot read memories. For an existing superuser, set a "
        "new password and second factor. This ends their sign-in sessions, access requests and grants. The command "
        "asks for the password, shows a QR code for an authenticator app, and asks for a code from the app."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL", help="the address to sign in with")
        parser.add_argument("--name", default="", help="the name that others see")

    def run(self, *, email: str, name: str, **options: Any) -> None:
        email = email.strip().casefold()
        existing = Person.objects.filter(email=email).first()
        if existing is not None and existing.email != email:  # with another collation, SQL finds another address
            self.fail("The database finds a person with another address. Run 'verify_audit'.", FAILED)
        if not is_attended():
            self.fail("This command asks for a password and a code, so it needs a terminal.", USAGE)
        person = self._superuser(existing, email, name)
        password = self._password(person)
        nonce = secrets.token_hex(16)
        code = self._code(people.candidate(person, nonce))
        with transaction.atomic():  # ask nothing here: on SQLite, all other writers wait for this transaction
            if existing is None:
                person = Person.objects.create_user(email, name=name, is_superuser=True)
            person.sign()  # also a person whose row was changed by SQL
            people.set_password(person, password)
            people.install(people.candidate(person, nonce), code)
        self.say(f"{person.email} can sign in at /admin/ now.")

    @staticmethod
    def _superuser(existing: Person | None, email: str, name: str) -> Person:
        """Return the existing superuser. If there is none, return a new superuser that is not saved yet. Raises
        Invalid."""
        if existing is None:
            new = Person(email=email.strip().casefold(), name=name, is_superuser=True)
            try:
                new.clean_fields(exclude=["password"])
            except ValidationError as wrong:
                raise Invalid("email", "; ".join(wrong.messages)) from None
            return new
        if not existing.is_superuser:
            raise Invalid("email", "belongs to a person who is not a superuser; an owner of their tenant manages them")
        return existing

    def _password(self, person: Person) -> str:
        while True:
            first = getpass.getpass("Password (12 characters or more): ", sys.stderr)
            if first != getpass.getpass("Once more: ", sys.stderr):
                self.say("The passwords are different.")
                continue
            try:
                validate_password(first, person)
                return first
            except ValidationError as weak:
                self.say(" ".join(weak.messages))

    def _code(self, factor: Authenticator) -> str:
        address = people.otpauth_url(factor)
        drawn = qrcode.QRCode(border=2)
        drawn.add_data(address)
        picture = io.StringIO()
        drawn.print_ascii(out=picture, invert=True)
        for line in picture.getvalue().splitlines():
            self.say(line.replace("\u00a0", " "))  # a no-break space is not printable
        self.say("Scan this with an authenticator app, or type this key into it:")
        self.say(" ".join(textwrap.wrap(people.secret_text(factor), 4)))
        self.say(f"The same as a URL: {address}")
        for _ in range(TRIES):
            code = getpass.getpass("The six digits it shows now: ", sys.stderr)
            if people.is_present_code(factor, code):
                return code
            self.say("This is not the app's current code.")
        return self.fail("Nothing was changed.", USAGE)
