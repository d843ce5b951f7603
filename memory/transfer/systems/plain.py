"""Folders of notes that are no program's: markdown, text and JSON (docs/migration-sources.md, "Plain folders").

Read only where a folder was named: found, they would take in a project's whole documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from memory.errors import Invalid
from memory.transfer import front_matter
from memory.transfer.formats.found import LeftOut, Part, without_key
from memory.transfer.formats.gathering import Gathered, id_of, key_of
from memory.transfer.formats.text import EMPTY, NO_TEXT, Unfit, fit
from memory.transfer.pages import LARGEST, Front, memories, reader
from memory.transfer.system import Answer, Places, System, Way
from memory.transfer.walk import Kind, Tree

_FRONT = Front(("title", "description"), tags="tags", date="date")
_WORDS = ("content", "text", "memory", "body", "note")
_DATES = ("date", "created_at", "created", "origin")
_MARKDOWN, _TEXT = Way(reader(_FRONT)), Way(reader())


def places(tree: Tree, folders: Sequence[str]) -> Places:
    """Raises Invalid for what is no folder below the one that is looked at."""
    named = tuple(_checked(tree, folder) for folder in folders)

    def is_below(path: str) -> bool:
        return any(not folder or path == folder or path.startswith(f"{folder}/") for folder in named)

    return Places(lambda path: _way(path) if is_below(path) else None, is_below)


def _checked(tree: Tree, folder: str) -> str:
    path = "/".join(part for part in folder.split("/") if part not in ("", "."))
    entry = tree.entries.get(path)
    if path and (entry is None or entry.kind is not Kind.FOLDER):
        raise Invalid("plain", "must be a folder below the one that is looked at, and no link")
    return path


def _way(path: str) -> Answer:
    name = path.rpartition("/")[2].lower()
    if name.startswith("."):
        return None
    if name.endswith((".md", ".markdown")):
        return _MARKDOWN
    return _TEXT if name.endswith(".txt") else _JSON if name.endswith(".json") else None


# --- JSON


def read_json(file: IO[bytes], path: str) -> Iterator[Part]:
    try:
        value = _loaded(file.read(LARGEST + 1))
    except Unfit as unfit:
        why = unfit.why
    else:
        yield from _parts(value, path)
        return
    yield LeftOut(path, why)


def _loaded(data: bytes) -> Any:
    """Raises Unfit."""
    why = "is not JSON"
    if len(data) > LARGEST:
        why = "is too large"
    elif not data.strip():
        why = EMPTY
    else:
        try:
            return json.loads(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            why = "is not UTF-8 text"
        except (ValueError, RecursionError):  # nested without end; a number of more digits than Python reads
            pass
    raise Unfit(why)  # not in the handlers: the errors there hold the file


def _parts(value: Any, path: str) -> Iterator[Part]:
    if value in ([], {}, ""):
        yield LeftOut(path, EMPTY)
    elif isinstance(value, list):
        for number, each in enumerate(value, 1):
            entry = each if isinstance(each, dict) else {}
            has_key = bool(id_of(entry.get("id")))
            for part in _entry(each, key_of(path, entry, number), path):
                yield part if has_key else without_key(part, f"{path}#")
    else:
        key = key_of(path, value, "").removesuffix("#") if isinstance(value, dict) else path
        yield from _entry(value, key, path)


def _entry(value: Any, key: str, path: str) -> Iterator[Part]:
    gathered = Gathered()
    try:
        text = fit(_words(value, gathered))
    except Unfit as unfit:
        why = unfit.why
    else:
        for what in text.transformed:
            gathered.tell(what)
        yield from memories(text.text, key, gathered, path)
        return
    yield LeftOut(key, why)


def _words(value: Any, gathered: Gathered) -> str:
    """What an entry says. Raises Unfit."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise Unfit("is no object and no text")
    if value.keys() & set(_WORDS):
        return _of_object(value, gathered)
    gathered.tell("kept as JSON")
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        pass
    raise Unfit("is nested too deeply")  # not in the handler: the error there holds what was read


def _of_object(value: Mapping[str, Any], gathered: Gathered) -> str:
    words = next((name for name in _WORDS if _is_text(value.get(name))), "")
    if not words:
        raise Unfit(NO_TEXT)
    date = next((name for name in _DATES if value.get(name)), "")
    gathered.moment(value.get(date))
    _tag(value.get("tags"), gathered)
    for name, each in value.items():
        if name not in (words, date, "tags", "title", "id") and each not in (None, "", [], {}):
            gathered.not_kept(name)
    if not _is_text(value.get("title")):
        return str(value[words])
    gathered.tell("title became the first line")
    return f"{' '.join(value['title'].split())}\n\n{value[words]}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _tag(given: object, gathered: Gathered) -> None:
    gathered.tag_each(list(front_matter.split(given)) if isinstance(given, str) else given, "tags")


_JSON = Way(read_json)
SYSTEM = System(
    "plain",
    "Plain folders",
    "legacy_memory_systems",
    "markdown, text and JSON of the folders that are named",
)
