"""The agent's counters of memories and tokens. The write path updates them, and `verify_audit` recomputes them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Count, F, Max, Q, Sum
from django.db.models.expressions import RawSQL
from django.utils import timezone

from audit.bulk import rows_among, update_many
from audit.models import AuditEntry, Operation
from memory.access import authority
from memory.access.heads import proven_ends
from memory.models import Agent, DueReason, Kind, Layer, Memory
from memory.writing.signals import over_budget

_GROUP = {"digest": "bytea", "category": "text", "scope": "text", "project": "text"}  # column → type in PostgreSQL


class Group(NamedTuple):
    """The values that are equal in all exact duplicates of a memory."""

    digest: bytes
    category: str
    scope: str
    project: str


FEW_PLACES = 20  # categories, scopes and projects of an edit
_INSTRUCTION = "instruction"


class Weight(NamedTuple):
    """What a memory adds to the counters. `layer` is the memory's layer. For an active instruction, it is
    `_INSTRUCTION`. `spot` is its store and its place there."""

    layer: str
    tokens: int
    constitutional: bool
    group: Group
    spot: tuple[int, bytes] | None

    @classmethod
    def of(cls, memory: Memory) -> Weight | None:
        """Return the weight of a memory. Return None for a discarded memory, because it adds nothing to the
        counters."""
        layer = memory.layer
        if layer == Layer.DISCARDED:
            return None
        group = Group(bytes(memory.digest), memory.category, memory.scope, memory.project)
        layer = _INSTRUCTION if memory.is_instruction and layer != Layer.BENEATH else layer
        spot = None if memory.store is None else (memory.store, bytes(memory.place or b""))
        return cls(layer, memory.tokens, memory.constitutional, group, spot)


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
            if weight.layer == Layer.CORE:
                agent.core_count += sign
                agent.core_tokens += sign * weight.tokens
            elif weight.layer == Layer.JOURNAL:
                agent.journal_count += sign
            elif weight.layer == Layer.BENEATH:
                agent.beneath_count += sign
                agent.beneath_tokens += sign * weight.tokens
            else:
                agent.instruction_count += sign
                agent.instruction_tokens += sign * weight.tokens
            if weight.constitutional:
                agent.constitutional_count += sign
                agent.constitutional_tokens += sign * weight.tokens
    agent.high_water_tokens = max(agent.high_water_tokens, agent.core_tokens - agent.duplicate_tokens)


def held(agent: Agent) -> int:
    """The number of the agent's memories that are not discarded."""
    return agent.core_count + agent.journal_count + agent.beneath_count + agent.instruction_count


def save(agent: Agent, entry: AuditEntry) -> None:
    """Save the agent's row: its counters, the last entry of its trail, and its due date.

    If core memory is over the budget after this edit, refinement becomes due. An erased agent is never refined.
    """
    agent.audit_seq, agent.audit_mac, agent.audit_at = entry.seq, entry.mac, entry.at
    if entry.operation == Operation.REDACTED:
        agent.redacted_seq = entry.seq
    authority.sign(agent)
    if agent.core_tokens > agent.budget_tokens and agent.wrapped_key:
        now = timezone.now()  # the trail's time can be ahead, if the clock was
        quiet = agent.quiet_until is not None and now < agent.quiet_until
        grown = agent.quiet_below_tokens is not None and agent.core_tokens >= agent.quiet_below_tokens
        when = agent.quiet_until if quiet and not grown else now
        if when is not None and (agent.due_at is None or when < agent.due_at):
            agent.due_at, agent.due_reason = when, DueReason.OVER_BUDGET
            if when <= now:
                over_budget.send(Agent, agent=agent)
    update_many([agent], _SAVED)
    transaction.on_commit(partial(proven_ends.__setitem__, agent.pk, (entry.seq, bytes(entry.mac))))


