"""Redaction: delete the content of memories permanently, from their rows and from the audit trail.

It is for people who want their personal data deleted. A redaction deletes content, tags and keyed digests. With a
keyed digest, somebody could test a guess of the content. Rows, actors, times and plain digests stay, so that the audit
trail can still be verified. Nothing can restore a redacted memory, and the Time Machine skips it.
`memory/consent/requests.py` handles the requests.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from django.db import transaction
from django.db.models import Max, Min, QuerySet

from audit import disk, redactions, trail, verify
from audit.bulk import streamed
from audit.models import ActorKind, AuditEntry, Change, Operation
from audit.trail import Actor
from memory import errors
from memory.access import authority
from memory.consent import requests, versions
from memory.models import Agent, Creation, HistoryAnalysis, Kind, Layer, Memory, RecordedSession, StoreVersion
from memory.search import cache, embedding
from memory.silo.silo import Silo
from memory.time_machine import lineage
from memory.transfer import migration
from memory.vault import removing
from memory.writing import edits
from memory.writing.edits import KeyedDigest


@dataclass(frozen=True, slots=True)
class Related:
    """Another memory that may have the same content. A redaction does not delete it."""

    number: int
    # How this memory is related to X. X is a memory to redact, or another related memory. The first three reasons are
    # the lineage, which a redaction deletes unless the request excludes it:
    # source: was merged into X
    # merged: was made from X
    # same words: has or had the same content as X
    # notice: notice of a session that edited X
    # shown: notice of a session whose model could read X
    # told: summary of a recorded session, or topic, that includes X
    why: str
    state: str  # the layer that it is in


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a redaction, or of its preview. They say what is deleted."""

    request: int | None  # None for a preview
    entry: int | None  # None for a preview
    memories: tuple[int, ...]  # the given ones and their lineage, without those that are redacted already
    active: int  # how many of the memories are active; the redaction discards these
    constitutional: tuple[int, ...]  # those of the memories that are protected; the redaction ends the protection
    changes: int  # number of changes in the audit trail whose snapshots lose their content
    notes: int  # number of encrypted notes in entries; they have text that was removed by edits of these memories
    tokens_before: int
    tokens_after: int
    lineage: tuple[Related, ...]  # the memories besides the given ones
    related: tuple[Related, ...]
    former_vaults: tuple[str, ...]  # folders that may still contain files of these memories; these files stay

    @property
    def fingerprint(self) -> str:
        """A digest of the numbers of the memories, and of those that are protected."""
        return hashlib.sha256(repr((self.memories, self.constitutional)).encode()).hexdigest()


def preview(agent: Agent, numbers: Sequence[int], excluded: Sequence[int] = (), version: int = 0) -> Figures:
    """Return the figures of `redact`, and change nothing. `version` is as in `requests.ask_redaction`.

    The agent is not locked, because it takes seconds to read a long audit trail.

    Raises UnknownMemory, DuplicateNumbers, Redacted.
    """
    if version:
        return _figures(agent, _Whole([], {}), None, None, tuple(numbers))
    return _figures(agent, _Whole.of(agent, numbers, excluded), None, None)


def redact(
    agent: Agent, request: int, actor: Actor, *, include_constitutional: bool = False, shown: str | None = None
) -> Figures:
    """Carry out a request for redaction in the name of the agent's side, in one transaction.

    This ends an open refinement session, because its model may have read the content. `shown` is the fingerprint of the
    figures that were approved. Raises ConsentRequired, RequestNotFound, Redacted, Constitutional, TrailChanged.
    """
    with edits.locked(agent) as row:
        request_row = requests.require_decidable(row, request, actor, Operation.REDACTION_REQUESTED)
        requests.removing.send(Agent, agent=row, why="redaction")
        transaction.on_commit(lambda: cache.forget(row.pk))  # before the files are deleted, which takes longer
        with edits.begin(row, Operation.REDACTED, actor, is_notice=True) as edit:
            Creation.objects.filter(agent_id=row.pk).delete()  # somebody could test a guess with their keyed digests
            disk.empty_log_on_commit()
            if request_row.version:
                [memory] = edits.fetch(edit.agent, request_row.memories)
                _require_alone(edit.agent, memory, request_row.version)
                notes = _notes(edit.agent, [memory.number])
                versions.redact(edit, memory, request_row.version, request, notes)
                embedding.remove(row, [memory.number])
                return _figures(edit.agent, _Whole([], {}), request, edit.seq, (memory.number,))
            whole = _Whole.of(edit.agent, request_row.memories, request_row.excluded)
            memories, figures = whole.memories, _figures(edit.agent, whole, request, edit.seq)
            if shown not in (None, figures.fingerprint):
                raise errors.TrailChanged("The list of these memories has changed. Read it again, and then decide.")
            if figures.constitutional and not include_constitutional:
                raise errors.Constitutional(figures.constitutional)
            notes = _notes(edit.agent, figures.memories)
            edit.detail = {"request": request} | redactions.as_detail(_bodies(edit.agent, memories), notes)
            for memory in memories:
                discarded_at = memory.discarded_at or edit.at
                values: Any = {"sealed": b"", "digest": b"", "constitutional": False, "store": None, "place": None}
                values |= {"discarded_at": discarded_at, "redacted_at": memory.redacted_at or edit.at}
                edit.put(memory, edits.snapshot(memory), values)  # also if only versions of it are left
            migration.redact(row, figures.memories)
            _rename_sessions(row, figures.memories)
            HistoryAnalysis.objects.filter(agent_id=row.pk, memory__in=figures.memories).delete()
            edit.finish()
            trail.strip(row.pk, figures.memories, notes)
            versions.mark(edit, figures.memories)
            embedding.remove(row, figures.memories)
    return figures


