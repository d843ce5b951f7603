"""The systems whose memories can be detected, and the rules by which their files are recognized and read
(docs/reference/import-formats.md).

A file is recognized by its path, by its content, or by its place in a memory tree.
"""

import io
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import PurePosixPath
from typing import IO, NamedTuple

import ijson

from memory.errors import FileFault
from memory.transfer.formats import axe, jsonl, letta, mem0, memory_store, pages, tree_files
from memory.transfer.formats.json_file import has_long_number
from memory.transfer.formats.pages import LARGEST, page
from memory.transfer.formats.parts import LeftOut, Part, Reader, parsed
from memory.transfer.walk import UNREADABLE, Kind, Tree
from memory.vault.disk import ASIDE

MAX_HEAD = 2**16  # bytes that are read to recognize a file
_MAX_DEPTH = 6  # levels of nested objects and lists
Outline = frozenset[str]  # the names of members with their paths, such as `results[].memory`

_ENTRY = re.compile(rb"^## [^\r\n]+\r?\n\*\*Task:\*\* ", re.MULTILINE)
_HEADING = re.compile(rb"^#{1,6} ", re.MULTILINE)
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)


def outline(head: bytes) -> Outline:
    """Read the beginning of a JSON text. Return the names of the members there, with their paths. For example,
    `results[].memory` is the member `memory` of an object in the list `results`."""
    found: set[str] = set()
    if has_long_number(head):
        return frozenset()
    with suppress(ijson.JSONError, ValueError, ArithmeticError):  # the text is incomplete, or is not JSON
        for prefix, event, value in ijson.parse(io.BytesIO(head.removeprefix(b"\xef\xbb\xbf")), buf_size=2**10):
            if event == "map_key" and prefix.count(".") < _MAX_DEPTH:
                found.add(f"{prefix}.{value}".removeprefix(".").replace(".item", "[]").replace("item.", "[]."))
    return frozenset(found)


def first_line(head: bytes) -> Outline:
    """Read the first line as a JSON object. Return the names of its members, in the form `[].content`."""
    line = next((line for line in head.splitlines() if line.strip(b"\xef\xbb\xbf \t")), b"")
    return frozenset(f"[].{name}" for name in outline(line))


def log(head: bytes) -> Outline:
    """Return `entry` if the text is an axe log. A page about logs is not a log. Most headings of such a page are not
    log entries, or the log is in a code block."""
    first, fence = _ENTRY.search(head), _FENCE.search(head)
    if first is None or (fence is not None and fence.start() < first.start()):
        return frozenset()
    return frozenset({"entry"} if 2 * len(_ENTRY.findall(head)) >= len(_HEADING.findall(head)) else ())


# --- memory trees, which a settings file names


_LAYOUTS = ("modules/memory-rules/settings.json", "memory-rules/settings.json")  # the longer path comes first
_DEFAULT = "memory"
_MAX_SETTINGS, _MAX_TREES = 2**20, 20  # bytes of a settings file; number of trees in a folder
_PARTS = ("common", "private", "projects")


def trees_in(tree: Tree, *, is_named: bool) -> tuple[list[str], list[LeftOut]]:
    """Return the memory folders that are set in settings files, and the settings files that are left out. If there are
    no settings files, and the system is requested by name, the memory folder is `memory`. If `memory` does not exist,
    the memory folder is the scanned folder."""
    bases: list[str] = []
    left_out: list[LeftOut] = []
    for path, kind in tree.entries.items():
        layout = next((each for each in _LAYOUTS if f"/{path}".endswith(f"/{each}")), "")
        if kind is not Kind.FILE or not layout:
            continue
        full = LeftOut(path, f"exceeds the limit of {_MAX_TREES} settings files")
        base = _base(tree, path, path[: -len(layout)].rstrip("/")) if len(bases) < _MAX_TREES else full
        if isinstance(base, LeftOut):
            left_out.append(base)
        else:
            bases.append(base)
    if is_named and not bases and not left_out:
        bases = [_DEFAULT if _DEFAULT in tree.entries else ""]
    return bases, left_out


def base_of(path: str, bases: list[str]) -> str | None:
    """Return the memory folder that a path belongs to, or None."""
    for base in bases:
        inner = path.removeprefix(f"{base}/") if base else path
        if (base and path == base) or ((inner != path or not base) and (base or inner.partition("/")[0] in _PARTS)):
            return None if inner.partition("/")[0] == ASIDE else base
    return None


def tree_reader(base: str) -> Reader:
    def read(file: IO[bytes], path: str) -> Iterator[Part]:
        return tree_files.read(file.read(LARGEST), path, PurePosixPath(path).relative_to(base or "."))

    return read


