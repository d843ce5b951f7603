"""The tables of sessions, the backlog, providers and gc reports. They have no unencrypted content.

The tables of notices are in `refinement.notices.models`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from memory.models import Agent, DueReason
from refinement import limits
from refinement.errors import LimitReached
from refinement.llm.base import Usage
from refinement.notices import models as _notices  # noqa: F401  Django finds its tables here


class Outcome(models.TextChoices):
    """The state of a session. It does not show a later rollback, which `undone_sessions` finds in the trail."""

    OPEN = "open"
    COMPLETED = "completed"
    DECLINED = "declined"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Mode(models.TextChoices):
    FULL = "full"
    DEDUPE_ONLY = "dedupe_only"
    STORE = "store"  # a dream: the session refines the memories of one memory store, not core memory


class Driver(models.TextChoices):
    """Who calls the model: a worker of the service, or the agent's own runtime through the API."""

    SERVER = "server"
    RUNTIME = "runtime"


def held(now: datetime) -> Q:
    """A filter for open sessions with a valid lease. A lease that ends too late is not valid, because the clock was
    wrong when it was set."""
    return Q(outcome=Outcome.OPEN, lease_until__range=(now, now + _longest_lease()))


def _longest_lease() -> timedelta:
    return timedelta(seconds=2 * settings.LEASE_SECONDS)  # the clocks of two machines can differ


