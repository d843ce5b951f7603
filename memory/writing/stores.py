"""Edit memory stores and the memories in them.

A memory of a store is an ordinary memory beneath: search finds it, but it is not in the context and not in the budget.
A change of a store itself is an audit entry, too. Its sealed note has the store's name, description and metadata.
"""

import json
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Count, Max, Sum
from django.db.models.functions import Length

from audit import redactions
from audit.models import ActorKind, Operation
from audit.trail import Actor
from memory import errors
from memory.errors import Invalid
from memory.models import Agent, Layer, Memory, Store
from memory.models.memories import MemoryQuerySet
from memory.policy import switches
from memory.policy.validation import Draft, checked_beneath, checked_content, require_storable
from memory.silo.silo import Silo
from memory.writing import daily_limit, edits, operations
from memory.writing.edits import Edit, Edited

MAX_MEMORIES = 10_000  # in a store
MAX_STORES = 1_000  # of an agent
MAX_NAME, MAX_DESCRIPTION = 255, 1_024  # characters
MAX_PAIRS, MAX_PAIR_NAME, MAX_PAIR_VALUE = 16, 64, 512
# The most memories of one edit, and their sealed bytes. They keep SQLite's writer for less than a second.
MOST_AT_ONCE, MOST_BYTES_AT_ONCE = 500, 3_000_000
MAX_SEGMENTS, MAX_PATH = 20, 1_024  # segments, and bytes of a path
_UNSEEN = {"Cc", "Cf", "Zl", "Zp"}  # control and format characters, line and paragraph separators
_FIELD = "store"  # of the seal


@dataclass(frozen=True, slots=True, repr=False)
class About:
    """What a client writes about a store. The `repr` does not show it, because it is content."""

    name: str
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def checked(self) -> "About":
        """Raises Invalid."""
        if not 1 <= len(self.name) <= MAX_NAME or any(unicodedata.category(each) == "Cc" for each in self.name):
            raise Invalid("name", f"must have 1 to {MAX_NAME} characters, and no control characters")
        if len(self.description) > MAX_DESCRIPTION:
            raise Invalid("description", f"must have at most {MAX_DESCRIPTION:,} characters")
        is_long = any(not 1 <= len(n) <= MAX_PAIR_NAME or len(v) > MAX_PAIR_VALUE for n, v in self.metadata.items())
        if len(self.metadata) > MAX_PAIRS or is_long:
            limits = f"keys of 1 to {MAX_PAIR_NAME} characters and values of at most {MAX_PAIR_VALUE} characters"
            raise Invalid("metadata", f"must have at most {MAX_PAIRS} pairs, with {limits}")
        for text in (self.name, self.description, *self.metadata, *self.metadata.values()):
            require_storable("name", text)
        return self


# --- stores


def find(agent: Agent, number: int) -> Store:
    """Raises NotFound."""
    store = Store.objects.filter(agent_id=agent.pk, number=number, deleted_at=None).first()
    if store is None:
        raise errors.NotFound("The memory store does not exist.")
    return store


def about(agent: Agent, store: Store) -> About:
    return About(**json.loads(Silo.for_agent(agent).open_text(_FIELD, store.number, bytes(store.sealed))))


def create(agent: Agent, given: About, actor: Actor) -> Store:
    """Raises Invalid, MemoryDisabled."""
    given.checked()
    with edits.begin(agent, Operation.STORE_CHANGED, actor) as edit:
        stores = Store.objects.filter(agent_id=edit.agent.pk)
        if stores.filter(deleted_at=None).count() >= MAX_STORES:
            raise Invalid("name", f"cannot be used: the agent has {MAX_STORES:,} memory stores, which is the maximum")
        number = (stores.aggregate(last=Max("number"))["last"] or 0) + 1
        store = Store(agent_id=edit.agent.pk, number=number, created_at=edit.at)
        _write(edit, store, "created", given)
        return store


def change(agent: Agent, number: int, values: Mapping[str, Any], actor: Actor) -> Store:
    """Set the name or the description of a store, or some pairs of its metadata. A pair with the value None is removed.
    Raises NotFound, StoreArchived, Invalid, MemoryDisabled."""
    with edits.begin(agent, Operation.STORE_CHANGED, actor) as edit:
        store = require_open(edit.agent, number)
        before = about(edit.agent, store)
        pairs = {**before.metadata, **values.get("metadata", {})}
        metadata = {name: value for name, value in pairs.items() if value is not None}
        after = About(**asdict(before) | dict(values) | {"metadata": metadata}).checked()
        if after != before:
            _write(edit, store, "updated", after)
        return store


