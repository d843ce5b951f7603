"""Where paths of a folder lead, links followed in thought alone: each name is looked up once, and each link, so that a
thousand paths through the same folders take no more than a thousand names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from memory.transfer.walk import Kind, Tree

OUT, NOWHERE = "is a link that leads out of the folder", "is a link that leads nowhere"
_MOST = 40  # links that lead to one another, as systems have it


class Target(NamedTuple):
    """Where a link, or a path that holds links, leads: `why` it cannot be read, or a path in the folder."""

    path: str = ""
    kind: Kind = Kind.OTHER
    why: str = ""


class _LeadsUp(Exception):
    """Out of the folder by `..`, and perhaps into it again."""


class _GoesOn(Exception):
    """Links that lead to one another without end."""


@dataclass(slots=True)
class Links:
    tree: Tree
    _kinds: dict[str, Kind | None] = field(default_factory=dict)  # by path; None for what is not there
    _links: dict[str, Target | None] = field(default_factory=dict)  # None while one is followed

    def leads(self, path: str) -> Target:
        try:
            return self._led("", path, 0)
        except _LeadsUp:
            return self._by_the_system(path)
        except _GoesOn:
            return Target(why=NOWHERE)

    def _led(self, here: str, told: str, links: int) -> Target:
        """From a folder on, no part of whose path is a link. Raises _LeadsUp, _GoesOn."""
        kind: Kind | None = Kind.FOLDER
        for name in _names(told):
            if kind is not Kind.FOLDER:
                return Target(why=NOWHERE)
            if name == "..":
                here = _above(here)
                continue
            here = f"{here}/{name}" if here else name
            kind = self._kind(here)
            if kind is Kind.LINK:
                led = self._link(here, links + 1)
                if led.why:
                    return led
                here, kind = led.path, led.kind
        return Target(why=NOWHERE) if kind is None else Target(here, kind)

    def _link(self, path: str, links: int) -> Target:
        if path in self._links:
            led = self._links[path]
            if led is None:
                raise _GoesOn
            return led
        if links > _MOST:
            raise _GoesOn
        self._links[path] = None
        try:
            led = self._links[path] = self._followed(path, links)
        finally:
            if self._links[path] is None:
                del self._links[path]
        return led

    def _followed(self, path: str, links: int) -> Target:
        folder = path.rpartition("/")[0]
        try:
            told = os.readlink(path, dir_fd=self.tree.number)
        except OSError:
            return Target(why=NOWHERE)
        if told.startswith("/"):
            return self._by_the_system(told)
        try:
            return self._led(folder, told, links)
        except _LeadsUp:
            return self._by_the_system(f"{folder}/{told}" if folder else told)

    def _kind(self, path: str) -> Kind | None:
        if path not in self._kinds:
            self._kinds[path] = self._looked_up(path)
        return self._kinds[path]

    def _looked_up(self, path: str) -> Kind | None:
        try:
            mode = os.lstat(path, dir_fd=self.tree.number).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(mode):
            return Kind.LINK
        return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER

    def _by_the_system(self, path: str) -> Target:
        """Of what lies outside nothing is kept: it is asked for once, a link."""
        real = os.path.realpath(self.tree.root / path)
        below = _below(self.tree.root, real)
        if below is None:
            return Target(why=OUT)
        kind = self._kind(below) if below else Kind.FOLDER
        # A link is left only where it leads to itself.
        return Target(why=NOWHERE) if kind is None or kind is Kind.LINK else Target(below, kind)


def _names(path: str) -> Iterator[str]:
    return (name for name in path.split("/") if name not in ("", "."))


def _above(folder: str) -> str:
    if not folder:
        raise _LeadsUp
    return folder.rpartition("/")[0]


def _below(root: Path, real: str) -> str | None:
    """The path from the folder on; "" for itself, None for what lies outside."""
    try:
        below = Path(real).relative_to(root)
    except ValueError:
        return None
    return "" if below == Path() else below.as_posix()
