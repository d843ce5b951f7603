"""The Time Machine: taking back one entry, one session, or everything since a moment or an entry.

Content-blind: it moves sealed snapshots of the trail back into the rows. A rollback is one edit of the write path, in
one transaction whatever its size, and one entry of the trail, which names the entries it undid; it can be rolled back
in its turn. What is undone is derived from those entries: no row of the trail ever changes.

Of each memory that the undone entries touched, the state before the first of them is put back. A memory that one of
them made is discarded, for nothing is ever removed. A memory that was redacted since stays as it is, for good; so does
a notice to the agent that somebody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from django.db.models import QuerySet

from audit.models import Change, Operation
from audit.trail import Actor
from memory import errors
from memory.models import Agent, Kind, Memory
from memory.policy.validation import checked_content
from memory.time_machine.selection import What, entries_of
from memory.time_machine.undone import file_trimmed, runs_of, told_of_reads
from memory.writing import cooldown, edits
from memory.writing.counters import recount, repeats_weight
from memory.writing.edits import fields_of, snapshot

__all__ = ["What", "preview", "roll_back"]

Values = Mapping[str, Any]  # a memory's columns


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rollback does, or did, in numbers. Tokens are of core memory."""

    undid: dict[str, Any]
    head: int  # the agent's last entry before it
    entry: int | None  # None for a preview
    restored: int
    discarded: int
    rewritten: int
    protection_changed: int
    tokens_before: int
    tokens_after: int
    conflicts: tuple[tuple[int, tuple[int, ...]], ...]  # memory, and the later entries that touched it
    constitutional: tuple[int, ...]  # touched by it, and constitutional now
    redacted: tuple[int, ...]  # left as they are, for good
    rests: bool  # grown beyond its budget by it, the agent is left alone for a while (`memory.writing.cooldown`)
    refused: str = ""  # of a preview: the code of what keeps it from being done so

    @property
    def applied(self) -> bool:
        return self.entry is not None


class _Change(NamedTuple):
    """A memory that is not yet what it was: its state now, and the values that make it so."""

    memory: Memory
    now: bytes
    fields: dict[str, Any]


@dataclass(slots=True)
class _Plan:
    """Which entries are undone, and what each memory they touched was before them."""

    what: What
    entries: Sequence[int]
    since: Sequence[int]  # before the first of these each memory is put back
    memories: list[Memory] = field(default_factory=list)
    targets: dict[int, bytes | None] = field(default_factory=dict)  # number → snapshot, None where there was none
    changes: list[_Change] = field(default_factory=list)
    conflicts: dict[int, list[int]] = field(default_factory=dict)  # number → later entries that touched it
    redacted: tuple[int, ...] = ()


def preview(
    agent: Agent,
    what: What,
    *,
    skip_conflicts: bool = False,
    force: bool = False,
    include_constitutional: bool = False,
) -> Figures:
    """What `roll_back` would do, or what it would if it were not `refused`. Changes nothing.

    Raises UnknownEntry, NotOver, AlreadyUndone, NothingToUndo, Redacted, Erased.
    """
    with edits.locked(agent) as row:
        plan = _plan(row, what, row.audit_at)
        is_open = bool(plan.conflicts) and not (skip_conflicts or force)
        if not is_open:
            _settle_conflicts(plan, skip=skip_conflicts, force=force)
        figures = _figures(row, plan, None)
        is_barred = bool(figures.constitutional) and not include_constitutional
        refused = errors.Conflicting.code if is_open else errors.Constitutional.code if is_barred else ""
        return replace(figures, refused=refused)


def roll_back(
    agent: Agent,
    what: What,
    actor: Actor,
    *,
    skip_conflicts: bool = False,
    force: bool = False,
    include_constitutional: bool = False,
    reason: str = "",
    head: int | None = None,
) -> Figures:
    """Undo, in one transaction and one entry. Works while memory is switched off, as people may have to.

    `skip_conflicts` leaves memories that later entries touched as they are; `force` restores them all the same. Either
    way what was asked counts as undone: to settle such a memory otherwise, roll this back first. `reason` is kept.
    A memory that is constitutional now is only touched with `include_constitutional` and a reason. With `head`, that of
    a preview, nothing happens if the trail has grown since.
    Raises UnknownEntry, NotOver, AlreadyUndone, NothingToUndo, Redacted, Conflicting,
    Constitutional, Moved, Invalid, Erased.
    """
    if include_constitutional or reason:
        reason = checked_content(reason, "reason").strip()[:500]
    with edits.begin(agent, Operation.ROLLED_BACK, actor, is_notice=True) as edit:
        if head not in (None, edit.agent.audit_seq):
            raise errors.Moved(f"The trail has grown from entry {head} to {edit.agent.audit_seq} since: look again.")
        plan = _plan(edit.agent, what, edit.at)
        _settle_conflicts(plan, skip=skip_conflicts, force=force)
        figures = _figures(edit.agent, plan, edit.seq)
        if figures.constitutional and not include_constitutional:
            raise errors.Constitutional(figures.constitutional)
        if not plan.changes:
            raise errors.NothingToUndo("There is nothing left of it to undo: every memory is as it was before.")
        for change in plan.changes:
            edit.put(change.memory, change.now, change.fields)
        if figures.rests:
            cooldown.begin(edit.agent, edit.at, figures.tokens_after)
            edit.agent.save(update_fields=cooldown.FIELDS)
        edit.detail = _detail(plan, figures, skipped=skip_conflicts, reason=reason)
        edited = edit.finish()
        _check(edited.agent, plan)
    return figures


