"""What became already of the pieces of another system's memory, and thus what is to be done about each (seed 004,
"Cross-System Migration", 2 to 4). They are known again by keyed digests alone (`memory.models.Moved`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memory.models import Agent, Memory, Moved
from memory.policy import switches
from memory.time_machine.undone import Undone
from memory.transfer.formats.found import LeftOut
from memory.transfer.steps import MOVES, Fate, Plan, Step

Digest = Callable[[str], bytes]  # keyed
AT_ONCE = 1_000  # digests looked up by one query
MOST_BEFORE = 20  # earlier states of a piece that are kept in mind
_LIKE = "says the same as memory {} here"
_TAKEN = "was taken in before, as memory {}"
_GONE = "was redacted, and what stands there now may be that: it is not taken again"
_REDACTED = "is of a file of which something was redacted, and may be that"
_LEFT = "is of a text that changed, and so did the memory that it was"
_UNTOLD = "is of a list or text that was taken in: the agent's key tells what of it is new"


def known(agent: Agent, steps: Iterable[Step]) -> dict[bytes, Moved]:
    """What was noted of these, by the digest of the key."""
    return {bytes(row.key_digest): row for row in _rows(agent, "key_digest", (step.digests.key for step in steps))}


def noted(row: Moved | None) -> tuple[bytes, int | None, int] | None:
    """What of it decides a piece's fate."""
    return None if row is None else (bytes(row.content_digest), row.number, row.version)


def settle(agent: Agent, plan: Plan, digest: Digest, *, compares: bool) -> None:
    """Give each step its fate, and leave out what is not to be taken. With `compares` by what it says, too."""
    rows = known(agent, plan.steps)
    settling = _Settling(agent, digest, compares)
    settling.look_at(rows.values())
    plan.steps = [settling.settled(step, rows.get(step.digests.key)) for step in plan.steps]
    if compares:
        _leave_out(plan, _texts_left(plan))
    else:
        _leave_out(plan, settling.untold(plan.steps))
    plan.uncopied = redacted_files(agent, plan.steps)
    _leave_out(plan, _redacted(agent, plan, rows))
    plan.steps = [_closed(agent, step) for step in plan.steps]
    if compares:
        _leave_out(plan, _repeats(agent, plan, digest))
        _leave_out(plan, settling.taken_before(plan))


Why = Callable[[Step], str]  # why a step is left out; "" for those that are not


def _leave_out(plan: Plan, why: Why) -> None:
    kept = []
    for step in plan.steps:
        if told := why(step):
            plan.left_out.append(LeftOut(step.key, told))
        else:
            kept.append(step)
    plan.steps = kept


# --- by what was noted of it


@dataclass(slots=True)
class _Settling:
    agent: Agent
    digest: Digest
    compares: bool
    _memories: dict[int, Memory] = field(default_factory=dict)
    _undone: Undone | None = None

    def look_at(self, rows: Iterable[Moved]) -> None:
        """Read what is asked about these: their memories, and what is undone."""
        numbers = {number for row in rows for number, _ in chain(row)} - self._memories.keys()
        if numbers:
            there = Memory.objects.filter(agent_id=self.agent.pk, number__among=sorted(numbers))
            self._memories |= {memory.number: memory for memory in there}
            self._undone = self._undone or Undone(self.agent)

    def settled(self, step: Step, row: Moved | None) -> Step:
        if row is None:
            return step
        fate, number = self._fate(step, row)
        before = tuple(chain(row))
        while before and before[0][0] != number:  # those that were taken back since
            before = before[1:]
        kept = before[:MOST_BEFORE] if fate in (Fate.CHANGED, Fate.REPLACED) else ()
        return replace(step, fate=fate, number=number, known=noted(row), before=kept)

    def _fate(self, step: Step, row: Moved) -> tuple[Fate, int | None]:
        is_same = bytes(row.content_digest) == step.digests.said
        if row.number is None:
            return (Fate.BESIDE if is_same else Fate.NEW), None
        memory = self._standing(row)
        if memory is None:  # somebody took the migration back, and migrates again
            return Fate.NEW, row.number
        if not self.compares:  # whether a file says what a memory says is told to the agent's side alone
            return Fate.THERE, memory.number
        is_undone = memory.number != row.number or self._undone_by(row.version) is not None
        if is_same and not is_undone and not self._is_ours_elsewhere(step, row, memory):
            return Fate.THERE, memory.number
        return self._compared(step, row, memory), memory.number

    def _compared(self, step: Step, row: Moved, memory: Memory) -> Fate:
        draft = step.draft
        if self._is_ours_elsewhere(step, row, memory):
            return Fate.REPLACED  # no memory changes its category: what is private now is not put into what was not
        if memory.discarded_at is None and bytes(memory.digest) == self.digest(draft.content):
            return Fate.THERE
        return Fate.CHANGED if self._is_ours(row, memory) else Fate.OTHERWISE

    def _is_ours_elsewhere(self, step: Step, row: Moved, memory: Memory) -> bool:
        draft = step.draft
        is_there = (memory.category, memory.project, memory.kind) == (draft.category, draft.project, draft.kind)
        return not is_there and self._is_ours(row, memory)

    def _is_ours(self, row: Moved, memory: Memory) -> bool:
        """Whether it is as a migration wrote it, or as a rollback of one put it back."""
        is_as_written = memory.version == row.version or memory.version in self._rollbacks(row)
        return is_as_written and memory.discarded_at is None and not memory.constitutional

    def _standing(self, row: Moved) -> Memory | None:
        """The newest of its memories that no rollback of a migration took back."""
        for number, _ in chain(row):
            memory = self._memories.get(number)
            if memory is not None and not self._is_taken_back(row, memory):
                return memory
        return None

    def _is_taken_back(self, row: Moved, memory: Memory) -> bool:
        if memory.discarded_at is None or memory.redacted_at is not None:
            return False
        return memory.version in self._rollbacks(row)

    def _rollbacks(self, row: Moved) -> set[int | None]:
        return {self._undone_by(version) for _, version in chain(row)} - {None}

    def _undone_by(self, version: int) -> int | None:
        return None if self._undone is None else self._undone.by(version)

    # --- by what else was noted

    def untold(self, steps: Sequence[Step]) -> Why:
        """What has no key of its own in a list, or a text, some of which is here: whether it is new is not told, for
        guesses could be tried on it."""
        rows = list(_rows(self.agent, "place_digest", (step.digests.place for step in steps if _is_part(step))))
        self.look_at(rows)
        here = {bytes(row.place_digest) for row in rows if self._standing(row) is not None}
        return lambda step: _UNTOLD if _is_part(step) and step.digests.place in here else ""

    def taken_before(self, plan: Plan) -> Why:
        """The same words by another name, whatever became of their memory: a file that was renamed."""
        rows = list(_rows(self.agent, "content_digest", (step.digests.said for step in plan.of(Fate.NEW))))
        self.look_at(rows)
        anew = {step.number for step in plan.of(Fate.CHANGED, Fate.REPLACED)}
        there: dict[Any, int] = {}
        for row in rows:
            memory = self._standing(row)
            if memory is not None and memory.number == row.number and memory.number not in anew:
                there.setdefault((bytes(row.content_digest), memory.category, memory.project), memory.number)
        return lambda step: _told(_TAKEN, there, step, step.digests.said)


