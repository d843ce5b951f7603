"""Where in a vault a memory's file is (seed 004: "Memory Routing", "Credential Naming Decision").

Pure functions of category, project and title. No part of a path ever holds a separator, is `.` or `..`, differs from
another in case or Unicode form alone, or is longer than a file system takes.
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
FOLDERS = {"session": "sessions", "topic": "topics", "user_interaction": "interactions"}  # the others by their names
LONGEST = 80  # bytes of a name without its ending; a name with a number before it stays far below 255
DATED = ("session", "user_interaction")  # categories whose title is a date
_DIGESTED = re.compile(r"-[0-9a-f]{8}\Z")
_NOT_PLAIN = re.compile(r"(?:[^\w.]|_)+")
# What Windows takes for a device, whatever ending follows.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|\Z)")


def plain(text: str) -> str:
    """A text as a part of a path: words in lower case with hyphens between them, "" where nothing is left.

    Two that differ by more than what is left out differ by the digest that is put behind a name that was cut.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    name = _NOT_PLAIN.sub("-", unicodedata.normalize("NFC", folded)).strip("-.")
    if len(name.encode()) > LONGEST:
        mark = f"-{_digest(text)}"
        name = name.encode()[: LONGEST - len(mark)].decode("utf-8", "ignore").rstrip("-.") + mark
    return f"{name}-{_digest(text)}" if _DEVICES.match(name) else name


def folder_of_project(project: str) -> str:
    """A project's folder. One whose id is no folder's name as it is has a digest of the id behind it; and so has one
    that ends as a digest does, or it would be in the folder of another: `Acme` is in `acme-37036cd8`."""
    name, mark = plain(project), f"-{_digest(project)}"
    is_as_it_is = name == project and not _DIGESTED.search(name)
    return name if is_as_it_is or name.endswith(mark) else f"{name}{mark}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def location(category: str, rules: Mapping[str, Any]) -> str:
    """Common, private or project, as the category's storage_location has it; what is private is never elsewhere."""
    if SCOPES[category] == PRIVATE:
        return PRIVATE
    found: str = settings_document.value(rules, f"memory_rules.categories.{category}.storage_location")
    return found


def is_private(category: str, rules: Mapping[str, Any]) -> bool:
    """Whether its memories are sealed in their files, too, which are called by nothing of what they say."""
    return location(category, rules) == PRIVATE


def folder(category: str, project: str, rules: Mapping[str, Any]) -> PurePosixPath:
    """The folder of a memory's file, below the base path."""
    name, where = FOLDERS.get(category, category), location(category, rules)
    if where == PROJECT:
        return PurePosixPath(PROJECTS, folder_of_project(project or DEFAULT_PROJECT), name)
    return PurePosixPath(PRIVATE if where == PRIVATE else COMMON, name)


def credential_name(service: str, project: str = "", kind: str = "key") -> str:
    """`openai-api-key.md` for what is used everywhere, `project-a-aws-key.md` for one project's; "" for no service."""
    parts = [plain(part) for part in (folder_of_project(project) if project else "", service, kind)]
    if not parts[1]:
        return ""
    if parts[1].endswith(f"-{parts[2]}") or parts[1] == parts[2]:
        parts.pop()  # it says so itself
    return plain("-".join(part for part in parts if part)) + ".md"


def dated(at: datetime) -> str:
    """What the file of something that was said is called by."""
    return f"{at:%Y-%m-%d-%H%M%S}"


def file_name(number: int, title: str = "") -> str:
    """`000123-green-tea.md`: the memory's number, which is unique, and the title."""
    return "-".join(part for part in (f"{number:06}", plain(title)) if part) + ".md"


def name_of(number: int, category: str, title: str, rules: Mapping[str, Any]) -> str:
    """The name of a memory's file. Its title is in it only if it is a date, or if the agent's side asked for that."""
    has_title = category in DATED or settings_document.value(rules, settings_document.READABLE_NAMES)
    return file_name(number, title if has_title and not is_private(category, rules) else "")


def index_of(path: PurePosixPath) -> PurePosixPath:
    """The index that lists a file: its project's, or that of all that is private. What is common is in the global one
    alone."""
    if path.parts[0] == PROJECTS:
        return PurePosixPath(*path.parts[:2], INDEX)
    return PurePosixPath(PRIVATE, INDEX) if path.parts[0] == PRIVATE else PurePosixPath(INDEX)
