"""The agent's counters of memories and tokens. The write path updates them, and `verify_audit` recomputes them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Count, F, Max, Q, Sum

from audit.bulk import Prepared, parameter, update_many
from audit.trail import Head
from memory.models import Agent, DueReason, Kind, Memory
from memory.writing.signals import over_budget

_GROUP = ("digest", "category", "scope", "project")


class Group(NamedTuple):
    """The values that are equal in all exact duplicates of a memory."""

    digest: bytes
    category: str
    scope: str
    project: str


class Weight(NamedTuple):
    """What an active memory adds to the counters."""

    kind: str
    tokens: int
    constitutional: bool
    group: Group

    @classmethod
    def of(cls, memory: Memory) -> Weight | None:
        """Return the weight of a memory. Return None for a discarded memory, because it adds nothing to the
        counters."""
        if memory.discarded_at is not None:
            return None
        group = Group(bytes(memory.digest), memory.category, memory.scope, memory.project)
        return cls(memory.kind, memory.tokens, memory.constitutional, group)


Pair = tuple[Weight | None, Weight | None]


def apply(agent: Agent, pairs: Sequence[Pair]) -> None:
    """Update the counters of the locked agent. Each pair has the weights of a memory before and after the edit.

    Call this before the memories are written, because duplicates are counted in the stored rows.
    """
    agent.duplicate_tokens += _duplicate_delta(agent, pairs)
    for pair in pairs:
        for weight, sign in zip(pair, (-1, +1), strict=True):
            if weight is None:
                continue
            if weight.kind == Kind.CORE:
                agent.core_count += sign
                agent.core_tokens += sign * weight.tokens
            else:
                agent.journal_count += sign
            if weight.constitutional:
                agent.constitutional_count += sign
                agent.constitutional_tokens += sign * weight.tokens
    agent.high_water_tokens = max(agent.high_water_tokens, agent.core_tokens - agent.duplicate_tokens)


def save(agent: Agent, head: Head) -> None:
    """Save the agent's row: its counters, the head of its trail, and its due date.

    If core memory is over the budget after this edit, refinement becomes due. An erased agent is never refined.
    """
    agent.audit_seq, agent.audit_mac, agent.audit_at = head.seq, head.mac, head.at
    if head.at is not None and agent.core_tokens > agent.budget_tokens and agent.wrapped_key:
        quiet = agent.quiet_until is not None and head.at < agent.quiet_until
        grown = agent.quiet_below_tokens is not None and agent.core_tokens >= agent.quiet_below_tokens
        when = agent.quiet_until if quiet and not grown else head.at
        if when is not None and (agent.due_at is None or when < agent.due_at):
            agent.due_at, agent.due_reason = when, DueReason.OVER_BUDGET
            if when <= head.at:
                over_budget.send(Agent, agent=agent)
    update_many([agent], _SAVED)


def _duplicate_delta(agent: Agent, pairs: Sequence[Pair]) -> int:
    """Return how much the edit changes the number of tokens in exact duplicates."""
    leaving = [(before.group, before.tokens) for before, _ in pairs if before is not None and before.kind == Kind.CORE]
    coming = [(after.group, after.tokens) for _, after in pairs if after is not None and after.kind == Kind.CORE]
    if leaving == coming:
        return 0
    sizes = duplicates(agent, {group.digest for group, _ in leaving + coming})
    repeated = sum(map(_repeated, sizes.values()))
    for group, tokens in leaving:
        sizes[group][tokens] -= 1
    for group, tokens in coming:
        sizes[group][tokens] += 1
    return sum(map(_repeated, sizes.values())) - repeated


_core = Memory.objects.active().core().defer("sealed")
_equal_to_one = Prepared(lambda: _core.filter(agent_id=0, digest=b""))
_equal_to_any = Prepared(lambda: _core.filter(agent_id=0, digest__among=[b""]))


def duplicates(agent: Agent, digests: set[bytes]) -> dict[Group, Counter[int]]:
    """Find the active core memories with these digests. A group has memories with the same digest, category, scope and
    project. For each group and each number of tokens, count the memories.

    Equal texts can have different numbers of tokens if they were stored with different token counters.
    """
    sizes: dict[Group, Counter[int]] = defaultdict(Counter)
    if len(digests) == 1:
        equal = _equal_to_one(Kind.CORE, agent.pk, *digests)
    else:
        equal = _equal_to_any(Kind.CORE, agent.pk, parameter(digests))
    for memory in equal:
        group = Group(bytes(memory.digest), memory.category, memory.scope, memory.project)
        sizes[group][memory.tokens] += 1
    return sizes


def _repeated(sizes: Counter[int]) -> int:
    """Return the number of tokens in a group, without the tokens of its largest memory."""
    counts = {tokens: count for tokens, count in sizes.items() if count}
    return sum(tokens * count for tokens, count in counts.items()) - max(counts, default=0)


_SAVED = (
    "next_number",
    "core_count",
    "core_tokens",
    "journal_count",
    "constitutional_count",
    "constitutional_tokens",
    "duplicate_tokens",
    "high_water_tokens",
    "due_at",
    "due_reason",
    "audit_seq",
    "audit_mac",
    "audit_at",
)


def recount(agent: Agent) -> dict[str, int]:
    """Compute the counters from the rows of memories."""
    active = Q(discarded_at__isnull=True)
    core, constitutional = active & Q(kind=Kind.CORE), active & Q(constitutional=True)
    groups = (
        Memory.objects.of(agent)
        .values(*_GROUP)
        .annotate(
            cores=Count("id", filter=core),
            weight=Sum("tokens", filter=core, default=0),
            largest=Max("tokens", filter=core, default=0),
            journals=Count("id", filter=active & Q(kind=Kind.JOURNAL)),
            protected=Count("id", filter=constitutional),
            protected_weight=Sum("tokens", filter=constitutional, default=0),
            last=Max("number"),
        )
    )
    totals = groups.aggregate(
        core_count=Sum("cores", default=0),
        core_tokens=Sum("weight", default=0),
        duplicate_tokens=Sum(F("weight") - F("largest"), default=0),
        journal_count=Sum("journals", default=0),
        constitutional_count=Sum("protected", default=0),
        constitutional_tokens=Sum("protected_weight", default=0),
        next_number=Max("last", default=0) + 1,
    )
    return {name: int(value) for name, value in totals.items()}
