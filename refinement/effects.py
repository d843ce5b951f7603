"""What each tool of the Knife does: the checks it makes, in order, and the verb of the write path it ends in.

Every function here runs inside the transaction of its call (`refinement.knife`), with the agent's row locked. It
raises a domain error to refuse, and then nothing of the call happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from audit.models import ActorKind, AuditEntry
from audit.trail import Actor
from config.errors import DomainError
from memory import errors
from memory.models import Agent, Kind, Memory
from memory.policy import switches, tokens
from memory.policy.validation import parse_moment
from memory.search.cache import reader
from memory.search.selection import Filters
from memory.silo.silo import Silo
from memory.writing import edits, operations
from refinement import ledger, limits, similarity, tools
from refinement import session as sessions
from refinement.errors import BadCall, LimitReached
from refinement.losses import losses
from refinement.models import Mode, Outcome, RefinementSession

SHOWN_IN_ERRORS = 10  # memories whose present content one error shows
DOUBLES_TRIED = 200  # memories most alike that a deletion in dedupe_only is compared with
MAX_SOURCE_CHARACTERS = 200_000  # that one call may have read and compared, while it holds the agent's row
LEFT_OUT_SEARCHED, LEFT_OUT_SHOWN = 200, 50  # specifics that one edit leaves out
GROWTH = 16  # tokens by which a result may outweigh its sources: a date written out, a name for a pronoun
_WORD = re.compile(r"\w+")  # what is left of a text when nothing in it can be an operator of a search


@dataclass(slots=True)
class Cut:
    """One call in the making: the locked agent, and its session's row."""

    agent: Agent
    session: RefinementSession
    memories: int = 0
    ends: tuple[str, str, str] | None = None  # outcome, reason, the agent's words
    is_batch_done: bool = False
    saw_more: bool = False  # was shown a memory, or one as it is now
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, int]:
        """Number → version of what the agent was shown in this batch."""
        shown: dict[str, int] = self.session.shown
        return shown

    @property
    def silo(self) -> Silo:
        return Silo.for_agent(self.agent)

    @property
    def actor(self) -> Actor:
        return Actor.agent(f"session {self.session.number}")

    @property
    def mass(self) -> int:
        """The mass the circuit breaker counts: what the session left of what was there, and never more than there is
        now without exact duplicates (others may discard meanwhile)."""
        return min(self.session.counted_tokens, self.agent.core_tokens - self.agent.duplicate_tokens)


def _search(cut: Cut, call: tools.SearchMemories) -> None:
    limits.within(cut.session, "searches")
    cut.session.searches += 1
    since = parse_moment("since", call.since) if call.since else None
    until = parse_moment("until", call.until) if call.until else None
    filters = Filters(kind=call.kind, since=since, until=until, without=ledger.left_out(cut.agent))
    with reader(cut.agent) as index:
        hits = index.search(call.query, filters, limit=call.limit)
    found = [m for m in edits.fetch(cut.agent, [hit.number for hit in hits]) if _showable(cut.agent, m)]
    cut.answer = {"found": [_show(cut, memory) for memory in found]}


def _consolidate(cut: Cut, call: tools.ConsolidateMemories) -> None:
    memories = edits.fetch(cut.agent, call.ids_to_merge)
    constitutional = [m.number for m in memories if m.constitutional]
    sources = [m for m in memories if not m.constitutional]
    if len(sources) < 2:
        raise errors.Constitutional(constitutional)
    lost = _rewrites(cut, sources, call.new_content)
    edited = operations.consolidate(
        cut.agent,
        sources,
        call.new_content,
        cut.actor,
        category=call.category,
        dropping=call.dropping,
        session=cut.session.number,
    )
    new = edited.memories[0]
    cut.session.merged += len(sources)
    cut.answer = {
        "id": new.number,
        "merged": [m.number for m in sources],
        "saved": sum(m.tokens for m in sources) - new.tokens,
    } | lost
    if constitutional:
        cut.answer["left_out_as_constitutional"] = constitutional


def _update(cut: Cut, call: tools.UpdateMemory) -> None:
    [memory] = edits.fetch(cut.agent, [call.id])
    before = memory.tokens
    lost = _rewrites(cut, [memory], call.content)
    edited = operations.revise(
        cut.agent,
        memory,
        cut.actor,
        content=call.content,
        dropping=call.dropping,
        session=cut.session.number,
    )
    if edited.seq is None:
        cut.session.changes -= 1
        _nothing_done(cut, {"id": call.id, "unchanged": True})
        return
    cut.session.updated += 1
    cut.answer = {"id": call.id, "saved": before - edited.memory.tokens} | lost


