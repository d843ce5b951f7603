"""What differs between a vault and its silo, and mending it: losing nothing of what either says.

A file that somebody wrote to is theirs until the agent's side takes the edit in, as an edit like any other, or leaves
it, when the file is put aside and written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from django.db.models import OuterRef, Subquery

from audit.models import ActorKind, Change
from audit.trail import Actor
from memory import editing, store
from memory.errors import AgentsSide, Invalid, MemoryDisabled, NotFound, Stale
from memory.models import Agent, Memory, Scope, Source
from memory.rules import document, gate, sections
from memory.rules.rows import VaultFile
from memory.silo.silo import Opened, Silo
from memory.snapshot import restore
from memory.vault import following, naming, pages, rendering
from memory.vault.disk import NEW
from memory.vault.files import AT_ONCE, Files
from memory.vault.shown import put_back

BEHIND, MISSING, EDITED, MISPLACED, OLDER, COPY = "behind", "missing", "edited", "misplaced", "older", "copy"
KINDS = (BEHIND, MISSING, EDITED, MISPLACED, OLDER, COPY)
MENDED = (BEHIND, MISSING, MISPLACED)  # by `repair`, without asking
_ROWS = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """One file, and what is not as it should be. `path` is below the vault's folder; "" where there is none yet."""

    kind: str
    number: int
    path: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended, how many lines the indexes have, what is left for somebody to decide, and what was in the way
    of a file of ours: from where to where below the vault's folder it was put."""

    mended: int
    indexed: int
    left: tuple[Difference, ...]
    aside: tuple[tuple[str, str], ...]


Progress = Callable[[int], None]


def differences(agent: Agent) -> list[Difference]:
    """All there are, by number. Changes nothing. Raises FileFault."""
    with following.opened(agent) as disk:
        return list(_differences(Files(agent, disk)))


def repair(agent: Agent, *, progress: Progress = lambda _: None) -> Repaired:
    """Have the vault say what the silo says, with indexes written anew; what somebody wrote stays. Raises FileFault."""
    following.bring(agent)
    with following.opened(agent) as disk:
        now = Files(Agent.objects.select_related("tenant").get(pk=agent.pk), disk)
        _clear(now)
        found = [each for each in _differences(now, progress) if each.kind in MENDED]
        for start in range(0, len(found), AT_ONCE):
            _mend(now, found[start : start + AT_ONCE])
        indexed = pages.rebuild(disk, now.agent, now.rules)
        aside = tuple((str(path), str(kept)) for path, kept in disk.put_aside)
        return Repaired(len(found), indexed, tuple(_differences(now)), aside)


def _clear(now: Files) -> None:
    """What a killed writer left: half-written, or written without its row."""
    known = {now.path_of(file) for file, _ in _files(now, lambda _: None)}
    for path in list(now.disk.files()):
        if path.name.startswith(NEW):
            now.disk.remove(path)
    for copy in _copies(now, known):
        path = PurePosixPath(copy.path)
        memory = Memory.objects.filter(agent_id=now.agent.pk, number=copy.number).first()
        data = now.disk.read(path)
        if memory is not None and data is not None and now.is_left_by_a_crash(memory, path, data):
            now.disk.remove(path)


def _mend(now: Files, found: list[Difference]) -> None:
    for each in found:
        if each.kind == MISPLACED:
            now.put_where_it_belongs(each.number)
    numbers = [each.number for each in found if each.kind in (MISSING, BEHIND)]
    # A version that no memory has: it is written as if it had never been.
    VaultFile.objects.filter(agent_id=now.agent.pk, number__among=numbers).update(version=0)
    if numbers:
        now.take(numbers)
        now.finish()


# --- finding them


def _differences(now: Files, progress: Progress = lambda _: None) -> Iterator[Difference]:
    found = [*_never_written(now)]
    known = set()
    for file, memory in _files(now, progress):
        path = now.path_of(file)
        where, data = now.where(file, memory)
        known |= {path, where}
        data = data if where == path else None  # half moved: by a writer that was killed
        found += [Difference(kind, file.number, str(path)) for kind in _kinds(now, file, memory, path, data)]
    found += _copies(now, known)
    yield from sorted(found, key=lambda each: (each.number, each.kind))


