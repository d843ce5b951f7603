"""The six commands of Anthropic's memory tool, over a memory store of the agent.

The tool shows the store as the folder /memories. Its texts are those of Anthropic's own tool, so that a model gets what
it was trained on.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rest_framework import serializers, status

from audit.trail import Actor
from memory.api.base.bodies import Body, List, Text
from memory.errors import PathTaken
from memory.models import Agent, Store
from memory.search import stores as reading
from memory.search.stores import Item
from memory.writing import edits, operations, stores
from refinement.mcp.api import Refused

ROOT = "/memories"
STORE = "memories"  # the name of the store
MAX_LINES = 999_999
DEPTH = 2  # levels of folders that `view` shows
AROUND = 2  # lines before and after a change
MAX_CHARACTERS = 2 * stores.MAX_PATH  # of a path with `.` and `..`
MAX_PLACES = 20  # that a message names
_MISSING = "The path {} does not exist"


class ToolError(Refused):
    """A command failed. The message is for the model."""

    def __init__(self, message: str) -> None:
        super().__init__(status.HTTP_409_CONFLICT, message)


class PathIn(Body):
    path = Text()


class ViewIn(PathIn):
    view_range = List(child=serializers.IntegerField(), min_length=2, max_length=2, required=False)


class CreateIn(PathIn):
    file_text = Text(allow_blank=True)


class StrReplaceIn(PathIn):
    old_str = Text()
    new_str = Text(allow_blank=True, default="")


class InsertIn(PathIn):
    insert_line = serializers.IntegerField()
    insert_text = Text(allow_blank=True)


class RenameIn(Body):
    old_path = Text()
    new_path = Text()


class Files(NamedTuple):
    """The files of an agent. `store` is the number of its store, or None before the first file."""

    agent: Agent
    actor: Actor
    store: int | None

    @classmethod
    def of(cls, agent: Agent, actor: Actor) -> "Files":
        rows = Store.objects.filter(agent_id=agent.pk, deleted_at=None, archived_at=None).order_by("-number")
        newest = reversed(rows[: stores.MAX_STORES])  # restored stores may be more
        found = (row.number for row in newest if stores.about(agent, row).name == STORE)
        return cls(agent, actor, next(found, None))

    def file(self, inner: str, *, is_full: bool = False) -> Item | None:
        found = reading.at(self.agent, self.store, inner) if self.store and inner else None
        return reading.items(self.agent, [found], is_full=is_full)[0] if found else None

    def below(self, inner: str, *, limit: int = stores.MAX_MEMORIES) -> dict[str, tuple[int, int]]:
        """The files in a folder and in its folders: their paths in the folder, with number and size."""
        if self.store is None:
            return {}
        labels = reading.labels(self.agent, self.store, f"{inner}/", limit=limit)
        return {label.path.removeprefix(f"{inner}/"): (number, label.size) for number, label in labels}

    def one(self, path: str) -> Item:
        """The file with this path, with its content. Raises ToolError."""
        inner = inner_of(path)
        found = self.file(inner, is_full=True)
        if found is None and (not inner or self.below(inner, limit=1)):
            raise ToolError(f"The path {path} is not a file.")
        if found is None:
            raise ToolError(f"{_MISSING.format(path)}. Please provide a valid path.")
        return found

    def all(self, inner: str, path: str) -> dict[str, int]:
        """The number of a file, or of each file in a folder. The keys are what follows `inner` in the paths. Raises
        ToolError for a large folder, because the agent is locked."""
        found = self.file(inner)
        if found is not None:
            return {"": found.memory.number}
        if self.store and stores.is_large(reading.below(self.agent, self.store, f"{inner}/")):
            raise ToolError(f"The folder {path} is too large for one command. Delete or rename its files one by one.")
        return {f"/{name}": number for name, (number, _) in self.below(inner).items()}

    def write(self, item: Item, content: str) -> None:
        stores.revise(self.agent, item.memory.store or 0, item.memory.number, self.actor, content=content)


def inner_of(path: str) -> str:
    """The path in the store, or "" for the folder /memories itself. Raises ToolError, Invalid."""
    if len(path) > MAX_CHARACTERS:  # long before the time for it would count
        raise ToolError(f"A path must have at most {stores.MAX_PATH:,} bytes.")
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    parts: list[str] = []
    for part in path.removeprefix(ROOT).split("/"):
        if part == ".." and not parts:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return stores.checked_path("".join(f"/{part}" for part in parts)) if parts else ""


# --- the commands


def view(files: Files, path: str, view_range: list[int] | None = None) -> str:
    inner = inner_of(path)
    found = files.file(inner, is_full=True)
    if found is not None:
        return _numbered_file(found.content or "", path, view_range)
    below = {tuple(name.split("/")): size for name, (_, size) in files.below(inner).items()}
    if inner and not below:
        raise ToolError(f"{_MISSING.format(path)}. Please provide a valid path.")
    sizes: dict[str, int] = {}  # of files, and of folders with all that is in them
    for parts, size in sorted(below.items()):
        shown = parts[:DEPTH]
        if any(part.startswith(".") for part in shown):
            continue
        for end in range(1, len(shown) + 1):
            place = "/".join(shown[:end]) + ("/" if end < len(parts) else "")
            sizes[place] = sizes.get(place, 0) + size
    lines = [f"{_size(sum(below.values()))}\t{path}", *(f"{_size(sizes[place])}\t{path}/{place}" for place in sizes)]
    head = f"Here're the files and directories up to {DEPTH} levels deep in {path}, excluding hidden items:"
    return "\n".join([head, *lines])


def create(files: Files, path: str, file_text: str) -> str:
    inner = inner_of(path)
    try:
        if not inner:
            raise PathTaken([])
        store = files.store or stores.create(files.agent, stores.About(STORE), files.actor).number
        stores.add(files.agent, store, inner, file_text, files.actor)
    except PathTaken:
        raise ToolError(f"File {path} already exists") from None
    return f"File created successfully at: {path}"


def str_replace(files: Files, path: str, old_str: str, new_str: str) -> str:
    item = files.one(path)
    content = item.content or ""
    count = content.count(old_str)
    if not count:
        raise ToolError(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")
    if count > 1:
        places = _places(content, old_str)
        lines = ", ".join(str(content.count("\n", 0, place) + 1) for place in places[:MAX_PLACES])
        lines += ", and others" if len(places) > MAX_PLACES else ""
        several = f"Multiple occurrences of old_str `{old_str}` in lines: {lines}"
        raise ToolError(f"No replacement was performed. {several}. Please ensure it is unique")
    changed = content.replace(old_str, new_str)
    files.write(item, changed)
    line = content.count("\n", 0, content.find(old_str)) + 1
    first = max(1, line - AROUND)
    shown = _numbered(changed.split("\n")[first - 1 : line + AROUND], first)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"


def insert(files: Files, path: str, insert_line: int, insert_text: str) -> str:
    item = files.one(path)
    lines = (item.content or "").removesuffix("\n").split("\n") if item.content else []
    if not 0 <= insert_line <= len(lines):
        wanted = f"It should be within the range [0, {len(lines)}]."
        raise ToolError(f"Invalid `insert_line` parameter: {insert_line}. {wanted}")
    lines.insert(insert_line, insert_text.rstrip("\n"))
    text = "\n".join(lines)
    files.write(item, text if text.endswith("\n") else f"{text}\n")
    return f"The file {path} has been edited."


def delete(files: Files, path: str) -> str:
    """Discard a file, or all files in a folder, in one edit."""
    inner = inner_of(path)
    if not inner:
        raise ToolError(f"Cannot delete the {ROOT} directory itself")
    found = files.all(inner, path)
    if not found:
        raise ToolError(_MISSING.format(path))
    operations.discard(files.agent, list(found.values()), files.actor)
    return f"Successfully deleted {path}"


def rename(files: Files, old_path: str, new_path: str) -> str:
    """Give a file, or all files in a folder, new paths, in one edit."""
    old, new = inner_of(old_path), inner_of(new_path)
    if not old:
        raise ToolError(f"Cannot rename the {ROOT} directory itself")
    if not new or files.file(new) or files.below(new, limit=1):
        raise ToolError(f"The destination {new_path} already exists")
    found = files.all(old, old_path)
    if not found:
        raise ToolError(_MISSING.format(old_path))
    try:
        paths = {number: f"{new}{rest}" for rest, number in found.items()}
        stores.move(files.agent, files.store or 0, paths, files.actor)
    except PathTaken:  # by a file in place of a folder
        raise ToolError(f"The destination {new_path} already exists") from None
    return f"Successfully renamed {old_path} to {new_path}"


COMMANDS: Mapping[str, tuple[Callable[..., str], type[Body]]] = {
    "view": (view, ViewIn),
    "create": (create, CreateIn),
    "str_replace": (str_replace, StrReplaceIn),
    "insert": (insert, InsertIn),
    "delete": (delete, PathIn),
    "rename": (rename, RenameIn),
}


def run(agent: Agent, actor: Actor, command: str, arguments: Mapping[str, Any]) -> str:
    """Carry out a command. A command that writes locks the agent. Raises ToolError, ValidationError, DomainError."""
    function, form = COMMANDS[command]
    given = form().run_validation(dict(arguments))
    if function is view:
        return view(Files.of(agent, actor), **given)
    with edits.locked(agent) as row:
        edits.require_key(row)
        return function(Files.of(row, actor), **given)


# --- texts


def _numbered_file(content: str, path: str, view_range: list[int] | None) -> str:
    lines = content.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {path} exceeds maximum line limit of {MAX_LINES:,} lines.")
    first, last = (max(1, view_range[0]), view_range[1]) if view_range else (1, -1)
    shown = lines[first - 1 : len(lines) if last == -1 else last]
    return f"Here's the content of {path} with line numbers:\n{_numbered(shown, first)}"


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _places(content: str, sought: str) -> list[int]:
    """Where a text occurs, also where two occurrences overlap: the first places, and one more than MAX_PLACES."""
    places = [content.find(sought)]
    while len(places) <= MAX_PLACES and (place := content.find(sought, places[-1] + 1)) >= 0:
        places.append(place)
    return places


def _size(size: int) -> str:
    """A size in bytes as text, such as 0B, 1.5K or 4K."""
    power = min(max(size.bit_length() - 1, 0) // 10, 3)
    value = size / 1024**power
    return f"{value:.0f}{'BKMG'[power]}" if value == int(value) else f"{value:.1f}{'BKMG'[power]}"
