"""A plan compared with earlier migrations: each piece is new, the same, or changed. Pieces are recognized by keyed
digests alone (`memory.models.ImportedPiece`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from django.db.models import Model, QuerySet

from memory.models import Agent, ImportedPiece, Memory
from memory.policy import switches
from memory.time_machine.undone import Undone
from memory.transfer.formats.found import LeftOut
from memory.transfer.steps import Plan, State, Step

_Row = TypeVar("_Row", bound=Model)
AT_ONCE = 1_000  # digests looked up by one query
_BOTH = "says something else now, and so does memory {}, which is left: revise or discard that one yourself"
_REDACTED = "was redacted, or is in a file of which something was redacted: it is not taken again"
_OFF = "is of category {}, which is off"
_LIKE = "says the same as memory {} here"
_BEFORE = "was taken in before, as memory {}"


def among(rows: QuerySet[_Row], name: str, values: Iterable[bytes]) -> Iterator[_Row]:
    """The rows that have one of these values in a field."""
    ordered = sorted({*values})
    for start in range(0, len(ordered), AT_ONCE):
        yield from rows.filter(**{f"{name}__among": ordered[start : start + AT_ONCE]})


def compare(agent: Agent, plan: Plan, digest: Callable[[str], bytes], *, compares: bool) -> None:
    """Give each step its state, and leave out what must not be taken."""
    pieces = ImportedPiece.objects.filter(agent_id=agent.pk)
    of_files = list(among(pieces, "file_digest", (step.file for step in plan.steps)))
    alike = list(among(pieces, "text_digest", (step.text for step in plan.steps))) if compares else []
    past = _Past(agent, digest)
    past.look_up({piece.number for piece in (*of_files, *alike) if piece.number is not None})
    if compares:
        known = {bytes(piece.source_digest): piece for piece in of_files}
        states = [past.compared(step, known.get(step.source)) for step in plan.steps]
    else:
        files = {bytes(piece.file_digest) for piece in of_files if past.stands(piece)}
        states = [replace(step, state=State.SAME if step.file in files else State.NEW) for step in plan.steps]
    past.redacted_files = {bytes(piece.file_digest) for piece in of_files if past.is_redacted(piece)}
    past.redacted_texts = {bytes(piece.text_digest) for piece in alike if past.is_redacted(piece)}
    closed = switches.closed(agent)
    plan.steps = []
    for state in states:
        step, why = (state, "") if isinstance(state, Step) else state
        if step.state is not State.SAME:
            why = (
                why or past.refused(step) or (_OFF.format(step.draft.category) if step.draft.category in closed else "")
            )
        if why:
            plan.left_out.append(LeftOut(step.key, why))
        else:
            plan.steps.append(step)
    if compares:
        _leave_out_repeats(agent, plan, past, digest, alike)


def _place(of: object) -> tuple[str, str, str]:
    """Where a memory, or a draft, belongs."""
    return of.category, of.project, of.kind  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Past:
    """What became of the pieces of earlier migrations."""

    agent: Agent
    digest: Callable[[str], bytes]
    redacted_files: set[bytes] = field(default_factory=set)
    redacted_texts: set[bytes] = field(default_factory=set)
    _memories: dict[int, Memory] = field(default_factory=dict)
    _undone: Undone | None = None

    def look_up(self, numbers: set[int]) -> None:
        if numbers:
            found = Memory.objects.of(self.agent).numbered(numbers)
            self._memories = {memory.number: memory for memory in found}
            self._undone = Undone(self.agent)

    def memory(self, piece: ImportedPiece) -> Memory | None:
        return None if piece.number is None else self._memories.get(piece.number)

    def is_redacted(self, piece: ImportedPiece) -> bool:
        memory = self.memory(piece)
        return memory is not None and memory.redacted_at is not None

    def _rollback(self, piece: ImportedPiece) -> int | None:
        """The rollback that made the memory what it is now, if it took back what the migration wrote."""
        memory = self.memory(piece)
        by = self._undone.by(piece.version) if self._undone and memory else None
        return by if memory is not None and memory.version == by else None

    def stands(self, piece: ImportedPiece) -> bool:
        """Whether no rollback took its memory back."""
        memory = self.memory(piece)
        return memory is None or memory.discarded_at is None or self._rollback(piece) is None

    def compared(self, step: Step, piece: ImportedPiece | None) -> Step | tuple[Step, str]:
        """The step with its state, or with the reason why it is left out."""
        if piece is None:
            return step
        is_same, memory = bytes(piece.text_digest) == step.text, self.memory(piece)
        step = replace(step, known=bytes(piece.text_digest), number=piece.number, version=piece.version)
        if memory is None or not self.stands(piece):  # the latter: somebody took the migration back
            is_left = memory is None and is_same
            return replace(step, state=State.SAME if is_left else State.NEW, number=None, version=0)
        if memory.redacted_at is not None:
            return step, _REDACTED
        is_ours = (
            memory.version in (piece.version, self._rollback(piece))
            and memory.discarded_at is None
            and not memory.constitutional
        )
        moved = _place(memory) != _place(step.draft)
        is_unchanged = is_same and self._rollback(piece) is None
        says_it = memory.discarded_at is None and bytes(memory.digest) == self.digest(step.draft.content)
        if (is_unchanged or says_it) and not (moved and is_ours):
            return replace(step, state=State.SAME)
        if is_ours:
            return replace(step, state=State.CHANGED, replaces=moved)
        return step, _BOTH.format(memory.number)

    def refused(self, step: Step) -> str:
        is_near = step.file in self.redacted_files and not step.has_id
        return _REDACTED if is_near or step.text in self.redacted_texts else ""


def _leave_out_repeats(
    agent: Agent, plan: Plan, past: _Past, digest: Callable[[str], bytes], alike: Iterable[ImportedPiece]
) -> None:
    """New pieces that a memory says already, or that were taken in by another name, whatever became of their memory."""
    changing = {step.number for step in plan.of(State.CHANGED)}
    digests = {step.source: digest(step.draft.content) for step in plan.of(State.NEW)}
    known: dict[tuple[bytes, str, str], str] = {}
    for piece in alike:
        was = past.memory(piece)
        if was is not None and past.stands(piece) and was.number not in changing:
            known[bytes(piece.text_digest), was.category, was.project] = _BEFORE.format(was.number)
    there = Memory.objects.of(agent).active()
    for memory in among(there, "digest", digests.values()):
        if memory.number not in changing:
            known[bytes(memory.digest), memory.category, memory.project] = _LIKE.format(memory.number)
    steps, plan.steps = plan.steps, []
    for step in steps:
        place, new = (step.draft.category, step.draft.project), digests.get(step.source, b"")
        why = known.get((new, *place)) or known.get((step.text, *place)) if new else None
        if why:
            plan.left_out.append(LeftOut(step.key, why))
        else:
            plan.steps.append(step)
