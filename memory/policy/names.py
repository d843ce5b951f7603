"""Checks of text that settings and memories share: what the database can store, and how a project may be named.

Every refusal is `Invalid`. It names the field and what would be right, and quotes nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from memory.errors import Invalid

_SURROGATE = re.compile("[\ud800-\udfff]")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@-]{0,99}\Z")


def checked_project(project: object, field: str = "project") -> str:
    """A project's id, or none. It is kept in clear, so it must not look like a secret. Raises Invalid."""
    name = project_named(project, field)
    if name and looks_secret(name):
        raise Invalid(field, "looks like a secret, and a project's name is kept in clear: give it another")
    return name


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Whether something in it would be masked. The same few names are asked for again and again."""
    from memory.masking.scanner import holds_token  # its detectors bring requests with them

    return holds_token(name)


def project_named(project: object, field: str = "project") -> str:
    """The id of a project that may exist already, even if it looks like a secret. Raises Invalid."""
    if not isinstance(project, str):
        raise Invalid(field, "must be text")
    if project and (not _PROJECT.match(project) or ".." in project):
        raise Invalid(field, "is up to 100 letters, digits and . _ / @ -, a letter or digit first, without '..'")
    return project


def storable(field: str, text: str) -> None:
    """Raise Invalid for text that no database holds."""
    if "\0" in text:
        raise Invalid(field, "holds a NUL character, which cannot be stored")
    if not text.isascii() and _SURROGATE.search(text):
        raise Invalid(field, "holds half a surrogate pair, which is no character")
