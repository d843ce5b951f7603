"""The layout of a vault: file names, folders, and index pages.

The vault, each project and the private folder have an index page. An index page has one line per file. After a change,
new lines are added at the end of the page. `rebuild` writes the whole page again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from memory.errors import NotAFile
from memory.markdown import sections
from memory.models import Layer, Memory, VaultFile
from memory.policy import paths
from memory.policy.categories import NAMED_BY_SERVICE
from memory.silo.silo import Opened, Silo
from memory.vault.disk import ASIDE, BENEATH, Disk

_WORDS = 8  # number of words at the start of a memory that become its title
_BEGAN = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)Z to ")


def candidates(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Iterator[PurePosixPath]:
    """Yield the path of a memory's file. Then yield other paths, because another file may already have the first
    path."""
    folder = paths.folder(memory.category, memory.project, rules)
    first = _name(memory, opened, rules)
    yield folder / first
    stem = first.removesuffix(".md")
    numbered = stem if stem.startswith(f"{memory.number:06}") else f"{stem}-{memory.number:06}"
    if numbered != stem:
        yield folder / f"{numbered}.md"
    yield from (folder / f"{numbered}-{nth}.md" for nth in range(2, 100))


def title_in_index(memory: Memory, opened: Opened, path: PurePosixPath, rules: Mapping[str, Any]) -> str:
    """Return the title that the index shows for a file. This is the title of the memory. For a private memory, it is
    the name of the file."""
    if paths.is_private(memory.category, rules):
        return path.stem
    return paths.file_name(memory.number, _title(memory, opened)).removesuffix(".md")


def back(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(*path.parts[1:]) if path.parts[0] in (ASIDE, BENEATH) else path


def everywhere(path: PurePosixPath) -> tuple[PurePosixPath, ...]:
    """Return the paths that a file has while its memory is active, beneath and discarded."""
    return back(path), PurePosixPath(BENEATH, back(path)), PurePosixPath(ASIDE, back(path))


def of_layer(memory: Memory, path: PurePosixPath) -> PurePosixPath:
    """Return the path of a file in the layer that its memory is in now."""
    active, beneath, discarded = everywhere(path)
    return {Layer.BENEATH: beneath, Layer.DISCARDED: discarded}.get(Layer(memory.layer), active)


def _name(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> str:
    tags = _tags(opened)
    if memory.category in NAMED_BY_SERVICE and "service" in tags:
        named = paths.credential_name(tags["service"], memory.project, tags.get("credential", "key"))
        if named and named != paths.INDEX:
            return named
    return paths.name_of(memory.number, memory.category, _title(memory, opened), rules)


def _tags(opened: Opened) -> dict[str, str]:
    return dict(tag.split(":", 1) for tag in reversed(opened.tags) if ":" in tag)


def _title(memory: Memory, opened: Opened) -> str:
    if memory.category == "session":  # the title is the start of the session, because its end may change
        began = _BEGAN.match(sections.fact_in(opened.content, memory.category, "Session Overview", "Period"))
        return f"{began[1]}-{began[2]}{began[3]}{began[4]}" if began else paths.dated(memory.origin)
    if memory.category == "user_interaction":
        return paths.dated(memory.origin)
    tags = _tags(opened)
    if memory.category == "topic" and tags.get("topic"):
        return tags["topic"]
    if memory.category == "git_history" and tags.get("analysis"):
        return f"git {tags['analysis']}"
    texts = sections.split(opened.content[:2_000], memory.category)
    text = texts.get(sections.main_section(memory.category)) or next(iter(texts.values()), "")
    return " ".join(text.split()[:_WORDS])


TOP = PurePosixPath(paths.INDEX)
_TITLE = "# Memory Index"
_ABOUT = (
    "One line per file, in the order in which the files were written. A crossed-out line names a file that was moved, "
    "or set aside in .discarded/. If the file came back, a later line names it again. The command `vault index` writes "
    "this page again without crossed-out lines."
)
_BEGINNING = 100  # bytes that are read to find out whether a file is an index page
_OF_FILE = re.compile(
    r"^- \d{1,4}-\d\d-\d\d (?P<category>\S+) (?:\[(?P<there>[^\]\n]+)\]\(.*\)|~~(?P<gone>.+)~~)\n", re.M
)


class Line(NamedTuple):
    """The index line of a file. `path` is the path of the file. `about` has the date and the category of the memory,
    and `title` is the memory's title. The line is stored sealed in the file's database row, because the title contains
    words of the memory."""

    path: PurePosixPath
    about: str
    title: str

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
    """Return a link whose path is relative to the page's folder. File names have no characters that need escaping."""
    return f"[{text}]({path.relative_to(page.parent)})"


