"""The tools of the Knife. Each tool has one function, which checks a call and makes the edit.

The functions run in the transaction of the call (`refinement.knife`), and the agent's row is locked. To refuse a call,
a function raises a domain error. Then the function's changes to the session's row are not stored.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate, islice
from typing import Any

from django.db.models import Sum
from django.utils import timezone

from audit.models import ActorKind, AuditEntry
from audit.trail import Actor
from config.errors import DomainError
from memory import errors
from memory.models import Agent, Kind, Layer, Memory
from memory.policy import switches, tokens
from memory.policy.validation import parse_moment
from memory.search import lineages
from memory.search.cache import reader
from memory.search.index import Hit
from memory.search.query import Query
from memory.search.selection import LOCKED_SECONDS, Filters
from memory.search.words import nfkc
from memory.silo.silo import Silo
from memory.writing import counters, edits, operations, stores
from refinement import ledger, limits, losses, similarity, tools
from refinement import session as sessions
from refinement.dates import Text, still_relative
from refinement.errors import BadCall, FloorReached
from refinement.models import Mode, Outcome, RefinementSession

SHOWN_IN_ERRORS = 10  # memories that one error shows with their current content
# In dedupe_only, the most memories that a deleted memory is compared with, and the characters of these memories.
DUPLICATES_TRIED, MAX_COMPARED = 50, 30_000
MAX_SOURCE_CHARACTERS = 60_000  # in the sources of one call; the agent is locked while they are compared
LEFT_OUT_SEARCHED, LEFT_OUT_SHOWN = 200, 50  # details of one edit
SEARCH_SECONDS = 0.3  # of CPU time for these details, while the agent is locked
GROWTH = 16  # tokens by which a result may exceed its sources, for example for a full date or a name
_WORD = re.compile(r"\w+")  # without search operators


@dataclass(slots=True)
class CallContext:
    """The context of one tool call: the locked agent, the session's row, and the result so far."""

    agent: Agent
    session: RefinementSession
    answer: dict[str, Any] = field(default_factory=dict)
    code: str = "ok"
    memories: int = 0
    ends: tuple[str, str, str] | None = None  # outcome, reason, the agent's words
    is_batch_done: bool = False

    @property
    def actor(self) -> Actor:
        return Actor.agent(f"session {self.session.number}")

    @property
    def mass(self) -> int:
        """The tokens that the circuit breaker counts. Usually this is the session's own count. If others have discarded
        memories, this count may be larger than the current number of core tokens (without exact duplicates). Then the
        lower number is used. In a dream, these are the tokens of the memory store."""
        row, agent = self.session, self.agent
        if row.store is None:
            return min(row.counted_tokens, agent.core_tokens - agent.duplicate_tokens)
        return min(row.counted_tokens, ledger.size(agent, row.store)[0])

    def count_changes(self, memories: int, lost: int = 0) -> None:
        """Add an edit to the session's counts, before the edit is made. `memories` is the number of changed memories.
        `lost` is the number of lost core tokens.

        Raises LimitReached, FloorReached. Raises BadCall if the session has too few changes left.
        """
        row = self.session
        row.require_left("changes")
        left = row.max_changes - row.changes
        if memories > left:
            raise BadCall(
                f"The call changes {memories} memories, but this session has only {left} changes left.",
                "too_many_changes",
            )
        if lost and self.mass - lost < row.floor_tokens:
            raise FloorReached(
                f"The call cuts {lost:,} of this session's {self.mass:,} tokens. The remaining {self.mass - lost:,} "
                f"are below the floor of {row.floor_tokens:,}. You can still cut at most "
                f"{max(0, self.mass - row.floor_tokens):,} tokens. Nothing was changed."
            )
        row.changes += memories
        row.lost_tokens += lost
        self.memories = memories

    def change_nothing(self, **answer: Any) -> None:
        """Set the result of a call that changed nothing. The call counts as failed. The number of failed calls is
        limited, so the model cannot repeat the call forever."""
        self.session.changes -= self.memories
        self.session.failed_calls += 1
        self.memories = 0
        self.answer = answer


def _search(call: CallContext, wanted: tools.SearchMemories) -> None:
    call.session.require_left("searches")
    call.session.searches += 1
    since = parse_moment("since", wanted.since) if wanted.since else None
    until = parse_moment("until", wanted.until) if wanted.until else None
    layers = (wanted.kind,) if wanted.kind else ()
    filters = Filters(layers=layers, since=since, until=until, without=ledger.left_out(call.agent))
    with reader(call.agent) as index:
        found = lineages.find(index, wanted.query, filters, seconds=LOCKED_SECONDS, limit=wanted.limit)
        hits = lineages.with_successors(index, found, filters, wanted.limit)
        searched_since = index.searched_since
    call.answer = {"found": _show(call, [hit.number for hit in hits])}
    if searched_since:  # earlier memories beneath were not searched
        call.answer["searched_since"] = searched_since.date().isoformat()


