"""The Time Machine. It rolls back an entry, a session, an import, or everything since an entry or a moment.

The Time Machine copies sealed snapshots from the trail into the rows, and decrypts no content. A rollback is one edit
in one transaction. The audit entry of a rollback lists the undone entries. A rollback can itself be rolled back.

A memory that the undone entries changed gets the state that it had before the first of these changes. If the undone
entries created a memory, it is discarded. Redacted memories and notices about reads do not change.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import Count, OuterRef, Subquery

from audit.models import READS, AuditEntry, Change, Operation
from audit.trail import Actor
from audit.waiting import consistent_reads
from memory import errors
from memory.access import authority
from memory.models import Agent, Layer, Memory, Source, layer_of
from memory.policy.validation import checked_content
from memory.silo.silo import PLACE_BYTES, Silo
from memory.time_machine.selection import Part, What, entries_of, runs_of
from memory.writing import cooldown, edits, places
from memory.writing.counters import recount
from memory.writing.edits import Edit, fields_of, snapshot


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a rollback, or of its preview. All token figures are about core memory."""

    undid: dict[Part, Any]
    head: int  # the agent's last entry before the rollback
    entry: int | None  # None for a preview
    restored: int
    discarded: int
    rewritten: int
    moved: int  # from core to the journal or beneath
    protection_changed: int
    tokens_before: int
    tokens_after: int
    conflicts: tuple[tuple[int, tuple[int, ...]], ...]  # each has a memory, and the later entries that changed it
    constitutional: tuple[int, ...]  # memories that the rollback changes and that are constitutional now
    redacted: tuple[int, ...]  # memories that do not change, because they are redacted
    rests: bool  # the rollback makes the agent exceed its budget, so a cool-down begins (`memory.writing.cooldown`)
    refused: str = ""  # in a preview: the code of the error that `roll_back` would raise


class _Change(NamedTuple):
    """The change of one memory: the memory, its current snapshot, the snapshot to restore, and the values to set."""

    memory: Memory
    now: bytes
    then: bytes | None  # None if the memory did not exist
    fields: dict[str, Any]


@dataclass(slots=True)
class _Plan:
    """The plan of a rollback: the entries to undo, and the memories to change."""

    entries: Sequence[int]
    changes: list[_Change]
    redacted: tuple[int, ...]
    conflicts: dict[int, list[int]] = field(default_factory=dict)  # memory's number → the later entries that changed it
    blocked: dict[int, int] = field(default_factory=dict)  # memory's number → the memory that has its path now


