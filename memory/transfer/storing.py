"""Store the memories of a file: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from audit.models import Operation
from audit.trail import Actor
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import edits, operations


@dataclass(slots=True)
class Stored:
    """What an import did."""

    imported: int = 0
    tokens: int = 0
    constitutional: int = 0


def store(
    agent: Agent, drafts: Iterator[Draft], actor: Actor, done: Stored, *, at_once: int, advance: Callable[[int], None]
) -> None:
    """One transaction, with an audited edit for each `at_once` memories. Raises MemoryDisabled, CategoryDisabled, and
    what `drafts` raises."""
    with edits.locked(agent) as row:
        detail = {"import": row.audit_seq + 1}  # a rollback of the import finds its entries by it
        while batch := list(islice(drafts, at_once)):
            edited = operations.remember(row, batch, actor, operation=Operation.IMPORTED, detail=detail)
            done.imported += len(batch)
            done.tokens += sum(memory.tokens for memory in edited.memories)
            advance(len(batch))
