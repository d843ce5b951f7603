"""People who sign in to the admin: their second factor, their memberships, their invitations."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils.crypto import salted_hmac
from django_otp.models import Device, ThrottlingMixin

from memory.models.tenants import Tenant


class People(BaseUserManager["Person"]):
    """Finds people by their address, in whatever case it is typed."""

    def get_by_natural_key(self, username: str | None) -> Person:
        return self.get(email=(username or "").strip().casefold())

    def create_user(self, email: str, password: str | None = None, **values: Any) -> Person:
        """Make a person, who signs in once a password and a second factor are set. Raises ValidationError."""
        person = self.model(email=email.strip().casefold(), **values)
        person.set_password(password)
        person.clean_fields()
        person.save(using=self._db)
        return person

    def create_superuser(self, email: str, password: str | None = None, **values: Any) -> Person:
        return self.create_user(email, password, is_superuser=True, **values)


class Person(AbstractBaseUser):
    """Somebody who signs in to the admin. Seen by owners of their tenants and by superusers; never removed while the
    trail names them. What they may do is their memberships' to say (`memory.access.roles`); a superuser reads no more
    than anybody else."""

    email = models.EmailField(max_length=254, unique=True, help_text="in lower case; they sign in with it")
    name = models.CharField(max_length=200, blank=True)
    is_active = models.BooleanField(default=True)
    is_superuser = models.BooleanField(default=False, help_text="manages tenants and people; reads no memory")
    joined_at = models.DateTimeField(auto_now_add=True)
    generation = models.PositiveIntegerField(default=0, help_text="of their sessions: the next one ends all there are")

    USERNAME_FIELD = "email"
    objects = People()

    class Meta:
        verbose_name_plural = "people"
        constraints = [models.CheckConstraint(condition=Q(email=Lower("email")), name="person_email_lower_case")]

    def __str__(self) -> str:
        return self.email

    @property
    def is_staff(self) -> bool:
        """Whoever is here may open the admin; what it shows them is theirs."""
        return self.is_active

    def _get_session_auth_hash(self, secret: Any = None) -> str:
        """What a session was begun with. Another password, address or generation ends it."""
        told = f"{self.password}/{self.generation}/{self.email}"
        return salted_hmac("palimpsest.session", told, secret=secret, algorithm="sha256").hexdigest()


class Authenticator(ThrottlingMixin, Device):  # type: ignore[misc]  # which comes without types
    """A person's second factor: one at most. Its secret is made of their address, `seed` and the pepper
    (`memory.accounts.people`), so that a dump shows none, and a row put in by SQL is one whose codes nobody has."""

    user = models.OneToOneField(Person, models.CASCADE, related_name="authenticator")
    seed = models.BinaryField(max_length=16)
    pepper_id = models.CharField(max_length=8)
    proof = models.BinaryField(max_length=32, help_text="that the service itself gave it to this very person")
    last_step = models.BigIntegerField(default=-1, help_text="of the last code: none is good twice")
    made_at = models.DateTimeField(auto_now_add=True)

    def get_throttle_factor(self) -> int:
        """Seconds to wait after the first code that was wrong; twice as many after each one more."""
        return 1


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    AUDITOR = "auditor"


class Membership(models.Model):
    """What somebody is in a tenant. Seen and set by its owners and by superusers."""

    person = models.ForeignKey(Person, models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "tenant"], name="membership_once_in_tenant"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_known_role"),
        ]

    def __str__(self) -> str:
        return f"{self.person} in {self.tenant}: {self.role}"


class Invitation(models.Model):
    """A link by which somebody takes a part in a tenant, once. Seen by its owners and by superusers. `mac` proves the
    token, which is kept nowhere, and with it every other column but the last."""

    prefix = models.CharField(max_length=12, unique=True)
    mac = models.BinaryField(max_length=32)
    address = models.EmailField(max_length=254)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=8, choices=Role.choices)
    invited_by = models.ForeignKey(Person, models.CASCADE, related_name="+")
    made_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_known_role")]

    def __str__(self) -> str:
        return f"invitation of {self.address} to {self.tenant}"
