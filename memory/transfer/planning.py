"""What a migration would do: which memory each piece would become, and whether it is new, the same, or changed since an
earlier migration (seed 004, "Migration Prompting" and "Cross-System Migration").

Nothing is stored here. A plan holds content: it is for whoever may read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from memory.errors import Invalid
from memory.masking.neutral import neutral_whole
from memory.masking.scanner import masked
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.validation import MAX_TAG, MAX_TAGS, Draft, checked_project
from memory.silo.silo import Silo
from memory.transfer import comparing
from memory.transfer.formats.found import HERE, Found, LeftOut
from memory.transfer.reading import Item
from memory.transfer.steps import Plan, Step

SETTINGS = "memory_rules.migration_settings"
_STAYS = "its file was left as it is"
_MAX_NOTES = 16  # of what was done to a piece, that become tags
_MAX_TAGS_KNOWN = 1_000  # tags whose masked form is remembered


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
    """What each piece would become. `project` is the folder's project, `where` the folder's path in it.

    `compares` is for the agent's side alone: pieces are compared with what memories say. Otherwise all pieces of a file
    that was migrated before are the same, for a difference would let somebody try guesses. `masks`: whether secrets are
    masked in what is not private; None means as the settings say.
    """
    silo, plan = Silo.for_agent(agent), Plan()
    # Most tags belong to many pieces, and masking takes most of the time of a plan.
    masked_tag = lru_cache(_MAX_TAGS_KNOWN)(lambda tag: _cut(masked(tag)[0]))
    shaping = _Shaping(switches.rules_of(agent), silo, project, now, masks, where, masked_tag)
    for item in items:
        if isinstance(item.part, LeftOut):
            plan.left_out.append(item.part)
            continue
        try:
            plan.steps.append(shaping.step(item, item.part))
        except Invalid as unfit:
            plan.left_out.append(LeftOut(item.part.key, f"{unfit.field} {unfit.problem}"))
    comparing.compare(agent, plan, silo.digest, compares=compares)
    return plan


@dataclass(frozen=True, slots=True)
class _Shaping:
    rules: Mapping[str, Any]
    silo: Silo
    project: str
    now: datetime
    masks: bool | None
    where: str
    masked_tag: Callable[[str], str]
    _seen: Counter[str] = field(default_factory=Counter)

    def at_home(self, key: str) -> str:
        """A key, seen from the root of the project: the folder of an AGENTS.md is its scope."""
        return "/".join(filter(None, (self.where, key)))

    def step(self, item: Item, found: Found) -> Step:
        """The memory, what was done to make it, and the digests that recognize it. Raises Invalid."""
        content, done = self._content(found)
        done = (*found.transformed, *done, *(() if found.date else ("dated by its file",)))
        project = checked_project(self.project if found.project == HERE else found.project)
        tags, origin = self._tags(item, found, done), found.date or item.source.modified
        draft = Draft(content, found.kind, found.category, project, tags, origin).checked()
        text = self.silo.digest(found.content)
        file = f"piece\0{self.project}\0{self.at_home(item.source.path)}"
        source = f"{file}\0{found.id}\0{found.part}\0{text.hex() if found.by_words else ''}"
        self._seen[source] += 1
        numbered = source if self._seen[source] == 1 else f"{source}\0{self._seen[source]}"  # two may have one name
        digests = (self.silo.digest(numbered), self.silo.digest(file), text)
        return Step(item.source.system, found.key, draft, draft.origin or origin, done, *digests, bool(found.id))

    def _content(self, found: Found) -> tuple[str, tuple[str, ...]]:
        """Without brands and licences, and without secrets if the memory is not private."""
        content, done = neutral_whole(found.content), []
        if content != found.content:
            done.append("licence or brand left out")
        if self._is_masked(found):
            content, hidden = masked(content)
            done += [f"{hidden} {'secret' if hidden == 1 else 'secrets'} masked"] if hidden else []
        return content, tuple(done)

    def _tags(self, item: Item, found: Found, done: Sequence[str]) -> tuple[str, ...]:
        """Its own, and the migration notes, which its file shows (`memory/vault/rendering.py`)."""
        notes = [f"source-system:{item.source.system}", f"migrated:{self.now:%Y-%m-%dT%H:%M:%SZ}"]
        if settings_document.value(self.rules, f"{SETTINGS}.migration_notes_inclusion"):
            notes += _in_tags("migration:", f"from {self.at_home(found.key)}")
            notes += [_cut(f"transformed:{each}") for each in done[:_MAX_NOTES]]
        if settings_document.value(self.rules, f"{SETTINGS}.cross_system_compatibility"):
            notes.append(f"compatibility:{_STAYS}")
        tags = (*found.tags[: MAX_TAGS - len(notes)], *notes)
        return tuple(map(self.masked_tag, tags)) if self._is_masked(found) else tags

    def _is_masked(self, found: Found) -> bool:
        if SCOPES.get(found.category) == PRIVATE:
            return False
        masks = settings_document.is_on(self.rules, "capture_settings", "sensitive_data_masking")
        return masks if self.masks is None else self.masks


def _in_tags(before: str, text: str) -> list[str]:
    """A text in as many tags as it needs, but its middle if it needs more than eight. It is cut behind a slash."""
    text, tags, room = " ".join(text.split()), [], MAX_TAG - len(before)
    if len(text) > 8 * room - 1:
        text = f"{text[: 4 * room - 1]}…{text[-2 * room :]}"
    while text:
        cut = len(text) if len(text) <= room else text.rfind("/", 1, room) + 1 or room
        tags.append(before + text[:cut])
        text = text[cut:]
    return tags


def _cut(tag: str) -> str:
    return tag if len(tag) <= MAX_TAG else f"{tag[: MAX_TAG - 1]}…"
