"""The indexes of a vault: the global one, one of each project, one of what is private (seed 004, "Indexing Phase").

A line for each file. What is new is added at the end of its page at once; a page is written anew by `rebuild`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.db.models import Exists, OuterRef

from memory.errors import NoFile
from memory.models import Agent, Memory, VaultFile
from memory.policy import paths
from memory.policy.categories import DEFAULT_PROJECT, PRIVATE, PROJECT
from memory.silo.silo import Silo
from memory.vault.disk import Disk

_TITLE = "# Memory Index"
_ABOUT = (
    "A line for each file, in the order in which they were written. What is struck through was moved, or set aside, in "
    ".discarded/; where it came back it stands again, below. `manage.py memory_rules index` writes this page anew, "
    "without what is struck."
)
_ROWS = 2_000  # held at a time
_BEGINNING = 100  # bytes by which a page is known
LARGEST = 1_000_000_000  # bytes of a page that is read
_OF_FILE = re.compile(
    r"^- \d{1,4}-\d\d-\d\d (?P<category>\S+) (?:\[(?P<there>[^\]\n]+)\]\(.*\)|~~(?P<gone>.+)~~)\n", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Line:
    """A memory's line in its index."""

    path: PurePosixPath
    number: int
    category: str
    project: str
    date: str

    @classmethod
    def of(cls, memory: Memory, path: PurePosixPath) -> Line:
        return cls(path, memory.number, memory.category, memory.project, f"{memory.origin:%Y-%m-%d}")

    def there(self) -> str:
        return f"- {self.date} {self.category} {_link(self.path.name, self.path, self.page())}\n"

    def gone(self) -> str:
        return f"- {self.date} {self.category} ~~{self.path.name}~~\n"

    def page(self) -> PurePosixPath:
        return paths.index_of(self.path)


def _link(text: str, path: PurePosixPath, page: PurePosixPath) -> str:
    """To a path, from the folder of a page, which is above it. No name of ours has to be quoted."""
    below = str(path)[len(str(page.parent)) + 1 :] if len(page.parts) > 1 else str(path)
    return f"[{text}]({below})"


def add(disk: Disk, added: Sequence[Line], gone: Sequence[Line]) -> None:
    """Add what is new to the pages, and strike what is where it was no more."""
    told: dict[PurePosixPath, list[str]] = {}
    for line in added:
        told.setdefault(line.page(), []).append(line.there())
    for line in gone:
        told.setdefault(line.page(), []).append(line.gone())
    listed = {line.page(): line for line in added}
    top = PurePosixPath(paths.INDEX)
    begun = [page for page in told if not _is_there(disk, page)]
    to_pages = [_of_page(listed[page]) for page in begun if page != top and page in listed]
    if to_pages:
        told.setdefault(top, [])[:0] = to_pages
        if top not in begun and not _is_there(disk, top):
            begun.append(top)
    for page, lines in told.items():
        disk.append(page, ((_head(page) if page in begun else "") + "".join(lines)).encode())


def rebuild(disk: Disk, agent: Agent, rules: Mapping[str, Any], closed: Collection[str]) -> int:
    """Write every page anew, each whole or not at all, from what is known of the files; of categories that are closed
    they say nothing. How many lines there are."""
    silo, counted = Silo.for_agent(agent), 0
    write: dict[PurePosixPath, Callable[[bytes], None]] = {}

    def page_of(page: PurePosixPath) -> Callable[[bytes], None]:
        if page not in write:
            _is_there(disk, page)
            write[page] = disk.begin(page)
            write[page](_head(page).encode())
        return write[page]

    page_of(PurePosixPath(paths.INDEX))("".join(_of_pages(agent, rules, closed)).encode())
    for lines in _lines(agent, silo, closed):
        told: dict[PurePosixPath, list[str]] = {}
        for line in lines:
            told.setdefault(line.page(), []).append(line.there())
        for page, texts in told.items():
            page_of(page)("".join(texts).encode())
        counted += len(lines)
    disk.publish()
    for path in list(disk.files()):
        if path.name == paths.INDEX and path not in write and is_page(path, disk.read(path, _BEGINNING) or b""):
            disk.remove(path)  # of a project of which nothing is there any more
    return counted