# --- what is undone


def _plan(agent: Agent, what: What, at: datetime | None) -> _Plan:
    """What there is to do. `at` is when: a memory that was made since is discarded then."""
    edits.require_key(agent)
    plan = _Plan(what, *entries_of(agent, what))
    first = _first_changes(agent, plan.since)
    for number in told_of_reads(agent):
        first.pop(number, None)
    if not first:
        file = ": a memory file was trimmed, which nothing restores" if file_trimmed(agent, plan.entries) else ""
        raise errors.NothingToUndo(f"No memory was changed there{file}.")
    touched = edits.fetch(agent, sorted(first))
    plan.memories = [memory for memory in touched if memory.redacted_at is None]
    plan.redacted = tuple(memory.number for memory in touched if memory.redacted_at is not None)
    if not plan.memories:
        raise errors.Redacted(plan.redacted)
    firsts = [first[memory.number] for memory in plan.memories]
    befores = Change.objects.filter(agent_id=agent.pk, pk__among=firsts).values_list("number", "before")
    plan.targets = {number: None if before is None else bytes(before) for number, before in befores}
    plan.changes = list(_changes_to_make(plan, at))
    if not what.is_suffix:
        changing = {change.memory.number for change in plan.changes}  # the rest is as it was
        conflicts = _conflicts(agent, plan, set(plan.since))
        plan.conflicts = {number: seqs for number, seqs in conflicts.items() if number in changing}
    return plan


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


def _conflicts(agent: Agent, plan: _Plan, undoing: set[int]) -> dict[int, list[int]]:
    """Memories that later entries, outside of what is undone, left in another state: those entries.

    Digests of whole states are compared, so that edits which came to nothing, as one and its rollback, are none.
    """
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
    plan.changes = [change for change in plan.changes if change.memory.number not in plan.conflicts]


def _detail(plan: _Plan, figures: Figures, *, skipped: bool, reason: str) -> dict[str, Any]:
    """What the trail keeps of it: what was undone, and against what."""
    detail: dict[str, Any] = {"undid": figures.undid, "entries": [list(run) for run in runs_of(plan.entries)]}
    if plan.conflicts:
        detail["skipped" if skipped else "forced"] = sorted(plan.conflicts)
    if figures.constitutional:
        detail["constitutional"] = list(figures.constitutional)
    if reason:
        detail["reason"] = reason
    return detail


def _figures(agent: Agent, plan: _Plan, entry: int | None) -> Figures:
    """What it comes to, counted from the states before and after."""
    counts: Any = dict.fromkeys(("restored", "discarded", "rewritten", "protection_changed"), 0)
    tokens, protected = agent.core_tokens, []
    for memory, _, fields in plan.changes:
        before = {name: getattr(memory, name) for name in _COUNTED}
        after = before | fields
        for name in _kinds_of_change(before, after):
            counts[name] += 1
        tokens += _core_weight(after) - _core_weight(before)
        if memory.constitutional:
            protected.append(memory.number)
    return Figures(
        undid=plan.what.named(),
        head=agent.audit_seq,
        entry=entry,
        tokens_before=agent.core_tokens,
        tokens_after=tokens,
        conflicts=tuple((number, tuple(seqs)) for number, seqs in sorted(plan.conflicts.items())),
        constitutional=tuple(protected),
        redacted=plan.redacted,
        rests=tokens > max(agent.budget_tokens, agent.core_tokens),
        **counts,
    )


_COUNTED = ("kind", "tokens", "sealed", "constitutional", "discarded_at")


def _changes_to_make(plan: _Plan, at: datetime | None) -> Iterator[_Change]:
    for memory in plan.memories:
        target, now = plan.targets[memory.number], snapshot(memory)
        if target is None:
            fields = {"discarded_at": memory.discarded_at or at, "superseded_by": None, "constitutional": False}
            if any(getattr(memory, name) != value for name, value in fields.items()):
                yield _Change(memory, now, fields)
        elif now != target:
            yield _Change(memory, now, fields_of(target))


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
    for row in Memory.objects.of(agent).numbered(numbers):
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