def _duplicate_delta(agent: Agent, pairs: Sequence[Pair]) -> int:
    """Return how much the edit changes the number of tokens in exact duplicates."""
    leaving = [
        (before.group, before.tokens) for before, _ in pairs if before is not None and before.layer == Layer.CORE
    ]
    coming = [(after.group, after.tokens) for _, after in pairs if after is not None and after.layer == Layer.CORE]
    if leaving == coming:
        return 0
    sizes, digests = defaultdict[Group, Counter[int]](Counter), defaultdict[tuple[str, str, str], set[bytes]](set)
    for group, _ in leaving + coming:
        digests[group.category, group.scope, group.project].add(group.digest)
    if len(digests) > FEW_PLACES:
        # With a query for each place, a write to 1,000 projects would lock SQLite for 2 to 3 seconds. For a few places,
        # these queries are faster: they count 480,000 equal memories in 0.08 s, and this one in 0.36 s.
        sizes |= duplicates(agent, rows_among(_GROUP, {group for group, _ in leaving + coming}))
        digests.clear()
    for (category, scope, project), each in digests.items():
        sizes |= duplicates(agent, each, category=category, scope=scope, project=project)
    repeated = sum(map(_repeated, sizes.values()))
    for group, tokens in leaving:
        sizes[group][tokens] -= 1
    for group, tokens in coming:
        sizes[group][tokens] += 1
    return sum(map(_repeated, sizes.values())) - repeated


def duplicates(agent: Agent, wanted: set[bytes] | RawSQL, **place: str) -> dict[Group, Counter[int]]:
    """Find the active core memories with these digests (or that meet a condition). `place` can give their category,
    scope or project. A group has memories with the same digest, category, scope and project. For each group and each
    number of tokens, count the memories.

    Equal texts can have different numbers of tokens if they were stored with different token counters. The database
    counts, because an agent may have thousands of equal memories.
    """
    sizes: dict[Group, Counter[int]] = defaultdict(Counter)
    condition: Any = wanted
    if isinstance(wanted, set):
        condition = Q(digest__among=wanted) if len(wanted) != 1 else Q(digest=next(iter(wanted)))
    is_core = ~Q(kind=Kind.JOURNAL)  # for `kind=Kind.CORE`, SQLite would use another index, and read all core memories
    equal = Memory.objects.active().filter(condition, is_core, agent_id=agent.pk, is_instruction=False, **place)
    for digest, *where, tokens, count in equal.values_list(*_GROUP, "tokens").annotate(Count("pk")).order_by():
        sizes[Group(bytes(digest), *where)][tokens] = count
    return sizes


def _repeated(sizes: Counter[int]) -> int:
    """Return the number of tokens in a group, without the tokens of its largest memory."""
    counts = {tokens: count for tokens, count in sizes.items() if count}
    return sum(tokens * count for tokens, count in counts.items()) - max(counts, default=0)


_SAVED = (
    *("next_number", "core_count", "core_tokens", "journal_count", "beneath_count", "beneath_tokens"),
    *("instruction_count", "instruction_tokens"),
    *("constitutional_count", "constitutional_tokens", "duplicate_tokens", "high_water_tokens"),
    *("due_at", "due_reason", "audit_seq", "audit_mac", "audit_at", "redacted_seq"),
    *authority.SIGNATURE,
)


def recount(agent: Agent) -> dict[str, int]:
    """Compute the counters from the rows of memories."""
    kept = Q(discarded_at__isnull=True)
    active, beneath = kept & Q(beneath_at__isnull=True), kept & Q(beneath_at__isnull=False)
    core, constitutional = active & Q(kind=Kind.CORE, is_instruction=False), active & Q(constitutional=True)
    instructions = active & Q(is_instruction=True)
    groups = (
        Memory.objects.of(agent)
        .values(*_GROUP)
        .annotate(
            cores=Count("id", filter=core),
            weight=Sum("tokens", filter=core, default=0),
            largest=Max("tokens", filter=core, default=0),
            journals=Count("id", filter=active & Q(kind=Kind.JOURNAL)),
            beneaths=Count("id", filter=beneath),
            beneath_weight=Sum("tokens", filter=beneath, default=0),
            instructions=Count("id", filter=instructions),
            instruction_weight=Sum("tokens", filter=instructions, default=0),
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
        beneath_count=Sum("beneaths", default=0),
        beneath_tokens=Sum("beneath_weight", default=0),
        instruction_count=Sum("instructions", default=0),
        instruction_tokens=Sum("instruction_weight", default=0),
        constitutional_count=Sum("protected", default=0),
        constitutional_tokens=Sum("protected_weight", default=0),
        next_number=Max("last", default=0) + 1,
    )
    return {name: int(value) for name, value in totals.items()}