def preview(
    agent: Agent, what: What, *, skip_conflicts: bool = False, force: bool = False, include_constitutional: bool = False
) -> Figures:
    """Return the figures of a rollback without changing anything. If `roll_back` would raise Conflict or
    Constitutional, the result has the code of this error in `refused`.

    Raises UnknownEntry, SessionRunning, AlreadyUndone, NothingToUndo, Redacted, Erased.
    """
    with consistent_reads():
        row = Agent.objects.select_related("tenant").get(pk=agent.pk)
        authority.require(row, agent)
        plan = _plan(row, what, row.audit_at, skip_conflicts=skip_conflicts)
        figures = _figures(row, what, plan)
    is_conflict = plan.conflicts and not (skip_conflicts or force)
    is_protected = figures.constitutional and not include_constitutional
    refused = errors.Conflict.code if is_conflict else errors.Constitutional.code if is_protected else ""
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
    """Roll back `what` in one transaction, with one audit entry. This works even while memory is off.

    If later entries changed the same memories, or gave their paths to others, there is a conflict. `skip_conflicts`
    leaves these memories as they are. `force` restores them, under another path if theirs is taken. In both cases, the
    entries count as undone. `reason` is stored in
    the audit entry. A constitutional memory changes only with `include_constitutional` and a reason. `head` is the head
    that a preview returned. If the trail has grown since the preview, the rollback is refused.

    Raises UnknownEntry, SessionRunning, AlreadyUndone, NothingToUndo, Redacted, Conflict, Constitutional, TrailChanged,
    Invalid, Erased.
    """
    if include_constitutional or reason:
        reason = checked_content(reason, "reason").strip()[:500]
    with edits.begin(agent, Operation.ROLLED_BACK, actor, is_notice=True) as edit:
        if head not in (None, edit.agent.audit_seq):
            raise errors.TrailChanged(f"The trail grew from entry {head} to {edit.agent.audit_seq}. Preview it again.")
        plan = _plan(edit.agent, what, edit.at, skip_conflicts=skip_conflicts)
        if plan.conflicts and not (skip_conflicts or force):
            raise errors.Conflict(plan.conflicts)
        figures = _figures(edit.agent, what, plan, edit.seq)
        if figures.constitutional and not include_constitutional:
            raise errors.Constitutional(figures.constitutional)
        if not plan.changes:
            raise errors.NothingToUndo("There is nothing left to undo. Every memory is already in its earlier state.")
        if plan.blocked:
            _rename_blocked(edit, plan)
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
    """Plan a rollback. `at` becomes the discard date of the memories that the undone entries created."""
    edits.require_key(agent)
    entries, since = entries_of(agent, what)
    memories = _touched(agent, since)
    if not memories:
        raise _nothing(agent, entries)
    plan = _Plan(entries, [], tuple(memory.number for memory in memories if _is_redacted(memory)))
    if len(plan.redacted) == len(memories):
        raise errors.Redacted(plan.redacted)
    for memory in memories:
        if memory.number in plan.redacted:
            continue
        first_before, now, fields = vars(memory)["then"], snapshot(memory), {}
        then = None if first_before is None else bytes(first_before)
        if then is None:
            gone = {"discarded_at": memory.discarded_at or at, "constitutional": False}
            gone |= {"beneath_at": None, "superseded_by": None}
            fields = gone if any(getattr(memory, name) != value for name, value in gone.items()) else {}
        elif now != then:
            fields = fields_of(then)
        if fields:
            plan.changes.append(_Change(memory, now, then, fields))
    if plan.changes and not isinstance(since, range):
        plan.conflicts = _conflicts(agent, plan, set(since))
    _find_blocked(agent, plan)
    if skip_conflicts:
        plan.changes = [change for change in plan.changes if change.memory.number not in plan.conflicts]
    return plan


def _is_redacted(memory: Memory) -> bool:
    """Whether the memory, or the state that it would return to, is redacted."""
    then = vars(memory)["then"]
    return memory.redacted_at is not None or (then is not None and bytes(then).find(b"\0") == len(then) - 1)


def _touched(agent: Agent, entries: Sequence[int]) -> list[Memory]:
    """Return the memories that these entries changed. Each memory gets an attribute `then`: the snapshot that the
    memory had before the first of these changes.

    Raises UnknownMemory for memories whose rows were removed by SQL.
    """
    changes = Change.objects.filter(agent_id=agent.pk)
    if isinstance(entries, range):
        undone = changes.filter(seq__gte=entries.start, seq__lt=entries.stop)
    else:
        undone = changes.filter(seq__among=list(entries))
    reads = AuditEntry.objects.filter(READS, agent_id=agent.pk, changes__gt=0)
    # The notices of reads stay, so that no reader can hide them from the agent. SQL may have added other memories.
    notices = Memory.objects.of(agent).filter(source=Source.SYSTEM)
    notices = notices.filter(number__in=changes.filter(seq__in=reads.values("seq")).values("number"))
    first = undone.filter(number=OuterRef("number")).order_by("seq")
    touched = undone.exclude(number__in=notices.values("number"))
    count = touched.order_by().values("agent_id").annotate(count=Count("number", distinct=True))
    rows = Memory.objects.of(agent).filter(number__in=touched.values("number")).order_by("number")
    found = list(rows.annotate(then=Subquery(first.values("before")[:1]), touched=Subquery(count.values("count"))))
    if found and len(found) < vars(found[0])["touched"]:
        numbers = set(touched.values_list("number", flat=True))
        raise errors.UnknownMemory(sorted(numbers - {memory.number for memory in found}))
    return found


def _find_blocked(agent: Agent, plan: _Plan) -> None:
    """Find the memories that cannot return to their path, because another memory has it now. These are conflicts."""
    spots = {}
    for change in plan.changes:
        after = vars(change.memory) | change.fields
        is_kept = after["store"] is not None and after["discarded_at"] is None
        spots[change.memory.number] = (after["store"], bytes(after["place"])) if is_kept else None
    if any(spots.values()):
        plan.blocked = places.taken(agent, spots)
        versions = dict(Memory.objects.of(agent).numbered(plan.blocked.values()).values_list("number", "version"))
        for number, other in plan.blocked.items():
            plan.conflicts.setdefault(number, []).append(versions[other])