class RefinementSession(models.Model):
    """A refinement session. Each agent has at most one open session. Sessions are kept forever. An ended session has no
    content.

    The agent's side and the people of the tenant can see sessions. The fields before `lease_token` are set when the
    session opens. The other fields change later.
    """

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="sessions")
    number = models.PositiveBigIntegerField()
    mode = models.CharField(max_length=12, choices=Mode.choices, default=Mode.FULL)
    store = models.PositiveBigIntegerField(null=True, help_text="the memory store that a dream refines")
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
    reserved_tokens = models.PositiveBigIntegerField(default=0, db_default=0, help_text="of the tenant's allowance")
    # Core memory before exact duplicates were removed, and the tokens of the removed ones. `duplicates_removed` also
    # counts journal memories. The figures of a dream are those of its memory store.
    tokens_before = models.PositiveBigIntegerField()
    memories_before = models.PositiveBigIntegerField()
    repeated_tokens = models.PositiveBigIntegerField(default=0)
    duplicates_removed = models.PositiveBigIntegerField(default=0)

    lease_token = models.CharField(max_length=32)
    lease_until = models.DateTimeField()
    outcome = models.CharField(max_length=12, choices=Outcome.choices, default=Outcome.OPEN)
    reason = models.CharField(max_length=40, blank=True, help_text="a code that names the limit or the error")
    problem = models.CharField(
        max_length=300, blank=True, db_default="", help_text="why the session ended early, in words, without content"
    )
    closed_at = models.DateTimeField(null=True)
    tokens_after = models.PositiveBigIntegerField()
    memories_after = models.PositiveBigIntegerField()
    batch = models.PositiveIntegerField(default=0)
    batches = models.PositiveIntegerField(default=1)
    # The memories that the agent has seen in this batch and may edit: their numbers, and the versions that it has seen.
    # The agent may also edit the versions that it made itself after entry `shown_at`.
    shown = models.JSONField(default=dict)
    shown_at = models.PositiveBigIntegerField(default=0)
    # What the current reply has found or created, in the form of `shown`. The model may edit it from the next reply on.
    pending = models.JSONField(default=dict, db_default={})
    # For a session that a runtime drives: the memories of each batch, the last reply that counted as a step, and the
    # number of calls of this reply.
    plan = models.JSONField(default=list)
    last_reply = models.CharField(max_length=64, blank=True)
    reply_calls = models.PositiveIntegerField(default=0)
    summaries = models.BinaryField(null=True, help_text="the texts that the model wrote, sealed")
    lost_tokens = models.PositiveBigIntegerField(default=0)
    changes = models.PositiveBigIntegerField(default=0)
    steps = models.PositiveIntegerField(default=0)
    searches = models.PositiveIntegerField(default=0)
    failed_calls = models.PositiveIntegerField(default=0)
    floor_refusals = models.PositiveIntegerField(default=0, help_text="number of refusals in a row")
    merged = models.PositiveBigIntegerField(default=0)
    updated = models.PositiveBigIntegerField(default=0)
    deleted = models.PositiveBigIntegerField(default=0)
    protected = models.PositiveBigIntegerField(default=0)
    demoted = models.PositiveBigIntegerField(default=0, db_default=0)
    promoted = models.PositiveBigIntegerField(default=0)
    left_out = models.PositiveBigIntegerField(default=0, db_default=0, help_text="details reported as left out of core")
    deleted_tokens = models.PositiveBigIntegerField(default=0, db_default=0, help_text="without doubles")
    model_calls = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    model_milliseconds = models.PositiveBigIntegerField(default=0)
    # Time that the service spent on opening the session and carrying out calls.
    own_microseconds = models.PositiveBigIntegerField(default=0)

    # Not a column. The entry of the rollback that undid the whole session. `refinement.undone_sessions` sets it.
    undone_by: int | None

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="session_number_in_agent"),
            models.UniqueConstraint(fields=["agent"], condition=Q(outcome="open"), name="session_one_open_per_agent"),
            models.CheckConstraint(condition=Q(outcome__in=Outcome.values), name="session_known_outcome"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="session_known_mode"),
            models.CheckConstraint(
                condition=Q(mode="store") ^ Q(store__isnull=True), name="session_mode_store_has_store"
            ),
            models.CheckConstraint(
                condition=Q(outcome="open") ^ Q(closed_at__isnull=False), name="session_closed_has_time"
            ),
        ]
        indexes = [models.Index(fields=["lease_until"], condition=Q(outcome="open"), name="session_open_lease")]

    def __str__(self) -> str:
        return f"session {self.number} of {self.agent}"

    def _do_update(self, base_qs: models.QuerySet[RefinementSession], *arguments: Any) -> Any:
        """Add the agent to the WHERE clause of `save()`, because rows may be sharded (docs/internals/scaling.md)."""
        return super()._do_update(base_qs.filter(agent_id=self.agent_id), *arguments)

    @property
    def counted_tokens(self) -> int:
        """The session's own count of core tokens: the tokens at the start, minus exact duplicates, minus the tokens
        that this session has cut. The circuit breaker uses this count."""
        return self.tokens_before - self.repeated_tokens - self.lost_tokens

    @property
    def used(self) -> Usage:
        """The model tokens that the session has used. 0 if a runtime calls the model."""
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

    def recorded_tokens(self) -> int:
        """The tokens of the recordings that the model of a dream gets. The memories may grow by as many."""
        dreams = Dream.objects.filter(agent_id=self.agent_id, session=self.number)
        return dreams.values_list("recorded_tokens", flat=True).first() or 0

    def is_held(self) -> bool:
        """Whether the lease of this open session is valid, as `held` has it."""
        return timedelta() <= self.lease_until - timezone.now() <= _longest_lease()

    def renew_lease(self) -> None:
        self.lease_until = timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)

    def count_step(self, reply: str = "") -> None:
        """Renew the lease, and count one reply of the model as a step. Further calls of the same `reply` do not count
        as steps. A new reply has seen the results of the reply before.

        The caller saves the row. Raises LimitReached.
        """
        self.renew_lease()
        if reply and reply == self.last_reply:
            if self.reply_calls >= limits.MAX_CALLS_PER_REPLY:
                raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
            self.reply_calls += 1
            return
        self.require_left("steps")
        self.steps += 1
        self.last_reply, self.reply_calls = reply, 1
        if self.pending:
            self.shown, self.pending = self.shown | self.pending, {}

    def require_left(self, what: str) -> None:
        """Raise LimitReached if no `steps`, `searches` or `changes` are left."""
        allowed = getattr(self, f"max_{what}")
        if getattr(self, what) >= allowed:
            raise LimitReached(what, allowed)

    def require_time(self) -> None:
        """Raise LimitReached if the session's time is over."""
        if (timezone.now() - self.opened_at).total_seconds() > self.max_seconds:
            raise LimitReached("seconds", self.max_seconds)


class SessionStep(models.Model):
    """One tool call of a session and its result, without content. The row is kept as long as the session."""

    session = models.ForeignKey(RefinementSession, models.CASCADE, related_name="timeline")
    agent_id = models.BigIntegerField(null=True, help_text="the session's agent; null in rows of earlier releases")
    at = models.DateTimeField()
    tool = models.CharField(max_length=32, help_text="'unknown' if the Knife has no tool of this name")
    result = models.CharField(max_length=40, help_text="'ok' or the error's code")
    memories = models.PositiveIntegerField(default=0)
    core_tokens = models.PositiveBigIntegerField()
    microseconds = models.PositiveBigIntegerField()


