"""What differs between a vault and its silo, and mending it: losing nothing of what either says.

A file that somebody wrote to is theirs until the agent's side takes the edit in, as an edit like any other, or leaves
it, when the file is put aside and written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from audit.models import ActorKind, Change
from audit.trail import Actor
from memory.access import request_key
from memory.errors import AgentsSide, FileFault, Invalid, NoFile, NotFound, Stale
from memory.markdown import sections
from memory.models import Agent, Memory, VaultFile
from memory.policy import paths, settings_document, switches
from memory.silo.silo import Opened, Silo
from memory.vault import comparing, encrypt_copies, index_pages, rendering, writer
from memory.vault.comparing import BEHIND, COPY, INDEX, MISPLACED, MISSING, UNREADABLE, Difference, Progress
from memory.vault.disk import NEW, Disk
from memory.vault.files import AT_ONCE, Files
from memory.vault.shown import MASKING
from memory.vault.unmasking import put_back
from memory.writing import edits, operations
from memory.writing.snapshots import restore

MENDED = (BEHIND, MISSING, MISPLACED, INDEX)  # without asking


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended, how many lines the indexes have, what is left for somebody to decide, how many files are none
    of ours, and what was in the way of one that is: from where to where below the vault's folder it was put."""

    mended: int
    indexed: int
    left: tuple[Difference, ...]
    unknown: int
    aside: tuple[tuple[str, str], ...]

    @property
    def is_done(self) -> bool:
        """Whether all that is mended without asking is."""
        faults = (*MENDED, UNREADABLE)
        return not any(each.kind in faults and (each.number or each.kind == INDEX) for each in self.left)


def repair(agent: Agent, *, progress: Progress = lambda _: None) -> Repaired:
    """Have the vault say what the silo says, with indexes written anew; what somebody wrote stays, and what cannot be
    written is left. Raises MemoryDisabled, FileFault, VaultBusy."""
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        row = _again(agent)
        caught_up = writer.catch_up_held(row, disk)
        now = Files(_again(row), disk)
        there = comparing.all_of(now, progress).differences
        _clear(now, there)
        found = [each for each in there if each.kind in MENDED]
        for start in range(0, len(found), AT_ONCE):
            _mend(now, found[start : start + AT_ONCE])
        with suppress(FileFault):  # one that cannot be read keeps no other waiting
            encrypt_copies.seal_what_was_found(now)
        indexed = index_pages.rebuild(disk, now.agent, now.rules, now.closed)
        writer.catch_up_held(row, disk)
        left = comparing.all_of(Files(row, disk))
        mended = caught_up + len(set(found) - set(left.differences))
        aside = tuple((str(path), str(kept)) for path, kept in disk.put_aside)
        return Repaired(mended, indexed, tuple(left.differences), left.unknown, aside)


def _again(agent: Agent) -> Agent:
    """As it stands, now that its vault is held: somebody may have switched it off while that was waited for, or ended
    the key by which it is asked."""
    request_key.require_valid()
    row = Agent.objects.select_related("tenant").get(pk=agent.pk)
    switches.require_on(row)
    return row


def _clear(now: Files, found: list[Difference]) -> None:
    """What a killed writer left: half-written, or written without its row."""
    for path in list(now.disk.files()):
        if path.name.startswith(NEW):
            now.disk.remove(path)
    for copy in found:
        if copy.kind == COPY and _is_left_by_a_crash(now, copy):
            now.disk.remove(PurePosixPath(copy.path))


def _is_left_by_a_crash(now: Files, copy: Difference) -> bool:
    path = PurePosixPath(copy.path)
    memory = Memory.objects.filter(agent_id=now.agent.pk, number=copy.number).first()
    data = now.disk.read(path)
    return memory is not None and data is not None and now.is_left_by_a_crash(memory, path, data)


def _mend(now: Files, found: list[Difference]) -> None:
    """All at once; where one of them cannot be written, the others one by one."""
    try:
        _put_right(now, found)
    except FileFault:
        now.disk.drop_staged()
        if len(found) > 1:
            for each in found:
                _mend(Files(now.agent, now.disk), [each])


def _put_right(now: Files, found: list[Difference]) -> None:
    for each in found:
        if each.kind == MISPLACED:
            now.put_where_it_belongs(each.number)
    numbers = [each.number for each in found if each.kind in (MISSING, BEHIND)]
    if numbers:
        _have_written_anew(now.agent, numbers)
        now.take(numbers)
        now.finish()


def _have_written_anew(agent: Agent, numbers: list[int]) -> None:
    """Once it is looked at again: of a version of the rules that there is none of."""
    VaultFile.objects.filter(agent_id=agent.pk, number__among=numbers).update(rules_version="")


def older(agent: Agent) -> int:
    """How many files were written under another version of the rules: flagged, and not rewritten by themselves."""
    version = settings_document.value(switches.rules_of(agent), "version")
    files = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE)
    return files.exclude(rules_version=version).count()


def migrate(agent: Agent) -> int:
    """Write the files of another version anew, but for those that somebody wrote to; how many. Raises MemoryDisabled,
    FileFault."""
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        row = _again(agent)
        version = settings_document.value(switches.rules_of(row), "version")
        files = VaultFile.objects.filter(agent_id=row.pk, state=VaultFile.State.THERE).exclude(rules_version=version)
        numbers = list(files.order_by("number").values_list("number", flat=True))
        files.update(rules_version="")
        return writer.bring_held(row, disk, numbers)


# --- a person's own edit


