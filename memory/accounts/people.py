"""Passwords and second factors. When a password or second factor changes, the person's requests and grants end."""

import hmac
import secrets
import time
from base64 import b32encode
from copy import copy
from functools import reduce
from operator import or_
from urllib.parse import quote, urlencode

from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django.db.models import Q
from django_otp.oath import TOTP

from audit.consent import open_and_active
from audit.models import AccessRequest
from config.keyring import keyring
from memory.access import authority
from memory.access.roles import manages, require_same_session
from memory.accounts import memberships
from memory.consent import withdrawals
from memory.errors import Invalid, NotAllowed
from memory.models import Authenticator, Person

SEED_BYTES, SECRET_BYTES = 16, 20
DIGITS = 6
MOST_WRONG = 10  # codes after which the wait no longer doubles: 512 seconds, so that nobody keeps the person out
STEP, TOLERANCE = 30, 1  # seconds per code; how many codes before and after the present one are accepted
ISSUER = "Palimpsest"


def set_password(person: Person, password: str) -> None:
    """Set a password, and end the person's sessions and grants. Raises ValidationError for a weak password."""
    validate_password(password, person)
    before = copy(person)
    person.set_password(password)  # it takes long, so no lock is held
    withdrawals.check_ahead(person.pk)
    with transaction.atomic():
        require_same_session(before)
        person.save(update_fields=["password"])
        withdrawals.withdraw_all(person.pk, "password")
        authority.require_nothing_added()


@transaction.atomic
def set_digest(person: Person, digest: str) -> None:
    """Choose when the person gets a mail about agents that need attention. Raises NotAllowed."""
    require_same_session(person)
    Person.objects.filter(pk=person.pk).update(digest=digest)


def set_active(person: Person, by: Person, *, is_active: bool) -> None:
    """Deactivate a person, and end their sessions, requests and grants. Or let a person sign in again: their grants do
    not come back. Raises NotAllowed unless `by` is an active superuser, who cannot deactivate themselves.

    This locks the rows of the superusers, so that two superusers cannot deactivate each other. A person whose row was
    changed by SQL becomes no superuser."""
    if not is_active and person.pk == by.pk:
        raise NotAllowed("You cannot deactivate yourself. Ask another superuser.")
    if not is_active:
        withdrawals.check_ahead(person.pk)
    with transaction.atomic():
        _set_active(person, by, is_active=is_active)


def _set_active(person: Person, by: Person, *, is_active: bool) -> None:
    people = Person.objects.select_for_update().filter(Q(is_superuser=True) | Q(pk=person.pk)).order_by("pk")
    if not any(each.pk == by.pk and manages(each) for each in people):
        raise NotAllowed("Only superusers can do this.")
    require_same_session(by)
    row = Person.objects.select_for_update().get(pk=person.pk)
    row.is_superuser = row.is_superuser and row.is_proven()
    row.is_active, row.generation = is_active, row.generation + 1
    row.save(update_fields=["is_active", "is_superuser", "generation"])
    row.sign()
    if not is_active:
        withdrawals.withdraw_all(person.pk, "deactivated")
    authority.require_nothing_added()


def ending_summary(*filters: Q) -> str:
    """A text with the number of grants and requests that will end. It counts the grants and requests that match one of
    the filters."""
    opened, active = open_and_active(AccessRequest.objects.filter(reduce(or_, filters)))
    return f"Active grants that will end: {active}. Open requests that will end: {opened}."


def candidate(person: Person, text: str) -> Authenticator:
    """A second factor that is not stored yet, derived from `text`."""
    pepper = keyring().pepper[0]
    seed = hmac.digest(pepper.secret, b"palimpsest/candidate/" + text.encode(), "sha256")[:SEED_BYTES]
    values = {"user": person, "name": "authenticator", "confirmed": False, "seed": seed, "pepper_id": pepper.id}
    factor: Authenticator = Authenticator(**values)
    return factor


