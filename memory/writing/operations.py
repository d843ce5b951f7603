"""The write path: the operations that edit memories.

Each operation is one edit (`memory/writing/edits.py`). An edit is a transaction that locks the agent's row and writes
one audit entry. If nothing changes, no entry is written.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from audit.models import ActorKind, Operation
from audit.trail import Actor
from memory import errors
from memory.models import Agent, Kind, Layer, Memory, Source
from memory.policy import switches
from memory.policy.categories import NAMED_BY_SERVICE, UNREFINED
from memory.policy.validation import MAX_CONTENT, Draft, checked_content, checked_tags, require_names, scope_of
from memory.silo.silo import Opened, Silo
from memory.writing import daily_limit, edits
from memory.writing.edits import Edit, Edited, MemoryRefs

MOST_TAGS = 256  # of a merged memory


def remember(
    agent: Agent,
    drafts: Sequence[Draft],
    actor: Actor,
    *,
    operation: str = Operation.REMEMBERED,
    besides: Mapping[int, str] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Edited:
    """Store new memories. If there is an error, no memory is stored. In `memories` of the result, the new memories
    come last.

    Some existing memories may refer to the new memories. `besides` maps the numbers of these existing memories to their
    new contents. `detail` is added to the audit entry without encryption. Raises Invalid, MemoryDisabled.
    """
    drafts = [draft.checked() for draft in drafts]
    with edits.begin(agent, operation, actor) as edit:
        edit.detail |= detail or {}
        silo = Silo.for_agent(edit.agent)
        if besides:
            _refer(edit, besides, silo)
        for draft in drafts:
            edit.add(draft, silo)
        return edit.finish()


def revise(
    agent: Agent,
    one: int | Memory,
    actor: Actor,
    *,
    content: str | None = None,
    tags: Sequence[str] | None = None,
    session: int | None = None,
    expect: Mapping[int, int] | None = None,
    origin: datetime | None = None,
    besides: Mapping[int, str] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Edited:
    """Change a memory's content, tags or origin date. `besides` and `detail` have the same meaning as in `remember`.

    In a session, the old content of a core memory is kept beneath as a new memory, unless the new content contains it.
    Raises Invalid, UnknownMemory, Discarded, Beneath, Constitutional, Notice, Stale, DiscardShare.
    """
    content = None if content is None else checked_content(content)
    tags = None if tags is None else checked_tags(tags)
    with edits.begin(agent, Operation.REVISED, actor, session=session) as edit:
        edit.detail |= detail or {}
        [memory] = _editable(edit, [one], expect)
        refuse([memory], errors.Beneath)
        silo = Silo.for_agent(edit.agent)
        if besides:
            _refer(edit, besides, silo)
        opened = silo.open(memory)
        if memory.category in NAMED_BY_SERVICE:
            require_names(set(tags or ()) - set(opened.tags))
        content, tags = opened.content if content is None else content, opened.tags if tags is None else tags
        if (content, tags) != (opened.content, opened.tags):
            if session is not None and memory.kind == Kind.CORE and opened.content not in content:
                _keep_beneath(edit, memory, opened, silo)
            edit.rewrite(memory, content, tags, silo)
        if origin is not None:
            edit.change(memory, origin=origin)
        return edit.finish()


def _keep_beneath(edit: Edit, memory: Memory, opened: Opened, silo: Silo) -> None:
    """Add a copy of a memory beneath, before the memory gets another content. The memory supersedes the copy."""
    where = memory.kind, memory.category, memory.project
    dates: Any = {"origin": memory.origin, "origin_latest": memory.origin_latest}
    copy = edit.add(Draft(opened.content, *where, opened.tags, source=memory.source, is_beneath=True, **dates), silo)
    edit.change(copy, superseded_by=memory.number)


def _refer(edit: Edit, besides: Mapping[int, str], silo: Silo) -> None:
    """Set the new contents of memories that refer to other memories. A memory does not change if it is constitutional
    or not active, or if its new content would be too long."""
    for memory in edit.take(list(besides)):
        content = besides[memory.number]
        if memory.layer in Kind.values and not memory.constitutional and len(content) <= MAX_CONTENT:
            edit.rewrite(memory, content, silo.open_tags(memory), silo)


def discard(
    agent: Agent,
    refs: MemoryRefs,
    actor: Actor,
    *,
    session: int | None = None,
    expect: Mapping[int, int] | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Edited:
    """Discard memories. Discarded memories are kept and can be restored. `detail` has the same meaning as in
    `remember`.

    Raises UnknownMemory, Discarded, Constitutional, Notice, Stale, DiscardShare.
    """
    with edits.begin(agent, Operation.DISCARDED, actor, session=session) as edit:
        edit.detail |= detail or {}
        for memory in _editable(edit, refs, expect):
            edit.change(memory, discarded_at=edit.at)
        return edit.finish()


def restore(agent: Agent, numbers: Sequence[int], actor: Actor) -> Edited:
    """Restore discarded memories to the layer that they had. Other memories do not change.

    Raises UnknownMemory, Redacted.
    """
    with edits.begin(agent, Operation.RESTORED, actor) as edit:
        memories = edit.take(numbers)
        refuse(memories, errors.Redacted)
        for memory in memories:
            successor = memory.superseded_by if memory.beneath_at else None
            edit.change(memory, discarded_at=None, superseded_by=successor)
        return edit.finish()


def protect(agent: Agent, refs: MemoryRefs, actor: Actor, *, session: int | None = None) -> Edited:
    """Make memories constitutional.

    An agent can do this only in a refinement session, and only for core memories. All constitutional memories together
    may then have at most half of the agent's budget. A person can protect all active memories except notices of the
    service.

    Raises ProtectionRefused, ProtectionFull, UnknownMemory, Discarded, Beneath, CoreMemoryRequired, Notice.
    """
    by_agent = actor.kind == ActorKind.AGENT
    if by_agent and session is None:
        raise errors.ProtectionRefused("An agent can protect memories only in a refinement session.")
    with edits.begin(agent, Operation.PROTECTED, actor, session=session) as edit:
        memories = edit.take(refs)
        refuse(memories, errors.Discarded, errors.Notice, errors.Beneath)
        if by_agent:
            refuse(memories, errors.CoreMemoryRequired)
            _within_half_the_budget(edit.agent, memories)
        for memory in memories:
            edit.change(memory, constitutional=True)
        return edit.finish()


def unprotect(agent: Agent, numbers: Sequence[int], actor: Actor, *, reason: str) -> Edited:
    """Remove the protection of constitutional memories. Only a person may do this.

    Raises ProtectionRefused, UnknownMemory, Invalid.
    """
    if actor.kind not in (ActorKind.PERSON, ActorKind.OPERATOR):
        raise errors.ProtectionRefused("Only a person may remove a memory's protection.")
    reason = checked_content(reason, "reason").strip()
    with edits.begin(agent, Operation.UNPROTECTED, actor) as edit:
        for memory in edit.take(numbers):
            edit.change(memory, constitutional=False)
        edit.detail["reason"] = reason[:500]
        return edit.finish()


def consolidate(
    agent: Agent,
    refs: MemoryRefs,
    content: str,
    actor: Actor,
    *,
    category: str = "",
    session: int | None = None,
    store: int | None = None,
) -> Edited:
    """Replace two or more core memories with one new memory. The sources go beneath.

    The new memory has the earliest and the latest origin date of its sources, all of their tags, and their scope and
    project. With `store`, all are in this memory store: the new memory has the path of the first source, and the
    sources leave the store.
    Raises Invalid, UnknownMemory, DuplicateNumbers, Discarded, Constitutional, CoreMemoryRequired, MixedScope, Private,
    DiscardShare.
    """
    content = checked_content(content, "new_content")
    if len(refs) < 2:
        raise errors.Invalid("ids_to_merge", "must have two or more memories")
    with edits.begin(agent, Operation.CONSOLIDATED, actor, session=session) as edit:
        sources = _editable(edit, refs)
        first = sources[0]
        refuse(sources, *((errors.CoreMemoryRequired,) if store is None else ()), errors.Private)
        place = first.scope, first.project
        apart = [m.number for m in sources if (m.scope, m.project) != place or store not in (None, m.store)]
        if apart:
            raise errors.MixedScope(apart)
        silo = Silo.for_agent(edit.agent)
        tags = dict.fromkeys(tag for source in sources for tag in silo.open_tags(source))
        category, origin = _merged_category(sources, category), min(source.origin for source in sources)
        latest = max(source.origin_latest or source.origin for source in sources)
        more: Any = {"origin": origin, "origin_latest": latest if latest > origin else None}
        united = tuple(tags)[:MOST_TAGS]
        if store is not None:
            more |= {"store": store, "path": silo.open(first).path, "is_beneath": True}
        merged = edit.add(Draft(content, category=category, project=first.project, tags=united, **more), silo)
        for source in sources:
            if store is None:
                edit.change(source, beneath_at=edit.at)
            else:
                sealed = silo.rename(source.number, bytes(source.sealed), "")
                edit.change(source, store=None, place=None, sealed=sealed)
            edit.change(source, superseded_by=merged.number)
        return edit.finish()


def promote(agent: Agent, one: int | Memory, actor: Actor, *, session: int | None = None) -> Edited:
    """Move a memory from the journal or from beneath to core. A core memory does not change.

    Raises UnknownMemory, Discarded, Notice. Raises Invalid if the memory is too large for core, or empty.
    """
    with edits.begin(agent, Operation.PROMOTED, actor, session=session) as edit:
        [memory] = edit.take([one])
        refuse([memory], errors.Discarded, errors.Notice)
        if memory.layer == Layer.BENEATH:
            checked_content(Silo.for_agent(edit.agent).open(memory).content)
        edit.change(memory, kind=Kind.CORE, beneath_at=None, superseded_by=None)
        return edit.finish()


def demote(agent: Agent, refs: MemoryRefs, actor: Actor, *, reason: str = "", session: int | None = None) -> Edited:
    """Move core memories beneath. They no longer count towards the budget, but search finds them. Memories beneath do
    not change. `reason` is sealed, because it is content.

    Raises UnknownMemory, Discarded, Notice, Constitutional, CoreMemoryRequired.
    """
    with edits.begin(agent, Operation.DEMOTED, actor, session=session) as edit:
        memories = [memory for memory in edit.take(refs) if memory.layer != Layer.BENEATH]
        refuse(memories, errors.Discarded, errors.Notice, errors.Constitutional, errors.CoreMemoryRequired)
        for memory in memories:
            edit.change(memory, beneath_at=edit.at)
        edit.note = reason
        return edit.finish()


def link(agent: Agent, successors: Mapping[int, int], actor: Actor, detail: Mapping[str, Any]) -> Edited:
    """Set the successors of imported memories beneath. Other memories do not change."""
    with edits.begin(agent, Operation.IMPORTED, actor) as edit:
        edit.detail |= detail
        for memory in edit.take(list(successors)):
            if memory.layer == Layer.BENEATH:
                edit.change(memory, superseded_by=successors[memory.number])
        return edit.finish()


def trim(agent: Agent, keep: int, actor: Actor, *, upto: int | None = None) -> Edited:
    """Discard all run entries of the journal except the newest `keep` entries.

    Constitutional entries stay, and are not counted. Entries with a number above `upto` stay, too.
    """
    if keep < 0:
        raise errors.Invalid("keep", "must be 0 or more")
    with edits.begin(agent, Operation.TRIMMED, actor) as edit:
        trimmed = list(runs(edit.agent).filter(constitutional=False).order_by("-origin", "-number")[keep:])
        for memory in trimmed:
            if upto is None or memory.number <= upto:
                edit.change(memory, discarded_at=edit.at)
        return edit.finish()


def record_file_trim(agent: Agent, detail: dict[str, Any], actor: Actor) -> int | None:
    """Add an audit entry which says that the agent's memory file is trimmed. Returns the number of the entry."""
    with edits.begin(agent, Operation.TRIMMED, actor, is_notice=True) as edit:
        edit.detail = {"file": detail}
        return edit.finish(always=True).seq