def take_in(agent: Agent, number: int, actor: Actor) -> edits.Edited:
    """Have the memory say what somebody wrote into its file: an edit like any other, which the agent's side makes. It
    stands even where the vault cannot follow it: that is noted, and tried again.

    Raises AgentsSide, NotFound where the file is as it was written, Invalid where it is no memory's any more, Stale
    where the memory says something else since the file was written, and what `store.revise` raises.
    """
    _require_side(actor)
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        now = Files(_again(agent), disk)
        file, path, data = _edited(now, number)
        with edits.locked(agent):  # before its files' rows, as whoever moves the vault takes them
            memory, wanted = _wanted(now, number, data)
            if not _says_as_then(memory, file.version):  # what it says since is not undone unseen
                raise Stale([number])
            # What is there is known from now on: it is what the memory says, and may be written anew.
            VaultFile.objects.filter(pk=file.pk).update(digest=now.silo.digest_of_file(data), rules_version="")
            if disk.read(path) != data:
                raise NotFound("The file was written to again meanwhile; look at it, and try again.")
            edited = operations.revise(agent, memory.number, actor, content=wanted.content, tags=wanted.tags)
        writer.catch_up_held(now.agent, disk, [number])
    return edited


def _says_as_then(memory: Memory, version: int) -> bool:
    """Whether a memory says what it said at that version: it may have been protected since."""
    change = Change.objects.filter(agent_id=memory.agent_id, number=memory.number, seq=version).first()
    return change is not None and restore(bytes(change.after or b""))["sealed"] == bytes(memory.sealed)


def leave(agent: Agent, number: int, actor: Actor) -> str:
    """Keep the memory as it is: the file that somebody wrote to is put aside, and written anew. Where it is now, below
    the vault's folder. Raises AgentsSide, NotFound, MemoryDisabled, CategoryDisabled, FileFault."""
    _require_side(actor)
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        now = Files(_again(agent), disk)
        file, path, _ = _edited(now, number)
        [memory] = edits.fetch(now.agent, [number])
        kept = encrypt_copies.seal(now, memory, path) if now.is_in_clear(memory, path) else disk.out_of_the_way(path)
        _have_written_anew(now.agent, [file.number])
        writer.catch_up_held(now.agent, disk, [number])
    return str(kept)


def _require_side(actor: Actor) -> None:
    if actor.kind not in (ActorKind.AGENT, ActorKind.STEWARD):
        raise AgentsSide("What a person wrote into a file enters its memory by the agent's side alone.")


def _edited(now: Files, number: int) -> tuple[VaultFile, PurePosixPath, bytes]:
    file = VaultFile.objects.filter(agent_id=now.agent.pk, number=number).first()
    if file is not None:
        switches.require_readable(now.agent, edits.fetch(now.agent, [number]))
        path = now.path_of(file)
        data = _read(now.disk, path)
        if data is not None and now.silo.digest_of_file(data) != bytes(file.digest):
            return file, path, data
    raise NotFound("There is no file of this memory that somebody wrote to.")


def _read(disk: Disk, path: PurePosixPath) -> bytes | None:
    try:
        return disk.read(path)
    except NoFile:
        return None


def _wanted(now: Files, number: int, data: bytes) -> tuple[Memory, Opened]:
    """What the memory would say."""
    [memory] = edits.fetch(now.agent, [number])
    said = rendering.read_again(data)
    if said is None or said.number != number:
        raise Invalid("file", "does not say which memory it is any more: its Metadata must have its number")
    if paths.is_private(memory.category, now.rules):
        raise Invalid("file", "is sealed: it is changed by the agent alone, and what was written to it is left")
    before, shown = now.silo.open(memory), now.shown(memory)
    if rendering.is_cut(data, rendering.tags_line(shown.tags)):
        raise Invalid(
            "file", "has lost its end, from ## Tags on: put it back (`none` where there are no tags), or leave it"
        )
    content, tags = _content(shown, said, memory.category), shown.tags
    if not rendering.says_tags(said.tags, shown.tags):
        tags = _tags(said.tags)
    return memory, Opened(
        before.content if content == shown.content else _unmasked(now, [content], before)[0],
        before.tags if tags == shown.tags else tuple(_unmasked(now, tags, before, are_tags=True)),
    )


def _unmasked(now: Files, texts: Sequence[str], before: Opened, *, are_tags: bool = False) -> Sequence[str]:
    return put_back(texts, before, are_tags=are_tags) if settings_document.is_on(now.rules, *MASKING) else texts


def _content(shown: Opened, said: rendering.Said, category: str) -> str:
    told = {name: said.sections[name] for name in sections.names(category) if name in said.sections}
    if told == sections.parted(shown.content, category):
        return shown.content
    plain = told.get(sections.main_section(category), "")
    as_plain = (plain, sections.escaped(plain)) if sections.is_plain(shown.content, category) else ()
    is_same = (text for text in as_plain if sections.parted(text, category) == told)
    return next(is_same, "") or sections.composed(told)


def _tags(line: str) -> tuple[str, ...]:
    if "\n" in line:
        raise Invalid("file", "has text below its tags: what is to be remembered stands above ## Tags")
    return rendering.tags_of(line)


# --- what is sealed


def opened_file(agent: Agent, data: bytes) -> Opened:
    """What the sealed block of a file says, for the agent itself. Raises Invalid, SealBroken, Erased, MemoryDisabled,
    CategoryDisabled."""
    edits.require_key(agent)
    switches.require_on(agent)
    said = rendering.read_again(data)
    if said is None:
        raise Invalid("file", "is no memory's file")
    if said.sealed is None:
        raise Invalid("file", "is not sealed: it can be read as it is")
    switches.require_readable(agent, edits.fetch(agent, [said.number]))
    return Silo.for_agent(agent).open_sealed(said.number, said.sealed)
