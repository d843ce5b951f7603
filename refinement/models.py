"""Refinement sessions and their steps: metadata only. Seen by the agent's side and by its tenant's people."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from memory.models import Agent, DueReason
from refinement import limits
from refinement.errors import LimitReached


class Outcome(models.TextChoices):
    """`open` while it runs; then what became of it. (That it was rolled back later is the trail's to say:
    `refinement.undone_sessions`.)"""

    OPEN = "open"
    COMPLETED = "completed"
    DECLINED = "declined"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Mode(models.TextChoices):
    FULL = "full"
    DEDUPE_ONLY = "dedupe_only"


class Driver(models.TextChoices):
    """Who calls the model: a worker of the service, or the agent's own runtime over the API."""

    SERVER = "server"
    RUNTIME = "runtime"


class RefinementSession(models.Model):
    """One run of an agent over its own memory. At most one is open per agent; rows are kept for ever.

    Everything above `lease_token` is fixed when it opens; the rest is counted by the Knife.
    """

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="sessions")
    number = models.PositiveBigIntegerField()
    mode = models.CharField(max_length=12, choices=Mode.choices, default=Mode.FULL)
    driver = models.CharField(max_length=8, choices=Driver.choices, default=Driver.SERVER)
    trigger = models.CharField(max_length=12, choices=DueReason.choices)
    model = models.CharField(max_length=200)
    opened_at = models.DateTimeField()
    budget_tokens = models.PositiveBigIntegerField()
    target_tokens = models.PositiveBigIntegerField()
    floor_tokens = models.PositiveBigIntegerField()
    max_changes = models.PositiveBigIntegerField()
    max_steps = models.PositiveIntegerField()
    max_searches = models.PositiveIntegerField()
    max_failed_calls = models.PositiveIntegerField()
    max_seconds = models.PositiveIntegerField()
    max_model_tokens = models.PositiveBigIntegerField()
    # Core memory as it was before exact duplicates went, with which a session begins, and what those weighed. Of the
    # duplicates some may be journal memories.
    tokens_before = models.PositiveBigIntegerField()
    memories_before = models.PositiveBigIntegerField()
    repeated_tokens = models.PositiveBigIntegerField(default=0)
    duplicates_removed = models.PositiveBigIntegerField(default=0)

    lease_token = models.CharField(max_length=32)
    lease_until = models.DateTimeField()
    outcome = models.CharField(max_length=12, choices=Outcome.choices, default=Outcome.OPEN)
    reason = models.CharField(max_length=40, blank=True, help_text="a code: which limit, which error")
    closed_at = models.DateTimeField(null=True)
    tokens_after = models.PositiveBigIntegerField()
    memories_after = models.PositiveBigIntegerField()
    batch = models.PositiveIntegerField(default=0)
    batches = models.PositiveIntegerField(default=1)
    # Number → version of every memory the agent was shown in this batch: what it may edit, and what it itself made of
    # it since the trail's entry `shown_at`.
    shown = models.JSONField(default=dict)
    shown_at = models.PositiveBigIntegerField(default=0)
    # For one that the agent's runtime drives: the memories of each batch, worked out once, the last of its model's
    # replies that was counted as a step, and how many calls of it there were.
    plan = models.JSONField(default=list)
    last_reply = models.CharField(max_length=64, blank=True)
    reply_calls = models.PositiveIntegerField(default=0)
    summaries = models.BinaryField(null=True, help_text="the agent's words so far, sealed")
    lost_tokens = models.PositiveBigIntegerField(default=0)
    changes = models.PositiveBigIntegerField(default=0)
    steps = models.PositiveIntegerField(default=0)
    searches = models.PositiveIntegerField(default=0)
    failed_calls = models.PositiveIntegerField(default=0)
    floor_refusals = models.PositiveIntegerField(default=0, help_text="in a row")
    merged = models.PositiveBigIntegerField(default=0)
    updated = models.PositiveBigIntegerField(default=0)
    deleted = models.PositiveBigIntegerField(default=0)
    protected = models.PositiveBigIntegerField(default=0)
    promoted = models.PositiveBigIntegerField(default=0)
    model_calls = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    model_milliseconds = models.PositiveBigIntegerField(default=0)
    # Of the service itself: opening the session and carrying out the agent's calls.
    own_microseconds = models.PositiveBigIntegerField(default=0)

    # Of no column: the rollback after which nothing of it stood, once `refinement.undone_sessions` looked for one.
    undone_by: int | None

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="session_number_in_agent"),
            models.UniqueConstraint(fields=["agent"], condition=Q(outcome="open"), name="session_one_open_per_agent"),
            models.CheckConstraint(condition=Q(outcome__in=Outcome.values), name="session_known_outcome"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="session_known_mode"),
            models.CheckConstraint(
                condition=Q(outcome="open") ^ Q(closed_at__isnull=False), name="session_closed_has_time"
            ),
        ]
        indexes = [
            models.Index(fields=["lease_until"], condition=Q(outcome="open"), name="session_open_lease"),
        ]

    def __str__(self) -> str:
        return f"session {self.number} of {self.agent}"

    def _do_update(self, base_qs: models.QuerySet[RefinementSession], *arguments: Any) -> Any:
        """`save()` finds the row with its agent, too, as all else does (docs/internals/scaling.md, sharding)."""
        return super()._do_update(base_qs.filter(agent_id=self.agent_id), *arguments)

    @property
    def counted_tokens(self) -> int:
        """The mass the circuit breaker counts: what was there at the start, exact duplicates apart, less this session's
        own cuts."""
        return self.tokens_before - self.repeated_tokens - self.lost_tokens

    def renew_lease(self) -> None:
        self.lease_until = timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)

    def count_step(self, reply: str = "") -> None:
        """Count one reply of the model and renew the lease. Further calls of the same named `reply` are no step.

        The caller saves the row. Raises LimitReached.
        """
        self.renew_lease()
        if reply and reply == self.last_reply:
            if self.reply_calls >= limits.MAX_CALLS_PER_REPLY:
                raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
            self.reply_calls += 1
        else:
            self.require_left("steps")
            self.steps += 1
            self.last_reply, self.reply_calls = reply, 1

    def require_left(self, what: str) -> None:
        """Raise LimitReached if the session has used as many `steps`, `searches` or `changes` as it may."""
        allowed = getattr(self, f"max_{what}")
        if getattr(self, what) >= allowed:
            raise LimitReached(what, allowed)

    def require_time(self) -> None:
        """Raise LimitReached if the session has run for longer than it may."""
        if (timezone.now() - self.opened_at).total_seconds() > self.max_seconds:
            raise LimitReached("seconds", self.max_seconds)


