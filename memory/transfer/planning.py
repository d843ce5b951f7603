"""Plan a migration. The plan says which memory each piece becomes. It also says whether a piece is new, or whether it
changed after an earlier migration.

This module stores nothing. A plan contains the texts of memories, so only people who can read these memories may see
it. Pieces of earlier migrations are recognized by keyed digests (`memory.models.ImportedPiece`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from memory.errors import Invalid
from memory.masking.neutral import neutral_whole
from memory.masking.scanner import masked
from memory.models import Agent, ImportedPiece, Kind, Memory
from memory.policy import settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.validation import MAX_TAG, MAX_TAGS, Draft, checked_project
from memory.silo.silo import Silo
from memory.time_machine.selection import Undone
from memory.transfer.formats.parts import HERE, Found, LeftOut
from memory.transfer.reading import Item
from memory.transfer.systems import is_instruction
from memory.vault.rendering import MASKING

# --- the plan


class State(StrEnum):
    """The state of a piece, compared with earlier migrations."""

    NEW, SAME, CHANGED = "new", "same", "changed"


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A piece of another system, and the memory that it becomes. All digests are keyed."""

    system: str
    key: str
    draft: Draft  # checked
    origin: datetime  # the date of the piece, or of its file
    transformed: tuple[str, ...]
    source: bytes  # digest of the path, the id, the part and, with `by_words`, the text
    file: bytes  # digest of the file's path
    text: bytes  # digest of the original text
    has_id: bool  # the place has an id of its own
    state: State = State.NEW
    number: int | None = None  # number of the memory from an earlier migration
    version: int = 0  # the memory version that the earlier migration wrote
    known: bytes | None = None  # digest of the text in the earlier migration
    replaces: bool = False  # the category, project or kind changed, so the old memory is discarded


class Choice(NamedTuple):
    """A filter for the pieces to migrate. An empty field accepts every piece."""

    categories: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()  # shell patterns; `*` also matches `/`
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, step: Step) -> bool:
        return (
            (not self.categories or step.draft.category in self.categories)
            and (not self.paths or any(fnmatchcase(step.key, path) for path in self.paths))
            and (self.since is None or step.origin >= self.since)
            and (self.until is None or step.origin <= self.until)
        )


