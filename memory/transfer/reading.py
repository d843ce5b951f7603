"""Detect memories of other systems in a folder, and read them one at a time.

The whole folder is listed before any file is read. The date of a file in a git repository is the date of the last
commit that changed it. The time of the file itself is not used, because a checkout changes it.
"""

import hashlib
import heapq
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dulwich.errors import NotGitRepository, NotTreeError
from dulwich.object_store import tree_lookup_path
from dulwich.objects import ObjectID, SubmoduleEncountered
from dulwich.repo import Repo

from memory.errors import FileFault, Invalid
from memory.policy.validation import MAX_TAG
from memory.run_log.files import file_errors
from memory.transfer import walk
from memory.transfer.formats.pages import LARGEST, page
from memory.transfer.formats.parts import Found, LeftOut, Names, Part, Reader, Unfit, decoded
from memory.transfer.systems import MAX_HEAD, PLAIN, SYSTEMS, WHOLE, Form, System, base_of, tree_reader, trees_in
from memory.transfer.walk import NO_FILE, NO_TEXT_NAME, UNREADABLE, Kind, Tree, as_text, is_text

# --- dates of files in git


MAX_SECONDS = 20.0
_CACHED = 10_000  # objects


def last_changes(root: Path, paths: Collection[str]) -> dict[str, datetime]:
    """For each path, return the date of the last commit that changed it. `git log -1 -- PATH` shows the same commit.
    Paths are relative to the root of the repository.

    If the search takes more than MAX_SECONDS, it stops. Each remaining path gets the date of the commit at which its
    search stopped. A file that is not in git has no date. No file has a date if the repository cannot be read.
    """
    damaged = (NotGitRepository, KeyError, OSError, ValueError, AssertionError)  # a KeyError also means: no commits
    with suppress(*damaged), Repo(str(root)) as repository:
        return _last_changes(repository, paths)
    return {}


def _last_changes(repository: Repo, paths: Collection[str]) -> dict[str, datetime]:
    """Follow all paths from commit to commit. Each path is followed to a parent commit that has the same file. If no
    parent has the same file, this commit changed the file."""
    head = repository.head()
    load: Any = lru_cache(_CACHED)(repository.__getitem__)

    def file_at(commit: ObjectID, path: str) -> ObjectID | None:
        tree = load(commit).tree
        with suppress(KeyError, NotTreeError, SubmoduleEncountered):
            return tree_lookup_path(load, tree, os.fsencode(path))[1]
        return None

    found: dict[str, datetime] = {}
    there = {path: file for path in paths if (file := file_at(head, path))}
    waiting, ordered = {head: there}, [(0, head)]  # the newest commit comes first
    until = time.monotonic() + MAX_SECONDS
    while ordered:
        _, number = heapq.heappop(ordered)
        files = waiting.pop(number, {})
        for parent in repository.get_parents(number) if time.monotonic() < until else ():
            same = {path: file for path, file in files.items() if file_at(parent, path) == file}
            files = {path: file for path, file in files.items() if path not in same}
            if same and parent not in waiting:
                heapq.heappush(ordered, (-load(parent).commit_time, parent))
            if same:
                waiting[parent] = waiting.get(parent, {}) | same
        found |= dict.fromkeys(files, datetime.fromtimestamp(load(number).commit_time, UTC))
    return found


# --- finding and reading memories


MAX_PIECES = 200_000  # pieces that are held in memory at a time
LARGEST_EXPORT = 2**30  # bytes; this can be large, because exports are read as a stream
_FENCE = re.compile(r"^([ \t]*(?:`{3,}|~{3,})).*$", re.MULTILINE)
# Folders of tools. Settings in these folders may contain keys, so files there are not opened to detect their format.
_TOOLS = frozenset({".cursor", ".claude", ".github", ".windsurf", ".devin", ".codeium", ".copilot", ".vscode", ".idea"})


class Source(NamedTuple):
    """A file that contains memories."""

    system: str
    path: str
    modified: datetime  # the date from git, or from the file system


@dataclass(frozen=True, slots=True, repr=False)
class Item:
    """A part of a file, and the file itself. The part is a memory or is left out."""

    source: Source
    part: Part