def runs(agent: Agent) -> QuerySet[Memory]:
    """Return the active run entries in the agent's journal, in no order. Entries in categories that are off, or that
    are never refined, are left out."""
    rows = Memory.objects.of(agent).active().journal().filter(source=Source.RUN)
    return rows.exclude(category__in=UNREFINED | switches.closed(agent))


def notify(
    agent: Agent, text: str, *, operation: str, actor: Actor, detail: dict[str, Any], session: int | None = None
) -> Edited:
    """Store a notice from the service to the agent. The notice is a journal memory. The audit entry contains `detail`.

    The notice is stored even while memory is off, because the agent must be informed.
    """
    with edits.begin(agent, operation, actor, session=session, is_notice=True) as edit:
        edit.detail = detail
        edit.add(notice(text), Silo.for_agent(edit.agent))
        return edit.finish()


def notice(text: str) -> Draft:
    """Return the journal memory of a notice."""
    return Draft(text, kind=Kind.JOURNAL, category="behavioral", source=Source.SYSTEM).checked()


def reword(edit: Edit, notice: Memory, text: str) -> None:
    """Change the text of a notice in an edit that the service makes. Raises SiloKeyMissing, SealBroken."""
    edit.rewrite(notice, checked_content(text), (), Silo.for_agent(edit.agent))


