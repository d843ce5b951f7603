"""What of another system's memories would become what here, and what became of them already (seed 004, "Migration
Prompting", preview; "Cross-System Migration", 2 to 4).

Nothing is stored here. What a plan holds is content: it is for whoever may read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from memory.errors import Invalid
from memory.formats.found import HERE, Found, LeftOut
from memory.intake import MAX_TAG, MAX_TAGS, Draft
from memory.models import Agent, Memory
from memory.moving.reading import Item
from memory.rules import document, gate
from memory.rules.categories import PRIVATE, SCOPES
from memory.rules.masking import masked
from memory.rules.neutral import neutral_whole
from memory.rules.projects import checked_project
from memory.rules.rows import Moved
from memory.silo.silo import Silo
from memory.undone import Undone

SETTINGS = "memory_rules.migration_settings"
STAYS = "its file was left as it is"  # what is said of how both go together
_LIKE = "says the same as memory {} here"
_AT_ONCE = 1_000  # digests looked up by one query
MOST = 200_000  # pieces that are looked at together
_NOTES = 16  # of what was done to a piece, that are kept with it


class Fate(StrEnum):
    """What a migration does about a piece."""

    NEW = "new"
    CHANGED = "changed"  # there, its memory as it was written: that says what the file says now
    REPLACED = "replaced"  # the same, but of another category, project or kind: another memory takes its place
    THERE = "there"
    OTHERWISE = "otherwise"  # the file changed, and so did its memory: left
    BESIDE = "beside"  # somebody decided so
    OFF = "off"  # its category is


MOVES = frozenset({Fate.NEW, Fate.CHANGED, Fate.REPLACED})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pieces are wanted; of what is empty, all."""

    systems: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()  # as shells have them; `*` crosses folders
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, step: Step) -> bool:
        return (
            (not self.systems or step.system in self.systems)
            and (not self.categories or step.draft.category in self.categories)
            and (not self.paths or any(fnmatchcase(step.key, path) for path in self.paths))
            and (self.since is None or step.origin >= self.since)
            and (self.until is None or step.origin <= self.until)
        )


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A piece of another system's memory, and the memory it would be."""

    system: str
    path: str  # of its file
    key: str
    fate: Fate
    draft: Draft  # checked
    origin: datetime  # its date, or its file's
    transformed: tuple[str, ...]  # what was done to it, that is kept with it or not
    digests: tuple[bytes, bytes]  # of its key, and of what it said there
    number: int | None = None  # of the memory it is, or was
    known: tuple[bytes, int | None, int] | None = None  # what was noted of it: content digest, number, version


@dataclass(slots=True, repr=False)
class Plan:
    """In order of path, then of place in it."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)

    def of(self, *fates: Fate) -> list[Step]:
        return [step for step in self.steps if step.fate in fates]


def planned(
    agent: Agent,
    items: Iterable[Item],
    project: str,
    *,
    now: datetime,
    compares: bool,
    masks: bool | None = None,
    where: str = "",
) -> Plan:
    """What would become of each. `project` is the folder's. With `compares`, what says the same as a memory that is
    here already is left out, and what its file says by now is told from what it said: for the agent's side alone, since
    whoever learns it could try guesses. `masks`: whether secrets are taken out of what is not private; None: as the
    rules have it. `where`: the folder, seen from its project's, so that a file is the same from wherever it is found.

    Reads files; asks the database once for a thousand pieces. Raises Invalid where there is too much.
    """
    shaping = _Shaping(gate.rules_of(agent), project, now, masks, where)
    silo, plan = Silo.for_agent(agent), Plan()
    for item in items:
        if isinstance(item.part, LeftOut):
            plan.left_out.append(item.part)
        else:
            _add(plan, shaping, silo, item, item.part)
        if len(plan.steps) + len(plan.left_out) > MOST:
            raise Invalid(
                "from", f"more than {MOST:,} pieces are there: name fewer, or give the file to import_memories"
            )
    _settle(agent, plan.steps, compares=compares)
    plan.steps = [_closed(agent, step) for step in plan.steps]
    if compares:
        _leave_out_repeats(agent, plan, silo)
    return plan


def _add(plan: Plan, shaping: _Shaping, silo: Silo, item: Item, found: Found) -> None:
    try:
        draft, transformed = shaping.shaped(item, found)
    except Invalid as unfit:
        plan.left_out.append(LeftOut(found.key, f"{unfit.field} {unfit.problem}"))
        return
    key = "/".join(filter(None, (shaping.where, found.key)))
    plan.keys[key] += 1
    nth = f"\0{plan.keys[key]}" if plan.keys[key] > 1 else ""  # names may be made so that two are one
    digests = (silo.digest(f"moved\0{shaping.project}\0{key}{nth}"), silo.digest(found.content))
    origin = draft.origin or item.modified
    plan.steps.append(Step(item.system, item.path, found.key, Fate.NEW, draft, origin, transformed, digests))


# --- what it would say


@dataclass(frozen=True, slots=True)
class _Shaping:
    rules: Mapping[str, Any]
    project: str
    now: datetime
    masks: bool | None
    where: str

    def shaped(self, item: Item, found: Found) -> tuple[Draft, tuple[str, ...]]:
        """The memory, and what was done to make it. Raises Invalid."""
        content, done = self._content(found)
        done = (*found.transformed, *done, *(() if found.date else ("dated by its file",)))
        draft = Draft(
            content,
            kind=found.kind,
            category=found.category,
            project=checked_project(self.project if found.project == HERE else found.project),
            tags=self._tags(item, found, done),
            origin=found.date or item.modified,
        )
        return draft.checked(), done

    def _content(self, found: Found) -> tuple[str, tuple[str, ...]]:
        """Without brands and licences; and without secrets, where they would be shown to a model, and in a file."""
        content, done = neutral_whole(found.content), []
        if content != found.content:
            done.append("licence or brand left out")
        if self._is_masked(found):
            content, hidden = masked(content)
            done += [f"{hidden} {'secret' if hidden == 1 else 'secrets'} masked"] if hidden else []
        return content, tuple(done)

    def _tags(self, item: Item, found: Found, done: Sequence[str]) -> tuple[str, ...]:
        """Its own, and what its file tells as its migration (`memory/vault/rendering.py`)."""
        notes = [f"source-system:{item.system}", f"migrated:{self.now:%Y-%m-%dT%H:%M:%SZ}"]
        if document.value(self.rules, f"{SETTINGS}.migration_notes_inclusion"):
            notes += [_short("migration:from ", found.key), *(_cut(f"transformed:{each}") for each in done[:_NOTES])]
        if document.value(self.rules, f"{SETTINGS}.cross_system_compatibility"):
            notes.append(f"compatibility:{STAYS}")
        tags = (*found.tags[: MAX_TAGS - len(notes)], *notes)
        return tuple(_cut(masked(tag)[0]) for tag in tags) if self._is_masked(found) else tags

    def _is_masked(self, found: Found) -> bool:
        if SCOPES.get(found.category) == PRIVATE:
            return False
        masks = document.is_on(self.rules, "capture_settings", "sensitive_data_masking")
        return masks if self.masks is None else self.masks


def _short(before: str, key: str) -> str:
    """A tag that ends as the key does: with the file's name, and the part of it."""
    key = " ".join(key.split())
    room = MAX_TAG - len(before)
    return before + (key if len(key) <= room else f"…{key[1 - room :]}")