def _base(tree: Tree, path: str, root: str) -> str | LeftOut:
    try:
        with tree.open(path) as file:
            settings, _ = parsed(file.read(_MAX_SETTINGS))
    except (OSError, FileFault):
        return LeftOut(path, UNREADABLE)
    if not isinstance(settings, dict):
        return LeftOut(path, "is not valid JSON, so the folder of its memories is unknown")
    storage = settings.get("storage")
    base_path = storage.get("base_path") if isinstance(storage, dict) else None
    if not isinstance(base_path, str) or not base_path.strip() or "\0" in base_path:
        base_path = f"./{_DEFAULT}"
    is_absolute = base_path.startswith("/")
    base = posixpath.relpath(base_path, tree.root) if is_absolute else posixpath.normpath(f"{root or '.'}/{base_path}")
    if base == ".." or base.startswith("../"):
        return LeftOut(path, "sets base_path to a place outside the folder")
    return "" if base == "." else base


# --- recognizing files


class Rule(NamedTuple):
    """A rule that recognizes files by their path. In a pattern, `**/` stands for any number of folders, and `*` for any
    characters of a name."""

    globs: str  # patterns separated by spaces
    read: Reader | None = page
    why: str = ""  # the reason if the files are left out
    hidden: bool = True  # whether the wildcards match names that begin with a dot

    def matches(self, path: str) -> bool:
        return any(_pattern(glob, self.hidden).fullmatch(path) for glob in self.globs.split())

    def may_hold(self, folder: str) -> bool:
        """Return whether the folder may contain files that match the rule."""
        folders = (above for glob in self.globs.split() for above in _folders(glob))
        return any(_pattern(above, self.hidden).fullmatch(folder) for above in folders)


@cache
def _pattern(glob: str, hidden: bool) -> re.Pattern[str]:
    dot = "" if hidden else r"(?!\.)"
    forms = {"**/": f"(?:{dot}[^/]+/)*", "**": f"(?:{dot}[^/]+/)*{dot}[^/]+", "*": dot + "[^/]*"}
    parts = re.split(r"(\*\*/|\*\*|\*)", glob)
    return re.compile("".join(forms.get(part, re.escape(part)) for part in parts), re.DOTALL)


@cache
def _folders(glob: str) -> tuple[str, ...]:
    """Return the parent folders of a pattern. For `.a/b/**/*.md`, they are `.a`, `.a/b` and `.a/b/**`."""
    parts = glob.split("/")
    return tuple("/".join(parts[:count]) for count in range(1, len(parts)) if parts[:count] != ["**"])


class Form(NamedTuple):
    """A file format. In any folder, a file of this format is recognized by its first 64 kB. If the system is requested
    by name, its reader also gets files that have one of the `endings` but another format. The reader reports what is
    wrong with these files."""

    read: Reader
    endings: tuple[str, ...]
    holds: tuple[bytes, ...]  # a file must have one of these texts to be checked further
    fits: Callable[[Outline], bool]
    outline: Callable[[bytes], Outline] = outline
    certain: tuple[str, ...] = ()  # endings that no other system uses
    unknown: str = ""  # the reason to leave out a file that does not match, for a reader that accepts any file

    def is_of(self, head: bytes) -> bool:
        return any(word in head for word in self.holds) and self.fits(self.outline(head))


class System(NamedTuple):
    name: str  # in --from and in the tag `source-system:`
    title: str  # for people
    group: str  # a value of supported_source_systems in the settings
    what: str  # for help texts
    rules: tuple[Rule, ...] = ()  # the first rule that matches counts
    form: Form | None = None


# --- instructions


_INSTRUCTING = {"cursor", "copilot", "claude", "agents-md", "gemini", "windsurf", "cline", "roo", "continue", "kiro"}
_MEMORIES = re.compile(r"(?:^|/)(?:memory|agent-memory|agent-memory-local|memory-bank)/")


def is_instruction(system: str, path: str) -> bool:
    """Return whether a file has instructions for agents, such as rules. Otherwise, it has memories."""
    return system in _INSTRUCTING and not _MEMORIES.search(path)


# --- the systems


_OTHERS, _LEGACY = "custom_agent_frameworks", "legacy_memory_systems"  # names in the settings


def _is_mem0(outline: Outline) -> bool:
    beside = ("id", "created_at", "updated_at", "user_id", "agent_id", "run_id", "app_id", "hash")
    return {"memories[].content", "memories[].state"} <= outline or any(
        f"{entry}.memory" in outline and any(f"{entry}.{name}" in outline for name in beside)
        for entry in ("results[]", "[]")
    )


def _is_letta(outline: Outline) -> bool:
    newer = {"agents[].block_ids", "agents[].agent_type", "agents[].memory_blocks"}
    passage = {"[].archive_id", "[].embedding_config", "[].is_deleted"}
    return (
        {"core_memory[].label", "core_memory[].value"} <= outline
        or len(newer & outline) > 1
        or ("[].text" in outline and bool(passage & outline))
    )


def _is_store(outline: Outline) -> bool:
    return "data[].memory_version_id" in outline or {"data[].memory_store_id", "data[].path"} <= outline


def _is_own(outline: Outline) -> bool:
    fields = {"[].kind", "[].category", "[].scope", "[].origin", "[].constitutional", "[].tokens", "[].created_at"}
    return "[].content" in outline and len(fields & outline) > 3


