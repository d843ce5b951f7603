"""Read the memories in a file of the memory rules framework or of a vault (docs/reference/import-formats.md, "The
framework of the memory rules")."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import takewhile
from pathlib import PurePosixPath

from memory.errors import Invalid
from memory.markdown import labels, sections, templates
from memory.policy import paths, settings_document
from memory.policy.categories import DEFAULT_PROJECT, PRIVATE, PROJECT, SCOPES
from memory.policy.validation import MAX_CONTENT, checked_project
from memory.transfer.formats import gathering, parts
from memory.vault import rendering

_NAMED = {folder: category for category, folder in paths.FOLDERS.items()}
_UNKNOWN, _UNKNOWN_PRIVATE = "contextual", "sensitive"  # for a folder whose name is not a category
_NOT_FILLED_IN = ["tag1", "tag2", "tag3"]
_NO_NOTES = {"", "none", "n/a", "git_history_analysis", sections.ABSENT}


def read(data: bytes, path: str, within: PurePosixPath, at: datetime | None = None) -> Iterator[parts.Part]:
    """Read a file. `within` is the path of the file relative to the base path. `at` is the time of the file in the
    archive."""
    if within.name == paths.INDEX:
        yield parts.LeftOut(path, "is an index of other files")
        return
    yield from parts.fitting(path, lambda: _File(_text(data), within, at).parts(path))


def _text(data: bytes) -> parts.Decoded:
    """Decode a file. If this service wrote the file, unusual line ends belong to the memory, so they are kept. Raises
    Unfit."""
    found = parts.decoded(data)
    if parts.LINE_ENDS not in found.transformed:
        return found
    text = data.decode("utf-8-sig")
    if text.count("\n") == text.count("\r\n") or rendering.number_in(text) is None:
        return found
    return parts.Decoded(text, tuple(what for what in found.transformed if what != parts.LINE_ENDS))


def content(texts: Mapping[str, str], category: str) -> str:
    """Join sections into the text of a memory. If the text is too long, the heading of the main section is left out."""
    text = sections.join(texts)
    if len(text) <= MAX_CONTENT:
        return text
    main = sections.main_section(category)
    rest = [f"## {name}\n{sections.escaped(each)}" for name, each in texts.items() if name != main]
    return "\n".join(filter(None, (sections.escaped(texts.get(main, "")), *rest)))


class _File:
    """A parsed file. The constructor raises Unfit if the file is sealed."""

    def __init__(self, text: parts.Decoded, within: PurePosixPath, at: datetime | None) -> None:
        self._gathered = gathering.Gathered()
        self._text = self._gathered.take(text)
        self._blocks = rendering.blocks(self._text)
        self._is_filled = bool({"Metadata", "Tags"} & self._blocks.keys())
        self._is_own = rendering.number_of(self._blocks.get("Metadata", "")) is not None
        self._fields = rendering.fields(self._blocks.get("Metadata", ""))
        if "Sealed" in self._blocks:
            raise parts.Unfit("is sealed: only its agent can open it")
        self._gathered.category = self._category(within)
        self._project = self._project_of(within)
        if self._is_filled:
            self._read_metadata(at)
            self._read_tags(self._blocks.get("Tags", ""))

    def _category(self, within: PurePosixPath) -> str:
        """Return the category of the folder. If the folder is unknown, return a default. If the path has no folder for
        a category, return the category from the file's metadata."""
        named, folder = self._fields.get("Category", ""), _folder(within)
        if (by_folder := _NAMED.get(folder, folder)) in SCOPES:
            if named and named != by_folder and not self._is_own:
                self._gathered.note("category set by the folder")
            return by_folder
        if folder:
            self._gathered.note(f"unknown category {folder}")
            return _UNKNOWN_PRIVATE if within.parts[0] == PRIVATE else _UNKNOWN
        return named if named in SCOPES else _UNKNOWN

    def _project_of(self, within: PurePosixPath) -> str:
        """Return the project of the folder. If the metadata names a project that has the same folder, return the name
        from the metadata."""
        named = self._fields.get("Project", "")
        folder = within.parts[1] if within.parts[0] == paths.PROJECTS and len(within.parts) > 2 else ""
        is_of_project = SCOPES[self._gathered.category] == PROJECT
        if named == "none" and not is_of_project and folder in ("", DEFAULT_PROJECT):
            return ""
        if named and _is_project(named) and folder in ("", paths.folder_of_project(named)):
            return named if folder or named != "none" else parts.HERE
        if folder and not _is_project(folder):
            self._gathered.note("project name is not valid here")
            return parts.HERE
        return folder or (parts.HERE if is_of_project else "")

    def _read_metadata(self, at: datetime | None) -> None:
        generated = self._fields.get("Generated")
        if self._is_own:
            self._gathered.date = self._recorded() or at or gathering.moment(generated)
            return
        if "Metadata" in self._blocks:
            self._gathered.note("metadata left out")
        self._gathered.moment(generated)
        version = self._fields.get("Version", settings_document.VERSION)
        if version != settings_document.VERSION:
            self._gathered.note(f"written for rules {version}")
        migration = rendering.fields(self._blocks.get("Migration Information", ""))
        notes = (self._fields.get("Migration Notes", ""), migration.get("Source System", ""))
        if any(note.lower() not in _NO_NOTES for note in notes):
            self._gathered.note("earlier migration notes left out")

    def _recorded(self) -> datetime | None:
        """Return the date in the title of a file that this service wrote."""
        title = self._text.lstrip("\ufeff").partition("\n")[0]
        is_dated = title.startswith(("# Memory Entry: ", "# User Interaction: "))
        return gathering.moment(title.rpartition(" - ")[2].strip()) if is_dated else None

    def _read_tags(self, block: str) -> None:
        if self._is_own:
            tags = list(rendering.tags_of(block))
        else:
            block = block.strip()
            inner = block[1:-1] if block.startswith("[") and block.endswith("]") else block
            tags = [tag.strip() for line in inner.splitlines() for tag in line.removeprefix("- ").split(",")]
        if tags == _NOT_FILLED_IN:
            self._gathered.note("tags were not filled in")
        elif tags != ["none"]:
            self._gathered.tag_each(tags, "tags")

    def parts(self, path: str) -> Iterator[parts.Part]:
        text = self._content()
        if not text.strip() or "\0" in text:
            yield parts.LeftOut(path, "contains a NUL character" if "\0" in text else parts.EMPTY)
            return
        gathered = self._gathered
        place, tags = (gathered.category, self._project), tuple(gathered.tags)
        whole = parts.Found(path, "", *place, tags, gathered.date, transformed=gathered.transformed)
        yield from parts.in_parts(whole, text, "#")

    def _content(self) -> str:
        if not self._is_filled:
            return parts.tidy(self._text)
        texts = {
            name: text
            for name, text in self._blocks.items()
            if name not in templates.AROUND and text and not labels.is_absent(text)
        }
        plain = texts.get(sections.main_section(self._gathered.category), "")
        is_only = self._is_own and plain and len(texts) == 1
        if is_only and sections.split(plain, self._gathered.category) == texts:
            return plain  # most memories are stored without the heading of the main section
        before = "" if self._is_own else self._before()
        return "\n\n".join(filter(None, (before, content(texts, self._gathered.category))))

    def _before(self) -> str:
        """Return the text between the title and the first section."""
        lines = [line for line, _, _ in takewhile(lambda each: not each[1], sections.parsed(self._text))]
        if lines and lines[0].startswith("# "):
            lines.pop(0)
        return parts.tidy("".join(lines))


def _folder(within: PurePosixPath) -> str:
    """Return the name of the folder of a category, such as `technical` for common/technical/x.md. Return "" if the file
    is not in such a folder."""
    above = within.parts[:-1]
    place = 2 if above[:1] == (paths.PROJECTS,) else 1 if above[:1] in (("common",), (PRIVATE,)) else len(above)
    return above[place] if len(above) > place else ""


def _is_project(name: str) -> bool:
    with suppress(Invalid):
        return checked_project(name) != ""
    return False