def _consolidate(call: CallContext, wanted: tools.ConsolidateMemories) -> None:
    memories = edits.fetch(call.agent, wanted.ids_to_merge)
    constitutional = [m.number for m in memories if m.constitutional]
    sources = [m for m in memories if not m.constitutional]
    if len(sources) < 2:
        raise errors.Constitutional(constitutional)
    if call.session.store is not None:
        stores.require_open(call.agent, call.session.store)  # a client can archive it during the session
    report = _check_rewrite(call, sources, wanted.new_content)
    where = {"session": call.session.number, "store": call.session.store}
    content, category = wanted.new_content, wanted.category
    new = operations.consolidate(call.agent, sources, content, call.actor, category=category, **where).memories[0]
    call.session.pending[str(new.number)] = new.version
    call.session.merged += len(sources)
    call.answer = {
        "id": new.number,
        "merged": [m.number for m in sources],
        "saved": sum(m.tokens for m in sources) - new.tokens,
    } | report
    if constitutional:
        call.answer["left_out_as_constitutional"] = constitutional


def _update(call: CallContext, wanted: tools.UpdateMemory) -> None:
    [memory] = edits.fetch(call.agent, [wanted.id])
    before, version = memory.tokens, memory.version
    report = _check_rewrite(call, [memory], wanted.content)
    edit: Any = {"content": wanted.content, "session": call.session.number}
    if call.session.store is None:
        after = operations.revise(call.agent, memory, call.actor, **edit).memories
    else:
        after = (stores.revise(call.agent, call.session.store, wanted.id, call.actor, **edit),)
    if not after or after[-1].version == version:
        call.change_nothing(id=wanted.id, unchanged=True)
        return
    call.session.updated += 1
    call.answer = {"id": wanted.id, "saved": before - after[-1].tokens} | report


def _delete(call: CallContext, wanted: tools.DeleteMemory) -> None:
    [memory] = edits.fetch(call.agent, [wanted.id])
    is_uncounted = memory.layer == Layer.BENEATH and call.session.store is None
    may_be_beneath = is_uncounted or call.session.store is not None
    _require_shown(call, [memory], errors.Constitutional, *(() if may_be_beneath else (errors.CoreMemoryRequired,)))
    if call.session.mode == Mode.DEDUPE_ONLY:
        _require_duplicate(call, memory)
    call.count_changes(1, 0 if is_uncounted else memory.tokens)
    if call.session.mode != Mode.DEDUPE_ONLY:
        _count_deleted(call, memory.tokens)
    operations.discard(call.agent, [memory], call.actor, session=call.session.number)
    call.session.deleted += 1
    call.answer = {"id": wanted.id, "saved": memory.tokens}


