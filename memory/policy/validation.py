"""Validates memories before their agent is locked and their content is sealed. Some checks also validate settings.

A check that fails raises Invalid. The error names the field and says what is allowed. It never quotes the invalid
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from memory.errors import Invalid
from memory.models import Kind, Source
from memory.policy import tokens
from memory.policy.categories import DEFAULT_PROJECT, NAMED_BY_SERVICE, NAMES, PROJECT, SCOPES, default_category

MAX_CONTENT = 10_000  # characters
MAX_BENEATH = 102_400  # bytes of a memory beneath
MAX_TAGS = 256  # many, because a merged memory has the tags of all its sources
MAX_TAG = 64  # characters
_KINDS, _SOURCES = tuple(Kind.values), tuple(Source.values)
_SURROGATE = re.compile("[\ud800-\udfff]")
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@-]{0,99}\Z")


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A memory to store. `checked` validates the draft and adds defaults."""

    content: str
    kind: str = Kind.CORE
    category: str = ""
    project: str = ""
    tags: Sequence[str] = ()
    origin: datetime | None = None
    source: str = Source.AGENT
    is_instruction: bool = False  # the memory is kept out of refinement and out of the budget
    is_project_known: bool = False  # the project exists already, so its name was checked earlier
    origin_latest: datetime | None = None
    is_beneath: bool = False
    store: int | None = None  # the memory store that it is in, with its path there
    path: str = ""
    tokens: int | None = None  # counted before the agent is locked
    is_checked: bool = False

    def checked(self) -> Draft:
        """Validate the draft and return it with defaults. A draft that is already checked is returned unchanged. (An
        import checks each draft earlier, so that its error can name the line.) Raises Invalid."""
        if self.is_checked:
            return self
        if self.kind not in _KINDS:
            raise Invalid("kind", "must be 'core' or 'journal'")
        if self.source not in _SOURCES:
            raise Invalid("source", "must be 'agent', 'run' or 'system'")
        project = checked_project(self.project, is_known=self.is_project_known)
        category = self.category or default_category(project)
        if scope_of(category) == PROJECT:
            project = project or DEFAULT_PROJECT
        tags = checked_tags(self.tags)
        if category in NAMED_BY_SERVICE:
            require_names(tags)
        content = checked_beneath(self.content) if self.is_beneath else checked_content(self.content)
        origin, latest = (None if at is None else checked_origin(at) for at in (self.origin, self.origin_latest))
        if latest is not None and (origin is None or latest < origin):
            raise Invalid("origin_latest", "must not be earlier than `origin`")
        if self.is_beneath and (self.kind != Kind.CORE or self.source == Source.SYSTEM):
            raise Invalid("layer", "can be 'beneath' only for core memories")
        values: Any = {"content": content, "category": category, "project": project, "tags": tags}
        values |= {"tokens": tokens.count(content)}
        latest = None if latest == origin else latest
        return replace(self, **values, origin=origin, origin_latest=latest, is_checked=True)


def scope_of(category: object) -> str:
    """Return the scope of a category. Raises Invalid for an unknown category."""
    scope = SCOPES.get(category) if isinstance(category, str) else None
    if scope is None:
        raise Invalid("category", f"is unknown. Use one of: {NAMES}")
    return scope


def checked_content(content: object, field: str = "content", most: int = MAX_CONTENT) -> str:
    """Return the content if it is a text of 1 to `most` characters. The text is not trimmed. Raises Invalid."""
    if not isinstance(content, str):
        raise Invalid(field, "must be text")
    if not content.strip():
        raise Invalid(field, "is empty")
    if len(content) > most:
        raise Invalid(field, f"has {len(content):,} characters; the maximum is {most:,}")
    require_storable(field, content)
    return content


def checked_beneath(content: object) -> str:
    """Return the content of a memory beneath. It may be empty, and longer than that of other memories, as in a memory
    store. Raises Invalid."""
    if not isinstance(content, str):
        raise Invalid("content", "must be text")
    require_storable("content", content)
    if len(content.encode()) > MAX_BENEATH:
        raise Invalid("content", f"must have at most {MAX_BENEATH:,} bytes of UTF-8")
    return content