def install(factor: Authenticator, code: str) -> None:
    """Replace the person's second factor with a candidate, if the code is right. Raises Invalid.

    The newest pepper then signs the person and their memberships, so that an older pepper can be removed.
    """
    withdrawals.check_ahead(factor.user.pk)
    with transaction.atomic():
        memberships.lock_tenants(factor.user.pk)  # before the person, as everywhere
        require_same_session(factor.user)
        memberships.sign_again(factor.user.pk)
        factor.user.refresh_from_db(fields=["generation", "mac"])
        Authenticator.objects.filter(user=factor.user).delete()
        withdrawals.withdraw_all(factor.user.pk, "second factor")
        factor.proof = _proof(factor)
        factor.save()
        if not consume_code(factor, code):
            raise Invalid("code", "is not the current code of the authenticator app")
        factor.confirmed = True
        factor.save(update_fields=["confirmed"])
        authority.require_nothing_added()


def is_verified(person: Person, code: str) -> Authenticator | None:
    """The person's second factor if the code is right and the throttle allows it, else None."""
    with transaction.atomic():
        factor = Authenticator.objects.select_for_update().filter(user=person, confirmed=True).first()
        # The proof shows that the row was created for this person, and that nobody used SQL to move it.
        is_proven = factor is not None and hmac.compare_digest(bytes(factor.proof), _proof(factor))
        return factor if is_proven and consume_code(factor, code) else None


def consume_code(factor: Authenticator, code: str) -> bool:
    """Whether the code is right and was not used before. After a wrong code, the next attempt must wait longer."""
    factor.throttling_failure_count = min(factor.throttling_failure_count, MOST_WRONG)
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


def is_present_code(factor: Authenticator, code: str) -> bool:
    """Whether this is the current code. This function does not use up the code."""
    return _step(factor, code) is not None


def code_at(factor: Authenticator, when: float) -> str:
    """The code that the authenticator app shows at this time, in seconds since 1970."""
    totp = TOTP(_secret(factor), STEP)
    totp.time = when
    return f"{totp.token():0{DIGITS}}"


def _step(factor: Authenticator, code: str) -> int | None:
    totp = TOTP(_secret(factor), STEP)
    totp.time = time.time()
    digits = code.replace(" ", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) == DIGITS
    return totp.t() if is_number and totp.verify(int(digits), TOLERANCE, factor.last_step + 1) else None


def otpauth_url(factor: Authenticator) -> str:
    """The URL that an authenticator app reads from a QR code. It contains the secret."""
    options = {"secret": secret_text(factor), "issuer": ISSUER, "period": STEP, "digits": DIGITS, "algorithm": "SHA1"}
    return f"otpauth://totp/{quote(f'{ISSUER}:{factor.user.email}')}?{urlencode(options)}"


def secret_text(factor: Authenticator) -> str:
    """The secret as text, which a person can type into an app."""
    return b32encode(_secret(factor)).decode()


def _secret(factor: Authenticator) -> bytes:
    """20 bytes that are derived from the row and its pepper. If the keyring does not have this pepper, the bytes are
    random.

    The secret depends on the person's address, so a person with a new address needs a new second factor.
    """
    text = b"palimpsest/authenticator/" + factor.user.email.encode() + b"/" + bytes(factor.seed)
    return hmac.digest(_pepper(factor), text, "sha256")[:SECRET_BYTES]


def _pepper(factor: Authenticator) -> bytes:
    return next((key.secret for key in keyring().pepper if key.id == factor.pepper_id), secrets.token_bytes(32))


def _proof(factor: Authenticator) -> bytes:
    user = factor.user  # `joined_at`: SQL could give the number and address to another person
    text = f"palimpsest/authenticator-of/{user.pk}/{user.joined_at}/{user.email}/{bytes(factor.seed).hex()}"
    return hmac.digest(_pepper(factor), text.encode(), "sha256")