def _delete(cut: Cut, call: tools.DeleteMemory) -> None:
    [memory] = _editable(cut, edits.fetch(cut.agent, [call.id]))
    if cut.session.mode == Mode.DEDUPE_ONLY:
        _has_a_double(cut, memory)
    _has_changes_left(cut, 1)
    _cuts(cut, memory.tokens, 1)
    operations.discard(cut.agent, [memory], cut.actor, session=cut.session.number)
    cut.session.deleted += 1
    cut.answer = {"id": call.id, "saved": memory.tokens}


def _protect(cut: Cut, call: tools.ProtectMemory) -> None:
    [memory] = _shown(cut, edits.fetch(cut.agent, [call.id]))
    if not memory.constitutional and cut.session.protected >= limits.MAX_PROTECTIONS:
        raise BadCall(f"At most {limits.MAX_PROTECTIONS} memories can be protected in one session.", "protection_full")
    edited = operations.protect(cut.agent, [memory], cut.actor, session=cut.session.number)
    if edited.seq is None:
        _nothing_done(cut, {"id": call.id, "constitutional": True, "already": True})
        return
    cut.answer = {"id": call.id, "constitutional": True, "already": False}
    cut.session.protected += 1
    cut.memories = 1


def _promote(cut: Cut, call: tools.PromoteMemory) -> None:
    [memory] = _shown(cut, edits.fetch(cut.agent, [call.id]))
    _has_changes_left(cut, 1)
    edited = operations.promote(cut.agent, memory, cut.actor, session=cut.session.number)
    if edited.seq is None:
        _nothing_done(cut, {"id": call.id, "kind": Kind.CORE, "already": True})
        return
    cut.answer = {"id": call.id, "kind": Kind.CORE, "already": False}
    cut.session.promoted += 1
    cut.session.changes += 1
    cut.memories = 1


def _decline(cut: Cut, call: tools.DeclineRefinement) -> None:
    row = cut.session
    if row.changes or row.protected or row.promoted:
        raise BadCall("A session can only be declined before its first edit; call complete_refinement.", "too_late")
    cut.ends = (Outcome.DECLINED, "", " ".join(call.reason.split()))


def _complete(cut: Cut, call: tools.CompleteRefinement) -> None:
    row = cut.session
    if row.batch + 1 < row.batches:
        sessions.add_summary(cut.agent, row, call.summary)
        row.batch += 1
        cut.is_batch_done = True
        cut.answer = {"batch_done": row.batch, "batches": row.batches}
        return
    cut.ends = (Outcome.COMPLETED, "", " ".join(call.summary.split()))


EFFECTS: dict[str, Callable[[Cut, Any], None]] = {
    "search_memories": _search,
    "consolidate_memories": _consolidate,
    "update_memory": _update,
    "delete_memory": _delete,
    "protect_memory": _protect,
    "promote_memory": _promote,
    "decline_refinement": _decline,
    "complete_refinement": _complete,
}


def _editable(cut: Cut, memories: list[Memory]) -> list[Memory]:
    """Memories a rewrite, merge or deletion may touch; said before the store says it, with what the agent needs."""
    operations.refuse(_shown(cut, memories), errors.Constitutional, errors.NotCore)
    return memories


def _shown(cut: Cut, memories: list[Memory]) -> list[Memory]:
    """Only what the agent was shown, as it was shown, may be edited (lost-update check); and nothing of a category that
    was switched off, then or since."""
    operations.refuse(memories, errors.Discarded, errors.Notice, errors.Private)
    switches.require_open(cut.agent, (m.category for m in memories))
    unseen = {m.number: m.version for m in memories if cut.shown.get(str(m.number)) != m.version}
    own = _own_edits(cut, unseen.values()) if unseen else frozenset()
    stale = [number for number, version in unseen.items() if version not in own]
    if stale:
        raise errors.Stale(stale)
    return memories


def _own_edits(cut: Cut, versions: Iterable[int]) -> frozenset[int]:
    """Those of these versions that the agent itself made in this batch: it knows them without being shown."""
    since = [version for version in versions if version > cut.session.shown_at]
    own = AuditEntry.objects.filter(agent_id=cut.agent.pk, session=cut.session.number, actor_kind=ActorKind.AGENT)
    return frozenset(own.filter(seq__among=since).values_list("seq", flat=True))


def _nothing_done(cut: Cut, answer: dict[str, Any]) -> None:
    """A call that asks for what is already so is no edit; it counts as a failed one, or it could be made for ever."""
    cut.memories = 0
    cut.session.failed_calls += 1
    cut.answer = answer