@dataclass(slots=True, repr=False)
class Plan:
    """The steps of a migration. They are sorted by path, and then by position in the file."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def of(self, *states: State) -> list[Step]:
        return [step for step in self.steps if step.state in states]

    @property
    def open(self) -> list[Step]:
        """The steps that a migration stores or changes."""
        return self.of(State.NEW, State.CHANGED)


# --- comparing with earlier migrations


_CONFLICT = "changed, and memory {} was also changed here. The memory is not overwritten: revise or discard it yourself"
_REDACTED = "was redacted, or is in a file with a redacted piece, so it is not imported again"


def compare(agent: Agent, plan: Plan, digest: Callable[[str], bytes], *, compares: bool) -> None:
    """Set the state of each step. Leave out the steps that must not be imported."""
    pieces = ImportedPiece.objects.filter(agent_id=agent.pk)
    of_files = list(pieces.filter(file_digest__among={step.file for step in plan.steps}))
    alike = list(pieces.filter(text_digest__among={step.text for step in plan.steps})) if compares else []
    past = _Past(agent, digest, {piece.number for piece in (*of_files, *alike) if piece.number is not None})
    redacted_files = {bytes(piece.file_digest) for piece in of_files if past.is_redacted(piece)}
    known = {bytes(piece.source_digest): piece for piece in of_files}
    migrated_files = {bytes(piece.file_digest) for piece in of_files if past.stands(piece)}
    closed = switches.closed(agent)

    def compared(step: Step) -> Step | str:
        """Return the step with its state, or the reason to leave it out."""
        if not compares:
            step = replace(step, state=State.SAME if step.file in migrated_files else State.NEW)
        elif (piece := known.get(step.source)) is not None:
            if isinstance(found := past.compared(step, piece), str):
                return found
            step = found
        if step.state is State.SAME:
            return step
        if step.file in redacted_files and not step.has_id:
            return _REDACTED
        category = step.draft.category
        return f"has the category {category}, which is off" if category in closed else step

    _keep(plan, compared)
    if compares:
        _leave_out_repeats(agent, plan, past, alike)


def _keep(plan: Plan, choose: Callable[[Step], Step | str]) -> None:
    """Call `choose` with each step. If `choose` returns a step, this step replaces the old one. If `choose` returns a
    reason, the old step is left out."""
    steps, plan.steps = plan.steps, []
    for step in steps:
        if isinstance(chosen := choose(step), str):
            plan.left_out.append(LeftOut(step.key, chosen))
        else:
            plan.steps.append(chosen)


class _Past:
    """The current state of the memories from earlier migrations."""

    def __init__(self, agent: Agent, digest: Callable[[str], bytes], numbers: set[int]) -> None:
        self.digest = digest
        found = Memory.objects.of(agent).numbered(numbers) if numbers else ()
        self._memories = {memory.number: memory for memory in found}
        self._undone = Undone.of(agent) if numbers else None

    def memory(self, piece: ImportedPiece) -> Memory | None:
        return None if piece.number is None else self._memories.get(piece.number)

    def is_redacted(self, piece: ImportedPiece) -> bool:
        memory = self.memory(piece)
        return memory is not None and memory.redacted_at is not None

    def _rollback(self, memory: Memory, piece: ImportedPiece) -> int | None:
        """Find the rollback that undid the migration of this piece. If the memory still has the version from this
        rollback, return the number of the rollback's audit entry. Otherwise return None."""
        by = self._undone.by(piece.version) if self._undone else None
        return by if memory.version == by else None

    def stands(self, piece: ImportedPiece) -> bool:
        """Return False if a rollback undid the migration and discarded the memory. Otherwise return True."""
        memory = self.memory(piece)
        return memory is None or memory.discarded_at is None or self._rollback(memory, piece) is None

    def compared(self, step: Step, piece: ImportedPiece) -> Step | str:
        """Return the step with its state, or the reason to leave it out."""
        is_same, memory = bytes(piece.text_digest) == step.text, self.memory(piece)
        step = replace(step, known=bytes(piece.text_digest))
        if memory is None:  # the piece was skipped, so it has no memory
            return replace(step, state=State.SAME if is_same else State.NEW)
        if not self.stands(piece):
            return step
        if memory.redacted_at is not None:
            return _REDACTED
        step, rollback = replace(step, number=piece.number, version=piece.version), self._rollback(memory, piece)
        is_active = memory.discarded_at is None
        is_intact = is_active and memory.version in (piece.version, rollback) and not memory.constitutional
        has_moved = _place(memory) != _place(step.draft)
        says_it = is_active and bytes(memory.digest) == self.digest(step.draft.content)
        if ((is_same and rollback is None) or says_it) and not (has_moved and is_intact):
            return replace(step, state=State.SAME)
        return replace(step, state=State.CHANGED, replaces=has_moved) if is_intact else _CONFLICT.format(memory.number)


def _place(of: object) -> tuple[str, str, str]:
    """Return the category, the project and the kind of a memory or draft."""
    return of.category, of.project, of.kind  # type: ignore[attr-defined]


def _leave_out_repeats(agent: Agent, plan: Plan, past: _Past, alike: Iterable[ImportedPiece]) -> None:
    """Leave out a new piece if a memory already has the same text, or if the piece was imported before under another
    name."""
    changing = {step.number for step in plan.of(State.CHANGED)}
    digests = {step.source: past.digest(step.draft.content) for step in plan.of(State.NEW)}
    known: dict[tuple[bytes, str, str], str] = {}
    for piece in alike:
        was = past.memory(piece)
        if was is not None and past.stands(piece) and was.number not in changing:
            known[bytes(piece.text_digest), was.category, was.project] = f"was imported before, as memory {was.number}"
    for memory in Memory.objects.of(agent).kept().filter(digest__among=set(digests.values())):
        if memory.number not in changing:
            place = memory.category, memory.project
            known[bytes(memory.digest), *place] = f"has the same text as memory {memory.number}"

    def unless_known(step: Step) -> Step | str:
        if step.source not in digests:
            return step
        place = step.draft.category, step.draft.project
        return known.get((digests[step.source], *place)) or known.get((step.text, *place)) or step

    _keep(plan, unless_known)


# --- making the steps


SETTINGS = "memory_rules.migration_settings"
_MAX_NOTES = 16  # number of changes of a piece that become tags
_MAX_TAGS_KNOWN = 1_000  # number of tags whose masked form is cached


