"""Second factors without anybody who holds a telephone."""

from __future__ import annotations

import secrets

from memory.accounts import people
from memory.models import Authenticator, Person


def enrol(person: Person) -> Authenticator:
    """A new second factor in the place of the one there was, which counts once it is confirmed."""
    return people._kept(people.candidate(person, secrets.token_hex(16)))
