"""Agents, and the keys of agents and tenants."""

import hashlib
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from memory.models.tenants import RefinementLimits, Tenant

# This allows letters of every script. `memory.agents.lifecycle` refuses capital letters.
AGENT_SLUG = RegexValidator(r"^[^\W_](?:[\w-]{0,62}[^\W_])?\Z", "lower-case letters, digits, '-' and '_', 1 to 64")


class DueReason(models.TextChoices):
    """The reason why an agent's refinement is due."""

    WEEKLY = "weekly"
    OVER_BUDGET = "over_budget"
    MANUAL = "manual"
    AGENT = "agent"
    RETRY = "retry"


class Agent(RefinementLimits):
    """An AI agent: its settings, its wrapped data key, and the counters that the write path updates.

    Members of the agent's tenant can see the agent. They need a grant to read the content of the agent's silo.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="agents")
    slug = models.CharField(max_length=64, validators=[AGENT_SLUG])
    created_at = models.DateTimeField(auto_now_add=True)

    # Set by the agent's side.
    model = models.CharField(max_length=200, blank=True, help_text="provider/model-name; empty: call no model")
    embedder = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="provider/model-name for search by meaning; none: search by words; empty: the server's default",
    )
    # Its vectors are used until those of `embedder` are complete.
    former_embedder = models.CharField(max_length=200, blank=True, default="", db_default="", editable=False)
    system_prompt = models.BinaryField(default=b"")  # sealed (memory/agents/prompts.py)
    refinement_prompt = models.BinaryField(default=b"")  # sealed; added to the prompt, after the safety rules
    language = models.CharField(max_length=32, default="english", help_text="the language of its memories, for search")
    steward = models.EmailField(blank=True, help_text="the person who decides for the agent")
    is_steward_only = models.BooleanField(default=False, help_text="only the steward, not the runtime, can consent")

    discard_share_lifted_until = models.DateTimeField(
        null=True, blank=True, help_text="until then, discards have no daily limit"
    )

    # Switches
    memory_enabled = models.BooleanField(default=True)
    paused = models.BooleanField(default=False)

    # Refinement
    budget_tokens = models.PositiveIntegerField(default=8_000)
    target_tokens = models.PositiveIntegerField(default=5_000)
    retention = models.DecimalField(max_digits=3, decimal_places=2, default=Decimal("0.75"))
    refine_every = models.DurationField(
        null=True, blank=True, default=timedelta(days=7), help_text="empty: no regular refinement"
    )
    due_at = models.DateTimeField(null=True, blank=True)
    due_reason = models.CharField(max_length=12, choices=DueReason.choices, default=DueReason.WEEKLY)
    # The cool-down after a session or rollback that leaves the agent over its budget. It ends at `quiet_until`, or
    # earlier if core memory reaches `quiet_below_tokens`.
    quiet_until = models.DateTimeField(null=True, blank=True)
    quiet_below_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    failures_in_a_row = models.PositiveIntegerField(default=0)
    last_refined_at = models.DateTimeField(null=True, blank=True)

    # The agent's log of runs, and how much of the log `gc` keeps
    memory_path = models.CharField(
        max_length=1_000, blank=True, default="", db_default="", help_text="the file for the log; empty: the journal"
    )
    last_n = models.PositiveIntegerField(default=0, db_default=0, help_text="entries that gc keeps; 0: use max_entries")
    max_entries = models.PositiveIntegerField(
        default=0, db_default=0, help_text="how many entries gc keeps if last_n is 0; 0: all entries"
    )
    context_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="how many tokens gc sends to the model; empty: all"
    )

    # The settings that differ from the defaults.
    rules = models.TextField(blank=True, default="", db_default="", editable=False)
    vault_path = models.CharField(
        max_length=1_000, blank=True, default="", db_default="", help_text="the folder of the vault; empty: no vault"
    )
    # The silo's data key, wrapped by a key-encryption key. It is empty after an erasure.
    wrapped_key = models.BinaryField(default=b"", editable=False)

    # Counters. The write path updates them (memory/writing/operations.py), and verify_audit checks them.
    next_number = models.PositiveBigIntegerField(default=1, editable=False)
    core_count = models.PositiveBigIntegerField(default=0, editable=False)
    core_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    journal_count = models.PositiveBigIntegerField(default=0, editable=False)
    beneath_count = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    beneath_tokens = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    constitutional_count = models.PositiveBigIntegerField(default=0, editable=False)
    constitutional_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    # Core memories that are imported instructions. The other counters of core memory do not include them.
    instruction_count = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    instruction_tokens = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    # The tokens of exact duplicates in core memory, and the largest size that core memory ever had without duplicates.
    duplicate_tokens = models.PositiveBigIntegerField(default=0, editable=False)
    high_water_tokens = models.PositiveBigIntegerField(default=0, editable=False)

    # The last entry of the agent's trail: its number, MAC and time.
    audit_seq = models.PositiveBigIntegerField(default=0, editable=False)
    audit_mac = models.BinaryField(default=b"", max_length=32, editable=False)
    audit_at = models.DateTimeField(null=True, editable=False)
    redacted_seq = models.BigIntegerField(
        default=0, db_default=0, editable=False, help_text="the entry of the last redaction, or 0"
    )

    # The prefixes of the keys that open the silo, its last claim (memory/consent/claims.py), whether its keys are
    # suspended, and the signature of this row (memory/access/authority.py).
    live_keys = models.TextField(default="", db_default="", editable=False)
    claimed_at = models.DateTimeField(null=True, editable=False)
    claimed_by = models.CharField(max_length=320, default="", db_default="", editable=False)
    recovery_mac = models.BinaryField(default=b"", max_length=32, editable=False)
    keys_suspended = models.BooleanField(default=False, db_default=False, editable=False)
    keys_lifted_at = models.DateTimeField(null=True, editable=False)
    authority_key_id = models.CharField(max_length=8, default="", db_default="", editable=False)
    authority_mac = models.BinaryField(default=b"", max_length=32, editable=False)

    # True on the object that `edits.locked` yields, while the agent's row is locked.
    is_locked = False
    # Whether the signature of this object was checked.
    is_proven = False

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
        """The name of the agent in commands: `tenant/agent`."""
        return f"{self.tenant.slug}/{self.slug}"


class Fingerprinted:
    """A key or an invitation. The signed row of its agent or tenant lists the fingerprints of those that count. So a
    row that SQL puts back, changes or exchanges does not count."""

    prefix: Any
    mac: Any
    shown: ClassVar[tuple[str, ...]] = ("label",)  # values that people see

    @property
    def fingerprint(self) -> str:
        """The prefix, and a digest of the MAC and the values that people see."""
        mac = self.mac if isinstance(self.mac, bytes | memoryview) else b""  # SQL may store another type
        shown = repr([str(getattr(self, name)) for name in self.shown]).encode()
        return f"{self.prefix}-{hashlib.sha256(b'fingerprint' + mac + shown).hexdigest()[:12]}"


class ApiKey(Fingerprinted, models.Model):
    """The key of a program. Only a MAC of the key is stored. The MAC is made with the pepper in the keyring. The rows
    of revoked keys are not deleted, because the trail contains the prefixes of keys."""

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
    """A runtime's key to the silo of one agent."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="keys")


class TenantKey(ApiKey):
    """A key for the programs of a tenant. The key gives access to the metadata and settings of the tenant's agents, but
    not to content."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="keys")
