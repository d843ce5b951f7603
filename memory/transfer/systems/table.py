"""The systems whose files are read, in the order in which they claim a file (docs/migration-sources.md)."""

from __future__ import annotations

from memory.transfer.formats import axe, jsonl, letta, mem0, memory_store, notes
from memory.transfer.formats.found import Reader
from memory.transfer.formats.pages import Front, reader
from memory.transfer.systems.outline import Outline, first_line, log
from memory.transfer.systems.system import LARGEST_EXPORT, Form, Rule, System, Way

FRAMEWORKS, LEGACY = "custom_agent_frameworks", "legacy_memory_systems"
_LOCAL = ("local",)
_PAGE = Way(reader())


def _pages(*globs: str, front: Front | None = None, tags: tuple[str, ...] = ()) -> Rule:
    return Rule(globs, Way(reader(front, tags)))


def _exports(read: Reader) -> Way:
    return Way(read, LARGEST_EXPORT)


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


def _is_ours(outline: Outline) -> bool:
    ours = {"[].kind", "[].category", "[].scope", "[].origin", "[].constitutional", "[].tokens", "[].created_at"}
    return "[].content" in outline and len(ours & outline) > 3


_CURSOR = Front(globs="globs", tagged={"alwaysApply": "alwaysApply:"})
_NOTE = Front(date="modified", tagged={"type": "type:", "metadata.type": "type:"})
_PATHS, _GLOBS, _APPLY_TO = Front(globs="paths"), Front(globs="globs"), Front(globs="applyTo")
_CLINE = Front(globs="paths", switched_off="paths")
_KIRO = Front(globs="fileMatchPattern")
_PLAIN = Front(("title", "description"), tags="tags", date="date")

