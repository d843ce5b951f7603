"""Memories, and records about them. Rows hold metadata and sealed bytes, never plain text."""

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any, Self

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length

from memory.models.agents import Agent
from memory.policy.categories import SCOPES


class Kind(models.TextChoices):
    """Memories of the kind `core` are permanent and count towards the budget. Memories of the kind `journal` are the
    dated log."""

    CORE = "core"
    JOURNAL = "journal"


class Layer(models.TextChoices):
    """Where a memory is. A memory beneath was core memory. It no longer counts towards the budget and is not in the
    context, but search finds it."""

    CORE = "core"
    JOURNAL = "journal"
    BENEATH = "beneath"
    DISCARDED = "discarded"


class Scope(models.TextChoices):
    COMMON = "common"
    PRIVATE = "private"
    PROJECT = "project"


class Source(models.TextChoices):
    """The origin of a memory: the agent, its log of runs, or a notice of the service."""

    AGENT = "agent"
    RUN = "run"
    SYSTEM = "system"


_KEPT = Q(discarded_at__isnull=True)
_ACTIVE = Q(discarded_at__isnull=True, beneath_at__isnull=True)
_NOT_ACTIVE = Q(discarded_at__isnull=False) | Q(beneath_at__isnull=False)


def layer_of(state: Mapping[str, Any]) -> str:
    """Return the layer of a memory with these fields."""
    if state["discarded_at"] is not None:
        return Layer.DISCARDED
    return Layer.BENEATH if state["beneath_at"] is not None else state["kind"]


_LAYERS: dict[str, Q] = {
    Layer.CORE: _ACTIVE & Q(kind=Kind.CORE),
    Layer.JOURNAL: _ACTIVE & Q(kind=Kind.JOURNAL),
    Layer.BENEATH: _KEPT & Q(beneath_at__isnull=False),
    Layer.DISCARDED: ~_KEPT,
}


class MemoryQuerySet(models.QuerySet["Memory"]):
    def of(self, agent: Agent) -> Self:
        return self.filter(agent_id=agent.pk)

    def kept(self) -> Self:
        """Return the memories of all layers that are not discarded."""
        return self.filter(_KEPT)

    def active(self) -> Self:
        """Return the memories in core and in the journal."""
        return self.filter(_ACTIVE)

    def not_active(self) -> Self:
        """Return the memories beneath, and those that are discarded."""
        return self.filter(_NOT_ACTIVE)

    def core(self) -> Self:
        return self.filter(kind=Kind.CORE)

    def journal(self) -> Self:
        return self.filter(kind=Kind.JOURNAL)

    def in_layers(self, layers: Iterable[str]) -> Self:
        """Return the memories in at least one of these layers."""
        return self.filter(reduce(or_, (_LAYERS[layer] for layer in layers)))

    def numbered(self, numbers: Iterable[int]) -> Self:
        """Return the memories with these numbers. The list of numbers can have any length."""
        return self.filter(number__among=list(numbers))

    def fitting(self, most: int, most_bytes: int) -> "list[Memory]":
        """Return the first memories of a sorted query: at most `most`, and as many as have `most_bytes` sealed bytes in
        total, but at least one."""
        sizes = self.values_list("number", Length("sealed"))[:most]  # without reading the bytes
        fit = sum(end <= most_bytes for end in accumulate(size for _, size in sizes))
        return list(self[: max(1, fit)])