@dataclass(slots=True, repr=False)
class Detection:
    """The memories in a folder. Each file belongs to the first system that recognizes it."""

    tree: Tree
    named: Collection[str]  # systems that the caller requested by name
    sources: list[Source] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    _files: dict[str, tuple[System, Reader]] = field(default_factory=dict)
    _tags: dict[str, list[str]] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)  # path → the reason why it is left out
    _linked: dict[str, tuple[System, Reader]] = field(default_factory=dict)  # targets of symlinks

    def parts(self) -> Iterator[Item]:
        """Yield the parts. They are sorted by path, and then by position in the file. Raises FileFault."""
        for source in self.sources:
            names, tags = Names(), self._tags.get(source.path, [])
            read = self._files[source.path][1]
            with file_errors("read", source.path), self.tree.open(source.path) as file:
                for part in read(file, source.path):
                    yield Item(source, _tagged(replace(part, key=names.name(part.key)), tags))

    def find(self, systems: Sequence[System], folders: Sequence[str], repository: Path | None) -> None:
        self._leave_out(self.tree.left_out)
        for system in systems:
            self._by_place(system)
            self._by_tree(system)
        self._files = self._linked | self._files
        self._by_form([each for each in systems if each.form])
        for folder in folders:
            self._plain(folder)
        self._imports()
        if self._is_users():
            for path in self._files:
                self._tags.setdefault(path, []).append("local")
        self.sources = list(self._sources(repository))
        self.left_out = [LeftOut(key, why) for key, why in sorted(self._reasons.items())]

    def _leave_out(self, parts: Iterable[LeftOut]) -> None:
        for part in parts:
            self._reasons.setdefault(part.key, part.why)

    def _is_users(self) -> bool:
        root = self.tree.root
        is_tools = root.name.startswith(".") and root.parent == Path.home().resolve()
        return is_tools or root.parts[-2:] == ("Cline", "Rules")

    def _by_place(self, system: System) -> None:
        rules, entries = system.rules, self.tree.entries
        if system.name == "memory-tool" and system.name in self.named:
            rules = WHOLE[:1] if any(f"/{path}".endswith("/memories") for path in entries) else WHOLE[1:]
        above = "Cline/Rules" if self.tree.root.parts[-2:] == ("Cline", "Rules") else self.tree.root.name
        for path, kind in entries.items():
            own = f"{above}/{path}"  # the scanned folder itself may be the folder of a tool
            if rule := next((each for each in rules if each.matches(path) or each.matches(own)), None):
                self._claim(system, path, kind, rule.read, rule.why)
            elif kind is Kind.LINK and any(each.may_hold(path) for each in rules):
                self._link(system, path, None)

    def _by_tree(self, system: System) -> None:
        """Find the files in memory folders of the framework, and in vaults of other agents."""
        bases = self.tree.vaults if system.name == "own" else []
        if system.name == "framework":
            bases, left_out = trees_in(self.tree, is_named=system.name in self.named)
            self._leave_out(left_out)
        for path, kind in self.tree.entries.items() if bases else ():
            base = base_of(path, bases)
            if base is not None and (path.endswith(".md") or kind is Kind.LINK):
                self._claim(system, path, kind, tree_reader(base))

    def _claim(self, system: System, path: str, kind: Kind, read: Reader | None, why: str = "") -> None:
        if not is_text(path):
            self._reasons.setdefault(as_text(path), NO_TEXT_NAME)
        elif kind is Kind.LINK:
            self._link(system, path, read)
        elif kind is Kind.FILE and read:
            self._files.setdefault(path, (system, read))
        elif kind is Kind.FILE and path not in self._files:
            self._reasons.setdefault(path, why)
        elif kind is Kind.OTHER or (read and path.endswith((".md", ".mdc"))):
            self._reasons.setdefault(path, NO_FILE)

    def _link(self, system: System, path: str, read: Reader | None) -> None:
        target, why = self.tree.target(path)
        is_file = self.tree.entries.get(target) is Kind.FILE and is_text(target)
        if is_file and read is None:
            return
        place = "the folder itself" if target == "." else as_text(target)
        self._reasons.setdefault(path, why or f"is a symlink to {place}")
        if is_file and read:
            self._linked.setdefault(target, (system, read))
            if Path(path).parent != Path(target).parent:  # the symlink applies the file to another folder
                self._tags.setdefault(target, []).append(f"linked-from:{path}")

    def _by_form(self, systems: Sequence[System]) -> None:
        is_tools = self.tree.root.name in _TOOLS
        forms = [(each, each.form) for each in systems if each.form and (each.name in self.named or not is_tools)]
        for path, kind in self.tree.entries.items():
            fitting = [(system, form) for system, form in forms if path.endswith(form.endings)]
            is_free = path not in self._files and kind is Kind.FILE and is_text(path)
            if fitting and is_free and _TOOLS.isdisjoint(path.split("/")):
                self._claim_by_form(path, fitting)

    def _claim_by_form(self, path: str, forms: Sequence[tuple[System, Form]]) -> None:
        head = self._data(path, MAX_HEAD)
        fits = [each for each in forms if each[1].is_of(head)]
        expected = [each for each in forms if each[0].name in self.named or path.endswith(each[1].certain)]
        for system, form in (fits or expected)[:1]:
            if not fits and form.unknown and head.strip():
                self._reasons.setdefault(path, form.unknown)
            else:
                self._files[path] = (system, form.read)

    def _data(self, path: str, size: int) -> bytes:
        """Return the first `size` bytes of a file. Return no bytes if the file cannot be read. `_sources` reports the
        reason."""
        with suppress(OSError, FileFault), self.tree.open(path) as file:
            return file.read(size)
        return b""

    def _plain(self, folder: str) -> None:
        name = "/".join(part for part in folder.split("/") if part not in ("", "."))
        if name and self.tree.entries.get(name) is not Kind.FOLDER:
            raise Invalid("plain", "must be a folder inside the scanned folder, and must not be a symlink")
        for path, kind in self.tree.entries.items():
            inner = path.removeprefix(f"{name}/") if name else path
            rule = next((each for each in PLAIN if each.matches(inner.lower())), None)
            if rule and (not name or inner != path):
                self._claim(SYSTEMS["plain"], path, kind, rule.read)
        self._files = self._linked | self._files

    def _imports(self) -> None:
        roots = [path for path, (owner, _) in self._files.items() if owner.name == "claude" and "CLAUDE." in path]
        imported, left_out = walk.follow_imports(self.tree, roots, self._text)
        self._leave_out(left_out)
        for path, by in imported.items():
            self._files.setdefault(path, (SYSTEMS["claude"], page))
            self._tags.setdefault(path, []).extend(f"imported-by:{each}" for each in by)

    def _text(self, path: str) -> str:
        with suppress(Unfit):
            return decoded(self._data(path, LARGEST)).text
        return ""

    def _sources(self, repository: Path | None) -> Iterator[Source]:
        """Yield the files that can be read, in the order of their paths."""
        root = repository.resolve() if repository else None
        where = os.path.relpath(self.tree.root, root) if root else ""
        names = {path: os.path.normpath(f"{where}/{path}") for path in self._files}
        dates = last_changes(root, names.values()) if root else {}
        for path in sorted(self._files):
            self._reasons.pop(path, None)
            system, _ = self._files[path]
            try:
                with self.tree.open(path) as file:
                    stat = os.fstat(file.fileno())
            except (OSError, FileFault) as failure:
                self._reasons[path] = NO_FILE if isinstance(failure, FileFault) else UNREADABLE
                continue
            if stat.st_size > (LARGEST_EXPORT if system.form else LARGEST):
                self._reasons[path] = "is too large"
            else:
                date = dates.get(names[path]) or datetime.fromtimestamp(min(max(stat.st_mtime, 0), 2**37), UTC)
                yield Source(system.name, path, date)


