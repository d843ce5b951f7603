"""JSON notes of plain folders: one object, or a list of objects (docs/migration-sources.md, "Plain folders")."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO, Any

from memory.transfer.formats.front_matter import as_list
from memory.transfer.formats.gathering import Gathered, id_of
from memory.transfer.formats.pages import LARGEST, memories
from memory.transfer.formats.parts import EMPTY, NO_TEXT, Found, LeftOut, Part, Unfit, fit, parsed

_WORDS = ("content", "text", "memory", "body", "note")
_DATES = ("date", "created_at", "created", "origin")


def read_json(file: IO[bytes], path: str) -> Iterator[Part]:
    data = file.read(LARGEST)
    value, why = parsed(data)
    is_empty = not data.strip() or value in ([], {}, "")
    if is_empty or why:
        yield LeftOut(path, EMPTY if is_empty else why)
        return
    for number, each in enumerate(value, 1) if isinstance(value, list) else [(0, value)]:
        known = id_of(each.get("id")) if isinstance(each, dict) else ""
        name = known or (str(number) if number else "")
        for part in _entry(each, f"{path}#{name}" if name else path, path):
            by_words = number > 0 and not known
            yield replace(part, id=known, by_words=by_words) if isinstance(part, Found) else part


def _entry(value: Any, key: str, path: str) -> Iterator[Part]:
    gathered = Gathered()
    try:
        yield from memories(gathered.take(fit(_words(value, gathered))), key, gathered, path)
    except Unfit as unfit:
        yield LeftOut(key, unfit.why)


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
    gathered.tag_each(as_list(given) if isinstance(given, str) else given, "tags")
