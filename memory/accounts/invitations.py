"""Invitations: links by which somebody takes a part in a tenant, once, within 72 hours.

A link is proven by a MAC over everything the row says, so that a row put in or altered by SQL is worth nothing; it
counts while whoever made it may still invite. Opening one does nothing. A person is made with password, second factor
and part in one transaction, or not at all.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from memory.access import roles
from memory.access.authentication import is_proven, macs, new_prefix
from memory.accounts import memberships, people
from memory.errors import AlreadyExists, Invalid, InvalidLink, NotAllowed
from memory.mail import letters
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant

VALID = timedelta(hours=72)
LONGEST_ADDRESS = 254
_SECRET = 32  # bytes
_MOST = 200  # characters that are looked at of a token


@dataclass(frozen=True, slots=True)
class Opened:
    """What an invitation is to, and who has its address already."""

    tenant: Tenant
    role: str
    address: str
    person: Person | None

    @property
    def is_enrolled(self) -> bool:
        """Whether they sign in already: the part is theirs once they are signed in, and nothing else is asked."""
        return self.person is not None and _has_factor(self.person)


def invite(tenant: Tenant, address: str, role: str, by: Person) -> str:
    """A new invitation token for this address. It replaces earlier ones, and is not stored. Raises Invalid, NotFound,
    AlreadyExists."""
    to = _checked(address)
    if role not in Role.values:
        raise Invalid("role", f"must be one of: {', '.join(Role.values)}")
    with transaction.atomic():
        row = memberships.require_tenant(tenant.pk, by)
        if role not in roles.grantable(by, row):
            raise NotAllowed("Nobody gives more than they hold.")
        if Membership.objects.filter(tenant=row, person__email=to).exists():
            raise AlreadyExists("Who has this address has a part in the tenant: change their role instead.")
        Invitation.objects.filter(tenant=row, address=to, used_at=None).delete()
        prefix, secret = new_prefix(), secrets.token_urlsafe(_SECRET)
        made = Invitation(tenant=row, address=to, role=role, invited_by=by, prefix=prefix, made_at=timezone.now())
        made.mac = macs(_text(made, secret))[0]
        made.save()
    return f"{prefix}_{secret}"


def is_open(tenant: Tenant, address: str) -> bool:
    """Whether a link to this address is out, which another invitation to the same tenant would end."""
    rows = Invitation.objects.filter(tenant=tenant, address=written(address), used_at=None)
    return rows.filter(made_at__gt=timezone.now() - VALID).exists()


def withdraw(invitation: Invitation, by: Person) -> None:
    """End a link before it is used. One that was used is left as it is. Raises NotFound."""
    with transaction.atomic():
        memberships.require_tenant(invitation.tenant_id, by)
        Invitation.objects.filter(pk=invitation.pk, used_at=None).delete()


def look(token: str) -> Opened:
    """What a link is to. Changes nothing. Raises InvalidLink."""
    return _opened(_proven(token))


def candidate(token: str, nonce: str) -> Authenticator:
    """The second factor that `join` will make: of the token and of what the page was opened with, so that whoever
    opened the link before, or handed it on, has another. Raises InvalidLink."""
    opened = look(token)
    return people.candidate(opened.person or Person(email=opened.address), f"joining/{token}/{nonce}")


def accept(token: str, person: Person) -> Opened:
    """Give the part to who is signed in, and has the address. Raises InvalidLink, NotAllowed, AlreadyExists."""
    with transaction.atomic():
        row = _proven(token, is_locked=True)
        opened = _opened(row)
        if opened.person is None or opened.person.pk != person.pk or not opened.is_enrolled:
            raise NotAllowed("This invitation is to somebody else.")
        _use(row, person)
        return opened


def join(token: str, nonce: str, *, name: str, password: str, code: str) -> Person:
    """Create the person, their second factor and their membership. Raises InvalidLink, Invalid, AlreadyExists, and
    ValidationError for a weak password."""
    try:
        with transaction.atomic():
            row = _proven(token, is_locked=True)
            opened = _opened(row)
            if opened.is_enrolled:
                raise NotAllowed("Sign in, and open the link again.")
            person = opened.person or Person.objects.create_user(opened.address, name=name)
            people.set_password(person, password)
            people.install(people.candidate(person, f"joining/{token}/{nonce}"), code)
            _use(row, person)
            return person
    except IntegrityError:  # by another invitation, at the same moment
        raise AlreadyExists("Somebody joined with this address just now. Open the link again.") from None


def _use(row: Invitation, person: Person) -> None:
    if Membership.objects.filter(tenant=row.tenant, person=person).exists():
        raise AlreadyExists("You have a part in this tenant already.")
    Membership.objects.create(tenant=row.tenant, person=person, role=row.role)
    Invitation.objects.filter(pk=row.pk).update(used_at=timezone.now())


def _opened(row: Invitation) -> Opened:
    """Raises InvalidLink where the address is somebody's whom no invitation may make another."""
    person = Person.objects.filter(email=row.address).first()
    if person is not None and not person.is_active:
        raise InvalidLink("Who has this address may not sign in: a superuser reactivates them first.")
    if person is not None and not _has_factor(person) and (person.is_superuser or person.memberships.exists()):
        raise InvalidLink("Who has this address has a part already, and no second factor: the operator helps them.")
    return Opened(row.tenant, row.role, row.address, person)


def _has_factor(person: Person) -> bool:
    return bool(Authenticator.objects.filter(user=person, confirmed=True).exists())


def _proven(token: str, *, is_locked: bool = False) -> Invitation:
    """The row a token proves, while it counts. Of a token that proves none, nothing is told. Raises InvalidLink."""
    prefix, _, secret = token[:_MOST].partition("_")
    rows = Invitation.objects.select_related("tenant", "invited_by")
    rows = rows.select_for_update(of=("self",)) if is_locked else rows
    row = rows.filter(prefix=prefix).first() if prefix.isalnum() and secret.isascii() else None
    expected = bytes(row.mac) if row else b"\0" * 32
    if not is_proven(expected, _text(row or _NONE, secret)) or row is None:
        raise InvalidLink("This link is not valid.")
    if row.used_at is not None:
        raise InvalidLink("This invitation was used.")
    if timezone.now() >= row.made_at + VALID:
        raise InvalidLink("This invitation is over: it was good for 72 hours. Ask for another.")
    if row.role not in roles.grantable(row.invited_by, row.tenant):
        raise InvalidLink("Who made this invitation may not invite any more. Ask for another.")
    return row


def written(address: str) -> str:
    """As it is kept, and mailed to: what was typed may be another mailbox (of "ß", "ss" is made)."""
    return address.strip().casefold()


def _checked(address: str) -> str:
    to = written(address)
    try:
        validate_email(to)
    except (ValidationError, UnicodeError):
        to = ""
    if len(to) > LONGEST_ADDRESS or not letters.is_plain(to):  # it stands, unquoted, in letters to stewards
        raise Invalid("address", letters.ADVICE)
    return to


_NONE = Invitation(made_at=datetime(2026, 1, 1, tzinfo=UTC))  # so that a wrong token takes as long


def _text(row: Invitation, secret: str) -> str:
    """All that a link is worth, for its MAC."""
    told = [row.prefix, secret, row.tenant_id, row.role, row.address, row.invited_by_id, row.made_at.isoformat()]
    return f"invitation/{json.dumps(told)}"
