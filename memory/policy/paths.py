"""Computes the path of a memory's file in a vault from the memory's category, project and title.

A part of a path never contains a separator, is never `.` or `..`, and is never too long for a file system. Two
different parts differ in more than upper and lower case or the Unicode form.
"""

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
}  # the folders of other categories have the category's name
LONGEST = 80  # the most bytes of a name, so that the name with a number and an ending has far fewer than 255 bytes
DATED = ("session", "user_interaction")  # categories in which the title is a date
_DIGESTED = re.compile(r"-[0-9a-f]{8}\Z")
_NOT_PLAIN = re.compile(r"(?:[^\w.]|_)+")
# Names of devices on Windows, with any ending.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|\Z)")


def plain(text: str) -> str:
    """Turn a text into a part of a path: words in lower case, joined by hyphens. Returns "" if there are no words.

    A name that is too long is cut, and a digest of the text is added. So two long texts have different names.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    name = _NOT_PLAIN.sub("-", unicodedata.normalize("NFC", folded)).strip("-.")
    if len(name.encode()) > LONGEST:
        mark = f"-{_digest(unicodedata.normalize('NFC', text))}"
        name = name.encode()[: LONGEST - len(mark)].decode("utf-8", "ignore").rstrip("-.") + mark
    return f"{name}-{_digest(text)}" if _DEVICES.match(name) else name


def folder_of_project(project: str) -> str:
    """Return the name of a project's folder. The name is the project's id if this id is a safe name. Otherwise a digest
    of the id is added: the folder of `Acme` is `acme-37036cd8`. If an id itself ends with text that looks like a
    digest, a digest is added, too. So two projects never have the same folder."""
    name, mark = plain(project), f"-{_digest(project)}"
    is_unchanged = name == project and not _DIGESTED.search(name)
    return name if is_unchanged or name.endswith(mark) else f"{name}{mark}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def location(category: str, rules: Mapping[str, Any]) -> str:
    """Return where the memories of a category are stored: `common`, `private` or `project`. The setting
    `storage_location` decides this. Private categories are always stored in `private`."""
    if SCOPES[category] == PRIVATE:
        return PRIVATE
    found: str = settings_document.value(rules, f"memory_rules.categories.{category}.storage_location")
    return found


def is_private(category: str, rules: Mapping[str, Any]) -> bool:
    """Whether the files of this category are sealed. The name of a sealed file has no words of the content."""
    return location(category, rules) == PRIVATE


def folder(category: str, project: str, rules: Mapping[str, Any]) -> PurePosixPath:
    """Return the folder of a memory's file, relative to the base path."""
    name, where = FOLDERS.get(category, category), location(category, rules)
    if where == PROJECT:
        return PurePosixPath(PROJECTS, folder_of_project(project or DEFAULT_PROJECT), name)
    return PurePosixPath(PRIVATE if where == PRIVATE else COMMON, name)


def credential_name(service: str, project: str = "", kind: str = "key") -> str:
    """Return the file name of a credential, such as `openai-api-key.md`. If the credential belongs to one project, the
    name begins with the project, such as `project-a-aws-key.md`. Return "" if there is no service."""
    parts = [plain(part) for part in (folder_of_project(project) if project else "", service, kind)]
    if not parts[1]:
        return ""
    if parts[1].endswith(f"-{parts[2]}") or parts[1] == parts[2]:
        parts.pop()  # the service already ends with the kind
    return plain("-".join(part for part in parts if part)) + ".md"


def dated(at: datetime) -> str:
    """Return the title for the file of a recording or a session: its date and time."""
    return f"{at:%Y-%m-%d-%H%M%S}"


def file_name(number: int, title: str = "") -> str:
    """Return a file name from a memory's number and title, such as `000123-green-tea.md`."""
    return "-".join(part for part in (f"{number:06}", plain(title)) if part) + ".md"


def name_of(number: int, category: str, title: str, rules: Mapping[str, Any]) -> str:
    """Return the name of a memory's file. The title is part of the name if the title is a date, or if the setting
    `readable_names` is on. The name of a sealed file never contains the title."""
    has_title = category in DATED or settings_document.value(rules, settings_document.READABLE_NAMES)
    return file_name(number, title if has_title and not is_private(category, rules) else "")


def index_of(path: PurePosixPath) -> PurePosixPath:
    """Return the index page that lists a file: the page of its project, of all private files, or of the vault."""
    if path.parts[0] == PROJECTS:
        return PurePosixPath(*path.parts[:2], INDEX)
    return PurePosixPath(PRIVATE, INDEX) if path.parts[0] == PRIVATE else PurePosixPath(INDEX)
