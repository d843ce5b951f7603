"""Memories as Anthropic's memory stores list them (docs/migration-sources.md, "Anthropic's memory tool and memory
stores"): the saved answer of `GET /v1/memory_stores/ID/memories?view=full`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from memory.transfer.formats import gathering
from memory.transfer.formats.found import LeftOut, Part
from memory.transfer.formats.gathering import Gathered
from memory.transfer.formats.json_entries import Entry
from memory.transfer.formats.json_file import JSONFile

_LIST, _MORE = "data", "next_page"
_FOLDER = "memory_prefix"  # what a list has for memories that lie deeper than was asked for


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    return _Answer().parts(file, path)


class _Answer(JSONFile):
    lists = (_LIST,)
    none = "is no list of a memory store's memories"

    def __init__(self) -> None:
        self._goes_on = False

    def note(self, entry: Entry) -> None:
        self._goes_on |= entry.name == _MORE and not gathering.is_nothing(entry.value)

    def memories(self, entry: Entry, value: dict[str, Any], path: str) -> Iterator[Part]:
        if value.get("type") != _FOLDER:
            found = Gathered()
            found.moment(value.get("created_at"))
            found.later(value)
            yield from found.found(gathering.key_of(path, value, entry.number), value.get("content"))

    def rest(self, path: str) -> Iterator[Part]:
        if self._goes_on:
            yield LeftOut(f"{path}#{_MORE}", "has further pages that are not in the file")
