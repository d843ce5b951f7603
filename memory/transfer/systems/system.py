"""What a system is: which files are its own, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from memory.transfer.formats.pages import page
from memory.transfer.formats.parts import Reader
from memory.transfer.systems.outline import Outline, outline


@dataclass(frozen=True, slots=True)
class Rule:
    """Files by their place. `**/` stands for any folders, `*` for any characters of one name."""

    globs: str  # with blanks between them
    read: Reader | None = page
    why: str = ""  # if they are left out
    hidden: bool = True  # whether parts of the path that are no part of the globs may begin with a dot

    def matches(self, path: str) -> bool:
        return any(_pattern(glob, self.hidden).fullmatch(path) for glob in self.globs.split())

    def may_hold(self, folder: str) -> bool:
        """Whether files of the rule may lie in the folder."""
        return any(
            _pattern(above, self.hidden).fullmatch(folder) for glob in self.globs.split() for above in _folders(glob)
        )


@cache
def _pattern(glob: str, hidden: bool) -> re.Pattern[str]:
    dot = "" if hidden else r"(?!\.)"
    forms = {"**/": f"(?:{dot}[^/]+/)*", "**": f"(?:{dot}[^/]+/)*{dot}[^/]+", "*": dot + "[^/]*"}
    parts = re.split(r"(\*\*/|\*\*|\*)", glob)
    return re.compile("".join(forms.get(part, re.escape(part)) for part in parts), re.DOTALL)


@cache
def _folders(glob: str) -> tuple[str, ...]:
    """The folders on the way to a glob: `.a`, `.a/b` and `.a/b/**` of `.a/b/**/*.md`."""
    parts = glob.split("/")
    return tuple("/".join(parts[:count]) for count in range(1, len(parts)) if parts[:count] != ["**"])


@dataclass(frozen=True, slots=True)
class Form:
    """Files by what stands in their first 64 kB, wherever they lie. If the system is asked for by name, its reader also
    gets files with these endings that do not have the form, and says what is wrong."""

    read: Reader
    endings: tuple[str, ...]
    holds: tuple[bytes, ...]  # one of these stands in the file, or it is not looked at more closely
    fits: Callable[[Outline], bool]
    outline: Callable[[bytes], Outline] = outline
    certain: tuple[str, ...] = ()  # endings that no other program's files have
    unknown: str = ""  # why a file without the form is left out, if its reader would take it

    def is_of(self, head: bytes) -> bool:
        return any(word in head for word in self.holds) and self.fits(self.outline(head))


@dataclass(frozen=True, slots=True)
class System:
    name: str  # of --from and of the tag `source-system:`
    title: str  # for people
    group: str  # one of supported_source_systems in the settings
    what: str  # for help texts
    rules: tuple[Rule, ...] = ()  # the first that matches counts
    form: Form | None = None