def _never_written(now: Files) -> Iterator[Difference]:
    files = VaultFile.objects.filter(agent_id=OuterRef("agent_id"), number=OuterRef("number"))
    rows = Memory.objects.filter(agent_id=now.agent.pk, discarded_at__isnull=True).exclude(source=Source.SYSTEM)
    rows = rows.exclude(category__in=now.closed).annotate(file=Subquery(files.values("number")))
    for number in rows.filter(file__isnull=True).order_by("number").values_list("number", flat=True).iterator():
        yield Difference(BEHIND, number, "")


def _files(now: Files, progress: Progress) -> Iterator[tuple[VaultFile, Memory]]:
    after = counted = 0
    while True:
        files = list(VaultFile.objects.filter(agent_id=now.agent.pk, number__gt=after).order_by("number")[:_ROWS])
        if not files:
            return
        after, counted = files[-1].number, counted + len(files)
        rows = Memory.objects.filter(agent_id=now.agent.pk, number__among=[file.number for file in files])
        memories = {memory.number: memory for memory in rows.defer("sealed")}
        yield from ((file, memories[file.number]) for file in files)
        progress(counted)


def _kinds(now: Files, file: VaultFile, memory: Memory, path: PurePosixPath, data: bytes | None) -> Iterator[str]:
    said = rendering.read_again(data) if data is not None else None
    is_gone = data is None or (said is not None and said.number != file.number)
    if data is not None and not is_gone and not now.is_known(file, memory, data):
        yield EDITED
        return
    if memory.category in now.closed:
        return
    is_there = file.state == VaultFile.State.THERE
    if file.version != memory.version or not (is_gone or _is_as_noted(now, file, data)):
        yield BEHIND
    elif is_gone and is_there:
        yield MISSING
    elif is_there and file.rules_version != now.version:
        yield OLDER
    if is_there and not is_gone and next(naming.moved_to(path, memory, now.rules)).parent != path.parent:
        yield MISPLACED


def _is_as_noted(now: Files, file: VaultFile, data: bytes | None) -> bool:
    return data is not None and now.silo.digest_of_file(data) == bytes(file.digest)


def _copies(now: Files, known: set[PurePosixPath]) -> Iterator[Difference]:
    """Files of memories of this agent that it did not write there: somebody's copies, or left by a crash."""
    for path in list(now.disk.files()):
        if path in known or path.suffix != ".md":
            continue
        said = rendering.read_again(now.disk.read(path) or b"")
        if said is not None and not path.name.startswith(NEW):
            yield Difference(COPY, said.number, str(path))


def older(agent: Agent) -> int:
    """How many files were written under another version of the rules: flagged, and not rewritten by themselves."""
    version = document.value(gate.rules_of(agent), "version")
    files = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE)
    return files.exclude(rules_version=version).count()


def migrate(agent: Agent) -> int:
    """Write the files of another version anew; how many. Raises FileFault."""
    version = document.value(gate.rules_of(agent), "version")
    files = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE).exclude(rules_version=version)
    versions = dict(files.values_list("number", "version"))
    files.update(version=0)
    done = following.bring(agent, versions)
    for number in done.edited if done else ():  # whose files stay, as of the version they are of
        VaultFile.objects.filter(agent_id=agent.pk, number=number).update(version=versions[number])
    return len(done.written) if done else 0


# --- a person's own edit


def take_in(agent: Agent, number: int, actor: Actor) -> editing.Edited:
    """Have the memory say what somebody wrote into its file: an edit like any other, which the agent's side makes.

    Raises AgentsSide, NotFound where the file is as it was written, Invalid where it is no memory's any more, Stale
    where the memory says something else since the file was written, and what `store.revise` raises.
    """
    _require_side(actor)
    with following.opened(agent) as disk:
        now = Files(agent, disk)
        file, path, data = _edited(now, number)
        with editing.locked(agent):  # before its files' rows, as whoever moves the vault takes them
            memory, wanted = _wanted(now, number, data)
            if not _says_as_then(memory, file.version):  # what it says since is not undone unseen
                raise Stale([number])
            # What is there is known from now on: it is what the memory says, and may be written anew.
            digest = now.silo.digest_of_file(data)
            VaultFile.objects.filter(pk=file.pk).update(digest=digest, version=0)
            if disk.read(path) != data:
                raise NotFound("The file was written to again meanwhile; look at it, and try again.")
            edited = store.revise(agent, memory.number, actor, content=wanted.content, tags=wanted.tags)
    following.bring(agent, [number])
    return edited


