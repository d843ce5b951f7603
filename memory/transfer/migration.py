"""Carry out a migration in one transaction. Each audit entry of a migration also stores the number of the migration's
first entry. So a rollback undoes all these entries together."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from audit.bulk import ROWS_AT_ONCE
from audit.models import Operation
from audit.trail import Actor
from memory import errors
from memory.models import Agent, ImportBody, ImportedPiece, ImportJob, Memory
from memory.silo.silo import Silo
from memory.transfer.planning import State, Step
from memory.writing import edits, operations

AT_ONCE = 1_000  # memories in one audit entry


class Figures(NamedTuple):
    """The result of a migration."""

    entry: int | None  # the first audit entry, for a rollback; None if nothing was stored
    stored: int = 0
    revised: int = 0
    tokens: int = 0


class NotAsWritten(RuntimeError):
    """A stored memory was read back, and differs from the text that was written. Nothing was stored."""


def migrate(
    agent: Agent, steps: Sequence[Step], actor: Actor, *, advance: Callable[[int], None] = lambda _: None
) -> Figures:
    """Store the new pieces, and revise the memories of the changed pieces. If one piece fails, nothing is stored. Each
    memory is read back and compared with its draft. Raises MemoryDisabled, CategoryDisabled, NotAsWritten. Raises
    TrailChanged if another migration stored some of these pieces in the meantime."""
    steps = [step for step in steps if step.state is not State.SAME]
    if not steps:
        return Figures(None)
    with edits.locked(agent) as row:
        _require_as_planned(row, steps)
        detail = {"import": row.audit_seq + 1}
        if replaced := [step.number for step in steps if step.replaces and step.number]:
            operations.discard(row, replaced, actor, detail=detail)
        revised = [step for step in steps if step.state is State.CHANGED and not step.replaces]
        stored = [step for step in steps if step.state is State.NEW or step.replaces]
        tokens = 0
        for start in range(0, len(stored), AT_ONCE):
            batch = stored[start : start + AT_ONCE]
            tokens += _store(row, batch, actor, detail)
            advance(len(batch))
        for step in revised:
            tokens += _revise(row, step, actor, detail)
            advance(1)
    return Figures(detail["import"], len(stored), len(revised), tokens)


def skip(agent: Agent, steps: Sequence[Step]) -> int:
    """Record that these pieces are skipped. Return the number of skipped pieces. A skipped piece is offered again when
    it changes."""
    steps = [step for step in steps if step.state is not State.SAME and not step.replaces]
    with edits.locked(agent) as row:
        _require_as_planned(row, steps)
        _note(row, steps)
    return len(steps)


def _require_as_planned(row: Agent, steps: Sequence[Step]) -> None:
    pieces = ImportedPiece.objects.filter(agent_id=row.pk, source_digest__among={step.source for step in steps})
    there = {bytes(piece.source_digest): bytes(piece.text_digest) for piece in pieces}
    if any(there.get(step.source) != step.known for step in steps):
        raise errors.TrailChanged("Another migration stored some of these pieces. Detect again. Nothing was stored.")


def _store(row: Agent, batch: Sequence[Step], actor: Actor, detail: Mapping[str, Any]) -> int:
    drafts = [step.draft for step in batch]
    done = operations.remember(row, drafts, actor, operation=Operation.IMPORTED, detail=detail)
    numbers = [memory.number for memory in done.memories]
    stored = [replace(s, number=n, version=done.seq or 0) for s, n in zip(batch, numbers, strict=True)]
    _require_as_written(row, stored)
    _note(row, stored)
    return sum(memory.tokens for memory in done.memories)


def _revise(row: Agent, step: Step, actor: Actor, detail: Mapping[str, Any]) -> int:
    draft, number = step.draft, step.number or 0
    done = operations.revise(
        row, number, actor, content=draft.content, tags=draft.tags, origin=draft.origin, detail=detail
    )
    [memory] = edits.fetch(row, [number])
    _require_as_written(row, [step])
    _note(row, [replace(step, version=memory.version)])
    return sum(memory.tokens for memory in done.memories)


def _require_as_written(row: Agent, steps: Sequence[Step]) -> None:
    """Read the memories back, and compare them with the drafts. Raises NotAsWritten."""
    silo, numbers = Silo.for_agent(row), [step.number or 0 for step in steps]
    found = ((memory, silo.open(memory)) for memory in Memory.objects.of(row).numbered(numbers))
    written = {memory.number: (opened.content, opened.tags, memory.origin) for memory, opened in found}
    for step in steps:
        if written.get(step.number or 0) != (step.draft.content, tuple(step.draft.tags), step.draft.origin):
            raise NotAsWritten(f"memory {step.number} differs from what was written")


def _note(row: Agent, steps: Sequence[Step]) -> None:
    if known := [step.source for step in steps if step.known is not None]:
        ImportedPiece.objects.filter(agent_id=row.pk, source_digest__among=known).delete()
    pieces = [
        ImportedPiece(
            agent_id=row.pk,
            source_digest=step.source,
            has_id=step.has_id,
            file_digest=step.file,
            text_digest=step.text,
            number=step.number,
            version=step.version,
        )
        for step in steps
    ]
    ImportedPiece.objects.bulk_create(pieces, batch_size=ROWS_AT_ONCE)


def redact(agent: Agent, numbers: Sequence[int]) -> None:
    """Remove the digests of the texts that became these memories: somebody could test a guess with them."""
    for piece in ImportedPiece.objects.filter(agent_id=agent.pk, number__among=list(numbers)):
        piece.text_digest = b""
        if not piece.has_id:  # the digest of the place may include the text
            piece.source_digest = secrets.token_bytes(32)
        piece.save(update_fields=["source_digest", "text_digest"])


def forget(agent: Agent) -> None:
    """Delete the records about the agent's imports. This is called when the agent is erased."""
    for rows in (ImportedPiece, ImportBody, ImportJob):
        rows.objects.filter(agent_id=agent.pk).delete()
