"""Exports of Letta, mem0 and OpenMemory in forms that no table has."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.transfer.formats import letta, mem0
from memory.transfer.formats.json_file import MAX_ENTRY
from memory.transfer.formats.parts import LeftOut
from tests.moving.looking import found, put


def test_messages_of_a_letta_agent_can_exceed_the_limit_of_an_entry() -> None:
    messages = [{"role": "user", "content": "x" * 10_000}] * (MAX_ENTRY // 10_000 + 1)
    file = json.dumps({"agents": [{"messages": messages, "system": ""}], "blocks": [{"id": "b", "value": "text"}]})
    assert [part.key for part in letta.parts(io.BytesIO(file.encode()), "x.af")] == ["x.af#b", "x.af#messages"]
    bare = b'{"agents": [{"id": "agent-0", "memory_blocks": []}]}'
    assert list(letta.parts(io.BytesIO(bare), "x.af")) == [LeftOut("x.af", "is empty")]


def test_a_letta_agent_can_contain_its_blocks(tmp_path: Path) -> None:
    """Files that people wrote, and files that were made from a request, have this form."""
    persona = {"label": "persona", "value": "I keep the desk.", "limit": 5_000, "description": "who I am"}
    fares = {"label": "fares", "value": "Under six: free.", "metadata": {"source": "talks"}}
    agents = [
        {"id": f"agent-{n}", "agent_type": "letta_v1_agent", "block_ids": [], "memory_blocks": [block]}
        for n, block in enumerate((persona, fares))
    ]
    file = json.dumps({"agents": agents, "messages": []})
    put(tmp_path, "desk.af", file)
    put(tmp_path, "desk.json", file.replace("desk", "quay").replace("six", "seven"))
    memories = list(found(tmp_path)[0].values())
    assert [(part.key, part.content, part.category, part.tags) for part in memories[:2]] == [
        ("desk.af#memory_blocks/persona", "I keep the desk.", "behavioral", ("label:persona",)),
        ("desk.af#memory_blocks/fares", "Under six: free.", "contextual", ("label:fares", "source:talks")),
    ]
    assert len(memories) == 4


@pytest.mark.parametrize("packed", [gzip.compress(b"{}"), b"PK\x03\x04\x14\0"], ids=["gzip", "zip"])
def test_an_archive_of_openmemory_is_reported(packed: bytes) -> None:
    [part] = mem0.parts(io.BytesIO(packed), "export")
    assert part == LeftOut("export", "is an archive: unpack it, and import OpenMemory's memories.json")


class Rewritten(io.BytesIO):
    """A file that becomes shorter after the first pass."""

    def seek(self, at: int, whence: int = 0) -> int:
        self.times = getattr(self, "times", 0) + 1
        if self.times == 5:  # each search for a byte order mark takes two
            self.truncate(len(self.getvalue()) // 2)
        return super().seek(at, whence)


def test_a_file_that_changes_between_two_passes_is_refused() -> None:
    file = Rewritten(json.dumps({"results": [{"memory": "marker-words"}] * 9}).encode())
    with pytest.raises(Invalid, match="changed while it was read: it is not valid JSON") as refused:
        list(mem0.parts(file, "a.json"))
    assert "marker-words" not in repr(refused.value)
    assert refused.value.__context__ is None