_ALL = (
    System(
        "cursor",
        "Cursor",
        "cursor",
        "rules in .cursor/rules, and .cursorrules",
        (
            _pages(".cursorrules"),
            _pages("**/.cursor/rules/**/*.mdc", "**/.cursor/rules/**/RULE.md", front=_CURSOR),
            Rule(("**/.cursor/rules/**",), Way(why="is no rule file"), hidden=False),
        ),
        (_pages(".cursor/rules/**/*.mdc", ".cursor/rules/**/RULE.md", front=_CURSOR),),
    ),
    System(
        "copilot",
        "GitHub Copilot",
        "github_copilot",
        ".github/copilot-instructions.md and .github/instructions",
        (
            _pages("**/.github/copilot-instructions.md"),
            _pages(".github/instructions/**/*.instructions.md", front=_APPLY_TO),
            Rule((".github/instructions/**",), Way(why="is no instruction file"), hidden=False),
        ),
        (
            _pages(".copilot/copilot-instructions.md"),
            _pages(".copilot/instructions/**/*.instructions.md", front=_APPLY_TO),
        ),
    ),
    System(
        "claude",
        "Claude Code",
        FRAMEWORKS,
        "CLAUDE.md with what it imports, .claude/rules, and memories of .claude",
        (
            _pages("**/CLAUDE.local.md", tags=_LOCAL),
            _pages("**/CLAUDE.md"),
            _pages("**/.claude/rules/**/*.md", front=_PATHS),
            _pages(
                "**/.claude/memory/**/*.md",
                "**/.claude/projects/*/memory/**/*.md",
                "**/.claude/agent-memory/*/**/*.md",
                "**/.claude/agent-memory-local/*/**/*.md",
                front=_NOTE,
            ),
        ),
        (
            _pages(".claude/CLAUDE.md"),
            _pages(".claude/rules/**/*.md", front=_PATHS),
            _pages(".claude/memory/**/*.md", ".claude/projects/*/memory/**/*.md", front=_NOTE),
        ),
    ),
    System(
        "agents-md",
        "AGENTS.md",
        FRAMEWORKS,
        "AGENTS.md and AGENTS.override.md, in any folder",
        (_pages("**/AGENTS.md", "**/AGENTS.override.md"),),
    ),
    System("gemini", "Gemini CLI", FRAMEWORKS, "GEMINI.md, in any folder", (_pages("**/GEMINI.md"),)),
    System(
        "windsurf",
        "Windsurf",
        FRAMEWORKS,
        "rules in .windsurf/rules and .devin/rules, and .windsurfrules",
        (_pages(".windsurfrules"), _pages("**/.windsurf/rules/*.md", "**/.devin/rules/*.md", front=_GLOBS)),
        (
            _pages(".windsurf/rules/*.md", ".devin/rules/*.md", front=_GLOBS),
            _pages(".codeium/windsurf/memories/global_rules.md"),
        ),
    ),
    System(
        "cline",
        "Cline",
        FRAMEWORKS,
        "rules in .clinerules, and the pages of memory-bank",
        (
            _pages(".clinerules"),
            _pages(".clinerules/*.md", ".clinerules/*.txt", front=_CLINE),
            _pages("memory-bank/**/*.md"),
        ),
        (_pages("Cline/Rules/*.md", "Cline/Rules/*.txt", front=_CLINE),),
    ),
    System(
        "roo",
        "Roo Code",
        FRAMEWORKS,
        "rules in .roo/rules and .roo/rules-MODE, and .roorules",
        (_pages(".roorules"), _pages("**/.roo/rules/**/*.md", "**/.roo/rules/**/*.txt", "**/.roo/rules-*/**/*.md")),
    ),
    System(
        "continue",
        "Continue",
        FRAMEWORKS,
        "rules in .continue/rules",
        (_pages("**/.continue/rules/**/*.md", front=_CURSOR),),
    ),
    System("kiro", "Kiro", FRAMEWORKS, "files of .kiro/steering", (_pages("**/.kiro/steering/**/*.md", front=_KIRO),)),
    System(
        "framework",
        "The framework of the memory rules",
        FRAMEWORKS,
        "the tree that memory-rules/settings.json or modules/memory-rules/settings.json leads to",
    ),
    System(
        "memory-tool",
        "Anthropic's memory tool",
        FRAMEWORKS,
        "files of the folder memories, as Anthropic's memory tool has them",
        (Rule(("memories/**/*.md", "memories/**/*.txt", "memories/**/*.xml"), _PAGE, hidden=False),),
        named=(Rule(("**/memories/**",), _PAGE, hidden=False),),
        whole=Rule(("**",), _PAGE, hidden=False),
    ),
    System(
        "axe",
        "axe",
        LEGACY,
        "logs of runs as axe keeps them, wherever they lie",
        form=Form((".md",), (b"**Task:**",), bool, _exports(axe.parts), log, unknown="is no log of axe"),
    ),
    System(
        "mem0",
        "mem0",
        LEGACY,
        "JSON files of mem0's memories, and OpenMemory's memories.json, wherever they lie",
        form=Form((".json",), (b'"memory"', b'"memories"'), _is_mem0, _exports(mem0.parts)),
    ),
    System(
        "letta",
        "Letta",
        LEGACY,
        "agent files (.af), and passages of an archive as JSON, wherever they lie",
        form=Form(
            (".af", ".json"),
            (b'"core_memory"', b'"agents"', b'"archive_id"', b'"embedding_config"', b'"is_deleted"'),
            _is_letta,
            _exports(letta.parts),
            certain=(".af",),
        ),
    ),
    System(
        "memory-store",
        "Anthropic's memory stores",
        FRAMEWORKS,
        "JSON files of what a memory store answers, wherever they lie",
        form=Form((".json",), (b'"memory_store_id"', b'"memory_version_id"'), _is_store, _exports(memory_store.parts)),
    ),
    System(
        "own",
        "Palimpsest",
        LEGACY,
        "our own exports as JSON Lines, wherever they lie, and vaults of other agents",
        form=Form((".jsonl", ".ndjson"), (b'"content"',), _is_ours, _exports(jsonl.parts), first_line),
    ),
    System("plain", "Plain folders", LEGACY, "markdown, text and JSON of the folders that are named"),
)
SYSTEMS: dict[str, System] = {each.name: each for each in _ALL}

PLAIN = (
    Rule(("**/*.md", "**/*.markdown"), Way(reader(_PLAIN)), hidden=False),
    Rule(("**/*.txt",), _PAGE, hidden=False),
    Rule(("**/*.json",), Way(notes.read_json), hidden=False),
)