def redact_version(agent: Agent, version: StoreVersion, actor: Actor) -> None:
    """Redact one version of a memory in a store, in the name of the agent's runtime. If the agent has a steward, the
    steward decides: then this only asks, and raises ConsentRequired. Raises Invalid."""
    [memory] = edits.fetch(agent, [version.number])
    _require_alone(agent, memory, version.seq)  # it reads all changes, so first without the lock
    with edits.locked(agent) as row:
        [memory] = edits.fetch(row, [version.number])
        _require_alone(row, memory, version.seq)
        waiting = requests.waiting(row, Operation.REDACTION_REQUESTED.value)
        asked = [each.number for each in waiting if (each.memories, each.version) == ((memory.number,), version.seq)]
        if not asked:
            request = requests.ask_redaction(row, [memory.number], actor, reason=_REASON, version=version.seq)
            asked = [request.number]
        if not row.steward:
            redact(row, asked[0], actor)
            return
    raise errors.ConsentRequired(f"The agent's steward decides about this, and was asked (request {asked[0]}).")


def _require_alone(agent: Agent, memory: Memory, seq: int) -> None:
    """Raise Invalid for a version whose content is needed, or may also be elsewhere. Another memory that a client gave
    the same words is a memory of its own."""
    version = StoreVersion.objects.get(agent_id=agent.pk, number=memory.number, seq=seq)
    versions.require_former(memory, version)
    walk = lineage.Walk(agent)
    if walk.sources([memory.number]) or walk.successors([memory.number]):
        raise errors.Invalid("version", f"is of a memory that was merged or made from others. {versions.WHOLE}")
    changes = Change.objects.filter(agent_id=agent.pk).annotate(content=KeyedDigest("after"))
    content = versions.content_of(version)
    equal = changes.filter(before_digest__isnull=True, content=content)
    copied = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=equal.values("seq"), actor_kind=ActorKind.SYSTEM)
    if copied.exists():
        raise errors.Invalid("version", f"has words that a dream copied to another store. {versions.WHOLE}")
    later = changes.filter(number=memory.number, seq__gt=seq).exclude(content=content).order_by("seq")
    with streamed(later.values_list("seq", flat=True)) as seqs:  # SQL may have added some that seem to end the version
        until = next((each for each in seqs if verify.intact_changes(agent.pk, each)), agent.audit_seq + 1)
    if _was_read(agent, seq, until):
        raise errors.Invalid("version", f"was read by a model, which may have copied its words. {versions.WHOLE}")


