"""The six commands of Anthropic's memory tool, over a memory store of the agent.

The tool shows the store as the folder /memories. Its texts are those of Anthropic's own tool, so that a model finds
what it expects.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from audit.trail import Actor
from memory.errors import ContentChanged, Invalid, PathTaken
from memory.models import Agent, Store
from memory.search import stores as reading
from memory.search.stores import Item
from memory.writing import stores

ROOT = "/memories"
STORE = "memories"  # the name of the store
MAX_LINES = 999_999
DEPTH = 2  # levels of folders that a view shows
AROUND = 2  # lines before and after a change
_MISSING = "The path {} does not exist. Please provide a valid path."
_NO_FILE = "The path {} is not a file."


class ToolError(Exception):
    """A command failed. The message is for the model."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an agent. `store` is the number of its store, or None as long as it has no file."""

    agent: Agent
    actor: Actor
    store: int | None

    @classmethod
    def of(cls, agent: Agent, actor: Actor) -> "Files":
        rows = Store.objects.filter(agent_id=agent.pk, deleted_at=None, archived_at=None).order_by("number")
        found = (row.number for row in rows if stores.about(agent, row).name == STORE)
        return cls(agent, actor, next(found, None))

    def all(self) -> dict[str, Item]:
        """The files by their paths in the store, without content."""
        if self.store is None:
            return {}
        memories = reading.page(self.agent, self.store, "/", after_number=0, limit=stores.MAX_MEMORIES)
        items = reading.items(self.agent, memories, is_full=False)
        return {item.label.path: item for item in sorted(items, key=lambda item: item.label.path.split("/"))}

    def one(self, path: str) -> Item:
        """The file at this path of the tool, with its content. Raises ToolError."""
        files, inner = self.all(), inner_of(path)
        if inner in files:
            return reading.items(self.agent, [files[inner].memory], is_full=True)[0]
        is_folder = not inner or any(each.startswith(f"{inner}/") for each in files)
        raise ToolError((_NO_FILE if is_folder else _MISSING).format(path))

    def write(self, item: Item, content: str) -> None:
        number = item.memory.number
        stores.revise(
            self.agent, item.memory.store or 0, number, self.actor, content=content, expected=item.label.sha256
        )


def inner_of(path: str) -> str:
    """The path in the store, or "" for the folder /memories itself. Raises ToolError."""
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
    return "".join(f"/{part}" for part in parts)


# --- the commands


def view(files: Files, path: str, view_range: list[int] | None = None) -> str:
    inner, known = inner_of(path), files.all()
    if inner in known:
        return _numbered_file(files.one(path), path, view_range)
    below = {each.removeprefix(f"{inner}/"): item for each, item in known.items() if each.startswith(f"{inner}/")}
    if inner and not below:
        raise ToolError(_MISSING.format(path))
    sizes: dict[str, int] = {}
    for name, item in below.items():
        parts = name.split("/")
        shown = parts[:DEPTH]
        if any(part.startswith(".") for part in shown):
            continue
        for end in range(1, len(shown) + 1):
            place = "/".join(shown[:end]) + ("/" if end < len(parts) else "")
            sizes[place] = sizes.get(place, 0) + item.label.size
    lines = [f"{_size(sum(item.label.size for item in below.values()))}\t{path}"]
    lines += [f"{_size(size)}\t{path}/{place}" for place, size in sizes.items()]
    head = f"Here're the files and directories up to {DEPTH} levels deep in {path}, excluding hidden items:"
    return "\n".join([head, *lines])


def create(files: Files, path: str, file_text: str) -> str:
    inner = inner_of(path)
    if not inner:
        raise ToolError(f"File {path} already exists")
    store = files.store
    if store is None:
        store = stores.create(files.agent, stores.About(STORE), files.actor).number
    try:
        stores.add(files.agent, store, inner, file_text, files.actor)
    except PathTaken:
        raise ToolError(f"File {path} already exists") from None
    return f"File created successfully at: {path}"


