"""Invitations. With an invitation's link, a person joins a tenant. The link works once, within 72 hours.

Each row has a MAC of all its values and of the link's secret. So a row that somebody inserts or alters with SQL is not
valid. A link is valid only while its creator may invite people. Opening a link changes nothing. When a new person
joins, one transaction creates the person, the password, the second factor and the membership.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from config.deadlines import TOLERANCE
from config.keyring import is_proven, macs
from memory.access.authentication import new_prefix
from memory.access.roles import (
    Action,
    live_fingerprints,
    lock,
    locked_for,
    may,
    require_same_session,
    set_live,
    whole_roles,
)
from memory.accounts import memberships, people
from memory.errors import AlreadyExists, Invalid, InvalidLink, NotAllowed
from memory.mail import letters
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant

VALID = timedelta(hours=72)
MAX_ADDRESS = 254  # characters
_SECRET = 32  # bytes
_MAX_TOKEN = 200  # characters


@dataclass(frozen=True, slots=True)
class Opened:
    """An invitation's tenant, role and address, and the person who has this address, if any."""

    tenant: Tenant
    role: str
    address: str
    person: Person | None


def invite(tenant: Tenant, address: str, role: str, by: Person) -> str:
    """Create an invitation, and return its token, which is not stored. Earlier tokens for the address become invalid.

    Raises Invalid, NotFound, NotAllowed, AlreadyExists.
    """
    email = _checked(address)
    if role not in Role.values:
        raise Invalid("role", f"must be one of: {', '.join(Role.values)}")
    with locked_for(Action.STAFF, tenant.pk, by) as row:
        if Membership.objects.filter(tenant=row, person__email=email).exists():
            raise AlreadyExists("A member of the tenant has this address. Change their role instead.")
        Invitation.objects.filter(tenant=row, address=email, used_at=None).delete()
        prefix, secret, now = new_prefix(), secrets.token_urlsafe(_SECRET), timezone.now()
        invitation = Invitation(tenant=row, address=email, role=role, invited_by=by, prefix=prefix, made_at=now)
        invitation.mac = macs(_text(invitation, secret))[0]
        invitation.save()
        set_live(row.pk, prefix, address=email)
    return f"{prefix}_{secret}"


def is_open(tenant: Tenant, address: str) -> bool:
    """Whether this address has an open invitation. A new invitation would replace this open one."""
    rows = Invitation.objects.filter(tenant=tenant, address=normalized(address), used_at=None)
    return any(map(is_in_time, rows))


def is_in_time(invitation: Invitation) -> bool:
    """Whether the invitation has not expired. An invitation from the future was made while the clock was ahead."""
    return -TOLERANCE <= timezone.now() - invitation.made_at < VALID


def withdraw(invitation: Invitation, by: Person) -> None:
    """Delete an invitation, unless it was used. Raises NotFound."""
    with locked_for(Action.STAFF, invitation.tenant_id, by) as tenant:
        rows = Invitation.objects.filter(pk=invitation.pk, tenant=tenant, used_at=None)
        if rows.delete()[0] or f"{invitation.prefix}-" in tenant.live_prefixes:
            set_live(tenant.pk, ended=invitation.prefix)
        else:
            whole_roles(tenant)  # SQL may only seem to have ended it


def look(token: str) -> Opened:
    """The invitation of a token. Changes nothing. Raises InvalidLink."""
    return _opened(_proven(token))


def candidate(token: str, nonce: str) -> Authenticator:
    """The second factor that `join` will install. It is derived from the token and the nonce. Raises InvalidLink.

    Each page has a new nonce. So a person who opened the link earlier got a different second factor.
    """
    opened = look(token)
    return people.candidate(opened.person or Person(email=opened.address), f"joining/{token}/{nonce}")


def accept(token: str, person: Person) -> Opened:
    """Add the membership for the signed-in person. The invitation must be for the address of this person.

    Raises InvalidLink, NotAllowed, AlreadyExists.
    """
    with transaction.atomic():
        row = _proven(token, person, is_locked=True)
        opened = _opened(row)
        if opened.person is None or opened.person.pk != person.pk:
            raise NotAllowed("This invitation is for somebody else.")
        require_same_session(person)
        _use(row, person)
        return opened


