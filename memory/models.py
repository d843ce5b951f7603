"""Who there is and what is remembered. Rows hold metadata and sealed bytes: no plaintext is to be had from them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils.crypto import salted_hmac
from django_otp.models import Device, ThrottlingMixin

from memory.rules import rows as _rows  # noqa: F401  more tables of this app
from memory.rules.categories import SCOPES

SLUG = RegexValidator(r"^[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\Z", "lower-case letters, digits, '-' and '_', 1 to 64")
# … of any script (seed 001's agents); that none is a capital is seen to by `memory.agents`.
AGENT_SLUG = RegexValidator(r"^[^\W_](?:[\w-]{0,62}[^\W_])?\Z", "lower-case letters, digits, '-' and '_', 1 to 64")


class RefinementLimits(models.Model):
    """Bounds of one refinement session; null means: ask the tenant, then the service's own default."""

    max_changes = models.PositiveIntegerField(null=True, blank=True, help_text="memories discarded or rewritten")
    max_steps = models.PositiveIntegerField(null=True, blank=True, help_text="replies of the model")
    max_searches = models.PositiveIntegerField(null=True, blank=True)
    max_failed_calls = models.PositiveIntegerField(null=True, blank=True)
    max_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="wall time, seconds")
    max_model_tokens = models.PositiveBigIntegerField(null=True, blank=True, help_text="prompt and completion tokens")

    class Meta:
        abstract = True


