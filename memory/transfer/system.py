"""What a system is here: where its files lie, or how they are known, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from memory.transfer.formats.found import LeftOut, Reader
from memory.transfer.outline import Outline, outline
from memory.transfer.pages import LARGEST
from memory.transfer.walk import Tree

LARGEST_EXPORT = 2**30  # bytes; exports are read as a stream


@dataclass(frozen=True, slots=True)
class Way:
    """How a file is read."""

    read: Reader
    largest: int = LARGEST


@dataclass(frozen=True, slots=True)
class Ignored:
    """A file that looks as if it were one of the system's: why it is none."""

    why: str


Answer = Way | Ignored | None


def nothing(_: str) -> Answer:
    return None


def nowhere(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Places:
    """Where a system's files lie. Paths are those from the folder that is looked at."""

    file: Callable[[str], Answer] = nothing
    folder: Callable[[str], bool] = nowhere  # whether files may lie in it: a link in its place is told
    left_out: tuple[LeftOut, ...] = ()


class Find(Protocol):
    def __call__(self, tree: Tree, *, is_named: bool) -> Places: ...


@dataclass(frozen=True, slots=True)
class Form:
    """How files are known that lie anywhere: by what stands in their first 64 kB. A file that has not the form is read
    all the same where the system was named, for the reader says what is wrong; else it is nobody's."""

    endings: tuple[str, ...]
    holds: tuple[bytes, ...]  # one of these stands in it, or it is not looked at more closely
    fits: Callable[[Outline], bool]
    way: Way
    seen: Callable[[bytes], Outline] = outline
    certain: tuple[str, ...] = ()  # endings that no other program's files have
    unknown: str = ""  # why a file is left out that has not the form, where its reader would take it for one


@dataclass(frozen=True, slots=True)
class System:
    name: str  # as --from takes it, and the tag `source-system:` has it
    title: str  # for people
    group: str  # one of supported_source_systems in the settings
    what: str  # for help texts
    find: Find | None = None
    form: Form | None = None
    follows_imports: bool = False
    imports_from: Callable[[str], bool] = field(default=nowhere)


# --- paths


def own_folder(tree: Tree, name: str) -> str:
    """What stands before the paths of a folder that is a tool's own: `.claude/` where the folder is called so."""
    return f"{name}/" if tree.root.name == name else ""


def is_at_home(tree: Tree) -> bool:
    """Whether the folder lies in the user's own, and is thus one user's."""
    return tree.root.parent == Path.home().resolve()


def below(path: str, folder: str) -> str:
    """What of a path stands behind a folder of this name, in the root or in any below; "" where there is none."""
    if path.startswith(f"{folder}/"):
        return path[len(folder) + 1 :]
    _, found, rest = path.partition(f"/{folder}/")
    return rest if found else ""


def is_folder(path: str, *folders: str) -> bool:
    """Whether a path is one of these folders, in the root or in any folder below, lies in one, or is the tool's own
    folder that one lies in."""
    for folder in folders:
        own = folder.partition("/")[0]
        if path in (folder, own) or path.endswith((f"/{folder}", f"/{own}")) or below(path, folder):
            return True
    return False