def chain(row: Moved) -> Iterator[tuple[int, int]]:
    """Number and version of the memories that said it, the newest first."""
    if row.number is not None:
        yield row.number, row.version
    yield from ((number, version) for number, version in row.before)


def _is_part(step: Step) -> bool:
    return step.digests.key != step.digests.place


def _texts_left(plan: Plan) -> Why:
    """Further parts of a text whose first part is left: the memory that it was may have held them."""
    left = {step.digests.key for step in plan.of(Fate.OTHERWISE)}
    return lambda step: _LEFT if step.fate is Fate.NEW and step.digests.place in left else ""


def redacted_files(agent: Agent, steps: Iterable[Step]) -> set[bytes]:
    """The digests of files of these of which something was redacted. No copy of one is kept: it may say it still."""
    files = (step.digests.file for step in steps)
    return {bytes(row.file_digest) for row in _rows(agent, "file_digest", files, content_digest=b"")}


def _redacted(agent: Agent, plan: Plan, rows: Mapping[bytes, Moved]) -> Why:
    """What was redacted, and what may be that by another key in its file: of its words no digest is kept, for a guess
    could be tried on it. An id or a heading of its own lets in what is new."""
    places = {step.digests.place for step in plan.steps if step.fate in MOVES}
    gone = {bytes(row.place_digest) for row in _rows(agent, "place_digest", places, content_digest=b"")}

    def why(step: Step) -> str:
        row = rows.get(step.digests.key)
        if row is not None and not bytes(row.content_digest):
            return _GONE
        is_near = step.digests.place in gone or (not step.is_named and step.digests.file in plan.uncopied)
        return _REDACTED if is_near and step.fate in MOVES else ""

    return why


def _closed(agent: Agent, step: Step) -> Step:
    is_off = step.fate in MOVES and step.draft.category in switches.closed(agent)
    return replace(step, fate=Fate.OFF) if is_off else step


def _repeats(agent: Agent, plan: Plan, digest: Digest) -> Why:
    """What a memory says already in the same place, by the keyed digest."""
    digests = {step.digests.key: digest(step.draft.content) for step in plan.of(Fate.NEW)}
    anew = {step.number for step in plan.of(Fate.CHANGED, Fate.REPLACED)}  # they say something else in a moment
    there: dict[Any, int] = {}
    for wanted in _batches(digests.values()):
        rows = Memory.objects.filter(agent_id=agent.pk, discarded_at__isnull=True, digest__among=wanted)
        for number, said, category, project in rows.values_list("number", "digest", "category", "project"):
            if number not in anew:
                there.setdefault((bytes(said), category, project), number)
    return lambda step: _told(_LIKE, there, step, digests.get(step.digests.key, b""))


def _told(why: str, there: Mapping[Any, int], step: Step, digest: bytes) -> str:
    number = there.get((digest, step.draft.category, step.draft.project)) if step.fate is Fate.NEW else None
    return "" if number is None else why.format(number)


def _rows(agent: Agent, name: str, digests: Iterable[bytes], **wanted: Any) -> Iterator[Moved]:
    for batch in _batches(digests):
        yield from Moved.objects.filter(agent_id=agent.pk, **{f"{name}__among": batch}, **wanted)


def _batches(digests: Iterable[bytes]) -> Iterator[list[bytes]]:
    ordered = sorted({*digests} - {b""})
    for start in range(0, len(ordered), AT_ONCE):
        yield ordered[start : start + AT_ONCE]