def _was_read(agent: Agent, since: int, until: int) -> bool:
    """Whether a refinement session was open between two entries."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk)
    over = entries.filter(operation=Operation.SESSION_CLOSED, seq__lt=since).values("session")
    return entries.filter(operation=Operation.SESSION_OPENED, seq__lt=until).exclude(session__in=over).exists()


_REASON = "The agent's program asks for it, over the memory stores API."


@dataclass(frozen=True, slots=True)
class _Whole:
    """What a redaction is about: the memories to redact, and their lineage with reasons. The excluded part of the
    lineage stays."""

    memories: list[Memory]
    group: dict[int, str]

    @classmethod
    def of(cls, agent: Agent, numbers: Sequence[int], excluded: Sequence[int]) -> Self:
        """Raises Redacted if all of the given memories are redacted already."""
        if len(versions.gone(agent, edits.fetch(agent, sorted(numbers)))) == len(numbers):
            raise errors.Redacted(numbers)
        group = _lineage(agent, numbers)
        all_numbers = {*numbers, *group} - (set(excluded) - set(numbers))
        memories = edits.fetch(agent, sorted(all_numbers))
        gone = versions.gone(agent, memories)
        return cls([memory for memory in memories if memory.number not in gone], group)


def _bodies(agent: Agent, memories: Iterable[Memory]) -> dict[int, set[bytes]]:
    """For each memory, the digests of its snapshots in the audit trail."""
    found: dict[int, set[bytes]] = {memory.number: set() for memory in memories}
    changes = Change.objects.filter(agent_id=agent.pk, number__among=list(found)).values_list("number", "after")
    with streamed(changes) as rows:
        for number, after in rows:
            if after is not None:  # it is None only if somebody altered the row; `verify_audit` reports that
                found[number].add(trail.body_digest(bytes(after)))
    return found


def _notes(agent: Agent, numbers: Sequence[int]) -> list[int]:
    """The entries that edited these memories and have an encrypted note. The note has text that the edit removed."""
    touched = _edits_of(agent, numbers)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, sealed__isnull=False, seq__in=touched.values("seq"))
    entries = entries.exclude(operation__in=authority.OPERATIONS)  # they have no notes
    return list(entries.order_by("seq").values_list("seq", flat=True))


def _edits_of(agent: Agent, numbers: Iterable[int]) -> QuerySet[Change]:
    return Change.objects.filter(agent_id=agent.pk, number__among=list(numbers))


def _figures(
    agent: Agent, whole: _Whole, request: int | None, entry: int | None, of_version: tuple[int, ...] = ()
) -> Figures:
    """The figures of a redaction. `of_version` has the memory of which one version is redacted."""
    memories, numbers = whole.memories, tuple(memory.number for memory in whole.memories)
    active = [memory for memory in memories if memory.layer in Kind.values]
    core = [memory for memory in active if memory.layer == Layer.CORE and not memory.is_instruction]
    return Figures(
        request=request,
        entry=entry,
        memories=numbers or of_version,
        active=len(active),
        constitutional=tuple(memory.number for memory in memories if memory.constitutional),
        changes=_edits_of(agent, numbers).count(),
        notes=len(_notes(agent, numbers)),
        tokens_before=agent.core_tokens,
        tokens_after=agent.core_tokens - sum(m.tokens for m in core),
        lineage=tuple(Related(m.number, whole.group[m.number], m.layer) for m in memories if m.number in whole.group),
        related=tuple(_related(agent, numbers, whole.group)),
        former_vaults=removing.former_paths(agent),
    )


# --- related memories


def _lineage(agent: Agent, numbers: Sequence[int]) -> dict[int, str]:
    """The lineage of these memories, in every layer, with reasons. Nothing is decrypted.

    A group starts with the given memories, and the memories that were merged into them directly or through other
    merges. A memory joins the group if its content is or was the same as that of a memory in the group, or if a
    memory of the group was merged into it. The result has all memories of the group except the given ones.
    """
    walk = lineage.Walk(agent)
    why = dict.fromkeys(_sources(walk, numbers), "source")
    fresh = why.keys() | set(numbers)
    contents, holders = defaultdict(set), defaultdict(set)
    for number, content in _contents(agent):
        contents[number].add(content)
        holders[content].add(number)
    seen = {Silo.for_agent(agent).digest("")} if agent.wrapped_key else set()  # empty files are not related
    while fresh:
        new = {content for number in fresh for content in contents[number]} - seen
        seen |= new
        equal = {other for content in new for other in holders[content]}
        found = dict.fromkeys(equal, "same words")
        found |= dict.fromkeys(walk.successors(fresh), "merged")
        fresh = found.keys() - why.keys() - set(numbers)
        why |= {number: found[number] for number in fresh}
    return why


def _related(agent: Agent, numbers: Sequence[int], group: dict[int, str]) -> list[Related]:
    """Other memories that may have the same content: the excluded part of the lineage, and

    - summaries and topics that include a memory of the lineage
    - notices of sessions that edited a memory of the lineage
    - notices of sessions whose model could read a memory of the lineage
    """
    why, all_numbers = dict(group), list({*numbers, *group})
    why |= {number: "told" for number in _summaries_of(agent, all_numbers) if number not in why}
    notices = dict.fromkeys(_notices(agent, _sessions_during(agent, all_numbers)), "shown")
    notices |= dict.fromkeys(_notices(agent, _sessions_editing(agent, all_numbers)), "notice")
    why = notices | why
    rows = Memory.objects.of(agent).numbered(why.keys() - set(numbers)).defer("sealed", "digest")
    left = rows.filter(redacted_at__isnull=True).order_by("number")
    return [Related(memory.number, why[memory.number], memory.layer) for memory in left]


def _sources(walk: lineage.Walk, numbers: Sequence[int]) -> set[int]:
    """The memories that were merged into these, directly or through other merges."""
    found: set[int] = set()
    fresh = set(numbers)
    while fresh:
        fresh = walk.sources(fresh) - found - set(numbers)
        found |= fresh
    return found


def _sessions_editing(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The sessions that edited these memories."""
    seqs = _edits_of(agent, numbers).values("seq")
    entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=seqs, session__isnull=False)
    return {session for session in entries.values_list("session", flat=True) if session is not None}