def _rewrites(cut: Cut, sources: list[Memory], content: str) -> dict[str, Any]:
    """Check a merge or a rewrite, and count it. Returns what the answer says of what the new text leaves out."""
    _editable(cut, sources)
    _has_changes_left(cut, len(sources))
    before, after = sum(m.tokens for m in sources), tokens.count(content)
    if after > before + GROWTH:
        raise BadCall(
            f"The result weighs {after:,} tokens and its sources {before:,}: refining may add at most {GROWTH}.",
            "grown",
        )
    report = _left_out(cut, sources, content)
    lost = max(0, before - _weight(cut, sources, content))  # an edit that adds weight loses nothing
    _cuts(cut, lost, len(sources))
    return {"left_out": report} if report else {}


def _left_out(cut: Cut, sources: list[Memory], content: str) -> list[dict[str, Any]]:
    """The specifics of the sources that will be in no core memory any more, with the number of the source."""
    texts = [(memory.number, cut.silo.open(memory).content) for memory in sources]
    if sum(len(text) for _, text in texts) > MAX_SOURCE_CHARACTERS:
        raise BadCall(
            f"The sources hold more than {MAX_SOURCE_CHARACTERS:,} characters together; merge fewer at a time.",
            "too_much",
        )
    lost = [(number, one) for number, text in texts for one in losses(text, content, cut.agent.language)]
    if not lost:
        return []
    numbers = {number for number, _ in texts}
    report = []
    core = Filters(kind=Kind.CORE, without=ledger.left_out(cut.agent))
    with reader(cut.agent) as index:
        for number, one in lost[:LEFT_OUT_SEARCHED]:
            phrase = one.text.replace('"', " ")
            hits = index.search(f'"{phrase}"', core, limit=len(sources) + 1)
            if all(hit.number in numbers for hit in hits):
                report.append({"id": number, "kind": one.kind, "text": one.text})
    return report[:LEFT_OUT_SHOWN]


def _has_changes_left(cut: Cut, changed: int) -> None:
    row = cut.session
    left = row.max_changes - row.changes
    if left <= 0:
        raise LimitReached("changes", row.max_changes)
    if changed > left:
        raise BadCall(
            f"The call would change {changed} memories; {left} changes are left in this session.", "too_many_changes"
        )


def _cuts(cut: Cut, lost: int, changed: int) -> None:
    """Count an edit for the circuit breaker, before it is made."""
    row = cut.session
    limits.above_floor(cut.mass, lost, row.floor_tokens)
    row.changes += changed
    row.lost_tokens += lost
    cut.memories = changed


def _weight(cut: Cut, sources: list[Memory], content: str) -> int:
    """What an edit's result weighs: nothing when it repeats another core memory to the letter, for then it goes as
    an exact duplicate before the next session."""
    scope, project = sources[0].scope, sources[0].project
    core = Memory.objects.of(cut.agent).active().core().filter(scope=scope, project=project)
    equal = core.filter(digest=cut.silo.digest(content)).values_list("number", flat=True)
    return 0 if set(equal) - {source.number for source in sources} else tokens.count(content)


def _has_a_double(cut: Cut, memory: Memory) -> None:
    """In dedupe_only a memory may go only while an equal, or nearly equal, one stays."""
    content = cut.silo.open(memory).content
    with reader(cut.agent) as index:
        hits = index.search(" ".join(_WORD.findall(content)[:60]), Filters(kind=Kind.CORE), limit=DOUBLES_TRIED)
    others = [m for m in edits.fetch(cut.agent, [hit.number for hit in hits]) if m.number != memory.number]
    others = [m for m in others if not m.discarded_at and _place(m) == _place(memory)]
    texts = [cut.silo.open(m).content for m in others]
    alike = any(similarity.says_as_much(text, content) for text in texts)
    if not alike:
        raise BadCall(
            "In this mode only a memory with an equal or nearly equal one left standing can be deleted.", "no_double"
        )


def _place(memory: Memory) -> tuple[str, str, str]:
    return memory.category, memory.scope, memory.project


def _showable(agent: Agent, memory: Memory) -> bool:
    return memory.category not in ledger.left_out(agent) and memory.discarded_at is None


def _show(cut: Cut, memory: Memory) -> dict[str, Any]:
    """The memory as a line of the ledger. From now on the agent may edit it."""
    record = ledger.Entry(memory, cut.silo.open(memory)).record()
    number = str(memory.number)
    if cut.shown.get(number) != memory.version:
        cut.shown[number] = memory.version
        cut.saw_more = True
    return record


def present(cut: Cut, refused: DomainError) -> dict[str, Any]:
    """For memories that changed since they were shown, their present content, so that the agent can decide anew."""
    if not isinstance(refused, errors.Stale):
        return dict(getattr(refused, "more", {}))
    memories = [m for m in edits.fetch(cut.agent, refused.numbers[:SHOWN_IN_ERRORS]) if _showable(cut.agent, m)]
    return {"present": [_show(cut, memory) for memory in memories]}
