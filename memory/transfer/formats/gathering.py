"""Collect the tags, the date and the notes of an entry from another system. Make memories from this entry."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.errors import Invalid
from memory.policy.categories import PROJECT, SCOPES
from memory.policy.validation import MAX_TAG, Draft, parse_moment
from memory.transfer.exporting import OWN_KEY
from memory.transfer.formats import parts

WAS_CONSTITUTIONAL = "was constitutional there"
WAS_DELETED = "is marked as deleted"
MORE_PAGES = "refers to more pages, which are not in the file"
_MOST_NOTES = 20  # number of notes for one memory
LONGEST_ID = 100  # characters


@dataclass(slots=True, repr=False)
class Gathered:
    """The collected information about one memory. If a value cannot be a tag, the value is not kept. Instead, a note
    says the name of its field."""

    category: str = "contextual"
    date: datetime | None = None
    tags: dict[str, None] = field(default_factory=dict)
    _notes: dict[str, None] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self._notes[parts.one_line(what, parts.MAX_NOTE)] = None

    def take(self, text: parts.Decoded) -> str:
        """Return the text. Add a note for each change that was made to the text."""
        for what in text.transformed:
            self.note(what)
        return text.text

    def not_kept(self, name: str) -> None:
        self.note(f"not kept: {name}")

    def tag(self, text: object, name: str, before: str = "") -> None:
        """Add a tag. `before` is the prefix of the tag, such as `user:`. An empty value adds no tag."""
        if is_nothing(text):
            return
        if not (tag := _as_tag(text)) or len(before) + len(tag) > MAX_TAG:
            self.not_kept(name)
        else:
            self.tags[before + tag] = None

    def tag_each(self, texts: object, name: str, before: str = "") -> None:
        for text in texts if isinstance(texts, list) else [texts]:
            self.tag(text, name, before)

    def moment(self, value: object) -> None:
        """Use a value as the memory's date. If the value cannot be read as a date, add a note."""
        if value is None or value == "":
            return
        self.date = moment(value)
        if self.date is None:
            self.note("date could not be read")

    def dates(self, entry: Mapping[str, Any]) -> None:
        """Use the entry's first date. Add a note if it has a second date that differs from the first one. The second
        date is not kept."""
        self.moment(entry.get("created_at"))
        value, before = entry.get("updated_at"), entry.get("created_at")
        if value and value != before and (moment(value) is None or moment(value) != moment(before)):
            self.not_kept("updated_at")

    def metadata(self, fields: object, besides: Iterable[str] = ()) -> None:
        """Add a tag `key:value` for each field. Lists and objects are not kept."""
        if not isinstance(fields, dict):
            if not is_nothing(fields):
                self.not_kept("metadata")
            return
        for key, value in fields.items():
            if key != OWN_KEY and key not in besides:
                self.tag(value, f"metadata.{key}", f"{key}:")

    @property
    def transformed(self) -> tuple[str, ...]:
        first, others = tuple(self._notes)[:_MOST_NOTES], len(self._notes) - _MOST_NOTES
        return (*first, f"not kept: {others:,} others") if others > 0 else first

    def found(self, key: str, text: object, *, blank: str = parts.NO_TEXT) -> Iterator[parts.Part]:
        """Yield the memories that are made from a text. If the text cannot be used, yield the reason."""
        return parts.fitting(key, lambda: self.memories(key, self.take(parts.fit(text, blank=blank))))

    def memories(self, key: str, text: str, between: str = "-") -> Iterator[parts.Found]:
        """Yield the memories that are made from a valid text. A long text is split into several memories."""
        project = parts.HERE if SCOPES[self.category] == PROJECT else ""
        whole = parts.Found(key, "", self.category, project, tuple(self.tags), self.date, transformed=self.transformed)
        yield from parts.in_parts(whole, text, between)


def own(key: str, content: object, metadata: object) -> parts.Found | None:
    """Read an entry that Palimpsest exported in the format of another system. Return the memory with its original
    fields. Return None if Palimpsest did not export the entry, or if a field is invalid."""
    fields = metadata.get(OWN_KEY) if isinstance(metadata, dict) else None
    if not isinstance(fields, dict) or not fields.get("category"):
        return None
    with suppress(Invalid):
        draft = draft_of(fields | {"content": content})
        return of_draft(key, draft, (WAS_CONSTITUTIONAL,) if fields.get("constitutional") is True else ())
    return None


def of_draft(key: str, draft: Draft, transformed: tuple[str, ...]) -> parts.Found:
    place, tags = (draft.category, draft.project), tuple(draft.tags)
    return parts.Found(key, draft.content, *place, tags, draft.origin, draft.kind, transformed)


def draft_of(value: Mapping[str, Any]) -> Draft:
    """Check an exported record, and return its memory as a draft. Raises Invalid."""
    if "content" not in value:
        raise Invalid("content", "is missing")
    for name in ("kind", "category", "project"):
        if not isinstance(value.get(name), str | None):
            raise Invalid(name, "must be text")
    kind, category, project = value.get("kind") or "core", value.get("category") or "", value.get("project") or ""
    dated = "origin" if value.get("origin") is not None else "created_at"
    origin = None if value.get(dated) is None else parse_moment(dated, value[dated])
    tags = () if value.get("tags") is None else value["tags"]
    latest = None if value.get("origin_latest") is None else parse_moment("origin_latest", value["origin_latest"])
    marks: Any = {"is_instruction": kind == "core" and value.get("is_instruction") is True}
    marks |= {"is_beneath": value.get("layer") == "beneath"}
    return Draft(value["content"], kind, category, project, tags, origin, origin_latest=latest, **marks).checked()


def id_of(value: object) -> str:
    """Return a value as an id. Return "" if the value cannot be an id."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return parts.one_line(str(value), LONGEST_ID)


def moment(value: object) -> datetime | None:
    with suppress(Invalid):
        return parse_moment("date", value)
    return None


def is_nothing(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _as_tag(value: object) -> str:
    """Return a value as a tag. Return "" if the value cannot be a tag."""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    with suppress(parts.Unfit):
        return parts.fit(value).text.strip() if isinstance(value, str) and len(value) <= 10 * MAX_TAG else ""
    return ""