def archive(agent: Agent, number: int, actor: Actor) -> Store:
    """Make a store read-only, for ever. Raises NotFound, MemoryDisabled."""
    with edits.begin(agent, Operation.STORE_CHANGED, actor) as edit:
        store = find(edit.agent, number)
        if store.archived_at is None:
            store.archived_at = edit.at
            _write(edit, store, "archived", about(edit.agent, store))
        return store


def delete(agent: Agent, number: int, actor: Actor) -> None:
    """Delete a store: discard its memories. A rollback restores both.

    If they are many or large, this takes several edits, so that other writers do not wait for long.
    Raises NotFound, Constitutional, DiscardShare, MemoryDisabled.
    """
    is_left = True
    while is_left:
        with edits.begin(agent, Operation.STORE_CHANGED, actor) as edit:
            store = find(edit.agent, number)
            rows = Memory.objects.of(edit.agent).kept().filter(store=number).order_by("number")
            # Only these can be protected, or count for the daily limit. All others may be very many.
            _require_editable(edit, list(rows.filter(beneath_at=None).defer("sealed", "digest")))
            memories = rows.fitting(MOST_AT_ONCE, MOST_BYTES_AT_ONCE)
            is_left = bool(memories) and rows.filter(number__gt=memories[-1].number).exists()
            if memories:  # so that they count for the daily limit
                edit.operation = Operation.DISCARDED
            for memory in memories:
                edit.change(memory, discarded_at=edit.at)
            store.deleted_at = None if is_left else edit.at
            _write(edit, store, "emptied" if is_left else "deleted", about(edit.agent, store))
        if is_left:
            time.sleep(edits.PAUSE)


def require_open(agent: Agent, number: int) -> Store:
    """Return a store that can be changed. Raises NotFound, StoreArchived."""
    store = find(agent, number)
    if store.archived_at is not None:
        raise errors.StoreArchived
    return store


def _write(edit: Edit, store: Store, what: str, given: About) -> None:
    text = json.dumps(asdict(given), ensure_ascii=False)
    store.sealed = Silo.for_agent(edit.agent).seal_text(_FIELD, store.number, text)
    store.updated_at = edit.at
    store.save()
    edit.detail |= {"store": store.number, "change": what}
    edit.note = text
    edit.finish(always=True)


# --- the memories in a store


def checked_path(path: str) -> str:
    """Raises Invalid."""
    parts = path.split("/")
    problem = ""
    if parts[0] or len(parts) < 2:
        problem = "must start with '/'"
    elif len(parts) - 1 > MAX_SEGMENTS or len(path.encode("utf-8", "replace")) > MAX_PATH:
        problem = f"must have at most {MAX_SEGMENTS} segments and {MAX_PATH:,} bytes"
    elif {"", ".", ".."} & set(parts[1:]):
        problem = "must not have a segment that is empty, '.' or '..'"
    elif any(unicodedata.category(each) in _UNSEEN for each in path):
        problem = "must not have control characters, format characters or line separators"
    elif not unicodedata.is_normalized("NFC", path):
        problem = "must be in Unicode Normalization Form C"
    if problem:
        raise Invalid("path", problem)
    require_storable("path", path)
    return path


def memory(agent: Agent, store: int, number: int) -> Memory:
    """A memory that is in this store. Raises NotFound."""
    found = Memory.objects.of(agent).kept().filter(number=number, store=store).first() if number else None
    if found is None:
        raise errors.NotFound("The memory does not exist in this memory store.")
    return found


def add(agent: Agent, store: int, path: str, content: str, actor: Actor) -> Edited:
    """Store a memory. Raises NotFound, StoreArchived, Invalid, PathTaken, MemoryDisabled, CategoryDisabled."""
    draft = Draft(content, is_beneath=True, store=store, path=checked_path(path)).checked()
    with edits.begin(agent, Operation.REMEMBERED, actor) as edit:
        if require_open(edit.agent, store).memories >= MAX_MEMORIES:
            raise Invalid("path", f"cannot be used: the store has {MAX_MEMORIES:,} memories, which is the maximum")
        edit.add(draft, Silo.for_agent(edit.agent))
        return edit.finish()


