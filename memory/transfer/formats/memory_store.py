"""Read the memories of an Anthropic memory store from a saved response of the API.

The request is `GET /v1/memory_stores/ID/memories?view=full` (docs/reference/import-formats.md, "Anthropic's memory tool
and memory stores").
"""

from collections.abc import Iterator
from typing import IO, Any

from memory.transfer.formats.gathering import MORE_PAGES, Gathered
from memory.transfer.formats.json_file import Entry, JSONFile
from memory.transfer.formats.parts import Part

_FOLDER = "memory_prefix"  # an entry of this type stands for memories in a deeper folder


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    return _Answer().parts(file, path)


class _Answer(JSONFile):
    lists = ("data",)
    none = "is not a memory store's list of memories"
    others = {"next_page": MORE_PAGES}

    def memories(self, _: Entry, value: dict[str, Any], key: str) -> Iterator[Part]:
        if value.get("type") != _FOLDER:
            found = Gathered()
            found.dates(value)
            yield from found.found(key, value.get("content"))
