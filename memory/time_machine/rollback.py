"""The Time Machine: taking back one entry, one session, or everything since a moment or an entry.

Content-blind: it moves sealed snapshots of the trail back into the rows. A rollback is one edit of the write path, in
one transaction whatever its size, and one entry of the trail, which names the entries it undid; it can be rolled back
in its turn. What is undone is derived from those entries: no row of the trail ever changes.

Of each memory that the undone entries touched, the state before the first of them is put back. A memory that one of
them made is discarded, for nothing is ever removed. A memory that was redacted since stays as it is, for good; so does
a notice to the agent that somebody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import OuterRef, Subquery

from audit.models import READS, AuditEntry, Change, Operation
from audit.trail import Actor
from memory import errors
from memory.models import Agent, Kind, Memory
from memory.policy.validation import checked_content
from memory.time_machine.selection import What, entries_of, runs_of
from memory.writing import cooldown, edits
from memory.writing.counters import recount
from memory.writing.edits import fields_of, snapshot

__all__ = ["What", "preview", "roll_back"]


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
    """A memory that is not yet what it was: its state now, its state then, and the values that make it so."""

    memory: Memory
    now: bytes
    then: bytes | None  # None where there was no such memory
    fields: dict[str, Any]


@dataclass(slots=True)
class _Plan:
    """Which entries are undone, and what that changes."""

    entries: Sequence[int]
    changes: list[_Change]
    redacted: tuple[int, ...]
    conflicts: dict[int, list[int]] = field(default_factory=dict)  # number → later entries that touched it


def preview(
    agent: Agent,
    what: What,
    *,
    skip_conflicts: bool = False,
    force: bool = False,
    include_constitutional: bool = False,
) -> Figures:
    """What `roll_back` would do, or what it would if it were not `refused`. Changes nothing.

    Raises UnknownEntry, SessionRunning, AlreadyUndone, NothingToUndo, Redacted, Erased.
    """
    with edits.locked(agent) as row:
        plan = _plan(row, what, row.audit_at, skip_conflicts=skip_conflicts)
        figures = _figures(row, what, plan)
    refused = ""
    if plan.conflicts and not (skip_conflicts or force):
        refused = errors.Conflict.code
    elif figures.constitutional and not include_constitutional:
        refused = errors.Constitutional.code
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
    Raises UnknownEntry, SessionRunning, AlreadyUndone, NothingToUndo, Redacted, Conflict,
    Constitutional, TrailChanged, Invalid, Erased.
    """
    if include_constitutional or reason:
        reason = checked_content(reason, "reason").strip()[:500]
    with edits.begin(agent, Operation.ROLLED_BACK, actor, is_notice=True) as edit:
        if head not in (None, edit.agent.audit_seq):
            raise errors.TrailChanged(f"The trail grew from entry {head} to {edit.agent.audit_seq}. Preview again.")
        plan = _plan(edit.agent, what, edit.at, skip_conflicts=skip_conflicts)
        if plan.conflicts and not (skip_conflicts or force):
            raise errors.Conflict(plan.conflicts)
        figures = _figures(edit.agent, what, plan, edit.seq)
        if figures.constitutional and not include_constitutional:
            raise errors.Constitutional(figures.constitutional)
        if not plan.changes:
            raise errors.NothingToUndo("There is nothing left of it to undo: every memory is as it was before.")
        for change in plan.changes:
            edit.put(change.memory, change.now, change.fields)
        if figures.rests:
            cooldown.begin(edit.agent, edit.at, figures.tokens_after)
            edit.agent.save(update_fields=cooldown.FIELDS)
        edit.detail = {"undid": figures.undid, "entries": [list(run) for run in runs_of(plan.entries)]}
        more = {
            "skipped" if skip_conflicts else "forced": sorted(plan.conflicts),
            "constitutional": list(figures.constitutional),
            "reason": reason,
        }
        edit.detail |= {name: value for name, value in more.items() if value}
        edit.finish()
        _check(edit.agent, plan)
    return figures


def _plan(agent: Agent, what: What, at: datetime | None, *, skip_conflicts: bool) -> _Plan:
    """What there is to do. `at` is when: a memory that was made since is discarded then."""
    edits.require_key(agent)
    entries, since = entries_of(agent, what)
    memories = _touched(agent, since)
    if not memories:
        raise _nothing(agent, entries)
    plan = _Plan(entries, [], tuple(memory.number for memory in memories if memory.redacted_at is not None))
    if len(plan.redacted) == len(memories):
        raise errors.Redacted(plan.redacted)
    for memory in memories:
        if memory.redacted_at is not None:
            continue
        first_before, now, fields = vars(memory)["then"], snapshot(memory), {}
        then = None if first_before is None else bytes(first_before)
        if then is None:
            gone = {"discarded_at": memory.discarded_at or at, "superseded_by": None, "constitutional": False}
            fields = gone if any(getattr(memory, name) != value for name, value in gone.items()) else {}
        elif now != then:
            fields = fields_of(then)
        if fields:
            plan.changes.append(_Change(memory, now, then, fields))
    if plan.changes and not isinstance(since, range):
        plan.conflicts = _conflicts(agent, plan, set(since))
    if skip_conflicts:
        plan.changes = [change for change in plan.changes if change.memory.number not in plan.conflicts]
    return plan


