"""Who signs in: passwords and second factors. A change of either ends what the person asked for and was granted."""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import b32encode
from urllib.parse import quote, urlencode

from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django_otp.oath import TOTP

from config.keyring import keyring
from memory import consent
from memory.errors import Invalid
from memory.models import Authenticator, Person

SEED_BYTES, SECRET_BYTES = 16, 20
STEP, TOLERANCE = 30, 1  # seconds that a code is good for; codes before and after that are taken too
ISSUER = "Palimpsest"


def set_password(person: Person, password: str) -> None:
    """Raises ValidationError for one that is easily guessed. Sessions of the person end, and grants."""
    validate_password(password, person)
    with transaction.atomic():
        person.set_password(password)
        person.save(update_fields=["password"])
        consent.withdraw_all(person.pk, "password")


def enrol(person: Person) -> Authenticator:
    """A new second factor, in place of the one there was. It counts once a code of it was given (`confirm`)."""
    with transaction.atomic():
        Authenticator.objects.filter(user=person).delete()
        consent.withdraw_all(person.pk, "second factor")
        made: Authenticator = Authenticator.objects.create(
            user=person,
            name="authenticator",
            confirmed=False,
            seed=secrets.token_bytes(SEED_BYTES),
            pepper_id=keyring().pepper[0].id,
        )
        return made


def confirm(authenticator: Authenticator, code: str) -> None:
    """From here on it is asked for. Raises Invalid for a code that is not its present one."""
    if not authenticator.verify_token(code):
        raise Invalid("code", "is not the authenticator's present one")
    authenticator.confirmed = True
    authenticator.save(update_fields=["confirmed"])


def is_verified(person: Person, code: str) -> Authenticator | None:
    """The person's second factor, when this is its present code and not too many were wrong just before."""
    with transaction.atomic():
        factor = Authenticator.objects.select_for_update().filter(user=person, confirmed=True).first()
        return factor if factor is not None and factor.verify_token(code) else None


def is_right(factor: Authenticator, code: str) -> bool:
    """Whether this is the present code, for the first time. Each that is wrong makes the next wait longer."""
    if not factor.verify_is_allowed()[0]:
        return False
    totp = TOTP(_secret(factor), STEP)
    totp.time = time.time()
    digits = code.replace(" ", "")
    if digits.isascii() and digits.isdigit() and totp.verify(int(digits), TOLERANCE, factor.last_step + 1):
        factor.last_step = totp.t()
        factor.throttle_reset(commit=False)
        factor.save()
        return True
    factor.throttle_increment()
    return False


def address(factor: Authenticator) -> str:
    """What an authenticator app reads, as text or from a QR code: shown once, to the person alone."""
    options = {"secret": _written(factor), "issuer": ISSUER, "period": STEP, "digits": 6, "algorithm": "SHA1"}
    return f"otpauth://totp/{quote(f'{ISSUER}:{factor.user.email}')}?{urlencode(options)}"


def _written(factor: Authenticator) -> str:
    return b32encode(_secret(factor)).decode()


def _secret(factor: Authenticator) -> bytes:
    """20 bytes made of the row and its pepper; of a pepper that is gone, some that nobody knows."""
    pepper = next((key.secret for key in keyring().pepper if key.id == factor.pepper_id), secrets.token_bytes(32))
    told = b"palimpsest/authenticator/%d/" % factor.user_id + bytes(factor.seed)
    return hmac.digest(pepper, told, "sha256")[:SECRET_BYTES]
