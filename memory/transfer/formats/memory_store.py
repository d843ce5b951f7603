"""Read the memories of an Anthropic memory store from a saved response of the API.

The request is `GET /v1/memory_stores/ID/memories?view=full` (docs/reference/import-formats.md, "Anthropic's memory tool
and memory stores").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from memory.transfer.formats import gathering
from memory.transfer.formats.gathering import MORE_PAGES, Gathered
from memory.transfer.formats.json_file import Entry, JSONFile
from memory.transfer.formats.parts import LeftOut, Part

_MORE = "next_page"
_FOLDER = "memory_prefix"  # an entry of this type stands for memories in a deeper folder


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    return _Answer().parts(file, path)


class _Answer(JSONFile):
    lists = ("data",)
    none = "is not a memory store's list of memories"
    has_more = False

    def note(self, entry: Entry) -> None:
        self.has_more |= entry.name == _MORE and not gathering.is_nothing(entry.value)

    def memories(self, _: Entry, value: dict[str, Any], key: str) -> Iterator[Part]:
        if value.get("type") != _FOLDER:
            found = Gathered()
            found.moment(value.get("created_at"))
            found.later(value)
            yield from found.found(key, value.get("content"))

    def rest(self, path: str) -> Iterator[Part]:
        if self.has_more:
            yield LeftOut(f"{path}#{_MORE}", MORE_PAGES)