def unique(items: Iterable[Item]) -> list[Item]:
    """If several items have the same text, category and project, keep only the first item. It gets the tags of all
    these items. Raises Invalid if there are too many items."""
    found: list[Item] = []
    first: dict[bytes, int] = {}
    for item in items:
        part = item.part
        if isinstance(part, Found):
            place = first.setdefault(_digest(part), len(found))
            if place < len(found):
                if isinstance(known := found[place].part, Found):
                    tags = tuple(dict.fromkeys((*known.tags, *part.tags)))
                    found[place] = replace(found[place], part=replace(known, tags=tags))
                part = LeftOut(part.key, f"has the same text as {known.key}")
        found.append(replace(item, part=part))
        if len(found) > MAX_PIECES:
            why = f"have more than {MAX_PIECES:,} pieces. Choose fewer sources, or import the file with import_memories"
            raise Invalid("sources", why)
    return [replace(item, part=item.part.bounded()) if isinstance(item.part, Found) else item for item in found]


def _digest(part: Found) -> bytes:
    """Return the digest of a text with its category and project. Whitespace and the languages of code blocks do not
    change the digest."""
    words = " ".join(_FENCE.sub(r"\1", part.content).split())
    place_and_text = f"{part.category}\0{part.project}\0{part.part}\0{words}"
    return hashlib.blake2b(place_and_text.encode(), digest_size=16).digest()


def _tagged(part: Part, tags: Sequence[str]) -> Part:
    """Return the part with these tags added. Leave out a tag that is too long, and add a note about it."""
    if not tags or isinstance(part, LeftOut):
        return part
    lost = dict.fromkeys(f"not kept: {tag.partition(':')[0]}" for tag in tags if len(tag) > MAX_TAG)
    kept = dict.fromkeys((*part.tags, *(tag for tag in tags if len(tag) <= MAX_TAG)))
    return replace(part, tags=tuple(kept), transformed=(*part.transformed, *lost))


@contextmanager
def detect(
    folder: Path,
    systems: Sequence[str] = (),
    plain: Sequence[str] = (),
    *,
    own_vault: str = "",
    repository: Path | None = None,
) -> Iterator[Detection]:
    """Detect the memories of `systems` in a folder. If `systems` is empty, detect the memories of all systems. `plain`
    lists folders in which every text file and every JSON file counts as a memory. If `systems` contains "plain" and
    `plain` is empty, this is true for the whole `folder`.

    The name of a file may have an ending of a system, while the content has another format. If the system is in
    `systems`, such a file is reported, too. The path `own_vault` is skipped. `repository` is the root of the git
    repository from which the dates of files come. Raises Invalid, FileFault.
    """
    folders = list(plain) or ([""] if "plain" in systems else [])
    with walk.opened(folder, own_vault) as tree:
        look = Detection(tree, systems)
        look.find([each for each in SYSTEMS.values() if not systems or each.name in systems], folders, repository)
        yield look