def _is_there(disk: Disk, page: PurePosixPath) -> bool:
    """Whether a page is; what somebody else made under its name is kept, out of the way."""
    try:
        data = disk.read(page, _BEGINNING)
    except NoFile:
        disk.out_of_the_way(page)
        return False
    if data is None or is_page(page, data):
        return data is not None
    if _TITLE.encode().startswith(data):  # a killed writer's
        disk.remove(page)
    else:
        disk.out_of_the_way(page)
    return False


def _head(page: PurePosixPath) -> str:
    where = "" if len(page.parts) == 1 else f": {page.parent}"
    return f"{_TITLE}{where}\n\n{_ABOUT}\n\n"


def _of_page(line: Line) -> str:
    top, page = PurePosixPath(paths.INDEX), line.page()
    what = "private" if page.parts[0] == PRIVATE else f"project {line.project or DEFAULT_PROJECT}"
    return f"- {what}: {_link(str(page), page, top)}\n"


def _of_pages(agent: Agent, rules: Mapping[str, Any], closed: Collection[str]) -> Iterator[str]:
    """A line for each other page there will be."""
    filed = VaultFile.objects.filter(agent_id=OuterRef("agent_id"), number=OuterRef("number"), state="there")
    rows = Memory.objects.filter(Exists(filed), agent_id=agent.pk).exclude(category__in=closed)
    told = set()
    for category, project in sorted(set(rows.values_list("category", "project").distinct())):
        if paths.location(category, rules) in (PRIVATE, PROJECT):
            path = paths.folder(category, project, rules) / "x"
            told.add(_of_page(Line(path, 0, category, project, "")))
    yield from sorted(told)


def _lines(agent: Agent, silo: Silo, closed: Collection[str]) -> Iterator[list[Line]]:
    after = 0
    while True:
        files = list(
            VaultFile.objects.filter(agent_id=agent.pk, number__gt=after, state="there").order_by("number")[:_ROWS]
        )
        if not files:
            return
        after = files[-1].number
        memories = Memory.objects.filter(agent_id=agent.pk, number__among=[file.number for file in files])
        memories = memories.exclude(category__in=closed).only("number", "category", "project", "origin")
        known = {memory.number: memory for memory in memories}
        found = {f.number: PurePosixPath(silo.open_text("vault", f.number, bytes(f.sealed_path))) for f in files}
        yield [Line.of(known[number], path) for number, path in found.items() if number in known]


def is_page(path: PurePosixPath, data: bytes) -> bool:
    return path.name == paths.INDEX and data.startswith(_TITLE.encode())


# --- read again


def needed(lines: Mapping[PurePosixPath, Collection[int]]) -> list[PurePosixPath]:
    """The pages there are to be, of the lines that each is to have."""
    return sorted({PurePosixPath(paths.INDEX), *lines}) if lines else []


def says(
    text: str, page: PurePosixPath, lines: Mapping[PurePosixPath, Collection[int]], closed: Collection[str]
) -> bool:
    """Whether a page lists the files it is to list (by the hashes of their lines), and no other, but of closed
    categories, of which nothing is followed; the global one names the other pages, too."""
    if page == PurePosixPath(paths.INDEX) and any(f"]({other})\n" not in text for other in lines if other != page):
        return False
    return _listed(text, closed) == set(lines.get(page, ()))


def _listed(text: str, closed: Collection[str]) -> set[int]:
    """The lines of files that were not struck since."""
    there: dict[int, int] = {}
    for found in _OF_FILE.finditer(text):
        name = hash((found["category"], found["there"] or found["gone"]))
        if found["gone"]:
            there.pop(name, None)
        elif found["category"] not in closed:
            there[name] = hash(found[0])
    return set(there.values())
