"""Write and read memories in the format that mem0's `get_all` returns. Also read OpenMemory exports
(docs/reference/import-formats.md, "mem0")."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any
from uuid import NAMESPACE_URL, uuid5

from memory.models import Agent
from memory.policy.categories import SCOPES
from memory.silo.silo import Read
from memory.transfer.exporting import OWN_KEY, Losses, own_fields
from memory.transfer.formats import gathering
from memory.transfer.formats.json_file import Entry, JSONFile
from memory.transfer.formats.parts import LeftOut, Part

_WHOSE = {"user_id": "user:", "agent_id": "agent:", "run_id": "run:", "app_id": "app:"}
# Fields that `_Answer` reads, and fields without information about the memory.
_READ = {*_WHOSE, "id", "memory", "content", "created_at", "updated_at", "categories", "category_ids", "metadata"}
_SILENT = {"hash", "score", "state", "deleted_at"}
_MOST_NAMES = 10_000  # names of apps and categories


def write(agent: Agent, memories: Iterable[Read], _: Losses) -> Iterator[bytes]:
    yield b'{"results": ['
    between = b"\n"
    for read in memories:
        yield between + json.dumps(_entry(agent, read), ensure_ascii=False).encode()
        between = b",\n"
    yield b"\n]}\n"


def _entry(agent: Agent, read: Read) -> dict[str, Any]:
    own = own_fields(read)
    return {
        "id": str(uuid5(NAMESPACE_URL, f"palimpsest:{agent}/{read.memory.number}")),
        "memory": read.opened.content,
        "agent_id": agent.slug,
        "created_at": own["origin"],
        "categories": list(dict.fromkeys((read.memory.category, *read.opened.tags))),
        "metadata": {"category": read.memory.category, OWN_KEY: own},
    }


# --- reading


_PACKED = (b"PK\x03\x04", b"\x1f\x8b")  # the beginnings of zip and gzip files
PACKED = "is an archive: unpack it, and import OpenMemory's memories.json"


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    file.seek(0)
    return iter([LeftOut(path, PACKED)]) if file.read(4).startswith(_PACKED) else _Answer().parts(file, path)


class _Answer(JSONFile):
    lists = ("results", "memories", "")
    none = "is a response without a list of memories"
    others = {"relations": "relations between things are not memories", "next": gathering.MORE_PAGES}

    def __init__(self) -> None:
        super().__init__()
        self._user = ""
        self._names: dict[tuple[str, str], str] = {}  # (list, id) → the name of an app or a category

    def note(self, entry: Entry) -> None:
        """Collect the names of the user, apps and categories. In the file, these names may come after the memories."""
        if not isinstance(entry.value, dict):
            return
        if entry.name == "user":
            self._user = _text(entry.value.get("user_id"))
        if entry.name in ("apps", "categories") and len(self._names) < _MOST_NAMES:
            self._names[entry.name, _text(entry.value.get("id"))] = _text(entry.value.get("name"))

    def memories(self, _: Entry, value: dict[str, Any], key: str) -> Iterator[Part]:
        text = value.get("memory", value.get("content"))
        if value.get("state") == "deleted" or value.get("deleted_at"):
            yield LeftOut(key, gathering.WAS_DELETED)
        elif own := gathering.own(key, text, value.get("metadata")):
            yield own
        else:
            yield from self._gathered(value).found(key, text)

    def _gathered(self, value: Mapping[str, Any]) -> gathering.Gathered:
        found = gathering.Gathered("behavioral")
        found.dates(value)
        metadata = value.get("metadata")
        category = metadata.get("category") if isinstance(metadata, dict) else None
        categories = [*_listed(category), *_listed(value.get("categories")), *self._named(value.get("category_ids"))]
        known = next((name for name in categories if isinstance(name, str) and name in SCOPES), "")
        found.category = known or found.category
        found.tag_each([name for name in categories if name != known], "categories")
        for name, before in _WHOSE.items():
            found.tag(self._whose(name, value.get(name)), name, before)
        found.metadata(metadata, besides=("category",))
        for name, each in value.items():
            if name not in _READ and name not in _SILENT and not gathering.is_nothing(each):
                found.not_kept(name)
        if value.get("state") not in (None, "active"):
            found.not_kept("state")
        return found

    def _named(self, numbers: object) -> list[Any]:
        return [self._names.get(("categories", _text(each))) or each for each in _listed(numbers)]

    def _whose(self, name: str, value: object) -> object:
        """If a value is OpenMemory's id of a user or an app, return the name. Otherwise return the value."""
        if name == "user_id" and self._user:
            return self._user
        return (self._names.get(("apps", _text(value))) or value) if name == "app_id" else value


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if gathering.is_nothing(value) else [value]


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= gathering.LONGEST_ID else ""