def _editable(edit: Edit, refs: MemoryRefs, expect: Mapping[int, int] | None = None) -> list[Memory]:
    """Return the memories if this edit may rewrite or discard them. Otherwise raise an error. Outside sessions, the
    agent has a daily limit."""
    memories = edit.take(refs, expect)
    refuse(memories, errors.Discarded, errors.Notice, errors.Constitutional)
    if edit.actor.kind == ActorKind.AGENT and edit.session is None:
        daily_limit.require(edit.agent, memories, edit.at)
    return memories


def refuse(memories: Sequence[Memory], *reasons: type[errors.NumbersError]) -> None:
    """Raise the first error in `reasons` that applies to one of the memories. The error has the numbers of all memories
    to which it applies."""
    for reason in reasons:
        numbers = [memory.number for memory in memories if _IS_TRUE[reason](memory)]
        if numbers:
            raise reason(numbers)


_IS_TRUE: dict[type[errors.NumbersError], Callable[[Memory], bool]] = {
    errors.Constitutional: lambda memory: memory.constitutional,
    errors.Discarded: lambda memory: memory.discarded_at is not None,
    errors.CoreMemoryRequired: lambda memory: memory.layer != Layer.CORE,
    errors.Beneath: lambda memory: memory.layer == Layer.BENEATH,
    errors.Notice: lambda memory: memory.source == Source.SYSTEM,
    errors.Private: lambda memory: memory.category in UNREFINED,
    errors.Redacted: lambda memory: memory.redacted_at is not None,
}


def _within_half_the_budget(agent: Agent, memories: list[Memory]) -> None:
    wanted = agent.constitutional_tokens + sum(m.tokens for m in memories if not m.constitutional)
    if wanted > agent.budget_tokens // 2 and any(not m.constitutional for m in memories):
        most = f"{agent.budget_tokens // 2:,} tokens, half of the budget"
        raise errors.ProtectionFull(f"Constitutional memories would have {wanted:,} tokens. They may have {most}.")


def _merged_category(sources: list[Memory], category: str) -> str:
    categories = {source.category for source in sources}
    if len(categories) == 1:
        return sources[0].category
    if not category:
        raise errors.Invalid("category", f"is required, because the sources have {', '.join(sorted(categories))}")
    if scope_of(category) != sources[0].scope or category in UNREFINED:
        others = ", ".join(sorted(UNREFINED))
        raise errors.Invalid("category", f"must have the scope of the sources, {sources[0].scope}, and not be {others}")
    return category
