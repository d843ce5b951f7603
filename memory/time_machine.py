"""The Time Machine: taking back one entry, one session, or everything since a moment or an entry.

Content-blind: it moves sealed snapshots of the trail back into the rows. A rollback is one edit of the write path, in
one transaction whatever its size, and one entry of the trail, which names the entries it undid; it can be rolled back
in its turn. What is undone is derived from those entries: no row of the trail ever changes.

Of each memory that the undone entries touched, the state before the first of them is put back. A memory that one of
them made is discarded, for nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import Max, QuerySet

from audit.models import AuditEntry, Change, Operation
from audit.trail import Actor
from memory import editing, errors
from memory.counters import recount, repeats_weight
from memory.intake import checked_content
from memory.models import Agent, Kind, Memory
from memory.snapshot import restore, snapshot

Values = Mapping[str, Any]  # a memory's columns


@dataclass(frozen=True, slots=True)
class What:
    """What is to be undone."""

    kind: str  # entry | session | since_entry | moment
    at: int | datetime

    @classmethod
    def entry(cls, seq: int) -> What:
        return cls("entry", seq)

    @classmethod
    def session(cls, number: int) -> What:
        return cls("session", number)

    @classmethod
    def since_entry(cls, seq: int) -> What:
        """Everything after this entry; 0 is before the first."""
        return cls("since_entry", seq)

    @classmethod
    def moment(cls, at: datetime) -> What:
        """Everything after this moment."""
        return cls("moment", at)

    @property
    def is_suffix(self) -> bool:
        """Whether nothing comes after what is undone, so that nothing can conflict."""
        return self.kind in ("since_entry", "moment")

    def named(self) -> dict[str, Any]:
        return {self.kind: self.at.isoformat() if isinstance(self.at, datetime) else self.at}


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rollback does, or did, in numbers. Tokens are of core memory."""

    undid: dict[str, Any]
    entry: int | None  # None for a preview
    restored: int
    discarded: int
    rewritten: int
    protection_changed: int
    tokens_before: int
    tokens_after: int
    conflicts: tuple[tuple[int, tuple[int, ...]], ...]  # memory, and the later entries that touched it
    constitutional: tuple[int, ...]  # touched by it, and constitutional now

    @property
    def applied(self) -> bool:
        return self.entry is not None


@dataclass(slots=True)
class _Plan:
    """Which entries are undone, and what each memory they touched was before them."""

    what: What
    entries: Sequence[int]
    memories: list[Memory] = field(default_factory=list)
    targets: dict[int, bytes | None] = field(default_factory=dict)  # number → snapshot, None where there was none
    conflicts: dict[int, list[int]] = field(default_factory=dict)  # number → later entries that touched it


def preview(agent: Agent, what: What) -> Figures:
    """What `roll_back` would do, conflicting memories included. Changes nothing.

    Raises UnknownEntry, NotOver, AlreadyUndone, NothingToUndo.
    """
    with editing.locked(agent) as row:
        plan = _plan(row, what)
        return _figures(row, plan, _changes_to_make(plan, row.audit_at), None)


def roll_back(
    agent: Agent,
    what: What,
    actor: Actor,
    *,
    skip_conflicts: bool = False,
    force: bool = False,
    include_constitutional: bool = False,
    reason: str = "",
) -> Figures:
    """Undo, in one transaction and one entry. Works while memory is switched off, as people may have to.

    `skip_conflicts` leaves memories that later entries touched as they are; `force` restores them all the same. Either
    way what was asked counts as undone: to settle such a memory otherwise, roll this back first. `reason` is kept.
    A memory that is constitutional now is only touched with `include_constitutional` and a reason.
    Raises UnknownEntry, NotOver, AlreadyUndone, NothingToUndo, Conflicting, Constitutional, Invalid.
    """
    if include_constitutional or reason:
        reason = checked_content(reason, "reason").strip()[:500]
    with editing.begin(agent, Operation.ROLLED_BACK, actor, is_notice=True) as edit:
        plan = _plan(edit.agent, what)
        _settle_conflicts(plan, skip=skip_conflicts, force=force)
        changes = list(_changes_to_make(plan, edit.at))
        figures = _figures(edit.agent, plan, changes, edit.seq)
        if figures.constitutional and not include_constitutional:
            raise errors.Constitutional(figures.constitutional)
        for memory, fields in changes:
            edit.change(memory, **fields)
        edit.detail = _detail(plan, figures, skipped=skip_conflicts, reason=reason)
        edited = edit.finish()
        if edited.seq is None:
            raise errors.NothingToUndo("There is nothing left of it to undo: every memory is as it was before.")
        _check(edited.agent, plan)
    return figures