def _cut(tag: str) -> str:
    return tag if len(tag) <= MAX_TAG else f"{tag[: MAX_TAG - 1]}…"


# --- what became of it


def known(agent: Agent, steps: Sequence[Step]) -> dict[bytes, Moved]:
    """What was noted of these, by the digest of the key."""
    found: dict[bytes, Moved] = {}
    for start in range(0, len(steps), _AT_ONCE):
        keys = [step.digests[0] for step in steps[start : start + _AT_ONCE]]
        rows = Moved.objects.filter(agent_id=agent.pk, key_digest__among=keys)
        found |= {bytes(row.key_digest): row for row in rows}
    return found


def noted(row: Moved | None) -> tuple[bytes, int | None, int] | None:
    """What of it decides a piece's fate."""
    return None if row is None else (bytes(row.content_digest), row.number, row.version)


def _settle(agent: Agent, steps: list[Step], *, compares: bool) -> None:
    rows = known(agent, steps)
    numbers = sorted({row.number for row in rows.values() if row.number is not None})
    memories = {m.number: m for m in Memory.objects.filter(agent_id=agent.pk, number__among=numbers)}
    undone = Undone(agent) if rows else None
    for n, step in enumerate(steps):
        row = rows.get(step.digests[0])
        if row is not None and undone is not None:
            memory = memories.get(row.number) if row.number is not None else None
            fate = _fate(step, row, memory, undone.by(row.version) if memory else None, compares=compares)
            steps[n] = replace(step, fate=fate, number=row.number, known=noted(row))


def _fate(step: Step, row: Moved, memory: Memory | None, undone_by: int | None, *, compares: bool) -> Fate:
    is_same = bytes(row.content_digest) == step.digests[1]
    if memory is None:
        return Fate.BESIDE if is_same else Fate.NEW
    if undone_by is not None and memory.discarded_at is not None and memory.redacted_at is None:
        return Fate.NEW  # somebody took the migration back, and migrates again
    if not compares:
        return Fate.THERE  # whether a file says what a memory says is told to the agent's side alone
    is_as_written = memory.version in (row.version, undone_by)
    is_ours = is_as_written and memory.discarded_at is None and not memory.constitutional
    draft = step.draft
    if is_ours and (memory.category, memory.project, memory.kind) != (draft.category, draft.project, draft.kind):
        return Fate.REPLACED  # no memory changes its category: what is private now is not put into what was not
    if is_same and undone_by is None:
        return Fate.THERE
    return Fate.CHANGED if is_ours else Fate.OTHERWISE


def _closed(agent: Agent, step: Step) -> Step:
    is_off = step.fate in MOVES and step.draft.category in gate.closed(agent)
    return replace(step, fate=Fate.OFF) if is_off else step


def _leave_out_repeats(agent: Agent, plan: Plan, silo: Silo) -> None:
    """What a memory says already in the same place, by the keyed digest."""
    fresh = plan.of(Fate.NEW)
    digests = {id(step): silo.digest(step.draft.content) for step in fresh}
    anew = {step.number for step in plan.of(Fate.CHANGED, Fate.REPLACED)}  # they say something else in a moment
    there: dict[Any, int] = {}
    wanted = sorted(set(digests.values()))
    for start in range(0, len(wanted), _AT_ONCE):
        rows = Memory.objects.filter(agent_id=agent.pk, discarded_at__isnull=True)
        rows = rows.filter(digest__among=wanted[start : start + _AT_ONCE])
        for number, digest, category, project in rows.values_list("number", "digest", "category", "project"):
            if number not in anew:
                there.setdefault((bytes(digest), category, project), number)
    kept = []
    for step in plan.steps:
        place = (digests.get(id(step), b""), step.draft.category, step.draft.project)
        if place in there:
            plan.left_out.append(LeftOut(step.key, _LIKE.format(there[place])))
        else:
            kept.append(step)
    plan.steps = kept