class Memory(models.Model):
    """A memory with sealed content. The agent can read the memory. A person can read the memory only with a grant. Rows
    are never deleted.

    `number` identifies the memory within its agent. `version` is the number of the last audit entry that changed the
    memory. Only memory/writing writes these rows.
    """

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="memories", db_index=False)
    number = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    category = models.CharField(max_length=20)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    project = models.CharField(max_length=100, blank=True)
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.AGENT)
    origin = models.DateTimeField(help_text="when its content was first recorded")
    origin_latest = models.DateTimeField(null=True, help_text="the latest origin date of its sources, if it is merged")
    created_at = models.DateTimeField()
    tokens = models.PositiveIntegerField()
    sealed = models.BinaryField()
    digest = models.BinaryField(max_length=32)
    constitutional = models.BooleanField(default=False)
    is_instruction = models.BooleanField(default=False, db_default=False, help_text="imported: it is not refined")
    discarded_at = models.DateTimeField(null=True)
    beneath_at = models.DateTimeField(null=True, help_text="when it left core memory. Search still finds it")
    superseded_by = models.PositiveBigIntegerField(null=True)
    store = models.PositiveBigIntegerField(null=True, help_text="the number of its memory store")
    place = models.BinaryField(null=True, max_length=320, help_text="keyed digests of its path, folder by folder")
    redacted_at = models.DateTimeField(null=True, help_text="when its content was removed permanently")
    version = models.PositiveBigIntegerField()

    objects = MemoryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "memories"
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="memory_number_in_agent"),
            models.CheckConstraint(
                condition=Q(constitutional=False) | _ACTIVE, name="memory_constitutional_always_active"
            ),
            models.CheckConstraint(
                condition=Q(beneath_at__isnull=True) | Q(kind="core") & ~Q(source="system"),
                name="memory_beneath_was_core",
            ),
            models.CheckConstraint(
                condition=Q(superseded_by__isnull=True) | ~_ACTIVE, name="memory_active_has_no_successor"
            ),
            models.CheckConstraint(
                condition=Q(origin_latest__isnull=True) | Q(origin_latest__gte=F("origin")),
                name="memory_latest_origin_is_not_earlier",
            ),
            models.CheckConstraint(
                condition=Q(constitutional=False) | ~Q(source="system"), name="memory_notice_never_constitutional"
            ),
            models.CheckConstraint(
                condition=Q(redacted_at__isnull=True)
                | Q(discarded_at__isnull=False, sealed=b"", digest=b"", place__isnull=True),
                name="memory_redacted_says_nothing",
            ),
            models.CheckConstraint(
                condition=Q(store__isnull=True, place__isnull=True) | Q(store__isnull=False, place__isnull=False),
                name="memory_in_store_has_place",
            ),
            models.UniqueConstraint(
                fields=["agent", "store", "place"],
                condition=_KEPT & Q(store__isnull=False),
                name="memory_path_in_store",
            ),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="memory_known_kind"),
            models.CheckConstraint(condition=Q(scope__in=Scope.values), name="memory_known_scope"),
            models.CheckConstraint(condition=Q(source__in=Source.values), name="memory_known_source"),
            models.CheckConstraint(condition=Q(category__in=list(SCOPES)), name="memory_known_category"),
            models.CheckConstraint(condition=Q(number__gt=0), name="memory_number_positive"),
        ]
        indexes = [
            # These are the columns of `counters.duplicates`, in its order: an agent may have very many equal memories.
            models.Index(
                fields=["agent", "digest", "category", "scope", "project", "tokens", "kind", "is_instruction"],
                condition=_ACTIVE,
                name="memory_active_digest",
            ),
            models.Index(fields=["agent", "version"], name="memory_by_version"),
            models.Index(
                fields=["agent", "superseded_by"], condition=Q(superseded_by__isnull=False), name="memory_by_successor"
            ),
            models.Index(fields=["agent", "kind", "origin", "number"], condition=_ACTIVE, name="memory_active_origin"),
            # These are all columns that `search.context` needs to count memories that are hidden.
            models.Index(
                fields=["agent", "kind", "category", "project", "tokens", "discarded_at"],
                condition=_ACTIVE,
                name="memory_active_category",
            ),
            models.Index(
                fields=["agent", "store", "number"], condition=_KEPT & Q(store__isnull=False), name="memory_of_store"
            ),
            models.Index(fields=["agent"], condition=Q(constitutional=True), name="memory_constitutional"),
            # For `daily_limit`, which leaves out memories that were added in the last day.
            models.Index(fields=["agent", "created_at", "kind"], condition=_ACTIVE, name="memory_active_created"),
            models.Index(
                fields=["agent", "kind", "version", "created_at"], condition=_NOT_ACTIVE, name="memory_not_active"
            ),
        ]

    def __str__(self) -> str:
        return f"memory {self.number}"

    @property
    def layer(self) -> str:
        return layer_of(vars(self))


class Creation(models.Model):
    """The result of a request with the header `Idempotency-Key`. The result is kept for a day, to answer a repeated
    request.

    `key` is a digest of the header, and `fingerprint` is a digest of the body. Both digests are keyed with the agent's
    data key. `numbers` has the numbers of memories. For a call in a session, it has the sealed result of the call.
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


class Recall(models.Model):
    """The number of times that retrieval returned a memory."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField(help_text="the number of the memory")
    times = models.PositiveBigIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="recall_of_memory")]

    def __str__(self) -> str:
        return f"memory {self.number}, recalled {self.times} time{'' if self.times == 1 else 's'}"


class CleanupDecision(models.Model):
    """The decision about a memory that was suggested for cleanup. Later suggestions depend on this decision."""

    agent = models.ForeignKey("memory.Agent", models.PROTECT, related_name="+", db_index=False)
    number = models.PositiveBigIntegerField(help_text="the number of the memory")
    category = models.CharField(max_length=20)
    is_kept = models.BooleanField(help_text="true if the memory was kept, false if it was discarded")
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="cleanup_decision_of_memory")]

    def __str__(self) -> str:
        return f"memory {self.number} was {'kept' if self.is_kept else 'discarded'}"
