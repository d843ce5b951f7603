"""A JSON file of memories, read: looked through whole before anything is made of it, for what is wrong may stand at its
end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import IO, Any

from memory.errors import Invalid
from memory.transfer.formats import gathering
from memory.transfer.formats.found import LeftOut, Part, without_key
from memory.transfer.formats.json_entries import Entry, entries, has_mark
from memory.transfer.formats.text import EMPTY, MARK, Unfit


class JSONFile(ABC):
    """What is known of one from having been through it, and what becomes of its entries."""

    lists: tuple[str, ...]  # names of the members that are lists of memories; "" where the file itself is one
    within: tuple[str, ...] = ()  # as `entries` has it
    none = "is no list of memories"  # why a file without any of them is left out

    def parts(self, file: IO[bytes], path: str) -> Iterator[Part]:
        is_any = False
        for part in self._parts(file, path):
            is_any = True
            yield part
        if not is_any:
            yield LeftOut(path, EMPTY)

    def _parts(self, file: IO[bytes], path: str) -> Iterator[Part]:
        if why := self._survey(file):
            yield LeftOut(path, why)
            return
        marked = has_mark(file)
        for entry in _again(file, self.within):
            if entry.number and entry.name in self.lists:
                has_key = isinstance(entry.value, dict) and self.has_key(entry.name, entry.value)
                for part in self._entry(entry, path):
                    known = part if has_key else without_key(part, f"{path}#")
                    yield gathering.also(known, MARK) if marked else known
        yield from self.rest(path)

    def _survey(self, file: IO[bytes]) -> str:
        """Why nothing of the file is taken; "" where it is well."""
        is_any = False
        try:
            for entry in entries(file, self.within):
                is_any |= entry.name in self.lists and entry.value == []
                self.note(entry)
        except Unfit as unfit:
            return unfit.why
        return "" if is_any else self.none

    def _entry(self, entry: Entry, path: str) -> Iterator[Part]:
        if isinstance(entry.value, dict):
            return self.memories(entry, entry.value, path)
        return iter([LeftOut(f"{path}#{entry.number}", "is no object")])

    def note(self, entry: Entry) -> None:  # noqa: B027  most need nothing of it
        """Learn something of the file, before `memories` is asked."""

    def has_key(self, name: str, value: dict[str, Any]) -> bool:  # noqa: ARG002  most have one list
        """Whether an object of a list has something by which it is known again, wherever it stands."""
        return bool(gathering.id_of(value.get("id")))

    @abstractmethod
    def memories(self, entry: Entry, value: dict[str, Any], path: str) -> Iterator[Part]:
        """What becomes of one."""

    def rest(self, path: str) -> Iterator[Part]:  # noqa: ARG002  what most have nothing to say of
        """What else is to be said of the file, at the end."""
        yield from ()


def _again(file: IO[bytes], within: Collection[str]) -> Iterator[Entry]:
    """Entries of a file that is well. Raises Invalid where it is another meanwhile."""
    try:
        yield from entries(file, within)
    except Unfit as unfit:
        why = unfit.why
    else:
        return
    raise Invalid("file", f"was changed while it was read: it {why}")
