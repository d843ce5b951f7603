"""The lineage of memories: from which memories a memory was made. Nothing is decrypted."""

from collections.abc import Collection

from audit.models import AuditEntry, Change, Operation
from memory.models import Agent, Memory


def sources(agent: Agent, numbers: Collection[int]) -> set[int]:
    """Return the memories that were merged into one of these, and the memories that one of these replaced."""
    changes = Change.objects.filter(agent_id=agent.pk)
    made = changes.filter(number__among=list(numbers), before_digest__isnull=True)
    merges = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=made.values("seq"), operation=Operation.CONSOLIDATED)
    merged = changes.filter(seq__in=merges.values("seq"), before_digest__isnull=False)
    replaced = Memory.objects.of(agent).filter(superseded_by__among=list(numbers))
    return {*merged.values_list("number", flat=True), *replaced.values_list("number", flat=True)}


def successors(agent: Agent, numbers: Collection[int]) -> set[int]:
    """Return the memories that replaced one of these."""
    found = Memory.objects.of(agent).numbered(numbers).values_list("superseded_by", flat=True)
    return {number for number in found if number is not None}