def checked_words(text: object, field: str) -> str:
    """Return a text for people as one line. The text must have a visible letter or digit. Raises Invalid."""
    words = " ".join(checked_content(text, field).split())
    if not any(character.isalnum() and character not in _BLANK_LETTERS for character in words):
        raise Invalid(field, "must have a letter or a digit")
    return words


_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"  # Hangul fillers: invisible letters


def checked_tags(tags: object) -> tuple[str, ...]:
    """Return the tags in order, without duplicates. Raises Invalid if there are too many tags, or if a tag is too
    long."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise Invalid("tags", "must be a list of strings")
    kept: dict[str, None] = {}
    for tag in tags:
        if not isinstance(tag, str) or not tag.strip() or len(tag) > MAX_TAG:
            raise Invalid("tags", f"must each be text of 1 to {MAX_TAG} characters")
        require_storable("tags", tag)
        kept[tag.strip()] = None
    if len(kept) > MAX_TAGS:
        raise Invalid("tags", f"has {len(kept)} tags; the maximum is {MAX_TAGS}")
    return tuple(kept)


def require_names(tags: Iterable[str], field: str = "tags") -> None:
    """Raise Invalid if a tag looks like a secret and would become the name of a credential's file."""
    for tag in tags:
        name, _, value = tag.partition(":")
        if name in ("service", "credential"):
            checked_service(value, field)


def checked_service(name: str, field: str = "service") -> str:
    """Return the name of a service unchanged. This name becomes part of a file name. Raises Invalid if the name looks
    like a secret."""
    if looks_secret(name):
        raise Invalid(field, "must not look like a secret, because it is in a file name. Give the name of the service")
    return name


def checked_project(project: object, field: str = "project", *, is_known: bool = False) -> str:
    """Check the id of a project, and return the id. The id may be "". It is stored unencrypted, so a new id must not
    look like a secret.

    Raises Invalid.
    """
    if not isinstance(project, str):
        raise Invalid(field, "must be text")
    if project and (not _PROJECT.match(project) or ".." in project):
        raise Invalid(field, "must have 1 to 100 letters, digits or . _ / @ -, a letter or digit first, and no '..'")
    if project and not is_known and looks_secret(project):
        raise Invalid(field, "looks like a secret, but project names are stored unencrypted: use another name")
    return project


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Return whether masking finds a secret in the name. The result is cached, because the same names are checked
    often."""
    from memory.masking.scanner import masked  # slow to import

    return masked(name)[1] > 0


def parse_numbers(field: str, text: str, most: int) -> list[int]:
    """Parse a text such as "3, 17, 20-25". Return its numbers, sorted. Raises Invalid, also if it has more than `most`
    numbers."""
    found: set[int] = set()
    for part in filter(None, re.split(r"[,\s]+", text)):
        run = _RANGE.fullmatch(part)
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (0, 0)
        if not 0 < first <= last < first + most or len(found) > most:
            raise Invalid(field, f"must be up to {most:,} numbers and ranges, for example 3, 17, 20-25")
        found.update(range(first, last + 1))
    return sorted(found)


def checked_origin(origin: object) -> datetime:
    if not isinstance(origin, datetime) or origin.tzinfo is None:
        raise Invalid("origin", "must be a date and time with its time zone")
    return _in_utc("origin", origin)


def parse_moment(field: str, text: Any) -> datetime:
    """Parse a date and time in ISO 8601. The default time zone is UTC. Raises Invalid."""
    moment = None
    with suppress(TypeError, ValueError):  # Python's error would quote the text
        moment = datetime.fromisoformat(text)
    if moment is None:
        raise Invalid(field, "is not a date and time in ISO 8601, such as 2026-02-01T09:30:00Z")
    return _in_utc(field, moment)


def _in_utc(field: str, moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, "is out of range") from None


def require_storable(field: str, text: str) -> None:
    """Raise Invalid for text that a database cannot store."""
    if "\0" in text:
        raise Invalid(field, "contains a NUL character, which cannot be stored")
    if not text.isascii() and _SURROGATE.search(text):
        raise Invalid(field, "contains half of a surrogate pair, which is not a character")