def join(token: str, nonce: str, *, name: str, password: str, code: str) -> Person:
    """Create the person, with password, second factor and membership.

    Raises InvalidLink, NotAllowed, Invalid, AlreadyExists. For a weak password, it raises ValidationError.
    """
    if not people.is_present_code(candidate(token, nonce), code):
        raise Invalid("code", "is not the current code of the authenticator app")
    validate_password(password, Person(email=look(token).address, name=name))
    hashed = make_password(password)  # it takes long, so no lock is held, and the code is right
    try:
        with transaction.atomic():
            row = _proven(token, is_locked=True)
            opened = _opened(row)
            if opened.person is not None:
                raise NotAllowed("Sign in, then open the link again.")
            person = Person.objects.create_user(opened.address, name=name)
            person.password = hashed
            person.save(update_fields=["password"])
            people.install(people.candidate(person, f"joining/{token}/{nonce}"), code)
            _use(row, person)
            return person
    except IntegrityError:  # another invitation created the person at the same moment
        raise AlreadyExists("Somebody has just joined with this address. Open the link again.") from None


def _use(row: Invitation, person: Person) -> None:
    if Membership.objects.filter(tenant=row.tenant, person=person).exists():
        raise AlreadyExists("You are already a member of this tenant.")
    memberships.set_role(row.tenant_id, person.pk, row.role)
    Invitation.objects.filter(pk=row.pk).update(used_at=timezone.now())
    set_live(row.tenant_id, ended=row.prefix)


def _opened(row: Invitation) -> Opened:
    """The invitation, and the person who has its address, if any. Raises InvalidLink if this person cannot join."""
    person = Person.objects.filter(email=row.address).first()
    if person is not None and not person.is_proven():
        raise InvalidLink("The person with this address was changed outside the service. Ask a superuser for help.")
    if person is not None and not person.is_active:
        raise InvalidLink("The person with this address is deactivated. A superuser must reactivate them first.")
    if person is not None and not Authenticator.objects.filter(user=person, confirmed=True).exists():
        raise InvalidLink("The person with this address has no second factor. Ask the operator for help.")
    return Opened(row.tenant, row.role, row.address, person)


def _proven(token: str, person: Person | None = None, *, is_locked: bool = False) -> Invitation:
    """The valid invitation of a token. If it is locked, what makes it valid is locked, too. Raises InvalidLink. The
    message gives a reason only if the MAC is right."""
    prefix, _, secret = token[:_MAX_TOKEN].partition("_")
    rows = Invitation.objects.select_related("tenant", "invited_by")
    is_possible = prefix.isalnum() and secret.isascii()
    if is_locked and is_possible and (found := rows.filter(prefix=prefix).first()):  # first the tenant, as in `invite`
        lock(found.tenant_id, found.invited_by_id, *([person.pk] if person else []))
        rows = rows.select_for_update(of=("self",)).filter(tenant=found.tenant_id, invited_by=found.invited_by_id)
    row = rows.filter(prefix=prefix).first() if is_possible else None
    if not is_proven(row.mac if row else None, _text(row or _NONE, secret)) or row is None:
        raise InvalidLink("This link is not valid.")
    if row.used_at is not None:
        raise InvalidLink("This invitation was already used.")
    if not is_in_time(row):
        raise InvalidLink("This invitation has expired. Ask for a new one.")
    if not may(row.invited_by, Action.STAFF, row.tenant):
        raise InvalidLink("The person who sent this invitation may no longer invite people. Ask for a new invitation.")
    if row.fingerprint not in live_fingerprints(row.tenant):  # put back with SQL
        raise InvalidLink("This link is not valid.")
    return row


def normalized(address: str) -> str:
    """The form of the address that is stored and used for mail. It can differ from the typed form: "ß" becomes "ss"."""
    return address.strip().casefold()


def _checked(address: str) -> str:
    email = normalized(address)
    try:
        validate_email(email)
    except (ValidationError, UnicodeError):
        email = ""
    # Mail to stewards shows the address without quotes.
    if len(email) > MAX_ADDRESS or not letters.is_plain(email):
        raise Invalid("address", letters.ADVICE)
    return email


_NONE = Invitation(made_at=datetime(2026, 1, 1, tzinfo=UTC))  # so that a check takes equal time for an unknown token


def _text(row: Invitation, secret: str) -> str:
    """The text for the MAC. It contains all values of the row and the secret."""
    values = [row.prefix, secret, row.tenant_id, row.role, row.address, row.invited_by_id, row.made_at.isoformat()]
    return f"invitation/{json.dumps(values)}"
