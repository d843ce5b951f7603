"""What other systems keep in one file, where no table has it."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.transfer.formats import letta, mem0
from memory.transfer.formats.json_file import MAX_ENTRY as MOST
from memory.transfer.formats.parts import Found, LeftOut
from memory.transfer.reading import detect


def test_an_agent_may_have_more_to_say_than_an_entry_holds_and_no_block() -> None:
    messages = [{"role": "user", "content": "x" * 10_000}] * (MOST // 10_000 + 1)
    file = json.dumps({"agents": [{"messages": messages, "system": ""}], "blocks": [{"id": "b", "value": "said"}]})
    found = list(letta.parts(io.BytesIO(file.encode()), "x.af"))
    assert [part.key for part in found] == ["x.af#b", "x.af#messages"]
    bare = b'{"agents": [{"id": "agent-0", "memory_blocks": []}]}'
    assert list(letta.parts(io.BytesIO(bare), "x.af")) == [LeftOut("x.af", "is empty")]


def test_blocks_of_a_letta_agent_that_has_them_itself(tmp_path: Path) -> None:
    """As whoever wrote an agent file by hand has them, or made it of a request."""
    block = {"label": "persona", "value": "I keep the desk.", "limit": 5_000, "description": "who I am"}
    file = {
        "agents": [
            {"id": "agent-0", "agent_type": "letta_v1_agent", "block_ids": [], "memory_blocks": [block]},
            {
                "id": "agent-1",
                "agent_type": "letta_v1_agent",
                "block_ids": [],
                "memory_blocks": [{"label": "fares", "value": "Under six: free.", "metadata": {"source": "talks"}}],
            },
        ],
        "messages": [],
    }
    (tmp_path / "desk.af").write_text(json.dumps(file))
    (tmp_path / "desk.json").write_text(json.dumps(file).replace("desk", "quay").replace("six", "seven"))
    with detect(tmp_path) as look:
        found = [item.part for item in look.parts() if isinstance(item.part, Found)]
    assert [(part.key, part.content, part.category, part.tags) for part in found[:2]] == [
        ("desk.af#memory_blocks/persona", "I keep the desk.", "behavioral", ("label:persona",)),
        ("desk.af#memory_blocks/fares", "Under six: free.", "contextual", ("label:fares", "source:talks")),
    ]
    assert len(found) == 4


def test_what_openmemory_packed_is_told_as_such() -> None:
    for packed in (gzip.compress(b"{}"), b"PK\x03\x04\x14\0"):
        [part] = mem0.parts(io.BytesIO(packed), "export")
        assert part == LeftOut("export", "is an archive: unpack it, and import OpenMemory's memories.json")


class Written(io.BytesIO):
    """A file that somebody writes anew after it was gone through once."""

    def seek(self, at: int, whence: int = 0) -> int:
        self.times = getattr(self, "times", 0) + 1
        if self.times == 5:  # each look for a mark takes two
            self.truncate(len(self.getvalue()) // 2)
        return super().seek(at, whence)


def test_a_file_that_is_another_when_it_is_read_again_is_refused() -> None:
    file = Written(json.dumps({"results": [{"memory": "marker-words"}] * 9}).encode())
    with pytest.raises(Invalid, match="changed while it was read: it is not valid JSON") as refused:
        list(mem0.parts(file, "a.json"))
    assert "marker-words" not in repr(refused.value)
    assert refused.value.__context__ is None
