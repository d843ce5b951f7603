"""Redaction: what some memories say is removed for good, from their rows and from the trail (a data subject's request).

The one exception to "nothing is lost". Rows, actors, times and digests of what was removed stay, so that the chain
verifies and a replay says "redacted"; content, tags and the keyed digest, by which a guess could be tried, go. Asked
for and agreed to as `memory/consent/removal_requests.py` has it. There is no way back, and the Time Machine leaves such
memories alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Max, Min, QuerySet

from audit import disk, redactions, trail
from audit.bulk import streamed
from audit.models import AuditEntry, Change, Operation
from audit.trail import Actor
from memory import errors
from memory.consent import removal_requests, signals
from memory.models import Agent, Creation, HistoryAnalysis, Kind, Memory, RecordedSession
from memory.search import cache
from memory.vault import removing
from memory.writing import edits
from memory.writing.edits import KeyedDigest


@dataclass(frozen=True, slots=True)
class Related:
    """Another memory that may say the same, and is left as it is: somebody has to decide about it."""

    number: int
    # source: merged into it | merged: made from it | same words: equal, now or once | notice, shown: of a session |
    # told: the memory of a session, or a topic, that an interaction was recorded in
    why: str
    state: str  # active | discarded


@dataclass(frozen=True, slots=True)
class Figures:
    """What a redaction removes, or removed, in numbers."""

    request: int | None  # None for a preview
    entry: int | None  # None until it is carried out
    memories: tuple[int, ...]
    active: int  # of them, discarded by it
    constitutional: tuple[int, ...]  # of them, and no longer so
    changes: int  # of the trail that lose their snapshots' bodies
    notes: int  # sealed notes of entries: what edits of these memories dropped
    tokens_before: int
    tokens_after: int
    related: tuple[Related, ...]
    former_vaults: tuple[str, ...]  # folders that may still have files of theirs, which are not looked at


def preview(agent: Agent, numbers: Sequence[int]) -> Figures:
    """What `redact` would do. Changes nothing, and locks nothing: to look through a long trail takes seconds, in which
    others write (on SQLite one lock keeps every agent waiting). Raises UnknownMemory, Repeated, Redacted."""
    return _figures(agent, _memories(agent, numbers), None, None)


def redact(agent: Agent, request: int, actor: Actor, *, include_constitutional: bool = False) -> Figures:
    """Carry out a request, on the agent's side, in one transaction. An open refinement session ends: its model may
    have read what goes.

    Raises ConsentNeeded, NoRequest, Redacted, Constitutional.
    """
    with edits.locked(agent) as row:
        asked = removal_requests.to_settle(row, request, actor, Operation.REDACTION_REQUESTED)
        signals.removing.send(Agent, agent=row, why="redaction")
        transaction.on_commit(lambda: cache.forget(row.pk))  # first: files take their time
        with edits.begin(row, Operation.REDACTED, actor, is_notice=True) as edit:
            memories = _memories(edit.agent, asked.memories)
            figures = _figures(edit.agent, memories, request, edit.seq)
            if figures.constitutional and not include_constitutional:
                raise errors.Constitutional(figures.constitutional)
            notes = _notes(edit.agent, figures.memories)
            edit.detail = {"request": request} | redactions.as_detail(_bodies(edit.agent, memories), notes)
            for memory in memories:
                gone = memory.discarded_at or edit.at
                values = {"sealed": b"", "digest": b"", "constitutional": False}
                edit.change(memory, discarded_at=gone, redacted_at=edit.at, **values)
            disk.empty_log_on_commit()
            Creation.objects.filter(agent_id=row.pk).delete()  # keyed digests of what was sent, on which to try a guess
            _unname(row, figures.memories)
            HistoryAnalysis.objects.filter(agent_id=row.pk, memory__in=figures.memories).delete()
            edit.finish()
            trail.strip(row.pk, figures.memories, notes)
    return figures


def _memories(agent: Agent, numbers: Sequence[int]) -> list[Memory]:
    """Those that are still there to be redacted. Raises Redacted when none is."""
    memories = [memory for memory in edits.fetch(agent, sorted(numbers)) if memory.redacted_at is None]
    if not memories:
        raise errors.Redacted(numbers)
    return memories


def _bodies(agent: Agent, memories: Iterable[Memory]) -> dict[int, set[bytes]]:
    """The digests of the bodies that the trail keeps of each memory."""
    found: dict[int, set[bytes]] = {memory.number: set() for memory in memories}
    changes = Change.objects.filter(agent_id=agent.pk, number__among=list(found)).values_list("number", "after")
    with streamed(changes) as rows:
        for number, after in rows:
            if after is not None:  # as SQL can write it; `verify_audit` tells
                found[number].add(trail.body_digest(bytes(after)))
    return found


def _notes(agent: Agent, numbers: Sequence[int]) -> list[int]:
    """Entries that edited these memories and keep, sealed, what they dropped."""
    touched = _edits_of(agent, numbers)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, sealed__isnull=False, seq__in=touched.values("seq"))
    return list(entries.order_by("seq").values_list("seq", flat=True))


def _edits_of(agent: Agent, numbers: Iterable[int]) -> QuerySet[Change]:
    return Change.objects.filter(agent_id=agent.pk, number__among=list(numbers))


def _figures(agent: Agent, memories: Sequence[Memory], request: int | None, entry: int | None) -> Figures:
    numbers = tuple(memory.number for memory in memories)
    active = [memory for memory in memories if memory.discarded_at is None]
    return Figures(
        request=request,
        entry=entry,
        memories=numbers,
        active=len(active),
        constitutional=tuple(memory.number for memory in memories if memory.constitutional),
        changes=_edits_of(agent, numbers).count(),
        notes=len(_notes(agent, numbers)),
        tokens_before=agent.core_tokens,
        tokens_after=agent.core_tokens - sum(memory.tokens for memory in active if memory.kind == Kind.CORE),
        related=tuple(_related(agent, numbers)),
        former_vaults=removing.former(agent),
    )


# --- what else may say it


def _related(agent: Agent, numbers: Sequence[int]) -> list[Related]:
    """Other memories that may repeat what these say, found without opening any.

    What they were merged from, and what that was; what was merged from any of it and what says the same, and so on from
    there; then the notices of the sessions that edited any of it, in which the agent's own words stand, and of those
    whose model was, or could have been, shown it.
    """
    why = dict.fromkeys(_sources(agent, numbers), "source")
    fresh = why.keys() | set(numbers)
    while fresh:
        found = dict.fromkeys(_of_same_words(agent, fresh), "same words")
        found |= dict.fromkeys(_made_by(agent, _edits_of(agent, fresh), Operation.CONSOLIDATED), "merged")
        fresh = found.keys() - why.keys() - set(numbers)
        why |= {number: found[number] for number in fresh}
    those = [*numbers, *why]
    why |= {number: "told" for number in _told_of(agent, those) if number not in why}
    notices = dict.fromkeys(_notices(agent, _open_while(agent, those)), "shown")
    notices |= dict.fromkeys(_notices(agent, _that_edited(agent, those)), "notice")
    why = notices | why
    there = Memory.objects.of(agent).numbered(why.keys() - set(numbers))
    states = there.filter(redacted_at__isnull=True).order_by("number").values_list("number", "discarded_at")
    return [Related(number, why[number], "discarded" if gone else "active") for number, gone in states]


def _sources(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The memories that were merged into these, and into those, and so on."""
    found: set[int] = set()
    fresh = set(numbers)
    while fresh:
        made = _edits_of(agent, fresh).filter(before_digest__isnull=True)
        entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=made.values("seq"))
        merges = entries.filter(operation=Operation.CONSOLIDATED)
        merged = Change.objects.filter(agent_id=agent.pk, seq__in=merges.values("seq"), before_digest__isnull=False)
        fresh = set(merged.values_list("number", flat=True)) - found - set(numbers)
        found |= fresh
    return found