def _sessions_during(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The sessions that were open while one of these memories was active."""
    made = dict(_edits_of(agent, numbers).values_list("number").annotate(Min("seq")))
    gone = Memory.objects.of(agent).numbered(numbers).filter(discarded_at__isnull=False)
    left = dict(gone.values_list("number", "version"))
    lives = [(first, left.get(number, agent.audit_seq)) for number, first in made.items()]
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session__isnull=False)
    sessions = entries.values_list("session").annotate(Min("seq"), Max("seq"))
    return {session for session, first, last in sessions if any(made < last and first <= left for made, left in lives)}


def _notices(agent: Agent, sessions: Iterable[int]) -> set[int]:
    """The notices that these sessions added when they ended. A session that was ended by a redaction adds no notice."""
    ended = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.SESSION_CLOSED)
    silent = ended.filter(detail__reason="redaction").values_list("session", flat=True)
    closings = ended.filter(session__among=list(set(sessions) - set(silent)))
    return _made_by(agent, closings, Operation.SESSION_CLOSED)


def _summaries_of(agent: Agent, numbers: Sequence[int]) -> set[int]:
    """The summaries of the recorded sessions that include these memories. Also the topics that were updated just after
    these memories were recorded."""
    found = {session.memory for session in recorded_in(agent, numbers) if session.memory is not None}
    recordings = _edits_of(agent, numbers).filter(before_digest__isnull=True).values_list("seq", flat=True)
    after = Change.objects.filter(agent_id=agent.pk, seq__among=[seq + 1 for seq in recordings])
    topics = Memory.objects.of(agent).filter(category="topic", number__in=after.values("number"))
    return found | set(topics.values_list("number", flat=True))


def recorded_in(agent: Agent, numbers: Iterable[int]) -> list[RecordedSession]:
    """The recorded sessions that include one of these memories."""
    wanted = set(numbers)
    with streamed(RecordedSession.objects.filter(agent_id=agent.pk)) as sessions:
        return [session for session in sessions if not wanted.isdisjoint(session.numbers)]


def _rename_sessions(agent: Agent, numbers: Sequence[int]) -> None:
    """Rename the recorded sessions that include these memories. A name is in clear text and may quote a memory."""
    names = set(RecordedSession.objects.filter(agent_id=agent.pk).values_list("name", flat=True))
    for session in recorded_in(agent, numbers):
        base = f"redacted-{session.pk}"
        candidates = (base, *(f"{base}-{nth}" for nth in range(2, len(names) + 3)))
        session.name = next(name for name in candidates if name not in names)
        names.add(session.name)
        session.save(update_fields=["name"])


def _made_by(agent: Agent, rows: QuerySet[Any], operation: str) -> set[int]:
    """The memories created by entries with this operation. Entries count only if their `seq` is in `rows`."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=rows.values("seq"), operation=operation)
    made = Change.objects.filter(agent_id=agent.pk, seq__in=entries.values("seq"), before_digest__isnull=True)
    return set(made.values_list("number", flat=True))


def _contents(agent: Agent) -> set[tuple[int, bytes]]:
    """The pairs of a memory and the keyed digest of a content that it has or had."""
    states = Change.objects.filter(agent_id=agent.pk, after__isnull=False).annotate(words=KeyedDigest("after"))
    with streamed(states.values_list("number", "words")) as rows:
        return {(number, bytes(words)) for number, words in rows if words}
