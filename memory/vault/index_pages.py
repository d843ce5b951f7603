"""The index pages of a vault: one for the whole vault, one for each project, one for what is private.

A page has a line for each file. The writer adds new lines at the end; `rebuild` writes a page whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from memory.errors import NoFile
from memory.models import Memory, VaultFile
from memory.policy import paths
from memory.silo.silo import Silo
from memory.vault.disk import Disk

TOP = PurePosixPath(paths.INDEX)
LARGEST = 1_000_000_000  # bytes of a page that is read
_TITLE = "# Memory Index"
_ABOUT = (
    "A line for each file, in the order in which they were written. A struck line names a file that was moved, or set "
    "aside in .discarded/. If it came back, a later line names it again. `manage.py vault index` writes this "
    "page again without struck lines."
)
_BEGINNING = 100  # bytes that show whether a file is a page
_OF_FILE = re.compile(
    r"^- \d{1,4}-\d\d-\d\d (?P<category>\S+) (?:\[(?P<there>[^\]\n]+)\]\(.*\)|~~(?P<gone>.+)~~)\n", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Line:
    """A file's line: where the file is, the date and category of its memory, and its title. The row of a file keeps
    it sealed, because a title says something of the memory."""

    path: PurePosixPath
    about: str
    title: str

    @classmethod
    def of(cls, memory: Memory, path: PurePosixPath, title: str) -> Line:
        return cls(path, f"{memory.origin:%Y-%m-%d} {memory.category}", title)

    @classmethod
    def open(cls, silo: Silo, file: VaultFile) -> Line:
        path, _, rest = silo.open_text("vault", file.number, bytes(file.sealed_path)).partition("\n")
        about, _, title = rest.partition("\n")
        return cls(PurePosixPath(path), about, title)

    def seal(self, silo: Silo, number: int) -> bytes:
        return silo.seal_text("vault", number, f"{self.path}\n{self.about}\n{self.title}")

    def there(self) -> str:
        return f"- {self.about} {_link(self.title, self.path, self.page())}\n"

    def gone(self) -> str:
        return f"- {self.about} ~~{self.title}~~\n"

    def page(self) -> PurePosixPath:
        return paths.index_of(self.path)


def _link(text: str, path: PurePosixPath, page: PurePosixPath) -> str:
    """A link to a path below the folder of the page. Our names have no letters that need escaping."""
    return f"[{text}]({path.relative_to(page.parent)})"


def _to_page(page: PurePosixPath) -> str:
    return f"- {page.parent}: {_link(str(page), page, TOP)}\n"


def _head(page: PurePosixPath) -> str:
    where = "" if page == TOP else f": {page.parent}"
    return f"{_TITLE}{where}\n\n{_ABOUT}\n\n"


def add(disk: Disk, added: Sequence[Line], gone: Sequence[Line]) -> None:
    """Add the lines of new files, and struck lines for those that left their place."""
    texts: dict[PurePosixPath, str] = defaultdict(str)
    for page, text in [(line.page(), line.gone()) for line in gone] + [(line.page(), line.there()) for line in added]:
        texts[page] += text
    begun = {page for page in {*texts, TOP} if texts and not _is_there(disk, page)}
    if links := "".join(_to_page(page) for page in sorted(begun - {TOP})):
        texts[TOP] = links + texts[TOP]
    for page, text in texts.items():
        disk.append(page, ((_head(page) if page in begun else "") + text).encode())


def rebuild(disk: Disk, lines: Iterable[Line]) -> int:
    """Write every page whole, with these lines. Returns how many lines there are."""
    texts: dict[PurePosixPath, list[str]] = {TOP: []}
    for line in lines:
        texts.setdefault(line.page(), []).append(line.there())
    counted = sum(map(len, texts.values()))
    texts[TOP][:0] = [_to_page(page) for page in sorted(texts) if page != TOP]
    for page, told in texts.items():
        _is_there(disk, page)
        disk.stage(page, "".join([_head(page), *told]).encode(), expected=None, replaces_all=True)
    disk.publish()
    for path in list(disk.files()):
        if path.name == paths.INDEX and path not in texts and is_page(path, disk.read(path, _BEGINNING) or b""):
            disk.remove(path)  # of a project that has no files any more
    return counted


def _is_there(disk: Disk, page: PurePosixPath) -> bool:
    """Whether the page exists. Something else with its name is kept in .discarded/."""
    try:
        data = disk.read(page, _BEGINNING)
    except NoFile:
        disk.out_of_the_way(page)
        return False
    if data is None or is_page(page, data):
        return data is not None
    if _TITLE.encode().startswith(data):  # left by a killed writer
        disk.remove(page)
    else:
        disk.out_of_the_way(page)
    return False


def is_page(path: PurePosixPath, data: bytes) -> bool:
    return path.name == paths.INDEX and data.startswith(_TITLE.encode())


def lists(
    text: str, page: PurePosixPath, pages: Mapping[PurePosixPath, Collection[str]], closed: Collection[str]
) -> bool:
    """Whether a page has exactly its lines. Lines of closed categories do not count. The top page also links to every
    other page."""
    if page == TOP and any(f"]({other})\n" not in text for other in pages if other != page):
        return False
    there: dict[str, str] = {}
    for found in _OF_FILE.finditer(text):
        if found["gone"]:
            there.pop(found["gone"], None)
        elif found["category"] not in closed:
            there[found["there"]] = found[0]
    return set(there.values()) == set(pages.get(page, ()))