def str_replace(files: Files, path: str, old_str: str, new_str: str) -> str:
    item = files.one(path)
    content = item.content or ""
    places = _places(content, old_str)
    if not places:
        raise ToolError(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")
    lines = [content.count("\n", 0, place) + 1 for place in places]
    if len(places) > 1:
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
            f"{', '.join(map(str, lines))}. Please ensure it is unique"
        )
    changed = content[: places[0]] + new_str + content[places[0] + len(old_str) :]
    files.write(item, changed)
    first = max(1, lines[0] - AROUND)
    shown = _numbered(changed.split("\n")[first - 1 : lines[0] + AROUND], first)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"


def insert(files: Files, path: str, insert_line: int, insert_text: str) -> str:
    item = files.one(path)
    lines = (item.content or "").split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= insert_line <= len(lines):
        raise ToolError(
            f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
        )
    lines.insert(insert_line, insert_text.rstrip("\n"))
    text = "\n".join(lines)
    files.write(item, text if text.endswith("\n") else f"{text}\n")
    return f"The file {path} has been edited."


def delete(files: Files, path: str) -> str:
    inner = inner_of(path)
    if not inner:
        raise ToolError(f"Cannot delete the {ROOT} directory itself")
    found = [item for each, item in files.all().items() if each == inner or each.startswith(f"{inner}/")]
    if not found:
        raise ToolError(f"The path {path} does not exist")
    for item in found:
        number, store = item.memory.number, item.memory.store or 0
        stores.discard(files.agent, store, number, files.actor, expected=item.label.sha256)
    return f"Successfully deleted {path}"


def rename(files: Files, old_path: str, new_path: str) -> str:
    old, new = inner_of(old_path), inner_of(new_path)
    if not old:
        raise ToolError(f"Cannot rename the {ROOT} directory itself")
    known = files.all()
    if not new or any(each == new or each.startswith(f"{new}/") for each in known):
        raise ToolError(f"The destination {new_path} already exists")
    found = [(each, item) for each, item in known.items() if each == old or each.startswith(f"{old}/")]
    if not found:
        raise ToolError(f"The path {old_path} does not exist")
    for each, item in found:
        number, store = item.memory.number, item.memory.store or 0
        stores.revise(files.agent, store, number, files.actor, path=new + each.removeprefix(old))
    return f"Successfully renamed {old_path} to {new_path}"


COMMANDS: Mapping[str, Callable[..., str]] = {
    each.__name__: each for each in (view, create, str_replace, insert, delete, rename)
}


def run(agent: Agent, actor: Actor, command: str, arguments: dict[str, Any]) -> str:
    """Carry out a command, once more if another writer changed the file meanwhile. Raises ToolError."""
    for attempt in range(2):
        try:
            return COMMANDS[command](Files.of(agent, actor), **arguments)
        except ContentChanged:
            if attempt:
                raise
        except Invalid as invalid:
            raise ToolError(f"{invalid.field}: {invalid.problem}") from None
    raise AssertionError


# --- texts


def _numbered_file(item: Item, path: str, view_range: list[int] | None) -> str:
    lines = (item.content or "").split("\n")
    if len(lines) > MAX_LINES:
        raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    first, last = (max(1, view_range[0]), view_range[1]) if view_range and len(view_range) == 2 else (1, -1)
    shown = lines[first - 1 : len(lines) if last == -1 else last]
    return f"Here's the content of {path} with line numbers:\n{_numbered(shown, first)}"


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _places(content: str, sought: str) -> list[int]:
    """Where a text occurs, also if the occurrences overlap."""
    places, place = [], content.find(sought)
    while place >= 0 and sought:
        places.append(place)
        place = content.find(sought, place + 1)
    return places


def _size(size: int) -> str:
    """A size in bytes as text, such as 0B, 1.5K or 4K."""
    power = min(max(size.bit_length() - 1, 0) // 10, 3)
    value = size / 1024**power
    return f"{int(value) if value == int(value) else round(value, 1)}{'BKMG'[power]}"
