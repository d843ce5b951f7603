"""Which files of a folder hold memories, of which system, and what was noticed that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from memory.errors import FileFault
from memory.transfer import page_imports
from memory.transfer.formats.found import LeftOut
from memory.transfer.formats.text import Unfit, decoded
from memory.transfer.outline import AHEAD
from memory.transfer.pages import LARGEST, reader
from memory.transfer.symlinks import Links
from memory.transfer.system import Answer, Form, Ignored, Places, System, Way
from memory.transfer.systems import plain
from memory.transfer.walk import NO_FILE, NO_TEXT_NAME, UNREADABLE, Entry, Kind, Stamp, Tree, is_text, shown

_IMPORTED = Way(reader())
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # seconds: the years 1 and 9999
# Tools' own folders, with settings in them, and keys in those: no file is opened there for what may stand in it.
_OWN_FOLDERS = frozenset(
    {".cursor", ".claude", ".github", ".windsurf", ".devin", ".codeium", ".copilot", ".vscode", ".idea"}
)


@dataclass(frozen=True, slots=True)
class Source:
    """A file that holds memories."""

    system: str
    path: str
    size: int  # bytes
    modified: datetime


@dataclass(frozen=True, slots=True)
class Claimed:
    """A file as it was when it was looked at, and how it is read."""

    source: Source
    stamp: Stamp
    way: Way
    tags: tuple[str, ...] = ()  # besides those its reader finds


@dataclass(slots=True)
class Claims:
    """Each file is one system's, the first that takes it; each thing that is left out is told once."""

    tree: Tree
    files: dict[str, tuple[System, Way]] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    _linked: dict[str, tuple[System, Way]] = field(default_factory=dict)  # read where they are nobody's own
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    _links: Links = field(init=False)

    def __post_init__(self) -> None:
        self._links = Links(self.tree)

    def leave_out(self, key: str, why: str) -> None:
        self.left_out.setdefault(key, why)

    def by_place(self, systems: Iterable[tuple[System, Places]]) -> None:
        for system, places in systems:
            for told in places.left_out:
                self.leave_out(told.key, told.why)
            for entry in self.tree.entries.values():
                self._take(system, entry, places)
        for path, way in self._linked.items():
            self.files.setdefault(path, way)

    def _take(self, system: System, entry: Entry, places: Places) -> None:
        answer, is_place = places.file(entry.path), places.folder(entry.path)
        if answer is None and (not is_place or entry.kind is not Kind.LINK):
            return
        if not is_text(entry.path):
            self.leave_out(shown(entry.path), NO_TEXT_NAME)
        elif entry.kind is Kind.LINK:
            self._link(system, entry.path, answer, places)
        elif entry.kind is Kind.FILE and isinstance(answer, Ignored):
            self.leave_out(entry.path, answer.why)
        elif entry.kind is Kind.FILE and isinstance(answer, Way):
            self.files.setdefault(entry.path, (system, answer))
        elif isinstance(answer, Way) and not is_place:
            self.leave_out(entry.path, NO_FILE)

    def _link(self, system: System, path: str, answer: Answer, places: Places) -> None:
        led = self._links.leads(path)
        if led.why:
            self.leave_out(path, led.why)
        elif led.kind is Kind.FOLDER:
            if not places.folder(led.path):  # else what it leads to is looked at there
                self.leave_out(path, f"is a link to {shown(led.path) or 'the folder itself'}")
        elif led.kind is Kind.FILE and is_text(led.path):
            self.leave_out(path, f"is a link to {led.path}")
            if isinstance(answer, Way):
                self._linked.setdefault(led.path, (system, answer))
        else:
            self.leave_out(path, NO_FILE)

    def by_form(self, systems: Sequence[System], named: Collection[str]) -> None:
        is_tools = self.tree.root.name in _OWN_FOLDERS
        forms = [(each, each.form) for each in systems if each.form and (each.name in named or not is_tools)]
        for path, entry in self.tree.entries.items():
            fitting = [(system, form) for system, form in forms if path.endswith(form.endings)]
            if not fitting or path in self.files or entry.kind is not Kind.FILE or not is_text(path):
                continue
            if _OWN_FOLDERS.isdisjoint(path.split("/")):
                self._by_form(path, fitting, named)

    def _by_form(self, path: str, forms: Sequence[tuple[System, Form]], named: Collection[str]) -> None:
        head = self._head(path)
        for system, form in forms:
            if any(word in head for word in form.holds) and form.fits(form.seen(head)):
                self.files[path] = (system, form.way)
                return
        for system, form in forms:
            if system.name in named or path.endswith(form.certain):
                if form.unknown and head.strip():
                    self.leave_out(path, form.unknown)
                else:
                    self.files[path] = (system, form.way)
                return

    def _head(self, path: str) -> bytes:
        try:
            with self.tree.opened(path, self._stamp(path)) as file:
                return file.read(AHEAD)
        except (OSError, FileFault):
            return b""

    def follow_imports(self, system: System) -> None:
        roots = [path for path, (owner, _) in self.files.items() if owner is system and system.imports_from(path)]
        found = page_imports.followed(self._links, roots, self._text)
        for told in found.left_out:
            self.leave_out(told.key, told.why)
        for path, by in found.by.items():
            self.files.setdefault(path, (system, _IMPORTED))
            self.tags[path] = [f"imported-by:{each}" for each in by]

    def _text(self, path: str) -> str:
        """ "" where there is none to be read: why is told where the file itself is."""
        try:
            stamp = self._stamp(path)
            if stamp.size > LARGEST:
                return ""
            with self.tree.opened(path, stamp) as file:
                return decoded(file.read(LARGEST)).text
        except (OSError, FileFault, Unfit):
            return ""

    def _stamp(self, path: str) -> Stamp:
        """Of the first time that it was looked at: what it is later is compared with that."""
        if path not in self._stamps:
            self._stamps[path] = self.tree.stamp(path)
        return self._stamps[path]

    def claimed(self) -> Iterator[Claimed]:
        """In order of path."""
        for path, (system, way) in sorted(self.files.items(), key=itemgetter(0)):
            self.left_out.pop(path, None)
            try:
                stamp = self._stamp(path)
            except FileFault:
                self.leave_out(path, NO_FILE)
            except OSError:
                self.leave_out(path, UNREADABLE)
            else:
                if stamp.size > way.largest:
                    self.leave_out(path, "is too large")
                    continue
                source = Source(system.name, path, stamp.size, _moment(stamp.modified))
                yield Claimed(source, stamp, way, tuple(self.tags.get(path, ())))


def _moment(nanoseconds: int) -> datetime:
    """A file's time, as far as the calendar goes, to the microsecond."""
    seconds, rest = divmod(nanoseconds, 10**9)
    within = min(max(seconds, _FIRST), _LAST)
    return _BEGINNING + timedelta(seconds=within, microseconds=rest // 1_000)


def found(
    tree: Tree, systems: Sequence[System], named: Collection[str], folders: Sequence[str]
) -> tuple[list[Claimed], list[LeftOut]]:
    """The files of these systems, `named` by whoever asked, with the folders that are plain; and what is left out."""
    claims = Claims(tree)
    for told in tree.left_out:
        claims.leave_out(told.key, told.why)
    claims.by_place([(each, each.find(tree, is_named=each.name in named)) for each in systems if each.find])
    claims.by_form(systems, named)
    if folders:
        claims.by_place([(plain.SYSTEM, plain.places(tree, folders))])
    for system in systems:
        if system.follows_imports:
            claims.follow_imports(system)
    claimed = list(claims.claimed())
    return claimed, [LeftOut(key, why) for key, why in sorted(claims.left_out.items())]