def _touched(agent: Agent, entries: Sequence[int]) -> list[Memory]:
    """The memories that these entries changed, each with what it was before the first of them, `then`."""
    changes = Change.objects.filter(agent_id=agent.pk)
    if isinstance(entries, range):
        undone = changes.filter(seq__gte=entries.start, seq__lt=entries.stop)
    else:
        undone = changes.filter(seq__among=list(entries))
    reads = AuditEntry.objects.filter(READS, agent_id=agent.pk, changes__gt=0)
    notices = changes.filter(seq__in=reads.values("seq"))  # whoever read could otherwise have the agent not know
    first = undone.filter(number=OuterRef("number")).order_by("seq")
    rows = Memory.objects.of(agent).filter(number__in=undone.values("number"))
    rows = rows.exclude(number__in=notices.values("number"))
    return list(rows.order_by("number").annotate(then=Subquery(first.values("before")[:1])))


def _nothing(agent: Agent, entries: Sequence[int]) -> errors.NothingToUndo:
    """What to say where no memory was changed. A memory file is no part of the silo."""
    trims = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.TRIMMED, changes=0)
    is_file = trims.filter(seq__among=list(entries)).exists()
    file = ": a memory file was trimmed, which nothing restores" if is_file else ""
    return errors.NothingToUndo(f"No memory was changed there{file}.")


def _conflicts(agent: Agent, plan: _Plan, undoing: set[int]) -> dict[int, list[int]]:
    """Memories to change that later entries, outside of what is undone, left in another state: those entries.

    Digests of whole states are compared, so that edits which came to nothing, as one and its rollback, are none.
    """
    numbers = [change.memory.number for change in plan.changes]
    changes = Change.objects.filter(agent_id=agent.pk, seq__gte=min(undoing), number__among=numbers)
    rows = changes.order_by("number", "seq").values_list("number", "seq", "before_digest", "after_digest")
    found: dict[int, list[int]] = {}
    for number, history in groupby(rows, key=itemgetter(0)):
        others: list[int] = []
        between: list[int] = []
        state = left = None  # the last state, and the state the last undone change left
        for _, seq, before, state in history:
            if seq in undoing:
                others += between if before != left else []
                between, left = [], state
            elif left is not None:
                between.append(seq)
        others += between if state != left else []
        if others:
            found[number] = others
    return found


def _figures(agent: Agent, what: What, plan: _Plan, entry: int | None = None) -> Figures:
    """What it comes to, counted from the states before and after."""
    counts: Any = dict.fromkeys(("restored", "discarded", "rewritten", "protection_changed"), 0)
    tokens = agent.core_tokens
    for change in plan.changes:
        before = vars(change.memory)
        after = before | change.fields
        was_gone, is_gone = bool(before["discarded_at"]), bool(after["discarded_at"])
        if was_gone != is_gone:
            counts["discarded" if is_gone else "restored"] += 1
        elif bytes(before["sealed"]) != bytes(after["sealed"]) or before["kind"] != after["kind"]:
            counts["rewritten"] += 1
        counts["protection_changed"] += before["constitutional"] != after["constitutional"]
        tokens -= before["tokens"] if before["kind"] == Kind.CORE and not was_gone else 0
        tokens += after["tokens"] if after["kind"] == Kind.CORE and not is_gone else 0
    return Figures(
        undid={what.kind: what.at.isoformat() if isinstance(what.at, datetime) else what.at},
        head=agent.audit_seq,
        entry=entry,
        tokens_before=agent.core_tokens,
        tokens_after=tokens,
        conflicts=tuple((number, tuple(seqs)) for number, seqs in sorted(plan.conflicts.items())),
        constitutional=tuple(change.memory.number for change in plan.changes if change.memory.constitutional),
        redacted=plan.redacted,
        rests=tokens > max(agent.budget_tokens, agent.core_tokens),
        **counts,
    )


def _check(agent: Agent, plan: _Plan) -> None:
    """That the rows are what they were, and the counters what the rows give; else the transaction fails."""
    then = {change.memory.number: change.then for change in plan.changes}
    for row in Memory.objects.of(agent).numbered(then):
        state = then[row.number]
        is_right = snapshot(row) == state if state is not None else row.discarded_at is not None
        if not is_right:
            raise RestoredWrong(f"memory {row.number} is not what it was")
    wrong = [name for name, value in recount(agent).items() if getattr(agent, name) != value]
    if wrong:
        raise RestoredWrong(f"counters are not what the memories give: {', '.join(wrong)}")


class RestoredWrong(RuntimeError):
    """A rollback would not have restored exactly: a fault of the program, and nothing happened."""
