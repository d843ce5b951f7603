"""Exports in the formats of other systems: complete, and with a list of the losses."""

import io
import json
import tarfile
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.errors import Invalid
from memory.models import Agent
from memory.policy.categories import SCOPES
from memory.transfer import exporting
from memory.transfer.export_formats import EXPORTS, writer
from memory.transfer.exporting import Losses
from memory.vault import rendering
from memory.writing import operations
from tests.steps import ME, fresh, protect, remember

AT = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)


@pytest.fixture
def ada(ada: Agent) -> Agent:
    """With a memory of each category, a run, a constitutional one, a discarded one, and one with special characters."""
    for category in SCOPES:
        remember(ada, f"of {category}", category=category, origin=AT, tags=(f"of:{category}", "a, b"))
    remember(ada, "**Task:** Count\n**Result:** Three", kind="journal", origin=AT)
    remember(ada, '## a heading\n"quoted" \\ \u2028 🦆\n\n```\n## Tags\n```', origin=AT)
    [number] = remember(ada, "gone", origin=AT)
    operations.discard(ada, [number], ME)
    protect(ada, 1)
    return fresh(ada)


def export(agent: Agent, name: str, *, with_discarded: bool = False) -> tuple[bytes, dict[str, int]]:
    losses = Losses()
    write = writer(name, with_discarded=with_discarded)
    pieces = write(agent, exporting.memories(agent, with_discarded=with_discarded), losses)
    return b"".join(pieces), dict(losses)


def records(agent: Agent) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export(agent, "jsonl")[0].splitlines()]


def test_mem0_entries_and_letta_blocks_have_ids_and_limits(ada: Agent) -> None:
    """tests/transfer/test_round_trips.py compares the contents of every format."""
    entries = json.loads(export(ada, "mem0")[0])["results"]
    assert len({entry["id"] for entry in entries}) == len(entries) == len(records(ada))
    assert {(entry["agent_id"], entry["created_at"]) for entry in entries} == {("ada", "2026-03-04T05:06:07.890000Z")}
    assert json.loads(export(ada, "mem0")[0])["results"] == entries, "the ids are stable"
    file = json.loads(export(ada, "letta")[0])
    assert [agent["block_ids"] for agent in file["agents"]] == [[block["id"] for block in file["blocks"]]]
    assert all(block["limit"] >= len(block["value"]) for block in file["blocks"])


def test_a_folder_has_a_readable_file_per_memory(ada: Agent) -> None:
    data, losses = export(ada, "markdown")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
        assert {each.mode for each in archive} == {0o600}
    assert json.loads(files.pop("memory-rules/settings.json"))["memory_rules"]["enabled"] is True
    assert len(files) == len(records(ada))
    for record in records(ada):
        [file] = [each for each in files.values() if rendering.number_in(each.decode()) == record["id"]]
        blocks = rendering.blocks(file.decode())
        assert "Sealed" not in blocks
        assert record["content"].split()[0] in "".join(blocks.values())
    assert any(name.startswith("memory/private/credentials/") for name in files)
    hidden = ("a journal entry", "constitutional")
    assert losses == {f"the file does not show that the memory is {what}": 1 for what in hidden}


def test_an_export_of_no_memories_is_valid(bob: Agent) -> None:
    for name in EXPORTS:
        data, losses = export(bob, name)
        assert losses == {}
        assert name not in ("mem0", "letta") or json.loads(data)


def test_a_line_of_json_lines_has_no_other_line_ends(bob: Agent) -> None:
    text = "one\u0085two\u2028three\u2029four"
    remember(bob, text)
    exported = export(bob, "jsonl")[0].decode()
    assert (len(exported.splitlines()), json.loads(exported)["content"]) == (1, text)


def test_only_json_lines_export_discarded_memories(ada: Agent) -> None:
    for name in EXPORTS.keys() - {"jsonl"}:
        with pytest.raises(Invalid, match="discarded"):
            writer(name, with_discarded=True)
        assert b"gone" not in export(ada, name)[0]
    assert b"gone" in export(ada, "jsonl", with_discarded=True)[0]
