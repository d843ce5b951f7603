"""Who signs in: passwords and second factors. A change of either ends what the person asked for and was granted."""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import b32encode
from functools import reduce
from operator import or_
from urllib.parse import quote, urlencode

from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from django_otp.oath import TOTP

from audit.consent import LAPSES
from audit.models import AccessRequest, AccessState
from config.keyring import keyring
from memory.consent import grants
from memory.errors import Invalid, NotAllowed
from memory.models import Authenticator, Person

SEED_BYTES, SECRET_BYTES = 16, 20
DIGITS = 6
STEP, TOLERANCE = 30, 1  # seconds that a code is good for; codes before and after that are taken too
ISSUER = "Palimpsest"


def set_password(person: Person, password: str) -> None:
    """Raises ValidationError for one that is easily guessed. Sessions of the person end, and grants."""
    validate_password(password, person)
    with transaction.atomic():
        person.set_password(password)
        person.save(update_fields=["password"])
        grants.withdraw_all(person.pk, "password")


def deactivate(person: Person, by: Person) -> None:
    """Keep somebody out: their sessions, requests and grants end at once. Raises NotAllowed."""
    with transaction.atomic():
        _require_manager(by)
        if person.pk == by.pk:
            raise NotAllowed("Nobody deactivates themselves: another superuser does.")
        Person.objects.filter(pk=person.pk).update(is_active=False, generation=F("generation") + 1)
        grants.withdraw_all(person.pk, "deactivated")


def reactivate(person: Person, by: Person) -> None:
    """Let somebody sign in again. What was ended stays ended. Raises NotAllowed."""
    with transaction.atomic():
        _require_manager(by)
        Person.objects.filter(pk=person.pk).update(is_active=True, generation=F("generation") + 1)


def _require_manager(by: Person) -> None:
    """As it is now, and until this is done: of two who deactivate each other at once, the second may not any more."""
    managers = Person.objects.select_for_update().filter(is_superuser=True).order_by("pk")
    if not any(each.pk == by.pk and each.is_active for each in managers):
        raise NotAllowed("Superusers alone do that.")


def would_end(*of: Q) -> str:
    """What a change of either factor ends, or leaving a tenant, in numbers: `of` says whose requests, any of these."""
    asked = AccessRequest.objects.filter(reduce(or_, of))
    now = timezone.now()
    active = asked.filter(state=AccessState.ACTIVE, until__gt=now).count()
    requests = asked.filter(state=AccessState.REQUESTED, asked_at__gt=now - LAPSES).count()
    return f"Grants in force that will end: {active}. Open requests that will end: {requests}."


def candidate(person: Person, told: str) -> Authenticator:
    """A second factor that is kept nowhere yet: the same one whenever it is made of the same words."""
    pepper = keyring().pepper[0]
    seed = hmac.digest(pepper.secret, b"palimpsest/candidate/" + told.encode(), "sha256")[:SEED_BYTES]
    given = {"user": person, "name": "authenticator", "confirmed": False, "seed": seed, "pepper_id": pepper.id}
    made: Authenticator = Authenticator(**given)
    return made


def install(factor: Authenticator, code: str) -> None:
    """Put a candidate in the place of the second factor there was, if this is its present code. Raises Invalid."""
    with transaction.atomic():
        Authenticator.objects.filter(user=factor.user).delete()
        grants.withdraw_all(factor.user.pk, "second factor")
        factor.proof = _proof(factor, _pepper(factor))
        factor.save()
        if not is_right(factor, code):
            raise Invalid("code", "is not the authenticator's present one")
        factor.confirmed = True
        factor.save(update_fields=["confirmed"])


def is_verified(person: Person, code: str) -> Authenticator | None:
    """The person's second factor, when this is its present code and not too many were wrong just before."""
    with transaction.atomic():
        factor = Authenticator.objects.select_for_update().filter(user=person, confirmed=True).first()
        return factor if factor is not None and _is_proven(factor) and is_right(factor, code) else None


def is_right(factor: Authenticator, code: str) -> bool:
    """Whether this is the present code, for the first time. Each that is wrong makes the next wait longer."""
    if not factor.verify_is_allowed()[0]:
        return False
    step = _step(factor, code)
    if step is not None:
        factor.last_step = step
        factor.throttle_reset(commit=False)
        factor.save()
        return True
    factor.throttle_increment()
    return False


def shows(factor: Authenticator, code: str) -> bool:
    """Whether this is its present code. Uses up nothing: for one that does not count yet."""
    return _step(factor, code) is not None


def _step(factor: Authenticator, code: str) -> int | None:
    totp = TOTP(_secret(factor), STEP)
    totp.time = time.time()
    digits = code.replace(" ", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) == DIGITS
    return totp.t() if is_number and totp.verify(int(digits), TOLERANCE, factor.last_step + 1) else None


def address(factor: Authenticator) -> str:
    """What an authenticator app reads, as text or from a QR code: shown once, to the person alone."""
    options = {"secret": written(factor), "issuer": ISSUER, "period": STEP, "digits": DIGITS, "algorithm": "SHA1"}
    return f"otpauth://totp/{quote(f'{ISSUER}:{factor.user.email}')}?{urlencode(options)}"


def written(factor: Authenticator) -> str:
    """Its secret, to be typed into an app by hand."""
    return b32encode(_secret(factor)).decode()


def _secret(factor: Authenticator) -> bytes:
    """20 bytes made of the row and its pepper; of a pepper that is gone, some that nobody knows.

    Of the person's address, which there is before the person: another one has no codes until it is enrolled anew, and
    ends the sessions there are (`Person`).
    """
    told = b"palimpsest/authenticator/" + factor.user.email.encode() + b"/" + bytes(factor.seed)
    return hmac.digest(_pepper(factor), told, "sha256")[:SECRET_BYTES]


def _pepper(factor: Authenticator) -> bytes:
    return next((key.secret for key in keyring().pepper if key.id == factor.pepper_id), secrets.token_bytes(32))


def _is_proven(factor: Authenticator) -> bool:
    """Whether it was given to this very person, and not moved by SQL from another who had the same address."""
    return hmac.compare_digest(bytes(factor.proof), _proof(factor, _pepper(factor)))


def _proof(factor: Authenticator, pepper: bytes) -> bytes:
    told = f"palimpsest/authenticator-of/{factor.user.pk}/{factor.user.email}/{bytes(factor.seed).hex()}"
    return hmac.digest(pepper, told.encode(), "sha256")