class SessionStep(models.Model):
    """One tool call of a session and what became of it, without a word of content. Kept as long as its session."""

    session = models.ForeignKey(RefinementSession, models.CASCADE, related_name="timeline")
    agent_id = models.BigIntegerField(null=True, help_text="the session's; empty where the release before wrote it")
    at = models.DateTimeField()
    tool = models.CharField(max_length=32, help_text="'unknown' for a name the Knife does not have")
    result = models.CharField(max_length=40, help_text="'ok' or the error's code")
    memories = models.PositiveIntegerField(default=0)
    core_tokens = models.PositiveBigIntegerField()
    microseconds = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return f"{self.tool}: {self.result}"


class Waiting(models.Model):
    """An agent whose turn is to come, or is now: it waits for a worker, or one has taken it. Seen by nobody; gone when
    its session has ended.

    Names its agent and tenant without a constraint: making the row must not wait for whoever holds theirs.
    """

    agent_id = models.BigIntegerField(primary_key=True)
    tenant_id = models.BigIntegerField(db_default=0)
    provider = models.CharField(max_length=20, db_default="", help_text="of its model: the part before the slash")
    model = models.CharField(max_length=200, db_default="")
    asked = models.BooleanField(db_default=False, help_text="by a person")
    due_at = models.DateTimeField(null=True)
    since = models.DateTimeField()
    claim = models.BigIntegerField(help_text="by which whoever made the row finds it")
    taken_at = models.DateTimeField(null=True, help_text="by a worker")

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "due_at"], name="waiting_by_tenant")]

    def __str__(self) -> str:
        return f"agent {self.agent_id}"


class Provider(models.Model):
    """How it goes with a provider of models, or with one of its models: one row for all processes that call it. Seen by
    operators, as a figure."""

    name = models.CharField(max_length=200, primary_key=True)
    failures = models.PositiveIntegerField(default=0, help_text="in a row, whoever called")
    failed_with = models.CharField(max_length=200, blank=True, help_text="the model that failed last")
    shut_until = models.DateTimeField(null=True, help_text="nobody calls it before")

    def __str__(self) -> str:
        return self.name


class Served(models.Model):
    """When a tenant's last turn was. Seen by nobody. Names its tenant without a constraint, as `Waiting` does."""

    tenant_id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"tenant {self.tenant_id}"


class Share(models.Model):
    """The model tokens a tenant has used this month. Seen by its people.

    Apart from `Served`: what ends a session may go on for long in the same transaction, for which workers that choose
    must not wait. Names its tenant without a constraint, as `Waiting` does.
    """

    tenant_id = models.BigIntegerField(primary_key=True)
    month = models.DateField(null=True, help_text="its first day")
    model_tokens = models.PositiveBigIntegerField(default=0, help_text="of that month's sessions that have ended")

    def __str__(self) -> str:
        return f"tenant {self.tenant_id}"


class GcReport(models.Model):
    """What a model said of an agent's log (seed 001), sealed. Its agent reads it, or a person whose grant covers all
    memories; kept as long as what it may quote."""

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="gc_reports", db_index=False)
    number = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    model = models.CharField(max_length=200)
    entries = models.PositiveBigIntegerField(help_text="that there were")
    left_out = models.PositiveBigIntegerField(default=0, help_text="of them, the oldest, for want of room")
    sealed = models.BinaryField()
    withdrawn_at = models.DateTimeField(null=True, help_text="emptied: what it may quote was redacted")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="gc_report_number_in_agent")]

    def __str__(self) -> str:
        return f"report {self.number}"