def make_plan(
    agent: Agent,
    items: Iterable[Item],
    project: str,
    *,
    now: datetime,
    compares: bool,
    masks: bool | None = None,
    where: str = "",
) -> Plan:
    """For each piece, decide which memory is made from it. `project` is the project of the folder. `where` is the path
    of the folder in the project.

    If `compares` is true, pieces are compared with memories. Only the agent's side may set `compares`, because the
    differences would help a person to guess contents. If `compares` is false and a file was migrated earlier, all its
    pieces count as unchanged. `masks` says whether secrets are masked in memories that are not private. If `masks` is
    None, the settings decide.
    """
    silo, plan = Silo.for_agent(agent), Plan()
    # Masking takes most of the time of a plan, and the same tag belongs to many pieces. So masked tags are cached.
    masked_tag = lru_cache(_MAX_TAGS_KNOWN)(lambda tag: _cut(masked(tag)[0]))
    rules = switches.rules_of(agent)
    masks = settings_document.is_on(rules, *MASKING) if masks is None else masks
    shaping = _Shaping(rules, silo, project, now, masks, where, masked_tag)
    for item in items:
        if isinstance(item.part, LeftOut):
            plan.left_out.append(item.part)
            continue
        try:
            plan.steps.append(shaping.step(item, item.part))
        except Invalid as unfit:
            plan.left_out.append(LeftOut(item.part.key, f"{unfit.field} {unfit.problem}"))
    compare(agent, plan, silo.digest, compares=compares)
    return plan


@dataclass(frozen=True, slots=True)
class _Shaping:
    rules: Mapping[str, Any]
    silo: Silo
    project: str
    now: datetime
    masks: bool
    where: str
    masked_tag: Callable[[str], str]
    _seen: Counter[str] = field(default_factory=Counter)

    def at_home(self, key: str) -> str:
        """Return a key relative to the root of the project. Such a key shows, for example, the folder to which an
        AGENTS.md applies."""
        return "/".join(filter(None, (self.where, key)))

    def step(self, item: Item, found: Found) -> Step:
        """Return the step of a piece. The step has the memory, the changes that were made, and the digests by which the
        piece is recognized. Raises Invalid."""
        content, done = self._content(found)
        done = (*found.transformed, *done, *(() if found.date else ("dated by its file",)))
        project = checked_project(self.project if found.project == HERE else found.project)
        tags, origin = self._tags(item, found, done), found.date or item.source.modified
        kept_apart = found.kind == Kind.CORE and is_instruction(item.source.system, item.source.path)
        draft = Draft(content, found.kind, found.category, project, tags, origin, is_instruction=kept_apart).checked()
        text = self.silo.digest(found.content)
        file = f"{self.project}\0{self.at_home(item.source.path)}"
        source = f"{file}\0{found.id}\0{found.part}\0{text.hex() if found.by_words else ''}"
        self._seen[source] += 1
        # Two pieces may have the same source. Then a number is added.
        numbered = source if self._seen[source] == 1 else f"{source}\0{self._seen[source]}"
        digests = (self.silo.digest(numbered, "piece"), self.silo.digest(file, "piece"), text)
        has_id = bool(found.id) and numbered == source
        return Step(item.source.system, found.key, draft, draft.origin or origin, done, *digests, has_id)

    def _content(self, found: Found) -> tuple[str, tuple[str, ...]]:
        """Remove brands and licences from the text. Mask secrets too, unless the memory is private or masking is off.
        Return the new text and a list of the changes."""
        content, done = neutral_whole(found.content), []
        if content != found.content:
            done.append("licence or brand left out")
        if self._is_masked(found):
            content, hidden = masked(content)
            done += [f"{hidden} {'secret' if hidden == 1 else 'secrets'} masked"] if hidden else []
        return content, tuple(done)

    def _tags(self, item: Item, found: Found, done: Sequence[str]) -> tuple[str, ...]:
        """Return the tags of the piece, and tags with notes about the migration. The memory's file shows these
        notes."""
        notes = [f"source-system:{item.source.system}", f"migrated:{self.now:%Y-%m-%dT%H:%M:%SZ}"]
        if settings_document.value(self.rules, f"{SETTINGS}.migration_notes_inclusion"):
            notes += _in_tags("migration:", f"from {self.at_home(found.key)}")
            notes += [_cut(f"transformed:{each}") for each in done[:_MAX_NOTES]]
        if settings_document.value(self.rules, f"{SETTINGS}.cross_system_compatibility"):
            notes.append("compatibility:its file was left as it is")
        tags = (*found.tags[: MAX_TAGS - len(notes)], *notes)
        return tuple(map(self.masked_tag, tags)) if self._is_masked(found) else tags

    def _is_masked(self, found: Found) -> bool:
        return self.masks and SCOPES.get(found.category) != PRIVATE


def _in_tags(before: str, text: str) -> list[str]:
    """Split a long text into several tags, after slashes if possible. If the text needs more than eight tags, leave out
    its middle."""
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
