"""A plan compared with earlier migrations: each piece is new, the same, or changed. Pieces are recognized by keyed
digests alone (`memory.models.ImportedPiece`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from memory.models import Agent, ImportedPiece, Memory
from memory.policy import switches
from memory.time_machine.selection import Undone
from memory.transfer.formats.found import LeftOut
from memory.transfer.steps import Plan, State, Step

_BOTH = "says something else now, and so does memory {}, which is left: revise or discard that one yourself"
_REDACTED = "was redacted, or is in a file of which something was redacted: it is not taken again"
_OFF = "is of category {}, which is off"
_LIKE = "says the same as memory {} here"
_BEFORE = "was taken in before, as memory {}"


def compare(agent: Agent, plan: Plan, digest: Callable[[str], bytes], *, compares: bool) -> None:
    """Give each step its state, and leave out what must not be taken."""
    pieces = ImportedPiece.objects.filter(agent_id=agent.pk)
    of_files = list(pieces.filter(file_digest__among={step.file for step in plan.steps}))
    alike = list(pieces.filter(text_digest__among={step.text for step in plan.steps})) if compares else []
    past = _Past(agent, digest, {piece.number for piece in (*of_files, *alike) if piece.number is not None})
    redacted_files = {bytes(piece.file_digest) for piece in of_files if past.is_redacted(piece)}
    redacted_texts = {bytes(piece.text_digest) for piece in alike if past.is_redacted(piece)}
    known = {bytes(piece.source_digest): piece for piece in of_files}
    migrated_files = {bytes(piece.file_digest) for piece in of_files if past.stands(piece)}
    closed = switches.closed(agent)

    def compared(step: Step) -> Step | str:
        """The step with its state, or why it is left out."""
        if not compares:
            step = replace(step, state=State.SAME if step.file in migrated_files else State.NEW)
        elif (piece := known.get(step.source)) is not None:
            found = past.compared(step, piece)
            if isinstance(found, str):
                return found
            step = found
        if step.state is State.SAME:
            return step
        if step.text in redacted_texts or (step.file in redacted_files and not step.has_id):
            return _REDACTED
        return _OFF.format(step.draft.category) if step.draft.category in closed else step

    _keep(plan, compared)
    if compares:
        _leave_out_repeats(agent, plan, past, alike)


def _keep(plan: Plan, choose: Callable[[Step], Step | str]) -> None:
    """Each step as it is chosen. One for which there is a reason is left out."""
    steps, plan.steps = plan.steps, []
    for step in steps:
        chosen = choose(step)
        if isinstance(chosen, str):
            plan.left_out.append(LeftOut(step.key, chosen))
        else:
            plan.steps.append(chosen)


class _Past:
    """What became of the memories of earlier migrations."""

    def __init__(self, agent: Agent, digest: Callable[[str], bytes], numbers: set[int]) -> None:
        self.digest = digest
        found = Memory.objects.of(agent).numbered(numbers) if numbers else ()
        self._memories = {memory.number: memory for memory in found}
        self._undone = Undone.of(agent) if numbers else None

    def memory(self, piece: ImportedPiece) -> Memory | None:
        return None if piece.number is None else self._memories.get(piece.number)

    def is_redacted(self, piece: ImportedPiece) -> bool:
        memory = self.memory(piece)
        return memory is not None and memory.redacted_at is not None

    def _rollback(self, memory: Memory, piece: ImportedPiece) -> int | None:
        """The rollback that made the memory what it is now, if it took back what the migration wrote."""
        by = self._undone.by(piece.version) if self._undone else None
        return by if memory.version == by else None

    def stands(self, piece: ImportedPiece) -> bool:
        """Whether no rollback took its memory back."""
        memory = self.memory(piece)
        return memory is None or memory.discarded_at is None or self._rollback(memory, piece) is None

    def compared(self, step: Step, piece: ImportedPiece) -> Step | str:
        """The step with its state, or why it is left out."""
        is_same, memory = bytes(piece.text_digest) == step.text, self.memory(piece)
        step = replace(step, known=bytes(piece.text_digest))
        if memory is None:  # it was left where it is
            return replace(step, state=State.SAME if is_same else State.NEW)
        if not self.stands(piece):
            return step
        if memory.redacted_at is not None:
            return _REDACTED
        step, rollback = replace(step, number=piece.number, version=piece.version), self._rollback(memory, piece)
        is_active = memory.discarded_at is None
        is_ours = is_active and memory.version in (piece.version, rollback) and not memory.constitutional
        has_moved = _place(memory) != _place(step.draft)
        says_it = is_active and bytes(memory.digest) == self.digest(step.draft.content)
        if ((is_same and rollback is None) or says_it) and not (has_moved and is_ours):
            return replace(step, state=State.SAME)
        return replace(step, state=State.CHANGED, replaces=has_moved) if is_ours else _BOTH.format(memory.number)


def _place(of: object) -> tuple[str, str, str]:
    """Where a memory, or a draft, belongs."""
    return of.category, of.project, of.kind  # type: ignore[attr-defined]


def _leave_out_repeats(agent: Agent, plan: Plan, past: _Past, alike: Iterable[ImportedPiece]) -> None:
    """New pieces that a memory says already, or that were taken in by another name, whatever became of their memory."""
    changing = {step.number for step in plan.of(State.CHANGED)}
    digests = {step.source: past.digest(step.draft.content) for step in plan.of(State.NEW)}
    known: dict[tuple[bytes, str, str], str] = {}
    for piece in alike:
        was = past.memory(piece)
        if was is not None and past.stands(piece) and was.number not in changing:
            known[bytes(piece.text_digest), was.category, was.project] = _BEFORE.format(was.number)
    for memory in Memory.objects.of(agent).active().filter(digest__among=set(digests.values())):
        if memory.number not in changing:
            known[bytes(memory.digest), memory.category, memory.project] = _LIKE.format(memory.number)

    def unless_known(step: Step) -> Step | str:
        if step.source not in digests:
            return step
        place = step.draft.category, step.draft.project
        return known.get((digests[step.source], *place)) or known.get((step.text, *place)) or step

    _keep(plan, unless_known)
