"""The tables of the audit trail: who changed what, and when. Content is encrypted, and this app has no key for it.

A row has ids and copied labels instead of foreign keys, because it is kept after its agent or person is deleted. Only
`audit.trail` writes the tables of the trail. The database refuses to change or delete their rows (`audit.guards`).
"""

import json
from functools import reduce
from operator import or_
from typing import Any

from django.db import connection, models


class OneValueEach(json.JSONDecoder):
    """A JSON decoder that raises ValueError for text that SQLite can read in another way than Python.

    SQLite reads the first value of a repeated name, and some releases do not find a name with escapes. So a check and a
    query could disagree. PostgreSQL stores values, not text.
    """

    def __init__(self) -> None:
        """Do nothing, because Django creates a decoder for every value."""

    def decode(self, text: str) -> Any:  # type: ignore[override]
        value = json.loads(text)
        # Django writes the first form. SQLite gives the second one for a part of a value.
        if connection.vendor == "sqlite" and text not in (json.dumps(value), json.dumps(value, separators=(",", ":"))):
            raise ValueError
        return value


class Operation(models.TextChoices):
    """The kind of an edit, in the past tense."""

    AGENT_CREATED = "agent_created"
    AGENT_CHANGED = "agent_changed"
    KEY_ISSUED = "key_issued"
    KEY_REVOKED = "key_revoked"
    CLAIMED = "claimed"
    REMEMBERED = "remembered"
    IMPORTED = "imported"
    REVISED = "revised"
    DISCARDED = "discarded"
    RESTORED = "restored"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    CONSOLIDATED = "consolidated"
    DEMOTED = "demoted"
    PROMOTED = "promoted"
    TRIMMED = "trimmed"
    DEDUPLICATED = "deduplicated"
    SESSION_OPENED = "session_opened"
    SESSION_CLOSED = "session_closed"
    ROLLED_BACK = "rolled_back"
    REDACTION_REQUESTED = "redaction_requested"
    ERASURE_REQUESTED = "erasure_requested"
    REQUEST_DECLINED = "request_declined"
    REDACTED = "redacted"
    ERASED = "erased"
    ACCESS_REQUESTED = "access_requested"
    ACCESS_GRANTED = "access_granted"
    ACCESS_DENIED = "access_denied"
    ACCESS_LAPSED = "access_lapsed"
    ACCESS_EXPIRED = "access_expired"
    ACCESS_REVOKED = "access_revoked"
    CONTENT_READ = "content_read"
    CHANGE_PROPOSED = "change_proposed"
    CHANGE_DECLINED = "change_declined"
    STORE_CHANGED = "store_changed"


class State(models.TextChoices):
    """State of a request to an agent's side.

    To read: requested → active | denied | lapsed; active → expired | revoked. To change settings: open → accepted |
    declined | lapsed | replaced (by a later proposal). To remove content: open → carried_out | declined | settled
    (other requests removed the content).
    """

    REQUESTED = "requested"
    ACTIVE = "active"
    DENIED = "denied"
    LAPSED = "lapsed"
    EXPIRED = "expired"
    REVOKED = "revoked"
    OPEN = "open"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    REPLACED = "replaced"
    CARRIED_OUT = "carried_out"
    SETTLED = "settled"


ACCESS_STATES = State.values[:6]
PROPOSAL_STATES = ["open", "accepted", "declined", "lapsed", "replaced"]
REMOVAL_STATES = ["open", "carried_out", "declined", "settled"]


class ActorKind(models.TextChoices):
    """The kind of the actor on whose behalf an edit is made. An `operator` uses the service's command line or a
    tenant's key. The `steward` is the person who decides for the agent."""

    AGENT = "agent"
    STEWARD = "steward"
    SYSTEM = "system"
    PERSON = "person"
    OPERATOR = "operator"


def _one_of(*operations: Operation) -> models.Q:
    """A condition that an index has, and that the queries for this index use. SQLite uses the index only if the
    condition joins its comparisons with OR. It does not use the index for `IN` with a list."""
    return reduce(or_, (models.Q(operation=each.value) for each in operations))


# Edits that the daily limit counts (memory/writing/daily_limit.py): by the agent itself, outside sessions. Indexed.
OWN_EDITS = models.Q(actor_kind=ActorKind.AGENT.value, session__isnull=True) & _one_of(
    Operation.REVISED, Operation.DISCARDED, Operation.RESTORED, Operation.CONSOLIDATED
)
# Three kinds of rare entries, each with its own index: requests to an agent's side, requests and their outcomes
# (audit/consent.py), and reads. STEPS says what the entries of decisions do to requests.
ASKS = _one_of(
    Operation.ACCESS_REQUESTED, Operation.CHANGE_PROPOSED, Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED
)
STEPS = {  # the state before the entry, and the state after it
    Operation.ACCESS_GRANTED: (State.REQUESTED, State.ACTIVE),
    Operation.ACCESS_DENIED: (State.REQUESTED, State.DENIED),
    Operation.ACCESS_LAPSED: (State.REQUESTED, State.LAPSED),
    Operation.ACCESS_EXPIRED: (State.ACTIVE, State.EXPIRED),
    Operation.ACCESS_REVOKED: (State.ACTIVE, State.REVOKED),
    Operation.CHANGE_DECLINED: (State.OPEN, State.DECLINED),
    Operation.AGENT_CHANGED: (State.OPEN, State.ACCEPTED),
    Operation.REDACTED: (State.OPEN, State.CARRIED_OUT),
    Operation.ERASED: (State.OPEN, State.CARRIED_OUT),
    Operation.REQUEST_DECLINED: (State.OPEN, State.DECLINED),
}
CONSENT = ASKS | _one_of(*STEPS)
READS = _one_of(Operation.CONTENT_READ)
# Entries that can change who reads the silo.
AUTHORITY_OPERATIONS = tuple(Operation)[:5]  # from agent_created to claimed