class Tenant(RefinementLimits):
    """An organisation. Everything belongs to exactly one. Seen by its own people; lives until an operator ends it."""

    slug = models.CharField(max_length=64, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    sessions_at_once = models.PositiveIntegerField(null=True, blank=True, help_text="that workers run; 0: any number")
    month_tokens = models.PositiveBigIntegerField(
        "model tokens a month", null=True, blank=True, help_text="of its sessions, in a calendar month (UTC)"
    )

    def __str__(self) -> str:
        return self.slug


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
    trail names them. What they may do is their memberships' to say (`memory.roles`); a superuser reads no more than
    anybody else."""

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
    (`memory.people`), so that a dump shows none, and a row put in by SQL is one whose codes nobody has."""

    user = models.OneToOneField(Person, models.CASCADE, related_name="authenticator")
    seed = models.BinaryField(max_length=16)
    pepper_id = models.CharField(max_length=8)
    proof = models.BinaryField(max_length=32, help_text="that the service itself gave it to this very person")
    last_step = models.BigIntegerField(default=-1, help_text="of the last code: none is good twice")
    made_at = models.DateTimeField(auto_now_add=True)

    def get_throttle_factor(self) -> int:
        """Seconds to wait after the first code that was wrong; twice as many after each one more."""
        return 1

    def verify_token(self, token: str) -> bool:
        from memory import people

        return people.is_right(self, token)


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


class DueReason(models.TextChoices):
    """Why an agent's refinement is due."""

    WEEKLY = "weekly"
    OVER_BUDGET = "over_budget"
    MANUAL = "manual"
    AGENT = "agent"
    RETRY = "retry"


class Agent(RefinementLimits):
    """An AI agent: its settings, its sealed data key and the counters its write path keeps.

    Its tenant's people see it; what its silo holds is for the agent alone. Its trail outlives it.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="agents")
    slug = models.CharField(max_length=64, validators=[AGENT_SLUG])
    created_at = models.DateTimeField(auto_now_add=True)

    # Its voice. The agent's side decides these.
    model = models.CharField(max_length=200, help_text="provider/model-name")
    system_prompt = models.TextField(blank=True)
    refinement_prompt = models.TextField(blank=True, help_text="added to the safety rules, never instead of them")
    language = models.CharField(max_length=32, default="english", help_text="of its memories, for search")
    steward = models.EmailField(blank=True, help_text="the person who speaks for the agent")
    is_steward_only = models.BooleanField(default=False, help_text="only the steward, not the runtime, may consent")

    discard_share_lifted_until = models.DateTimeField(
        null=True, blank=True, help_text="till then it may discard and rewrite any share of its memory in a day"
    )

    # Switches
    memory_enabled = models.BooleanField(default=True)
    paused = models.BooleanField(default=False)

    # Refinement
    budget_tokens = models.PositiveIntegerField(default=8_000)
    target_tokens = models.PositiveIntegerField(default=5_000)
    retention = models.DecimalField(max_digits=3, decimal_places=2, default=Decimal("0.75"))
    refine_every = models.DurationField(null=True, blank=True, default=timedelta(days=7), help_text="empty: off")
    due_at = models.DateTimeField(null=True, blank=True)
    due_reason = models.CharField(max_length=12, choices=DueReason.choices, default=DueReason.WEEKLY)
    # After a session of an agent over its budget, not due again for that reason before the moment, or the size.
    quiet_until = models.DateTimeField(null=True, blank=True)
    quiet_below_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    failures_in_a_row = models.PositiveIntegerField(default=0)
    last_refined_at = models.DateTimeField(null=True, blank=True)

    # Its log of runs, and what `gc` leaves of it (seed 001)
    memory_path = models.CharField(max_length=1_000, blank=True, default="", db_default="", help_text="empty: journal")
    last_n = models.PositiveIntegerField(default=0, db_default=0, help_text="entries that gc keeps; 0: see max_entries")
    max_entries = models.PositiveIntegerField(default=0, db_default=0, help_text="… where last_n is 0; 0: all")
    context_tokens = models.PositiveIntegerField(null=True, blank=True, help_text="that gc sends; empty: all")

    rules = models.TextField(blank=True, default="", db_default="", editable=False)  # what differs from the defaults
    vault_path = models.CharField(max_length=1_000, blank=True, default="", db_default="", help_text="empty: no vault")
    # The silo's data key, wrapped by a key-encryption key; empty once erased.
    wrapped_key = models.BinaryField(default=b"", editable=False)

    # Counters, kept by the write path (memory/store.py) and checked by verify_audit
    next_number = models.PositiveBigIntegerField(default=1, editable=False)
    core_count = models.PositiveBigIntegerField(default=0, editable=False)
    core_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    journal_count = models.PositiveBigIntegerField(default=0, editable=False)
    constitutional_count = models.PositiveBigIntegerField(default=0, editable=False)
    constitutional_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    # Tokens of core memories that exactly repeat another one, and the largest core mass without those there ever was.
    duplicate_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    high_water_tokens = models.PositiveBigIntegerField(default=0, editable=False)

    # Where its trail stands: the last entry's number, MAC and time.
    audit_seq = models.PositiveBigIntegerField(default=0, editable=False)
    audit_mac = models.BinaryField(default=b"", max_length=32, editable=False)
    audit_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "slug"], name="agent_slug_in_tenant"),
            models.CheckConstraint(
                condition=Q(retention__gte=Decimal("0.50"), retention__lte=Decimal("1.00")),
                name="agent_retention_half_to_one",
            ),
            models.CheckConstraint(
                condition=Q(target_tokens__lte=models.F("budget_tokens")), name="agent_target_in_budget"
            ),
            models.CheckConstraint(condition=Q(due_reason__in=DueReason.values), name="agent_known_due_reason"),
            models.UniqueConstraint(fields=["memory_path"], condition=~Q(memory_path=""), name="agent_one_per_file"),
            models.UniqueConstraint(fields=["vault_path"], condition=~Q(vault_path=""), name="agent_one_per_vault"),
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False, memory_enabled=True), name="agent_due")
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """tenant/agent, as commands take it."""
        return f"{self.tenant.slug}/{self.slug}"


class ApiKey(models.Model):
    """A program's key. The secret is shown once; `mac` proves it under the keyring's pepper. Revoked keys stay, so that
    the trail's labels can be told apart."""

    prefix = models.CharField(max_length=12, unique=True)
    mac = models.BinaryField(max_length=32)
    label = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.prefix}…"