def _rename_blocked(edit: Edit, plan: _Plan) -> None:
    """Give the blocked memories other paths: " (restored N)" is added to the part of the path that is taken."""
    others = Memory.objects.of(edit.agent).numbered(plan.blocked.values())
    depths = {row.number: len(bytes(row.place or b"")) // PLACE_BYTES for row in others}
    silo = Silo.for_agent(edit.agent)
    for at, change in enumerate(plan.changes):
        number, fields = change.memory.number, dict(change.fields)
        if number not in plan.blocked:
            continue
        parts = silo.open_label(number, fields["sealed"]).path.split("/")
        parts[min(depths[plan.blocked[number]], len(parts) - 1)] += f" (restored {edit.seq})"
        fields["sealed"] = silo.rename(number, fields["sealed"], "/".join(parts))
        fields["place"] = silo.place(fields["store"], "/".join(parts))
        then = copy(change.memory)
        vars(then).update(fields)
        plan.changes[at] = change._replace(then=snapshot(then), fields=fields)


def _nothing(agent: Agent, entries: Sequence[int]) -> errors.NothingToUndo:
    """Return the error for entries that changed no memory. If these entries trimmed the memory file, the error also
    says that this file cannot be restored."""
    trims = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.TRIMMED, changes=0)
    is_file = trims.filter(seq__among=list(entries)).exists()
    file = " A trimmed memory file cannot be restored." if is_file else ""
    return errors.NothingToUndo(f"These entries changed no memory.{file}")


def _conflicts(agent: Agent, plan: _Plan, undoing: set[int]) -> dict[int, list[int]]:
    """Map each memory with a conflict to the entries that cause the conflict. These entries changed the memory's state
    later, and this rollback does not undo them.

    Digests of whole states are compared. So an edit that was already rolled back is not a conflict.
    """
    numbers = [change.memory.number for change in plan.changes]
    changes = Change.objects.filter(agent_id=agent.pk, seq__gte=min(undoing), number__among=numbers)
    rows = changes.order_by("number", "seq").values_list("number", "seq", "before_digest", "after_digest")
    found: dict[int, list[int]] = {}
    for number, history in groupby(rows, key=itemgetter(0)):
        others: list[int] = []
        between: list[int] = []
        state = left = None  # the last state, and the state after the last undone change
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
    """Compute the figures from the states of the memories before and after the rollback."""
    counts: Any = dict.fromkeys(("restored", "discarded", "rewritten", "moved", "protection_changed"), 0)
    tokens = agent.core_tokens
    for change in plan.changes:
        before = vars(change.memory)
        after = before | change.fields
        was, now = layer_of(before), layer_of(after)
        if was != now:
            is_restored = was in (Layer.DISCARDED, Layer.BENEATH)
            counts["discarded" if now == Layer.DISCARDED else "restored" if is_restored else "moved"] += 1
        elif bytes(before["sealed"]) != bytes(after["sealed"]):
            counts["rewritten"] += 1
        counts["protection_changed"] += before["constitutional"] != after["constitutional"]
        if not before["is_instruction"]:
            tokens -= before["tokens"] if was == Layer.CORE else 0
            tokens += after["tokens"] if now == Layer.CORE else 0
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
    """Check that the memories have their earlier states, and that the counters are right.

    If not, raise RestoredWrong, so that the database discards the transaction.
    """
    then = {change.memory.number: change.then for change in plan.changes}
    for row in Memory.objects.of(agent).numbered(then):
        state = then[row.number]
        is_right = snapshot(row) == state if state is not None else row.discarded_at is not None
        if not is_right:
            raise RestoredWrong(f"memory {row.number} does not have its earlier state")
    if wrong := [name for name, value in recount(agent).items() if getattr(agent, name) != value]:
        raise RestoredWrong(f"counters differ from the memories: {', '.join(wrong)}")


class RestoredWrong(RuntimeError):
    """Error: A rollback did not restore the exact state. This is a bug. Nothing was changed."""