def _to_page(page: PurePosixPath) -> str:
    return f"- {page.parent}: {_link(str(page), page, TOP)}\n"


def _head(page: PurePosixPath) -> str:
    where = "" if page == TOP else f": {page.parent}"
    return f"{_TITLE}{where}\n\n{_ABOUT}\n\n"


def add(disk: Disk, added: Sequence[Line], gone: Sequence[Line]) -> None:
    """Add lines at the end of the index pages. `added` has the lines of new files. `gone` has the lines of files that
    were moved or set aside. These lines are crossed out."""
    texts: dict[PurePosixPath, str] = defaultdict(str)
    for page, text in [(line.page(), line.gone()) for line in gone] + [(line.page(), line.there()) for line in added]:
        texts[page] += text
    begun = {page for page in {*texts, TOP} if texts and not _is_there(disk, page)}
    if links := "".join(_to_page(page) for page in sorted(begun - {TOP})):
        texts[TOP] = links + texts[TOP]
    for page, text in texts.items():
        disk.append(page, ((_head(page) if page in begun else "") + text).encode())


def rebuild(disk: Disk, lines: Iterable[Line]) -> int:
    """Write every index page again with these lines. Return the number of lines."""
    texts: dict[PurePosixPath, list[str]] = {TOP: []}
    for line in lines:
        texts.setdefault(line.page(), []).append(line.there())
    counted = sum(map(len, texts.values()))
    texts[TOP][:0] = [_to_page(page) for page in sorted(texts) if page != TOP]
    for page, page_lines in texts.items():
        _is_there(disk, page)
        disk.stage(page, "".join([_head(page), *page_lines]).encode(), expected=None, replaces_all=True)
    disk.publish()
    for path in list(disk.files()):
        if path.name == paths.INDEX and path not in texts and is_page(path, disk.read(path, _BEGINNING) or b""):
            disk.remove(path)  # the project of this page has no files now
    return counted


def _is_there(disk: Disk, page: PurePosixPath) -> bool:
    """Return whether the index page exists. If the path has a file that is not an index page, this file is moved to
    .discarded/."""
    try:
        data = disk.read(page, _BEGINNING)
    except NotAFile:
        disk.set_aside(page)
        return False
    if data is None or is_page(page, data):
        return data is not None
    if _TITLE.encode().startswith(data):  # left by a killed writer
        disk.remove(page)
    else:
        disk.set_aside(page)
    return False


def is_page(path: PurePosixPath, data: bytes) -> bool:
    return path.name == paths.INDEX and data.startswith(_TITLE.encode())


def lists(
    text: str, page: PurePosixPath, pages: Mapping[PurePosixPath, Collection[str]], closed: Collection[str]
) -> bool:
    """Return whether the index page has exactly the lines in `pages[page]`. Lines of categories that are off do not
    count. The top page must also link to every other page."""
    if page == TOP and any(f"]({other})\n" not in text for other in pages if other != page):
        return False
    there: dict[str, str] = {}
    for found in _OF_FILE.finditer(text):
        if found["gone"]:
            there.pop(found["gone"], None)
        elif found["category"] not in closed:
            there[found["there"]] = found[0]
    return set(there.values()) == set(pages.get(page, ()))
