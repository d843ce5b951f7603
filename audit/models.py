"""The record: what was done to whom, by whom, when. Sealed bytes only; no content key is ever held here.

Rows carry ids and copied labels instead of foreign keys, so that the record outlives what it describes.
Nothing but `audit.trail` writes these tables, and the database refuses to change or remove a row (`audit.guards`).
"""

from __future__ import annotations

from django.db import models


class Operation(models.TextChoices):
    """What an edit did, in the past tense."""

    AGENT_CREATED = "agent_created"
    AGENT_CHANGED = "agent_changed"
    KEY_ISSUED = "key_issued"
    KEY_REVOKED = "key_revoked"
    REMEMBERED = "remembered"
    IMPORTED = "imported"
    REVISED = "revised"
    DISCARDED = "discarded"
    RESTORED = "restored"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    CONSOLIDATED = "consolidated"
    PROMOTED = "promoted"
    TRIMMED = "trimmed"
    DEDUPLICATED = "deduplicated"
    SESSION_OPENED = "session_opened"
    SESSION_CLOSED = "session_closed"
    ROLLED_BACK = "rolled_back"


class ActorKind(models.TextChoices):
    """On whose behalf an edit was made. `operator` is somebody at the service's own command line."""

    AGENT = "agent"
    SYSTEM = "system"
    PERSON = "person"
    OPERATOR = "operator"


class AuditEntry(models.Model):
    """One edit of one agent's memory or settings. Seen by the agent's side and, without content, by its tenant.

    Kept for ever. `mac` chains it to the entry before; `sealed` is content only the agent's silo opens.
    """

    agent_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    agent_label = models.CharField(max_length=129)
    seq = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=8, choices=ActorKind.choices)
    actor_label = models.CharField(max_length=320)
    operation = models.CharField(max_length=24, choices=Operation.choices)
    session = models.PositiveBigIntegerField(null=True)
    detail = models.JSONField(default=dict)
    sealed = models.BinaryField(null=True)
    sealed_digest = models.BinaryField(null=True, max_length=32)
    changes = models.PositiveIntegerField(default=0)
    key_id = models.CharField(max_length=8)
    mac = models.BinaryField(max_length=32)

    class Meta:
        verbose_name_plural = "audit entries"
        constraints = [
            models.UniqueConstraint(fields=["agent_id", "seq"], name="audit_entry_one_per_seq"),
            models.CheckConstraint(condition=models.Q(seq__gt=0), name="audit_entry_seq_positive"),
            models.CheckConstraint(
                condition=models.Q(operation__in=Operation.values), name="audit_entry_known_operation"
            ),
            models.CheckConstraint(condition=models.Q(actor_kind__in=ActorKind.values), name="audit_entry_known_actor"),
        ]
        indexes = [
            models.Index(
                fields=["agent_id", "session"],
                condition=models.Q(session__isnull=False),
                name="audit_entry_session",
            )
        ]

    def __str__(self) -> str:
        return f"{self.agent_label} #{self.seq} {self.operation}"


class Change(models.Model):
    """What one entry did to one memory: its snapshot before (none when it is new) and after. Kept for ever.

    The digests stand beside the snapshots so that the chain can be verified, and stays verifiable, without them.
    """

    agent_id = models.BigIntegerField()
    seq = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField()
    before = models.BinaryField(null=True)
    before_digest = models.BinaryField(null=True, max_length=32)
    after = models.BinaryField(null=True)
    after_digest = models.BinaryField(null=True, max_length=32)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent_id", "seq", "number"], name="audit_change_one_per_memory"),
        ]
        indexes = [models.Index(fields=["agent_id", "number", "seq"], name="audit_change_history")]

    def __str__(self) -> str:
        return f"agent {self.agent_id} #{self.seq}: memory {self.number}"
