"""People who sign in to the admin, with their second factors, memberships and invitations."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import check_password, make_password
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils.crypto import salted_hmac
from django_otp.models import Device, ThrottlingMixin

from config.keyring import is_proven, macs
from memory.models.agents import Fingerprinted
from memory.models.tenants import Tenant


class Digest(models.TextChoices):
    """How often a person gets a mail about agents that need attention."""

    OFF = "", "off"
    DAILY = "daily"
    WEEKLY = "weekly"


class People(BaseUserManager["Person"]):
    """Creates people and finds them by their address. Upper and lower case do not matter."""

    def get_by_natural_key(self, username: str | None) -> Person:
        return self.get(email=(username or "").strip().casefold())

    def create_user(self, email: str, password: str | None = None, **values: Any) -> Person:
        """Create a person. The person can sign in after a password and a second factor are set. Raises
        ValidationError."""
        person = self.model(email=email.strip().casefold(), **values)
        person.set_password(password)
        person.clean_fields()
        person.save(using=self._db)
        person.sign()
        return person


class Person(AbstractBaseUser):
    """A person who signs in to the admin. Superusers, and owners of the person's tenants, can see the person.

    Memberships decide what a person may do (`memory.access.roles`). A superuser cannot read more memories than other
    people. A person who appears in the trail is never deleted.
    """

    email = models.EmailField(max_length=254, unique=True, help_text="in lower case; used to sign in")
    name = models.CharField(max_length=200, blank=True)
    is_active = models.BooleanField(default=True)
    is_superuser = models.BooleanField(default=False, help_text="manages tenants and people; cannot read memories")
    joined_at = models.DateTimeField(auto_now_add=True)
    digest = models.CharField(max_length=6, blank=True, choices=Digest.choices, default="", db_default="")
    digest_at = models.DateTimeField(null=True, blank=True, help_text="when the last digest was due and made")
    generation = models.PositiveIntegerField(default=0, help_text="a change ends all sessions of the person")
    mac = models.BinaryField(max_length=32, null=True, help_text="a MAC that the service made")

    USERNAME_FIELD = "email"
    objects = People()

    class Meta:
        verbose_name_plural = "people"
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="person_email_lower_case")]

    def __str__(self) -> str:
        return self.email

    def check_password(self, raw_password: str | None) -> bool:
        """Whether this is the person's password. A hash of fewer rounds is replaced, unless the password has changed
        meanwhile: Django would bring the former one back."""

        def renew(password: str) -> None:
            before, self.password = self.password, make_password(password)
            Person.objects.filter(pk=self.pk, password=before).update(password=self.password)

        return check_password(raw_password, self.password, renew)

    def sign(self) -> None:
        """Store a MAC of the values that decide what the person may do."""
        self.mac = macs(self._signed_text())[0]
        self.save(update_fields=["mac"])

    def is_proven(self) -> bool:
        """Whether the service itself stored the present values. After a change by SQL, the answer is no."""
        return is_proven(self.mac, self._signed_text())

    def _signed_text(self) -> str:
        values = [self.pk, self.email, self.joined_at, self.is_active, self.is_superuser, self.generation]
        return f"person/{json.dumps(values, default=repr)}"

    # Every active person may open the admin. It shows only what the person's roles allow.
    is_staff = property(attrgetter("is_active"))

    def _get_session_auth_hash(self, secret: Any = None) -> str:
        """Return a MAC that each session stores. A new password, address or generation changes the MAC. This ends the
        person's sessions."""
        state = f"{self.password}/{self.generation}/{self.email}"
        return salted_hmac("palimpsest.session", state, secret=secret, algorithm="sha256").hexdigest()


class Authenticator(ThrottlingMixin, Device):  # type: ignore[misc]  # the library has no types
    """A person's second factor. Its secret is derived from the person's address, `seed` and the pepper
    (`memory.accounts.people`). So a database dump does not contain the secret. A row that was inserted with SQL is
    useless, because only the service can make a valid `proof`."""

    user = models.OneToOneField(Person, models.CASCADE, related_name="authenticator")
    seed = models.BinaryField(max_length=16)
    pepper_id = models.CharField(max_length=8)
    proof = models.BinaryField(max_length=32, help_text="a MAC that the service made")
    last_step = models.BigIntegerField(default=-1, help_text="the time step of the last code; it cannot be used again")
    made_at = models.DateTimeField(auto_now_add=True)

    def get_throttle_factor(self) -> int:
        """Return the seconds to wait after the first wrong code. Each further wrong code doubles the waiting time."""
        return 1


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    AUDITOR = "auditor"


class Membership(models.Model):
    """A person's role in a tenant. Superusers can see and change the role. Owners of the tenant can do this, too.

    A membership counts only with its MAC (`memory.access.roles`)."""

    person = models.ForeignKey(Person, models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role.choices)
    mac = models.BinaryField(max_length=32, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "tenant"], name="membership_once_in_tenant"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_known_role"),
        ]

    def __str__(self) -> str:
        return f"{self.person} in {self.tenant}: {self.role}"


class Invitation(Fingerprinted, models.Model):
    """A link that makes its recipient a member of a tenant. The link works only once. Superusers, and owners of the
    tenant, can see the invitation. `mac` authenticates the token and all columns except `used_at`. The token itself is
    not stored."""

    prefix = models.CharField(max_length=12, unique=True)
    mac = models.BinaryField(max_length=32)
    address = models.EmailField(max_length=254)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=8, choices=Role.choices)
    invited_by = models.ForeignKey(Person, models.CASCADE, related_name="+")
    made_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    shown = ("address", "role", "tenant_id", "invited_by_id", "made_at")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_known_role")]

    def __str__(self) -> str:
        return f"invitation of {self.address} to {self.tenant}"


class Pepper(models.Model):
    """The pepper with which the newest MACs were made. The table has one row."""

    key_id = models.CharField(max_length=8)

    def __str__(self) -> str:
        return self.key_id
