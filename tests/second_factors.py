"""Second factors for tests."""

import secrets

from django_otp.oath import TOTP

from memory.accounts import people
from memory.models import Authenticator, Person


def enrol(person: Person) -> Authenticator:
    """Replace the person's second factor with a new one, none of whose codes is used."""
    factor = people.candidate(person, secrets.token_hex(16))
    people.install(factor, f"{TOTP(people._secret(factor)).token():06d}")
    factor.last_step = -1
    factor.save()
    return factor
