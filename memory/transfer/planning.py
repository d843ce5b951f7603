"""What of another system's memories would become what here (seed 004, "Migration Prompting", preview; "Cross-System
Migration", 2 to 4). What became of it already: `memory/transfer/reconcile.py`.

Nothing is stored here. What a plan holds is content: it is for whoever may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.errors import Invalid
from memory.masking.neutral import neutral_whole
from memory.masking.scanner import masked
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.projects import checked_project
from memory.policy.validation import MAX_TAG, MAX_TAGS, Draft
from memory.silo.silo import Silo
from memory.transfer import reconcile
from memory.transfer.formats.found import HERE, Found, Known, LeftOut
from memory.transfer.reading import Item
from memory.transfer.steps import MOVES, Choice, Digests, Fate, Plan, Step

__all__ = ["MOST", "MOVES", "SETTINGS", "Choice", "Fate", "Plan", "Step", "planned"]

SETTINGS = "memory_rules.migration_settings"
STAYS = "its file was left as it is"  # what is said of how both go together
MOST = 200_000  # pieces that are looked at together
_NOTES = 16  # of what was done to a piece, that are kept with it
_TAGS = 1_000  # that are masked once for all pieces


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
    shaping = _Shaping(switches.rules_of(agent), project, now, masks, where)
    silo, plan = Silo.for_agent(agent), Plan()
    for item in items:
        if isinstance(item.part, LeftOut):
            plan.left_out.append(item.part)
        else:
            _add(plan, shaping, silo, item, item.part)
        if len(plan.steps) + len(plan.left_out) > MOST:
            raise Invalid(
                "sources", f"more than {MOST:,} pieces are there: name fewer, or give the file to import_memories"
            )
    reconcile.settle(agent, plan, silo.digest, compares=compares)
    return plan


def _add(plan: Plan, shaping: _Shaping, silo: Silo, item: Item, found: Found) -> None:
    try:
        draft, transformed = shaping.shaped(item, found)
    except Invalid as unfit:
        plan.left_out.append(LeftOut(found.key, f"{unfit.field} {unfit.problem}"))
        return
    file, whole = (shaping.at_home(key) for key in (item.path, found.part_of or found.key))
    digests = _digests(plan, shaping, silo, found, whole=whole, file=file)
    is_named = whole not in (file, f"{file}#")
    origin = draft.origin or item.modified
    plan.steps.append(Step(item.system, item.path, found.key, Fate.NEW, draft, origin, transformed, digests, is_named))


def _digests(plan: Plan, shaping: _Shaping, silo: Silo, found: Found, *, whole: str, file: str) -> Digests:
    """`whole` and `file` are the keys, as the project has them, of what it is part of."""
    said = silo.digest(found.content)
    known_by = {
        Known.KEY: shaping.at_home(found.key),
        Known.WHOLE: whole,
        Known.WORDS: f"{whole}\0{said.hex()}",
    }
    named = f"moved\0{shaping.project}\0"
    key = first = silo.digest(f"{named}{known_by[found.known_by]}")
    plan.keys[first] += 1
    if plan.keys[first] > 1:  # names may be made so that two are one
        key = silo.digest(f"{named}{known_by[found.known_by]}\0{plan.keys[first]}")
    place = first if known_by[found.known_by] == whole else _shared(plan, silo, f"{named}{whole}")
    return Digests(key, said, place, _shared(plan, silo, f"{named}{file}"))


def _shared(plan: Plan, silo: Silo, key: str) -> bytes:
    """Of what many pieces are part of: made once."""
    if key not in plan.shared:
        plan.shared[key] = silo.digest(key)
    return plan.shared[key]


# --- what it would say


@dataclass(frozen=True, slots=True)
class _Shaping:
    rules: Mapping[str, Any]
    project: str
    now: datetime
    masks: bool | None
    where: str
    _masked_tags: dict[str, str] = field(default_factory=dict)

    def at_home(self, key: str) -> str:
        """A key as it is seen from the project's folder."""
        return "/".join(filter(None, (self.where, key)))

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
        if settings_document.value(self.rules, f"{SETTINGS}.migration_notes_inclusion"):
            notes += [_short("migration:from ", found.key), *(_cut(f"transformed:{each}") for each in done[:_NOTES])]
        if settings_document.value(self.rules, f"{SETTINGS}.cross_system_compatibility"):
            notes.append(f"compatibility:{STAYS}")
        tags = (*found.tags[: MAX_TAGS - len(notes)], *notes)
        return tuple(self._masked_tag(tag) for tag in tags) if self._is_masked(found) else tags

    def _masked_tag(self, tag: str) -> str:
        """Most pieces have most tags of others, and masking is what takes a plan its time."""
        if (found := self._masked_tags.get(tag)) is None:
            found = _cut(masked(tag)[0])
            if len(self._masked_tags) < _TAGS:
                self._masked_tags[tag] = found
        return found

    def _is_masked(self, found: Found) -> bool:
        if SCOPES.get(found.category) == PRIVATE:
            return False
        masks = settings_document.is_on(self.rules, "capture_settings", "sensitive_data_masking")
        return masks if self.masks is None else self.masks


def _short(before: str, key: str) -> str:
    """A tag that ends as the key does: with the file's name, and the part of it."""
    key = " ".join(key.split())
    room = MAX_TAG - len(before)
    return before + (key if len(key) <= room else f"…{key[1 - room :]}")


def _cut(tag: str) -> str:
    return tag if len(tag) <= MAX_TAG else f"{tag[: MAX_TAG - 1]}…"