def _count_deleted(call: CallContext, deleted: int) -> None:
    """Limit what the agent deletes, because search no longer finds it. Raises BadCall."""
    row, since = call.session, timezone.now() - timedelta(days=30)
    sessions = RefinementSession.objects.filter(agent=call.agent, store=row.store, closed_at__gte=since)
    earlier = sessions.aggregate(tokens=Sum("deleted_tokens", default=0))["tokens"]
    whole = row.tokens_before - row.repeated_tokens
    left = min(whole * limits.DELETED_IN_SESSION // 100, whole * limits.DELETED_IN_30_DAYS // 100 - earlier)
    if row.deleted_tokens + deleted > left:
        raise BadCall(
            f"The memory has {deleted:,} tokens. At most {max(0, left - row.deleted_tokens):,} can be deleted now. "
            f"{'Merge it' if row.store else 'Use demote_memory'} instead: search still finds the memory.",
            "deleted_too_much",
        )
    row.deleted_tokens += deleted


def _demote(call: CallContext, wanted: tools.DemoteMemory) -> None:
    [memory] = edits.fetch(call.agent, [wanted.id])
    _require_shown(call, [memory], errors.Constitutional, errors.CoreMemoryRequired)
    call.count_changes(1, memory.tokens)
    operations.demote(call.agent, [memory], call.actor, reason=wanted.reason, session=call.session.number)
    call.session.demoted += 1
    call.answer = {"id": wanted.id, "saved": memory.tokens}


def _protect(call: CallContext, wanted: tools.ProtectMemory) -> None:
    [memory] = edits.fetch(call.agent, [wanted.id])
    _require_shown(call, [memory])
    if not memory.constitutional and call.session.protected >= limits.MAX_PROTECTIONS:
        raise BadCall(f"A session can protect at most {limits.MAX_PROTECTIONS} memories.", "protection_full")
    if operations.protect(call.agent, [memory], call.actor, session=call.session.number).seq is None:
        call.change_nothing(id=wanted.id, constitutional=True, already=True)
        return
    call.session.protected += 1
    call.memories = 1
    call.answer = {"id": wanted.id, "constitutional": True, "already": False}


def _promote(call: CallContext, wanted: tools.PromoteMemory) -> None:
    [memory] = edits.fetch(call.agent, [wanted.id])
    _require_shown(call, [memory])
    call.count_changes(1)
    if operations.promote(call.agent, memory, call.actor, session=call.session.number).seq is None:
        call.change_nothing(id=wanted.id, kind=Kind.CORE, already=True)
        return
    call.session.promoted += 1
    call.answer = {"id": wanted.id, "kind": Kind.CORE, "already": False}


def _decline(call: CallContext, wanted: tools.DeclineRefinement) -> None:
    row = call.session
    if row.changes or row.protected or row.promoted:
        raise BadCall("A session can be declined only before its first edit. Call complete_refinement.", "too_late")
    call.ends = Outcome.DECLINED, "", " ".join(wanted.reason.split())


def _complete(call: CallContext, wanted: tools.CompleteRefinement) -> None:
    row = call.session
    if row.batch + 1 < row.batches:
        sessions.add_summary(call.agent, row, wanted.summary)
        row.batch += 1
        call.is_batch_done = True
        call.answer = {"batch_done": row.batch, "batches": row.batches}
    else:
        call.ends = Outcome.COMPLETED, "", " ".join(wanted.summary.split())


EFFECTS: dict[str, Callable[[CallContext, Any], None]] = {
    "search_memories": _search,
    "consolidate_memories": _consolidate,
    "update_memory": _update,
    "delete_memory": _delete,
    "demote_memory": _demote,
    "protect_memory": _protect,
    "promote_memory": _promote,
    "decline_refinement": _decline,
    "complete_refinement": _complete,
}


def _require_shown(call: CallContext, memories: list[Memory], *reasons: type[errors.NumbersError]) -> None:
    """Refuse memories that the agent may not edit. `reasons` are the errors of additional checks.

    The agent must have seen the current version of each memory. Otherwise the edit could overwrite a change that the
    agent does not know. What a call finds or creates is seen only in the next reply. The write path makes some of these
    checks again, because it has other callers.
    """
    operations.refuse(memories, errors.Discarded, errors.Notice, errors.Private)
    switches.require_open(call.agent, (memory.category for memory in memories))
    row = call.session
    if row.store is not None and any((m.store, m.layer) != (row.store, Layer.BENEATH) for m in memories):
        raise BadCall("You can change only memories in the memory store. The others are only for your information.")
    if stale := {m.number: m.version for m in memories if row.shown.get(str(m.number)) != m.version}:
        # The agent knows the versions that it made itself in this batch.
        own = AuditEntry.objects.filter(agent_id=call.agent.pk, session=row.number, actor_kind=ActorKind.AGENT)
        made = own.filter(seq__among=[version for version in stale.values() if version > row.shown_at])
        known = set(made.values_list("seq", flat=True))
        unknown = [n for n, version in stale.items() if version not in known or str(n) not in row.shown]
        if unknown:
            raise errors.Stale(unknown)
    operations.refuse(memories, *reasons)


def _check_rewrite(call: CallContext, sources: list[Memory], content: str) -> dict[str, Any]:
    """Check a merge or a rewrite, and count it. Returns the fields of the call's result that report what the new
    content leaves out, and which relative dates it has.

    The fast checks come first, because the agent's row is locked.
    """
    is_core = call.session.store is None
    _require_shown(call, sources, errors.Constitutional, *((errors.CoreMemoryRequired,) if is_core else ()))
    before, after = sum(m.tokens for m in sources), tokens.count(content)
    growth = GROWTH if is_core else GROWTH + call.session.recorded_tokens()
    if after > before + growth:
        raise BadCall(
            f"The result has {after:,} tokens. The maximum is {before + growth:,}: the sources' tokens plus "
            f"{growth:,}.",
            "grown",
        )
    # A result that equals another core memory will be removed as an exact duplicate, so it counts as lost.
    digest, one = Silo.for_agent(call.agent).digest(content), sources[0]
    groups = counters.duplicates(call.agent, {digest}, scope=one.scope, project=one.project) if is_core else {}
    equal = sum(sizes.total() for sizes in groups.values())
    if equal > sum(bytes(source.digest) == digest for source in sources):
        after = 0
    call.count_changes(len(sources), max(0, before - after))
    texts = _texts(call, sources)
    if len(texts) > 1 and (ignored := losses.ignored(texts, content, call.agent.language)):
        raise BadCall(
            f"Nothing of memory {', '.join(map(str, ignored))} is in the new text. Include it, leave it out of "
            "`ids_to_merge`, or demote it.",
            "source_ignored",
        )
    left_out = _left_out(call, texts, content)
    call.session.left_out += len(left_out)
    report = {"left_out": left_out[:LEFT_OUT_SHOWN], "relative_dates": still_relative(texts, content)}
    return {name: found for name, found in report.items() if found}


def _texts(call: CallContext, sources: list[Memory]) -> dict[int, Text]:
    silo, texts, size = Silo.for_agent(call.agent), dict[int, Text](), 0
    most = f"The sources have more than {MAX_SOURCE_CHARACTERS:,} characters in total. Merge fewer memories at once."
    if sum(len(memory.sealed) for memory in sources) > 8 * MAX_SOURCE_CHARACTERS:  # before any is opened
        raise BadCall(most, "too_much")
    for memory in sources:
        texts[memory.number] = Text.of(memory, silo.open(memory).content)
        size += len(nfkc(texts[memory.number].content))  # the form that is compared
        if size > MAX_SOURCE_CHARACTERS:
            raise BadCall(most, "too_much")
    return texts


def _left_out(call: CallContext, texts: dict[int, Text], content: str) -> list[dict[str, Any]]:
    """The details that the edit would lose, each with the number of its source memory. A detail is lost if no core
    memory contains it after the edit. In a dream, other memories are not searched."""
    lost = list(islice(losses.missing(texts, content, call.agent.language), LEFT_OUT_SEARCHED))
    if not lost or call.session.store is not None:
        return [{"id": number, "kind": one.kind, "text": one.text} for number, one in lost]
    core = Filters(layers=[Layer.CORE], without=ledger.left_out(call.agent))
    report = []
    with reader(call.agent) as index:
        until = time.thread_time() + SEARCH_SECONDS  # without the time to build the index
        for number, one in lost:
            query, hits = Query("", (one.text.replace('"', " "),), until=until), list[Hit]()
            if one.kind != losses.RELATIVE and time.thread_time() < until:  # otherwise this detail is reported, too
                with suppress(errors.SlowSearch):
                    hits = index.search(query, core, limit=len(texts) + 1)
            if all(hit.number in texts for hit in hits):
                report.append({"id": number, "kind": one.kind, "text": one.text})
    return report


def _require_duplicate(call: CallContext, memory: Memory) -> None:
    """In the mode dedupe_only, allow a deletion only if an equal or nearly equal memory stays. The texts of the most
    similar length are compared first, because the agent's row is locked."""
    silo = Silo.for_agent(call.agent)
    content = silo.open(memory).content
    with reader(call.agent) as index:
        words, core = " ".join(_WORD.findall(content)[:60]), Filters(layers=[Layer.CORE])
        hits = lineages.find(index, words, core, seconds=LOCKED_SECONDS, limit=DUPLICATES_TRIED)
    place = memory.category, memory.scope, memory.project
    others = [
        silo.open(m).content
        for m in edits.fetch(call.agent, [hit.number for hit in hits])
        if m.number != memory.number and not m.discarded_at and (m.category, m.scope, m.project) == place
    ]
    others.sort(key=lambda other: abs(len(other) - len(content)))
    near = [other for other, end in zip(others, accumulate(map(len, others)), strict=True) if end <= MAX_COMPARED]
    if content not in others and not similarity.covers(near, content):
        raise BadCall("In this mode you can delete a memory only if an equal or nearly equal one stays.", "no_double")


def _show(call: CallContext, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return memories in the form of ledger records. Discarded and hidden memories are left out. From its next reply
    on, the agent may edit the returned memories."""
    silo, hidden = Silo.for_agent(call.agent), ledger.left_out(call.agent)
    lines = []
    for memory in edits.fetch(call.agent, numbers):
        if not (memory.category in hidden or memory.is_instruction or memory.discarded_at):
            lines.append(ledger.Entry(memory, silo.open(memory)).record())
            if call.session.shown.get(str(memory.number)) != memory.version:
                call.session.pending[str(memory.number)] = memory.version
    return lines


def explain(call: CallContext, error: DomainError) -> dict[str, Any]:
    """Additional data for the result of a refused call. If a memory has changed, the data has its current content."""
    if isinstance(error, errors.Stale):
        present = _show(call, error.numbers[:SHOWN_IN_ERRORS])
        return {"present": present, "advice": "From your next reply on, you can edit them."}
    return dict(getattr(error, "more", {}))
