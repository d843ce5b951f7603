"""The path of a memory's file in a vault, from its category, project and title.

A part of a path never has a separator, is never `.` or `..`, and is never too long for a file system. Two parts never
differ only in case or in Unicode form.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from memory.policy import settings_document
from memory.policy.categories import COMMON, DEFAULT_PROJECT, PRIVATE, PROJECT, SCOPES

INDEX = "index.md"
PROJECTS = "projects"
FOLDERS = {
    "session": "sessions",
    "topic": "topics",
    "user_interaction": "interactions",
}  # others: the category
LONGEST = 80  # bytes of a name without its ending; with a number in front it stays far below 255
DATED = ("session", "user_interaction")  # categories with a date as title
_DIGESTED = re.compile(r"-[0-9a-f]{8}\Z")
_NOT_PLAIN = re.compile(r"(?:[^\w.]|_)+")
# Names of devices on Windows, with any ending.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|\Z)")


def plain(text: str) -> str:
    """A text as a part of a path: words in lower case, joined by hyphens. "" if nothing is left.

    A name that is too long is cut and gets a digest of the text, so that two long texts get different names.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    name = _NOT_PLAIN.sub("-", unicodedata.normalize("NFC", folded)).strip("-.")
    if len(name.encode()) > LONGEST:
        mark = f"-{_digest(text)}"
        name = name.encode()[: LONGEST - len(mark)].decode("utf-8", "ignore").rstrip("-.") + mark
    return f"{name}-{_digest(text)}" if _DEVICES.match(name) else name


def folder_of_project(project: str) -> str:
    """A project's folder. If the id cannot be a folder name unchanged, the folder gets a digest of the id: `Acme` is in
    `acme-37036cd8`. So does an id that looks as if it ended in a digest, to avoid collisions."""
    name, mark = plain(project), f"-{_digest(project)}"
    is_unchanged = name == project and not _DIGESTED.search(name)
    return name if is_unchanged or name.endswith(mark) else f"{name}{mark}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def location(category: str, rules: Mapping[str, Any]) -> str:
    """Common, private or project, from the setting storage_location. A private category is always private."""
    if SCOPES[category] == PRIVATE:
        return PRIVATE
    found: str = settings_document.value(rules, f"memory_rules.categories.{category}.storage_location")
    return found


def is_private(category: str, rules: Mapping[str, Any]) -> bool:
    """Whether the files of this category are sealed, and named without words of their content."""
    return location(category, rules) == PRIVATE


def folder(category: str, project: str, rules: Mapping[str, Any]) -> PurePosixPath:
    """The folder of a memory's file, below the base path."""
    name, where = FOLDERS.get(category, category), location(category, rules)
    if where == PROJECT:
        return PurePosixPath(PROJECTS, folder_of_project(project or DEFAULT_PROJECT), name)
    return PurePosixPath(PRIVATE if where == PRIVATE else COMMON, name)


def credential_name(service: str, project: str = "", kind: str = "key") -> str:
    """`openai-api-key.md`, or `project-a-aws-key.md` for a credential of one project. "" without a service."""
    parts = [plain(part) for part in (folder_of_project(project) if project else "", service, kind)]
    if not parts[1]:
        return ""
    if parts[1].endswith(f"-{parts[2]}") or parts[1] == parts[2]:
        parts.pop()  # the service already names the kind
    return plain("-".join(part for part in parts if part)) + ".md"


def dated(at: datetime) -> str:
    """The title of the file of a recording or session."""
    return f"{at:%Y-%m-%d-%H%M%S}"


def file_name(number: int, title: str = "") -> str:
    """`000123-green-tea.md`: the memory's number and the title."""
    return "-".join(part for part in (f"{number:06}", plain(title)) if part) + ".md"


def name_of(number: int, category: str, title: str, rules: Mapping[str, Any]) -> str:
    """The name of a memory's file. It has the title only if that is a date, or with the setting readable_names."""
    has_title = category in DATED or settings_document.value(rules, settings_document.READABLE_NAMES)
    return file_name(number, title if has_title and not is_private(category, rules) else "")


def index_of(path: PurePosixPath) -> PurePosixPath:
    """The index page that lists a file: its project's, the one of private files, or the global one."""
    if path.parts[0] == PROJECTS:
        return PurePosixPath(*path.parts[:2], INDEX)
    return PurePosixPath(PRIVATE, INDEX) if path.parts[0] == PRIVATE else PurePosixPath(INDEX)