def _says_as_then(memory: Memory, version: int) -> bool:
    """Whether a memory says what it said at that version: it may have been protected since."""
    change = Change.objects.filter(agent_id=memory.agent_id, number=memory.number, seq=version).first()
    return change is not None and restore(bytes(change.after or b""))["sealed"] == bytes(memory.sealed)


def leave(agent: Agent, number: int, actor: Actor) -> str:
    """Keep the memory as it is: the file that somebody wrote to is put aside, and written anew. Where it is now, below
    the vault's folder. Raises AgentsSide, NotFound, FileFault."""
    _require_side(actor)
    with following.opened(agent) as disk:
        now = Files(agent, disk)
        file, path, _ = _edited(now, number)
        kept = disk.out_of_the_way(path)
        VaultFile.objects.filter(pk=file.pk, state=VaultFile.State.THERE).update(version=0)
    following.bring(agent, [number])
    return str(kept)


def _require_side(actor: Actor) -> None:
    if actor.kind not in (ActorKind.AGENT, ActorKind.STEWARD):
        raise AgentsSide("What a person wrote into a file enters its memory by the agent's side alone.")


def _edited(now: Files, number: int) -> tuple[VaultFile, PurePosixPath, bytes]:
    file = VaultFile.objects.filter(agent_id=now.agent.pk, number=number).first()
    path = now.path_of(file) if file is not None else None
    data = now.disk.read(path) if path is not None else None
    if file is None or path is None or data is None or now.silo.digest_of_file(data) == bytes(file.digest):
        raise NotFound("There is no file of this memory that somebody wrote to.")
    return file, path, data


def _wanted(now: Files, number: int, data: bytes) -> tuple[Memory, Opened]:
    """What the memory would say."""
    [memory] = editing.fetch(now.agent, [number])
    said = rendering.read_again(data)
    if said is None or said.number != number:
        raise Invalid("file", "does not say which memory it is any more: its Metadata must have its number")
    if memory.scope == Scope.PRIVATE:
        raise Invalid("file", "is sealed: it is changed by the agent alone, and what was written to it is left")
    before, shown = now.silo.open(memory), now.shown(memory)
    is_tagged_so = said.tags == rendering.tags_line(shown.tags)
    tags = before.tags if is_tagged_so else _tags(put_back(said.tags, before.tags))
    content = _content(shown, said, memory.category)
    return memory, Opened(before.content if content == shown.content else put_back(content, [before.content]), tags)


def _content(shown: Opened, said: rendering.Said, category: str) -> str:
    told = {name: said.sections[name] for name in sections.names(category) if name in said.sections}
    if told == sections.parted(shown.content, category):
        return shown.content
    plain = told.get(sections.main_section(category), "")
    was_plain = not any(map(sections.heading, sections.lines(shown.content)))
    return plain if was_plain and sections.parted(plain, category) == told else sections.composed(told)


def _tags(line: str) -> tuple[str, ...]:
    return tuple(tag for each in line.split(",") if (tag := each.strip()) and tag != "none")


# --- what is sealed


def opened_file(agent: Agent, data: bytes) -> Opened:
    """What the sealed block of a file says, for the agent itself. Raises Invalid, SealBroken, Erased, MemoryDisabled,
    CategoryDisabled."""
    editing.require_key(agent)
    if not agent.memory_enabled:
        raise MemoryDisabled
    said = rendering.read_again(data)
    if said is None:
        raise Invalid("file", "is no memory's file")
    if said.sealed is None:
        raise Invalid("file", "is not sealed: it can be read as it is")
    gate.require_readable(agent, editing.fetch(agent, [said.number]))
    return Silo.for_agent(agent).open_sealed(said.number, said.sealed)