class AuditEntry(models.Model):
    """One edit of an agent's memory or settings. The agent's side sees the entry. The agent's tenant sees it without
    content.

    The entry is kept forever. `mac` chains it to the previous entry. `sealed` is encrypted content, which a redaction
    removes.
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
    detail = models.JSONField(default=dict, decoder=OneValueEach)
    sealed = models.BinaryField(null=True)
    sealed_digest = models.BinaryField(null=True, max_length=32)
    changes = models.PositiveIntegerField(default=0)
    changes_digest = models.BinaryField(
        null=True, max_length=32, help_text="so that a check of the entries need not read their changes"
    )
    distinct_tokens = models.PositiveBigIntegerField(
        default=0, help_text="tokens of core memory after the edit; exact duplicates count once"
    )
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
                fields=["agent_id", "session"], condition=models.Q(session__isnull=False), name="audit_entry_session"
            ),
            models.Index(fields=["agent_id"], condition=models.Q(operation="redacted"), name="audit_entry_redaction"),
            models.Index(fields=["agent_id", "at"], condition=OWN_EDITS, name="audit_entry_own_edits"),
            models.Index(fields=["agent_id", "seq"], condition=CONSENT, name="audit_entry_consent"),
            models.Index(fields=["agent_id", "seq"], condition=READS, name="audit_entry_reads"),
            models.Index(fields=["actor_label", "at"], condition=ASKS, name="audit_entry_asks"),
            models.Index(
                fields=["agent_id", "at"], condition=models.Q(operation="rolled_back"), name="audit_entry_rollback"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent_label} #{self.seq} {self.operation}"


class Change(models.Model):
    """What one entry did to one memory. `before` and `after` are snapshots of the memory. For a new memory, `before` is
    null. Rows are kept forever.

    The chain covers the digests. So the chain can still be verified after a redaction has removed the bodies of
    snapshots.
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
            models.UniqueConstraint(fields=["agent_id", "seq", "number"], name="audit_change_one_per_memory")
        ]
        indexes = [models.Index(fields=["agent_id", "number", "seq"], name="audit_change_history")]

    def __str__(self) -> str:
        return f"agent {self.agent_id} #{self.seq}: memory {self.number}"


class AccessRequest(models.Model):
    """A person's request to read an agent's memories. An active request is a grant.

    The people of the agent's tenant and the agent's side see the row. It is kept forever. It is only a copy for lists:
    the trail itself decides whether a read is allowed (`audit.consent`). `number` is the number of the request's entry.
    """

    agent_id = models.BigIntegerField()
    number = models.PositiveBigIntegerField()
    tenant_id = models.BigIntegerField()
    agent_label = models.CharField(max_length=129)
    person_id = models.BigIntegerField()
    person = models.CharField(max_length=320)
    purpose = models.CharField(max_length=1000)
    scope = models.JSONField()
    seconds = models.PositiveIntegerField()
    state = models.CharField(max_length=9, choices=State.choices[:6])
    asked_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=8, blank=True, choices=ActorKind.choices)
    until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent_id", "number"], name="access_one_per_entry"),
            models.UniqueConstraint(
                fields=["agent_id", "person_id"],
                condition=models.Q(state="requested"),
                name="access_one_open_per_person",
            ),
            models.CheckConstraint(condition=models.Q(state__in=ACCESS_STATES), name="access_known_state"),
        ]
        indexes = [models.Index(fields=["tenant_id", "state"], name="access_by_state")]

    def __str__(self) -> str:
        return f"access request {self.number} to {self.agent_label}"


class ConsentLink(models.Model):
    """A link for an agent's steward. With it, the steward decides once on a request or a proposal, and can later revoke
    the grant.

    The service mails the token but does not store it. `mac` verifies the token. `number` is the number of the audit
    entry that made the request or proposal.
    """

    agent_id = models.BigIntegerField()
    number = models.PositiveBigIntegerField()
    prefix = models.CharField(max_length=12, unique=True)
    mac = models.BinaryField(max_length=32)
    steward_mac = models.BinaryField(max_length=32)
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"link {self.prefix}…"
