"""What may be remembered: values are checked here, before anything is locked or sealed.

Every refusal is `Invalid`, naming the field and what would be right, and quoting nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memory.errors import Invalid
from memory.models import Kind, Source
from memory.policy import paths
from memory.policy.categories import DEFAULT_PROJECT, PROJECT, default_category, scope_of
from memory.policy.names import checked_project, project_named, storable

MAX_CONTENT = 10_000  # characters
MAX_TAGS = 256  # more than an agent needs: merges unite the tags of their sources
MAX_TAG = 64  # characters
_KINDS, _SOURCES = tuple(Kind.values), tuple(Source.values)


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A memory about to be stored. Checked and completed by `checked`."""

    content: str
    kind: str = Kind.CORE
    category: str = ""
    project: str = ""
    tags: Sequence[str] = ()
    origin: datetime | None = None
    source: str = Source.AGENT
    is_project_known: bool = False  # it is there already, and was looked at when it began

    def checked(self) -> Draft:
        """The same with defaults filled in. Raises Invalid."""
        if self.kind not in _KINDS:
            raise Invalid("kind", "is 'core' or 'journal'")
        if self.source not in _SOURCES:
            raise Invalid("source", "is 'agent', 'run' or 'system'")
        project = project_named(self.project) if self.is_project_known else checked_project(self.project)
        category = self.category or default_category(project)
        if scope_of(category) == PROJECT:
            project = project or DEFAULT_PROJECT
        tags = checked_tags(self.tags)
        paths.require_names(category, tags)
        content, origin = checked_content(self.content), checked_origin(self.origin)
        return _Checked(content, self.kind, category, project, tags, origin, self.source)


class _Checked(Draft):
    """A draft that has been checked: an import checks each line where it can be named, before any is stored."""

    __slots__ = ()

    def checked(self) -> Draft:
        return self


def checked_content(content: object, field: str = "content", most: int = MAX_CONTENT) -> str:
    """Text of 1 to `most` characters, as it is: nothing is trimmed. Raises Invalid."""
    if not isinstance(content, str):
        raise Invalid(field, "must be text")
    if not content.strip():
        raise Invalid(field, "is empty")
    if len(content) > most:
        raise Invalid(field, f"has {len(content):,} characters; at most {most:,} are allowed")
    storable(field, content)
    return content


def checked_words(given: object, field: str) -> str:
    """Text for people, on one line, in which there is something to read. Raises Invalid."""
    told = " ".join(checked_content(given, field).split())
    if not any(character.isalnum() and character not in _BLANK_LETTERS for character in told):
        raise Invalid(field, "must have a letter or a digit")
    return told


_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"  # Hangul's fillers: letters that nobody sees


def checked_tags(tags: object) -> tuple[str, ...]:
    """Up to 256 tags of up to 64 characters, in order, repeats dropped. Raises Invalid."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise Invalid("tags", "must be a list of texts")
    kept = dict.fromkeys(_checked_tag(tag) for tag in tags)
    if len(kept) > MAX_TAGS:
        raise Invalid("tags", f"are {len(kept)}; at most {MAX_TAGS} are allowed")
    return tuple(kept)


def checked_origin(origin: object) -> datetime | None:
    if origin is None:
        return None
    if not isinstance(origin, datetime) or origin.tzinfo is None:
        raise Invalid("origin", "must be a date and time with its time zone")
    return _in_utc("origin", origin)


def parse_moment(field: str, text: Any) -> datetime:
    """A moment from ISO 8601; without a time zone it is UTC. Raises Invalid."""
    moment = None
    with suppress(TypeError, ValueError):  # the error would quote the text
        moment = datetime.fromisoformat(text)
    if moment is None:
        raise Invalid(field, "is not a date and time in ISO 8601, such as 2026-02-01T09:30:00Z")
    return _in_utc(field, moment)


def _in_utc(field: str, moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, "lies outside the calendar") from None


def _checked_tag(tag: object) -> str:
    if not isinstance(tag, str) or not tag.strip() or len(tag) > MAX_TAG:
        raise Invalid("tags", f"must each be text of 1 to {MAX_TAG} characters")
    storable("tags", tag)
    return tag.strip()
