"""A migration carried out: one transaction, whose entries name the first of them, so that it is taken back as one
(seed 004, "Cross-System Migration", 4 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit import bulk
from audit.models import Operation
from audit.trail import Actor
from memory import errors
from memory.models import Agent, Memory, Moved, Original
from memory.silo.silo import Silo
from memory.transfer import originals
from memory.transfer.reconcile import known, noted, redacted_files
from memory.transfer.steps import MOVES, Fate, Step
from memory.writing import edits, operations

AT_ONCE = 1_000  # memories of an entry
MOST_KEPT = 256 * 2**20  # bytes of originals


@dataclass(frozen=True, slots=True)
class Figures:
    """What a migration did."""

    entry: int | None  # the first of its entries, by which it is taken back; none where nothing was stored
    stored: int = 0
    said_anew: int = 0
    tokens: int = 0
    files: int = 0  # that are kept as they were


def migrate(
    agent: Agent,
    steps: Sequence[Step],
    actor: Actor,
    *,
    files: Mapping[str, tuple[bytes, datetime]] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Figures:
    """Store what is new, and say anew what changed; all or nothing. `files`: what is kept of the originals, by path.

    What was stored is read back and compared before it counts. Raises MemoryDisabled, CategoryDisabled, Moved where
    another migration came between, NotAsWritten.
    """
    steps = [step for step in steps if step.fate in MOVES]
    if not steps:
        return Figures(None)
    with edits.locked(agent) as row:
        _require_as_planned(row, steps)
        entry = row.audit_seq + 1
        kept = originals.keep(row, entry, _without_redacted(row, steps, files or {}))
        detail = {"import": entry}
        replaced = [step.number for step in steps if step.fate == Fate.REPLACED and step.number is not None]
        if replaced:
            operations.discard(row, replaced, actor, detail=detail)
        tokens = _store(row, [s for s in steps if s.fate != Fate.CHANGED], actor, detail, kept, advance)
        for step in steps:
            if step.fate == Fate.CHANGED:
                tokens += _say_anew(row, step, actor, detail, kept)
                advance(1)
    count = sum(step.fate != Fate.CHANGED for step in steps)
    return Figures(entry, count, len(steps) - count, tokens, len(kept))


def _without_redacted(
    row: Agent, steps: Sequence[Step], files: Mapping[str, tuple[bytes, datetime]]
) -> dict[str, tuple[bytes, datetime]]:
    """A copy of what something was redacted of would have it again."""
    redacted = redacted_files(row, steps)
    paths = {step.path for step in steps if step.digests.file in redacted}
    return {path: file for path, file in files.items() if path not in paths}


BESIDE = frozenset({Fate.NEW, Fate.CHANGED})  # what may be left: what belongs elsewhere is asked about again


def leave_beside(agent: Agent, steps: Sequence[Step]) -> int:
    """Note that these stay where they are, and are not asked about again until they say something else; how many."""
    steps = [step for step in steps if step.fate in BESIDE]
    with edits.locked(agent) as row:
        _require_as_planned(row, steps)
        _note(row, [(step, *(step.before[0] if step.fate == Fate.CHANGED else (None, 0))) for step in steps], {})
    return len(steps)


def _require_as_planned(row: Agent, steps: Sequence[Step]) -> None:
    there = known(row, steps)
    if any(noted(there.get(step.digests.key)) != step.known for step in steps):
        raise errors.Moved("Some of it was migrated meanwhile: look again. Nothing was stored.")


def _store(
    row: Agent,
    steps: Sequence[Step],
    actor: Actor,
    detail: Mapping[str, Any],
    kept: Mapping[str, Original],
    advance: Callable[[int], None],
) -> int:
    tokens = 0
    for start in range(0, len(steps), AT_ONCE):
        batch = steps[start : start + AT_ONCE]
        drafts = [step.draft for step in batch]
        done = operations.remember(row, drafts, actor, operation=Operation.IMPORTED, detail=detail)
        _require_as_written(row, [(step, memory.number) for step, memory in zip(batch, done.memories, strict=True)])
        _note(row, [(s, m.number, done.seq or 0) for s, m in zip(batch, done.memories, strict=True)], kept)
        tokens += sum(memory.tokens for memory in done.memories)
        advance(len(batch))
    return tokens


def _say_anew(row: Agent, step: Step, actor: Actor, detail: Mapping[str, Any], kept: Mapping[str, Original]) -> int:
    draft, number = step.draft, step.number or 0
    done = operations.revise(
        row, number, actor, content=draft.content, tags=draft.tags, origin=draft.origin, detail=detail
    )
    [memory] = edits.fetch(row, [number])
    _require_as_written(row, [(step, number)])
    _note(row, [(step, number, memory.version)], kept)
    return sum(memory.tokens for memory in done.memories)


class NotAsWritten(RuntimeError):
    """What was read back is not what was written: a fault of the program, and nothing happened."""


def _require_as_written(row: Agent, pairs: Sequence[tuple[Step, int]]) -> None:
    """Validation (seed 004, "Cross-System Migration", 5)."""
    silo, numbers = Silo.for_agent(row), [number for _, number in pairs]
    rows = {m.number: m for m in bulk.select(Memory, '"agent_id" = %s', [row.pk], among=("number", numbers))}
    for step, number in pairs:
        memory, draft = rows.get(number), step.draft
        opened = None if memory is None else silo.open(memory)
        said = None if opened is None else (opened.content, opened.tags)
        if memory is None or said != (draft.content, tuple(draft.tags)) or memory.origin != draft.origin:
            raise NotAsWritten(f"memory {number} is not what was to be stored")


def _note(row: Agent, done: Sequence[tuple[Step, int | None, int]], kept: Mapping[str, Original]) -> None:
    keys = [step.digests.key for step, _, _ in done if step.known is not None]
    if keys:
        Moved.objects.filter(agent_id=row.pk, key_digest__among=keys).delete()
    bulk.insert(
        Moved,
        [
            {
                "agent_id": row.pk,
                "key_digest": step.digests.key,
                "content_digest": step.digests.said,
                "place_digest": step.digests.place,
                "file_digest": step.digests.file,
                "number": number,
                "version": version,
                "before": step.before,
                "entry": kept[step.path].entry if step.path in kept else None,
                "nth": kept[step.path].nth if step.path in kept else None,
            }
            for step, number, version in done
        ],
    )