def revise(
    agent: Agent,
    store: int,
    number: int,
    actor: Actor,
    *,
    content: str | None = None,
    path: str | None = None,
    expected: str | None = None,
    session: int | None = None,
) -> Memory:
    """Change the content or the path of a memory. If both are as requested already, nothing changes.

    `expected` is the SHA-256 of the content that the client knows, in hex. Raises NotFound, StoreArchived, Invalid,
    ContentChanged, PathTaken, Constitutional, DiscardShare, MemoryDisabled, CategoryDisabled.
    """
    path = None if path is None else checked_path(path)
    content = None if content is None else checked_beneath(content)
    with edits.begin(agent, Operation.REVISED, actor, session=session) as edit:
        found = memory(edit.agent, store, number)
        silo = Silo.for_agent(edit.agent)
        opened = silo.open(found)
        require_open(edit.agent, store)
        if content is not None and found.layer != Layer.BENEATH:
            checked_content(content)
        if content in (None, opened.content) and path in (None, opened.path):
            return found
        _require_content(silo, found, expected)
        _require_editable(edit, [found])
        if path not in (None, opened.path):
            _move(edit, silo, found, path or "")
        if content not in (None, opened.content):
            edit.rewrite(found, content or "", opened.tags, silo)
        edit.finish()
        return found


def copy(agent: Agent, store: int, to: int, after: int, actor: Actor) -> int | None:
    """Copy the next memories of a store, with numbers above `after`, to another store. Returns the last number, or None
    if there are no more. Raises NotFound, StoreArchived, PathTaken, MemoryDisabled, CategoryDisabled.
    """
    with edits.begin(agent, Operation.REMEMBERED, actor) as edit:
        require_open(edit.agent, to)
        silo, number = Silo.for_agent(edit.agent), None
        rows = Memory.objects.of(edit.agent).kept().filter(store=store, number__gt=after)
        rows = rows.exclude(category__in=switches.closed(edit.agent)).order_by("number")
        memories = rows.fitting(MOST_AT_ONCE, MOST_BYTES_AT_ONCE)
        gone = redactions.put_back(edit.agent, {(each.number, each.version): edits.snapshot(each) for each in memories})
        for each in memories:
            number = each.number
            if number in gone:  # SQL put back its row
                continue
            opened = silo.open(each)
            where: Any = {"is_beneath": True, "store": to, "path": opened.path, "tags": opened.tags}
            where |= {name: getattr(each, name) for name in ("origin", "origin_latest", "source", "tokens")}
            edit.add(Draft(opened.content, each.kind, each.category, each.project, **where), silo)
        edit.finish()
        return number


def move(agent: Agent, store: int, paths: Mapping[int, str], actor: Actor) -> None:
    """Give memories of a store new paths, in one edit. `paths` has the numbers of the memories.

    Raises NotFound, StoreArchived, Invalid, PathTaken, Constitutional, DiscardShare, MemoryDisabled, CategoryDisabled.
    """
    with edits.begin(agent, Operation.REVISED, actor) as edit:
        require_open(edit.agent, store)
        memories = list(Memory.objects.of(edit.agent).kept().numbered(paths).filter(store=store))
        _require_editable(edit, memories)
        silo = Silo.for_agent(edit.agent)
        for each in memories:
            _move(edit, silo, each, checked_path(paths[each.number]))
        edit.finish()


def discard(agent: Agent, store: int, number: int, actor: Actor, *, expected: str | None = None) -> None:
    """Discard a memory of a store. `expected` is as in `revise`. Raises NotFound, ContentChanged, Constitutional,
    DiscardShare, MemoryDisabled."""
    with _locked(agent, store) as row:
        found = memory(row, store, number)
        _require_content(Silo.for_agent(row), found, expected)
        operations.discard(row, [found], actor)


def is_large(memories: MemoryQuerySet) -> bool:
    """Whether these memories are too many or too large for one edit."""
    size = memories.aggregate(count=Count("pk"), bytes=Sum(Length("sealed"), default=0))
    return bool(size["count"] > MOST_AT_ONCE or size["bytes"] > MOST_BYTES_AT_ONCE)


@contextmanager
def _locked(agent: Agent, store: int) -> Iterator[Agent]:
    with edits.locked(agent) as row:
        edits.require_key(row)
        find(row, store)
        yield row


def _move(edit: Edit, silo: Silo, found: Memory, path: str) -> None:
    sealed = silo.rename(found.number, bytes(found.sealed), path)
    edit.change(found, sealed=sealed, place=silo.place(found.store or 0, path))


def _require_content(silo: Silo, found: Memory, expected: str | None) -> None:
    if expected is not None and silo.open_label(found.number, bytes(found.sealed)).sha256 != expected:
        raise errors.ContentChanged


def _require_editable(edit: Edit, memories: list[Memory]) -> None:
    operations.refuse(memories, errors.Constitutional)
    if edit.actor.kind == ActorKind.AGENT and edit.session is None:
        daily_limit.require(edit.agent, memories, edit.at)