class Dream(models.Model):
    """A request to refine a memory store, or a copy of it, in a session of its own. An agent has at most one dream that
    is not over. The agent's side can see dreams."""

    class Status(models.TextChoices):
        PENDING = "pending"
        RUNNING = "running"
        COMPLETED = "completed"
        FAILED = "failed"
        CANCELED = "canceled"

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField()
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.PENDING)
    store = models.PositiveBigIntegerField(help_text="the memory store that it reads")
    output = models.PositiveBigIntegerField(null=True, help_text="the memory store that it changes")
    is_copy = models.BooleanField(help_text="whether it changes a copy of the memory store")
    copied = models.PositiveBigIntegerField(default=0, help_text="the last memory that was copied")
    recorded = models.JSONField(default=list, help_text="ids of the recorded sessions that it reads")
    recorded_tokens = models.PositiveBigIntegerField(default=0, help_text="tokens of these that the model gets")
    model = models.CharField(max_length=200)
    instructions = models.BinaryField(null=True, help_text="sealed")
    key = models.ForeignKey("memory.AgentKey", models.PROTECT, null=True, related_name="+")
    session = models.PositiveBigIntegerField(null=True, help_text="number of its refinement session")
    error = models.CharField(max_length=40, blank=True, help_text="a code")
    problem = models.CharField(max_length=300, blank=True, help_text="in words, without content")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="dream_number_in_agent"),
            models.UniqueConstraint(
                fields=["agent"], condition=Q(status__in=["pending", "running"]), name="dream_one_at_a_time"
            ),
        ]
        indexes = [models.Index(fields=["agent"], condition=Q(status="pending"), name="dream_pending")]


class Waiting(models.Model):
    """An agent in the backlog. The agent waits for a worker, or a worker has taken it. The row is deleted when the
    agent's session has ended, or when the agent is not due.

    The row has no foreign keys, because an insert must not wait for a lock on the agent or tenant.
    """

    agent_id = models.BigIntegerField(primary_key=True)
    tenant_id = models.BigIntegerField(db_default=0)
    provider = models.CharField(max_length=20, db_default="", help_text="the part of the model's name before the slash")
    model = models.CharField(max_length=200, db_default="")
    asked = models.BooleanField(db_default=False, help_text="true if a person requested the session")
    due_at = models.DateTimeField(null=True)
    since = models.DateTimeField()
    claim = models.BigIntegerField(help_text="the process that added the row finds it by this number")
    taken_at = models.DateTimeField(null=True, help_text="when a worker took the agent")

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "due_at"], name="waiting_by_tenant")]


class Provider(models.Model):
    """The availability of a provider, of one of its models, or of the model of one agent. All processes share it."""

    name = models.CharField(max_length=200, primary_key=True, help_text="provider, model, or number of an agent")
    failures = models.PositiveIntegerField(default=0, help_text="number of failures in a row, in all processes")
    failed_with = models.CharField(max_length=200, blank=True, help_text="the model that failed last")
    failed_tenant = models.BigIntegerField(null=True, help_text="the tenant whose call failed last")
    has_answered = models.BooleanField(default=False, db_default=False, help_text="a model whose reply arrived once")
    shut_until = models.DateTimeField(null=True, help_text="before this time, the provider is not called")
    problem = models.CharField(max_length=200, blank=True, default="", db_default="", help_text="why all calls fail")


class Served(models.Model):
    """The time when a worker last took an agent of a tenant. The row has no foreign key, as in `Waiting`."""

    tenant_id = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()


class Share(models.Model):
    """The model tokens that a tenant has used this month. The tenant's people can see them. The row has no foreign key,
    as in `Waiting`.

    `Share` and `Served` are separate tables. The transaction that ends a session changes `Share` and can be long. A
    worker that chooses an agent changes `Served`. The worker must not wait for this transaction.
    """

    tenant_id = models.BigIntegerField(primary_key=True)
    month = models.DateField(null=True, help_text="the first day of the month")
    model_tokens = models.PositiveBigIntegerField(default=0, help_text="tokens of ended sessions and gc in this month")
    reserved_tokens = models.PositiveBigIntegerField(default=0, db_default=0, help_text="by open sessions")


class GcReport(models.Model):
    """A model's report about an agent's log. The report is sealed.

    The agent can read it. A person can read it if a grant covers the whole silo. The report is withdrawn if it may
    quote content that is removed.
    """

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="gc_reports", db_index=False)
    number = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    model = models.CharField(max_length=200)
    entries = models.PositiveBigIntegerField(help_text="number of entries in the log")
    left_out = models.PositiveBigIntegerField(default=0, help_text="the oldest entries, which were too long to send")
    sealed = models.BinaryField()
    withdrawn_at = models.DateTimeField(null=True, help_text="when a redaction removed its text")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="gc_report_number_in_agent")]
