"""What other systems keep in one file, read: as the tables have it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from memory.errors import Invalid
from memory.formats import axe, letta, mem0, memory_store, own, tree_files
from memory.formats.found import Part, Reader
from memory.formats.json_entries import MOST
from tests.moving.tables import SYSTEMS, agree, expected


def read(reader: Reader, system: str, *files: str) -> Iterator[Part]:
    for path in files:
        with (SYSTEMS / system / "tree" / path).open("rb") as file:
            yield from reader(file, path)


READERS: dict[str, Reader] = {
    "mem0": mem0.parts,
    "letta": letta.parts,
    "anthropic": memory_store.parts,
    "axe": axe.parts,
    "own": own.parts,
}
FILES = sorted(
    (system, str(path.relative_to(SYSTEMS / system / "tree")))
    for system in READERS
    for path in (SYSTEMS / system / "tree").rglob("*")
    if path.is_file() and (system != "anthropic" or path.suffix == ".json")
)


@pytest.mark.parametrize(("system", "file"), FILES)
def test_a_file_is_read_as_the_tables_have_it(system: str, file: str) -> None:
    agree(read(READERS[system], system, file), expected(system, file))


def test_the_frameworks_files() -> None:
    root = SYSTEMS / "framework/tree"
    paths = sorted(path.relative_to(root) for path in root.rglob("*.md"))
    parts = [
        part
        for path in paths
        for part in tree_files.read((root / path).read_bytes(), str(path), path.relative_to("memory"))  # type: ignore[arg-type]
    ]
    agree(parts, expected("framework"))


def test_an_agent_may_have_more_to_say_than_an_entry_holds() -> None:
    messages = [{"role": "user", "content": "x" * 10_000}] * (MOST // 10_000 + 1)
    file = json.dumps({"agents": [{"messages": messages, "system": ""}], "blocks": [{"id": "b", "value": "said"}]})
    found = list(letta.parts(io.BytesIO(file.encode()), "x.af"))
    assert [part.key for part in found] == ["x.af#b", "x.af#messages"]


class Written(io.BytesIO):
    """A file that somebody writes anew after it was gone through once."""

    def seek(self, at: int, whence: int = 0) -> int:
        self.times = getattr(self, "times", 0) + 1
        if self.times == 3:  # the look for a mark was the second
            self.truncate(len(self.getvalue()) // 2)
        return super().seek(at, whence)


def test_a_file_that_is_another_when_it_is_read_again_is_refused() -> None:
    file = Written(json.dumps({"results": [{"memory": "marker-words"}] * 9}).encode())
    with pytest.raises(Invalid, match="was changed while it was read: it is not JSON") as refused:
        list(mem0.parts(file, "a.json"))
    assert "marker-words" not in repr(refused.value)
    assert refused.value.__context__ is None