def undone(agent: Agent) -> dict[int, int]:
    """Entry → the rollback that undid it, of all entries that are undone now.

    A rollback that was itself undone undoes nothing. Each undoes entries before it alone, so that the newest is right.
    """
    rollbacks = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.ROLLED_BACK).order_by("-seq")
    found: dict[int, int] = {}
    for seq, detail in rollbacks.values_list("seq", "detail"):
        if seq not in found:
            for first, last in detail["entries"]:
                found |= dict.fromkeys(range(first, last + 1), seq)
    return found


# --- what is undone


def _plan(agent: Agent, what: What) -> _Plan:
    plan = _Plan(what, _entries(agent, what))
    first = _first_changes(agent, plan.entries)
    if not first:
        raise errors.NothingToUndo("No memory was changed there.")
    plan.memories = editing.fetch(agent, sorted(first))
    befores = Change.objects.filter(pk__among=list(first.values())).values_list("number", "before")
    plan.targets = {number: None if before is None else bytes(before) for number, before in befores}
    if not what.is_suffix:
        plan.conflicts = _conflicts(agent, plan)
    return plan


def _entries(agent: Agent, what: What) -> Sequence[int] | range:
    """The numbers of the entries to undo, in order. Raises what keeps them from being undone."""
    if what.kind == "moment":
        last = AuditEntry.objects.filter(agent_id=agent.pk, at__lte=what.at).aggregate(last=Max("seq"))["last"] or 0
        return range(last + 1, agent.audit_seq + 1)
    number = what.at if isinstance(what.at, int) else 0
    if what.kind == "since_entry":
        if not 0 <= number <= agent.audit_seq:
            raise errors.UnknownEntry(f"There is no entry {number}; the last is {agent.audit_seq}.")
        return range(number + 1, agent.audit_seq + 1)
    already = undone(agent)
    if what.kind == "entry":
        return [_one(agent, number, already)]
    return _of_session(agent, number, already)


def _one(agent: Agent, seq: int, already: Mapping[int, int]) -> int:
    if not 0 < seq <= agent.audit_seq:
        raise errors.UnknownEntry(f"There is no entry {seq}; the last is {agent.audit_seq}.")
    if seq in already:
        raise errors.AlreadyUndone(f"Entry {seq} was undone by entry {already[seq]}, which can be rolled back itself.")
    return seq


def _of_session(agent: Agent, number: int, already: Mapping[int, int]) -> list[int]:
    """The session's entries that changed memories and are not undone yet."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session=number).order_by("seq")
    if not entries.exists():
        raise errors.UnknownEntry(f"There is no session {number} in the trail.")
    if not entries.filter(operation=Operation.SESSION_CLOSED).exists():
        raise errors.NotOver(f"Session {number} is not over.")
    seqs = list(entries.filter(changes__gt=0).values_list("seq", flat=True))
    left = [seq for seq in seqs if seq not in already]
    if seqs and not left:
        by = ", ".join(map(str, sorted({already[seq] for seq in seqs})))
        raise errors.AlreadyUndone(f"Session {number} was undone by entry {by}, which can be rolled back itself.")
    return left


def _as_ranges(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[3, 4, 5, 9] → (3, 5), (9, 9)."""
    if isinstance(seqs, range):
        if seqs:
            yield seqs[0], seqs[-1]
        return
    for _, run in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        yield numbers[0], numbers[-1]


# --- what memories were before


def _changes(agent: Agent, entries: Sequence[int]) -> QuerySet[Change]:
    """The changes these entries made, each memory's in order."""
    changes = Change.objects.filter(agent_id=agent.pk).order_by("number", "seq")
    if isinstance(entries, range):
        return changes.filter(seq__gte=entries.start, seq__lt=entries.stop)
    return changes.filter(seq__among=list(entries))


def _first_changes(agent: Agent, entries: Sequence[int]) -> dict[int, int]:
    """Memory → the id of the first change that these entries made to it."""
    found: dict[int, int] = {}
    for number, pk in _changes(agent, entries).values_list("number", "pk"):
        found.setdefault(number, pk)
    return found


def _conflicts(agent: Agent, plan: _Plan) -> dict[int, list[int]]:
    """Memories that later entries, outside of what is undone, left in another state: those entries.

    Digests of whole states are compared, so that edits which came to nothing, as one and its rollback, are none.
    """
    undoing = set(plan.entries)
    since = Change.objects.filter(agent_id=agent.pk, seq__gte=min(undoing), number__among=list(plan.targets))
    rows = since.order_by("number", "seq").values_list("number", "seq", "before_digest", "after_digest")
    found: dict[int, list[int]] = {}
    for number, history in groupby(rows, key=lambda row: row[0]):
        others = _others(history, undoing)
        if others:
            found[number] = others
    return found