class AgentKey(ApiKey):
    """A runtime's key to one silo."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="keys")
    # By an operator or a tenant, who may have kept it. Once there was one that was not, a tenant is given no more.
    is_handed_out = models.BooleanField(default=False)


class TenantKey(ApiKey):
    """A program's key to what a tenant may see and set of its agents: metadata, never a word of a silo."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="keys")


class Kind(models.TextChoices):
    """`core` is permanent and counts against the budget; `journal` is the dated log."""

    CORE = "core"
    JOURNAL = "journal"


class Scope(models.TextChoices):
    COMMON = "common"
    PRIVATE = "private"
    PROJECT = "project"


class Source(models.TextChoices):
    """Who a memory came from: the agent's own words, its run log (seed 001), or the system's notice to it."""

    AGENT = "agent"
    RUN = "run"
    SYSTEM = "system"


class Memory(models.Model):
    """One remembered text, sealed. Its agent reads it, and a person under a grant; it is kept for ever.

    `number` is its id within its agent. `version` is the number of the last audit entry that touched it.
    Written by memory/store.py alone.
    """

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="memories", db_index=False)
    number = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    category = models.CharField(max_length=20)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    project = models.CharField(max_length=100, blank=True)
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.AGENT)
    origin = models.DateTimeField(help_text="when what it says was first recorded")
    created_at = models.DateTimeField()
    tokens = models.PositiveIntegerField()
    sealed = models.BinaryField()
    digest = models.BinaryField(max_length=32)
    constitutional = models.BooleanField(default=False)
    discarded_at = models.DateTimeField(null=True)
    superseded_by = models.PositiveBigIntegerField(null=True)
    redacted_at = models.DateTimeField(null=True, help_text="its body was removed, here and in the trail, for good")
    version = models.PositiveBigIntegerField()

    class Meta:
        verbose_name_plural = "memories"
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="memory_number_in_agent"),
            models.CheckConstraint(
                condition=Q(constitutional=False) | Q(discarded_at__isnull=True),
                name="memory_constitutional_never_discarded",
            ),
            models.CheckConstraint(
                condition=Q(constitutional=False) | ~Q(source="system"), name="memory_notice_never_constitutional"
            ),
            models.CheckConstraint(
                condition=Q(redacted_at__isnull=True) | Q(discarded_at__isnull=False, sealed=b"", digest=b""),
                name="memory_redacted_says_nothing",
            ),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="memory_known_kind"),
            models.CheckConstraint(condition=Q(scope__in=Scope.values), name="memory_known_scope"),
            models.CheckConstraint(condition=Q(source__in=Source.values), name="memory_known_source"),
            models.CheckConstraint(condition=Q(category__in=list(SCOPES)), name="memory_known_category"),
            models.CheckConstraint(condition=Q(number__gt=0), name="memory_number_positive"),
        ]
        indexes = [
            models.Index(
                fields=["agent", "digest"], condition=Q(discarded_at__isnull=True), name="memory_active_digest"
            ),
            models.Index(fields=["agent", "version"], name="memory_by_version"),
        ]

    def __str__(self) -> str:
        return f"memory {self.number}"


class Creation(models.Model):
    """What a request with an Idempotency-Key made, for a day: a repeat is answered by it. Seen by nobody.

    `key` and `fingerprint` are keyed digests of the header and of the body under the agent's own data key.
    """

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="+")
    key = models.BinaryField(max_length=32)
    fingerprint = models.BinaryField(max_length=32)
    numbers = models.JSONField(default=list)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "key"], name="creation_once_per_key")]
        indexes = [models.Index(fields=["at"], name="creation_at")]

    def __str__(self) -> str:
        return f"creation of {self.at:%Y-%m-%d %H:%M}"