def _that_edited(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The sessions that edited them."""
    seqs = _edits_of(agent, numbers).values("seq")
    entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=seqs, session__isnull=False)
    return {session for session in entries.values_list("session", flat=True) if session is not None}


def _open_while(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The sessions that were open while one of these was active."""
    made = dict(_edits_of(agent, numbers).values_list("number").annotate(Min("seq")))
    gone = Memory.objects.of(agent).numbered(numbers).filter(discarded_at__isnull=False)
    left = dict(gone.values_list("number", "version"))
    lives = [(first, left.get(number, agent.audit_seq)) for number, first in made.items()]
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session__isnull=False)
    sessions = entries.values_list("session").annotate(Min("seq"), Max("seq"))
    return {session for session, first, last in sessions if any(made < last and first <= left for made, left in lives)}


def _notices(agent: Agent, sessions: Iterable[int]) -> set[int]:
    """What these sessions told their agent when they ended; in those that a redaction ended nobody had a word."""
    ended = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.SESSION_CLOSED)
    unheard = ended.filter(detail__reason="redaction").values_list("session", flat=True)
    heard = ended.filter(session__among=list(set(sessions) - set(unheard)))
    return _made_by(agent, heard, Operation.SESSION_CLOSED)


def _told_of(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The memories of sessions in which these were recorded, and of topics that were said anew by recording them."""
    found = {session.memory for session in recorded_in(agent, numbers) if session.memory is not None}
    recordings = _edits_of(agent, numbers).filter(before_digest__isnull=True).values_list("seq", flat=True)
    after = Change.objects.filter(agent_id=agent.pk, seq__among=[seq + 1 for seq in recordings])
    topics = Memory.objects.of(agent).filter(category="topic", number__in=after.values("number"))
    return found | set(topics.values_list("number", flat=True))


def recorded_in(agent: Agent, numbers: Iterable[int]) -> list[RecordedSession]:
    """The sessions of talk that one of these memories records."""
    those = set(numbers)
    with streamed(RecordedSession.objects.filter(agent_id=agent.pk)) as sessions:
        return [session for session in sessions if not those.isdisjoint(session.numbers)]


def _unname(agent: Agent, numbers: Sequence[int]) -> None:
    """A session's name may say what was said in it, and is kept in clear."""
    names = set(RecordedSession.objects.filter(agent_id=agent.pk).values_list("name", flat=True))
    for session in recorded_in(agent, numbers):
        plain = f"redacted-{session.pk}"
        free = (plain, *(f"{plain}-{nth}" for nth in range(2, len(names) + 3)))
        session.name = next(name for name in free if name not in names)
        names.add(session.name)
        session.save(update_fields=["name"])


def _made_by(agent: Agent, those: QuerySet[Any], operation: str) -> set[int]:
    """The memories that entries of this operation made, among the entries that `those` name."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=those.values("seq"), operation=operation)
    made = Change.objects.filter(agent_id=agent.pk, seq__in=entries.values("seq"), before_digest__isnull=True)
    return set(made.values_list("number", flat=True))


def _of_same_words(agent: Agent, numbers: Iterable[int]) -> set[int]:
    """Memories that say, or said once, exactly what one of these says, or said once: by the keyed digest."""
    states = Change.objects.filter(agent_id=agent.pk, after__isnull=False).annotate(words=KeyedDigest("after"))
    theirs = states.filter(number__among=list(numbers)).values_list("words", flat=True)
    words: Any = {bytes(digest) for digest in theirs}
    return set(states.filter(words__among=words - {b""}).values_list("number", flat=True))
