"""What leaves in other systems' formats: whole, as those systems write it, and with what was lost named."""

from __future__ import annotations

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
RUN = "**Task:** Count the ferries\n**Result:** Three, one late"


@pytest.fixture
def ada(ada: Agent) -> Agent:
    """With a memory of each category, a run, one that is constitutional, one discarded, one with odd words."""
    for category in SCOPES:
        remember(ada, f"of {category}", category=category, origin=AT, tags=(f"of:{category}", "a, b"))
    remember(ada, RUN, kind="journal", origin=AT)
    remember(ada, '## a heading\n"quoted" \\ \u2028 🦆\n\n```\n## Tags\n```', origin=AT)
    remember(ada, "gone", origin=AT)
    operations.discard(ada, [fresh(ada).next_number - 1], ME)
    protect(ada, 1)
    return fresh(ada)


def written(agent: Agent, name: str, *, with_discarded: bool = False) -> tuple[bytes, dict[str, int]]:
    noted = Losses()
    write = writer(name, with_discarded=with_discarded)
    pieces = write(agent, exporting.memories(agent, with_discarded=with_discarded), noted)
    return b"".join(pieces), dict(noted)


def records(agent: Agent) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(agent, "jsonl")[0].splitlines()]


def without_words(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("content", "tokens")}


def test_mem0_is_told_all_of_it(ada: Agent) -> None:
    entries = json.loads(written(ada, "mem0")[0])["results"]
    assert [entry["memory"] for entry in entries] == [record["content"] for record in records(ada)]
    assert [entry["metadata"]["palimpsest"] for entry in entries] == [without_words(each) for each in records(ada)]
    assert [entry["categories"][0] for entry in entries] == [record["category"] for record in records(ada)]
    assert len({entry["id"] for entry in entries}) == len(entries)
    assert {(entry["agent_id"], entry["created_at"]) for entry in entries} == {("ada", "2026-03-04T05:06:07.890000Z")}
    assert json.loads(written(ada, "mem0")[0])["results"] == entries  # the same ids, whenever it leaves


def test_lettas_agent_has_each_as_a_block(ada: Agent) -> None:
    file = json.loads(written(ada, "letta")[0])
    assert [block["value"] for block in file["blocks"]] == [record["content"] for record in records(ada)]
    assert [block["metadata"]["palimpsest"] for block in file["blocks"]] == [without_words(r) for r in records(ada)]
    [agent] = file["agents"]
    assert agent["block_ids"] == [block["id"] for block in file["blocks"]]
    assert all(block["limit"] >= len(block["value"]) for block in file["blocks"])


def test_a_log_has_an_entry_for_each_and_names_what_it_lost(ada: Agent) -> None:
    log, noted = written(ada, "axe")
    entries = log.decode().split("\n\n## 2026-03-04T05:06:07Z\n")
    assert len(entries) == len(records(ada))
    assert entries[len(SCOPES)] == RUN
    assert "\n\\## Tags\n" in entries[-1]
    assert entries[-1].startswith('**Task:** (none)\n**Result:** ## a heading\n"quoted"')
    assert noted["lines that look like the start of a run get a backslash"] == 1
    assert noted["tags are not exported"] == len(SCOPES)
    assert noted["the kind, core, is not exported"] == len(records(ada)) - 1
    assert noted["the constitutional mark is not exported"] == 1


def test_a_folder_has_each_in_its_place_readable(ada: Agent) -> None:
    data, noted = written(ada, "markdown")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
        assert {each.mode for each in archive} == {0o600}
    assert json.loads(files.pop("memory-rules/settings.json"))["memory_rules"]["enabled"] is True
    assert len(files) == len(records(ada))
    for record in records(ada):
        [file] = [each for each in files.values() if rendering.number_in(each.decode()) == record["id"]]
        found = rendering.blocks(file.decode())
        assert "Sealed" not in found
        assert record["content"].split()[0] in "".join(found.values())
    assert any(name.startswith("memory/private/credentials/") for name in files)
    assert noted == {
        "the file does not show that the memory is a journal entry": 1,
        "the file does not show that the memory is constitutional": 1,
    }


def test_nothing_is_an_export_too(house: Any) -> None:
    for name in EXPORTS:
        data, noted = written(house.bob, name)
        assert noted == {}
        if name in ("mem0", "letta"):
            assert json.loads(data)


def test_what_was_discarded_leaves_as_json_lines_alone(ada: Agent) -> None:
    for name in EXPORTS.keys() - {"jsonl"}:
        with pytest.raises(Invalid, match="discarded"):
            writer(name, with_discarded=True)
        assert b"gone" not in written(ada, name)[0]
    assert b"gone" in written(ada, "jsonl", with_discarded=True)[0]