def _others(history: Iterator[Any], undoing: set[int]) -> list[int]:
    """Of one memory's changes, those not to be undone that came after one to be undone, and that still tell."""
    found: list[int] = []
    between: list[int] = []
    left: Any = None  # the state the last undone change left
    for _, seq, before, after in history:
        state = after
        if seq in undoing:
            found += between if left is not None and before != left else []
            between, left = [], after
        elif left is not None:
            between.append(seq)
    return found + (between if between and state != left else [])


# --- doing it


def _settle_conflicts(plan: _Plan, *, skip: bool, force: bool) -> None:
    if not plan.conflicts or force:
        return
    if not skip:
        raise errors.Conflicting({number: tuple(seqs) for number, seqs in plan.conflicts.items()})
    plan.memories = [memory for memory in plan.memories if memory.number not in plan.conflicts]


def _detail(plan: _Plan, figures: Figures, *, skipped: bool, reason: str) -> dict[str, Any]:
    """What the trail keeps of it: what was undone, and against what."""
    detail: dict[str, Any] = {"undid": figures.undid, "entries": [list(run) for run in _as_ranges(plan.entries)]}
    if plan.conflicts:
        detail["skipped" if skipped else "forced"] = sorted(plan.conflicts)
    if figures.constitutional:
        detail["constitutional"] = list(figures.constitutional)
    if reason:
        detail["reason"] = reason
    return detail


def _figures(agent: Agent, plan: _Plan, changes: Iterable[tuple[Memory, dict[str, Any]]], entry: int | None) -> Figures:
    """What it comes to, counted from the states before and after."""
    counts = dict.fromkeys(("restored", "discarded", "rewritten", "protection_changed"), 0)
    tokens, protected = agent.core_tokens, []
    for memory, fields in changes:
        after = vars(memory) | fields
        for name in _kinds_of_change(vars(memory), after):
            counts[name] += 1
        tokens += _core_weight(after) - _core_weight(vars(memory))
        if memory.constitutional:
            protected.append(memory.number)
    return Figures(
        undid=plan.what.named(),
        entry=entry,
        tokens_before=agent.core_tokens,
        tokens_after=tokens,
        conflicts=tuple((number, tuple(seqs)) for number, seqs in sorted(plan.conflicts.items())),
        constitutional=tuple(protected),
        **counts,
    )


def _changes_to_make(plan: _Plan, at: datetime | None) -> Iterator[tuple[Memory, dict[str, Any]]]:
    """The memories that are not yet what they were, with the values that make them so."""
    for memory in plan.memories:
        target = plan.targets[memory.number]
        if target is None:
            fields = {"discarded_at": memory.discarded_at or at, "superseded_by": None, "constitutional": False}
            if any(getattr(memory, name) != value for name, value in fields.items()):
                yield memory, fields
        elif snapshot(memory) != target:
            yield memory, restore(target)


def _kinds_of_change(before: Values, after: Values) -> Iterator[str]:
    if before["discarded_at"] and not after["discarded_at"]:
        yield "restored"
    elif after["discarded_at"] and not before["discarded_at"]:
        yield "discarded"
    elif bytes(before["sealed"]) != bytes(after["sealed"]) or before["kind"] != after["kind"]:
        yield "rewritten"
    if before["constitutional"] != after["constitutional"]:
        yield "protection_changed"


def _core_weight(memory: Values) -> int:
    tokens: int = memory["tokens"]
    return tokens if memory["kind"] == Kind.CORE and memory["discarded_at"] is None else 0


def _check(agent: Agent, plan: _Plan) -> None:
    """That the rows are what they were, and the counters what the rows give; else the transaction fails."""
    numbers = [memory.number for memory in plan.memories]
    for row in Memory.objects.filter(agent_id=agent.pk, number__among=numbers).iterator(1_000):
        target = plan.targets[row.number]
        is_right = snapshot(row) == target if target is not None else row.discarded_at is not None
        if not is_right:
            raise RestoredWrong(f"memory {row.number} is not what it was")
    counted = recount(agent) | {"duplicate_tokens": repeats_weight(agent)}
    wrong = [name for name, value in counted.items() if getattr(agent, name) != value]
    if wrong:
        raise RestoredWrong(f"counters are not what the memories give: {', '.join(wrong)}")


class RestoredWrong(RuntimeError):
    """A rollback would not have restored exactly: a fault of the program, and nothing happened."""