_CURSOR = (
    Rule(".cursorrules **/.cursor/rules/**/*.mdc **/.cursor/rules/**/RULE.md"),
    Rule("**/.cursor/rules/**", None, "is not a rule file", hidden=False),
)
_COPILOT = (
    Rule("**/.github/copilot-instructions.md .github/instructions/**/*.instructions.md"),
    Rule(".copilot/copilot-instructions.md .copilot/instructions/**/*.instructions.md"),
    Rule(".github/instructions/**", None, "is not an instruction file", hidden=False),
)
_CLAUDE = (
    Rule("**/CLAUDE.local.md", partial(page, tags=("local",))),
    Rule("**/CLAUDE.md **/.claude/rules/**/*.md **/.claude/memory/**/*.md **/.claude/projects/*/memory/**/*.md"),
    Rule("**/.claude/agent-memory/*/**/*.md **/.claude/agent-memory-local/*/**/*.md"),
)
_WINDSURF = (
    Rule(".windsurfrules **/.windsurf/rules/*.md **/.devin/rules/*.md .codeium/windsurf/memories/global_rules.md"),
)
_CLINE = Rule(".clinerules .clinerules/*.md .clinerules/*.txt memory-bank/**/*.md Cline/Rules/*.md Cline/Rules/*.txt")
_ROO = Rule(".roorules **/.roo/rules/**/*.md **/.roo/rules/**/*.txt **/.roo/rules-*/**/*.md")
_TOOL = Rule("memories/**/*.md memories/**/*.txt memories/**/*.xml", hidden=False)
_AXE = Form(axe.parts, (".md",), (b"**Task:**",), bool, log, unknown="is not an axe log")
_MEM0 = Form(mem0.parts, (".json",), (b'"memory"', b'"memories"'), _is_mem0)
_LETTA_HOLDS = (b'"core_memory"', b'"agents"', b'"archive_id"', b'"embedding_config"', b'"is_deleted"')
_LETTA = Form(letta.parts, (".af", ".json"), _LETTA_HOLDS, _is_letta, certain=(".af",))
_STORE = Form(memory_store.parts, (".json",), (b'"memory_store_id"', b'"memory_version_id"'), _is_store)
_OWN = Form(jsonl.parts, (".jsonl", ".ndjson"), (b'"content"',), _is_own, first_line)

# fmt: off
SYSTEMS = {each.name: each for each in (
    System("cursor", "Cursor", "cursor", "rules in .cursor/rules, and .cursorrules", _CURSOR),
    System("copilot", "GitHub Copilot", "github_copilot",
           ".github/copilot-instructions.md and .github/instructions", _COPILOT),
    System("claude", "Claude Code", _OTHERS,
           "CLAUDE.md with what it imports, .claude/rules, and memories of .claude", _CLAUDE),
    System("agents-md", "AGENTS.md", _OTHERS, "AGENTS.md and AGENTS.override.md, in any folder",
           (Rule("**/AGENTS.md **/AGENTS.override.md"),)),
    System("gemini", "Gemini CLI", _OTHERS, "GEMINI.md, in any folder", (Rule("**/GEMINI.md"),)),
    System("windsurf", "Windsurf", _OTHERS, "rules in .windsurf/rules and .devin/rules, and .windsurfrules", _WINDSURF),
    System("cline", "Cline", _OTHERS, "rules in .clinerules, and the pages of memory-bank", (_CLINE,)),
    System("roo", "Roo Code", _OTHERS, "rules in .roo/rules and .roo/rules-MODE, and .roorules", (_ROO,)),
    System("continue", "Continue", _OTHERS, "rules in .continue/rules", (Rule("**/.continue/rules/**/*.md"),)),
    System("kiro", "Kiro", _OTHERS, "files of .kiro/steering", (Rule("**/.kiro/steering/**/*.md"),)),
    System("framework", "The framework of the memory rules", _OTHERS,
           "the folder named in memory-rules/settings.json or modules/memory-rules/settings.json"),
    System("memory-tool", "Anthropic's memory tool", _OTHERS,
           "files in the folder `memories` of Anthropic's memory tool", (_TOOL,)),
    System("axe", "axe", _LEGACY, "axe run logs, in any folder", form=_AXE),
    System("mem0", "mem0", _LEGACY,
           "JSON files of mem0's memories, and OpenMemory's memories.json, in any folder", form=_MEM0),
    System("letta", "Letta", _LEGACY,
           "agent files (.af), and archive passages as JSON, in any folder", form=_LETTA),
    System("memory-store", "Anthropic's memory stores", _OTHERS,
           "saved JSON responses of a memory store, in any folder", form=_STORE),
    System("own", "Palimpsest", _LEGACY,
           "Palimpsest's JSON Lines exports, in any folder, and vaults of other agents", form=_OWN),
    System("plain", "Plain folders", _LEGACY, "Markdown, text and JSON files in the folders that you name"),
)}
# fmt: on

PLAIN = (Rule("**/*.md **/*.markdown **/*.txt", page, hidden=False), Rule("**/*.json", pages.read_json, hidden=False))
# For the memory tool if it is requested by name.
WHOLE = (Rule("**/memories/**", hidden=False), Rule("**", hidden=False))
