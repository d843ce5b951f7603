"""Write and read memories as a Letta agent file (docs/reference/import-formats.md, "Letta").

Each memory becomes a block, because an agent file has no place for archive passages. The label of a block has the
number of the memory. Older agent files and lists of passages can also be read.
"""

import io
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

from django.utils import timezone

from memory.models import Agent
from memory.silo.silo import Read
from memory.transfer.exporting import OWN_KEY, Losses, own_fields
from memory.transfer.formats import gathering
from memory.transfer.formats.json_file import Entry, JSONFile, entries
from memory.transfer.formats.parts import EMPTY, NO_TEXT, LeftOut, Part, Unfit

_AT_LEAST = 5_000  # a block's limit of characters is never below this number, which is Letta's default


def write(agent: Agent, memories: Iterable[Read], _: Losses) -> Iterator[bytes]:
    numbers = array("Q")
    yield b'{"blocks": ['
    for read in memories:
        yield b",\n" if numbers else b"\n"
        yield _json(_block(read))
        numbers.append(read.memory.number)
    yield b'\n],\n"agents": [' + _json(_agent(agent)).removesuffix(b"}") + b', "block_ids": ['
    for place, number in enumerate(numbers):
        yield (", " if place else "").encode() + _json(_id(number))
    rest: dict[str, Any] = {name: [] for name in ["groups", "files", "sources", "tools", "mcp_servers"]} | {
        "metadata": {"written_by": OWN_KEY},
        "created_at": f"{timezone.now():%Y-%m-%dT%H:%M:%SZ}",
    }
    yield b"]}],\n" + _json(rest).removeprefix(b"{") + b"\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _block(read: Read) -> dict[str, Any]:
    return {
        "id": _id(read.memory.number),
        "label": f"memory-{read.memory.number}",
        "value": read.opened.content,
        "description": None,
        "limit": max(_AT_LEAST, len(read.opened.content)),
        "read_only": False,
        "metadata": {"category": read.memory.category, OWN_KEY: own_fields(read)},
    }


def _agent(agent: Agent) -> dict[str, Any]:
    """Return the agent without its blocks and settings. The settings are not needed, because Letta asks for them at the
    import."""
    empty = "memory_blocks tool_ids source_ids in_context_message_ids messages files_agents group_ids"
    return {"id": "agent-0", "name": agent.slug, "agent_type": "letta_v1_agent"} | {name: [] for name in empty.split()}


def _id(number: int) -> str:
    return f"block-{number}"


# --- reading

_AGENTS, _BLOCKS, _PASSAGES = "agents", "blocks", ""
_OF_ITSELF = ("persona", "human")  # blocks about the agent and its user


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    reader, inner = _File(), _unwrapped(file)
    if inner is not None:
        reader.done.add("JSON within a string unwrapped")
    return reader.parts(inner or file, path)


def _unwrapped(file: IO[bytes]) -> IO[bytes] | None:
    """If the file is one JSON string, return the JSON in this string. Otherwise return None."""
    with suppress(Unfit, UnicodeEncodeError):
        found = None
        for entry in entries(file, _AGENTS):
            if entry.name or entry.number or not isinstance(entry.value, str):
                return None
            found = io.BytesIO(entry.value.encode())
        return found
    return None


class _File(JSONFile):
    # The second list has blocks inside an agent that is not created yet. These blocks have no id.
    lists = (_BLOCKS, f"{_AGENTS}.memory_blocks", "core_memory", _PASSAGES)
    within = _AGENTS
    none = "is neither an agent file nor a list of passages"
    others = {
        "messages": "conversation transcripts are not memories",
        "system": "system instructions are not memories",
        "tools": "tools are not memories",
        "files": "documents are not memories",
        "tool_exec_environment_variables": "settings and keys of tools are not memories",
    }

    def id_of(self, entry: Entry) -> str:
        """Return the identifier of an entry. A block inside an agent has no id, so its label is the identifier."""
        if entry.name in (_PASSAGES, _BLOCKS):
            return super().id_of(entry)
        label = gathering.id_of(entry.value.get("label"))
        return f"{entry.name.removeprefix(f'{_AGENTS}.')}/{label}" if label else ""

    def memories(self, entry: Entry, value: dict[str, Any], key: str) -> Iterator[Part]:
        return _passage(value, key) if entry.name == _PASSAGES else _read_block(value, key)


def _read_block(value: Mapping[str, Any], key: str) -> Iterator[Part]:
    metadata = value.get("metadata", value.get("metadata_"))
    if own := gathering.own(key, value.get("value"), metadata):
        yield own
        return
    label = value.get("label")
    found = gathering.Gathered("behavioral" if label in _OF_ITSELF else "contextual")
    found.tag(label, "label", "label:")
    found.dates(value)
    found.metadata(metadata)
    for name in ("description", "read_only"):
        if not gathering.is_nothing(value.get(name)):
            found.not_kept(name)
    yield from found.found(key, value.get("value"), blank=EMPTY)


def _passage(value: Mapping[str, Any], key: str) -> Iterator[Part]:
    if value.get("is_deleted"):
        yield LeftOut(key, gathering.WAS_DELETED)
        return
    found = gathering.Gathered()
    found.dates(value)
    found.tag_each(value.get("tags"), "tags")
    found.metadata(value.get("metadata", value.get("metadata_")))
    yield from found.found(key, value.get("text"), blank=NO_TEXT)
