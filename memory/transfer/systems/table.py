"""The systems whose files are read, in the order in which they claim a file (docs/migration-sources.md)."""

from __future__ import annotations

from memory.transfer.formats import axe, jsonl, letta, mem0, memory_store, notes
from memory.transfer.formats.pages import page, reader
from memory.transfer.systems.outline import Outline, first_line, log
from memory.transfer.systems.system import Form, Rule, System

_OTHERS, _LEGACY = "custom_agent_frameworks", "legacy_memory_systems"  # as the settings call them


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


_CURSOR = (
    Rule(".cursorrules **/.cursor/rules/**/*.mdc **/.cursor/rules/**/RULE.md"),
    Rule("**/.cursor/rules/**", None, "is no rule file", hidden=False),
)
_COPILOT = (
    Rule("**/.github/copilot-instructions.md .github/instructions/**/*.instructions.md"),
    Rule(".copilot/copilot-instructions.md .copilot/instructions/**/*.instructions.md"),
    Rule(".github/instructions/**", None, "is no instruction file", hidden=False),
)
_CLAUDE = (
    Rule("**/CLAUDE.local.md", reader("local")),
    Rule("**/CLAUDE.md **/.claude/rules/**/*.md **/.claude/memory/**/*.md **/.claude/projects/*/memory/**/*.md"),
    Rule("**/.claude/agent-memory/*/**/*.md **/.claude/agent-memory-local/*/**/*.md"),
)
_WINDSURF = (
    Rule(".windsurfrules **/.windsurf/rules/*.md **/.devin/rules/*.md .codeium/windsurf/memories/global_rules.md"),
)
_CLINE = (
    Rule(".clinerules .clinerules/*.md .clinerules/*.txt memory-bank/**/*.md Cline/Rules/*.md Cline/Rules/*.txt"),
)
_ROO = (Rule(".roorules **/.roo/rules/**/*.md **/.roo/rules/**/*.txt **/.roo/rules-*/**/*.md"),)
_TOOL = (Rule("memories/**/*.md memories/**/*.txt memories/**/*.xml", hidden=False),)
_AXE = Form(axe.parts, (".md",), (b"**Task:**",), bool, log, unknown="is no log of axe")
_MEM0 = Form(mem0.parts, (".json",), (b'"memory"', b'"memories"'), _is_mem0)
_LETTA_HOLDS = (b'"core_memory"', b'"agents"', b'"archive_id"', b'"embedding_config"', b'"is_deleted"')
_LETTA = Form(letta.parts, (".af", ".json"), _LETTA_HOLDS, _is_letta, certain=(".af",))
_STORE = Form(memory_store.parts, (".json",), (b'"memory_store_id"', b'"memory_version_id"'), _is_store)
_OURS = Form(jsonl.parts, (".jsonl", ".ndjson"), (b'"content"',), _is_ours, first_line)

# fmt: off
_ALL = (
    System("cursor", "Cursor", "cursor", "rules in .cursor/rules, and .cursorrules", _CURSOR),
    System("copilot", "GitHub Copilot", "github_copilot",
           ".github/copilot-instructions.md and .github/instructions", _COPILOT),
    System("claude", "Claude Code", _OTHERS,
           "CLAUDE.md with what it imports, .claude/rules, and memories of .claude", _CLAUDE),
    System("agents-md", "AGENTS.md", _OTHERS, "AGENTS.md and AGENTS.override.md, in any folder",
           (Rule("**/AGENTS.md **/AGENTS.override.md"),)),
    System("gemini", "Gemini CLI", _OTHERS, "GEMINI.md, in any folder", (Rule("**/GEMINI.md"),)),
    System("windsurf", "Windsurf", _OTHERS, "rules in .windsurf/rules and .devin/rules, and .windsurfrules", _WINDSURF),
    System("cline", "Cline", _OTHERS, "rules in .clinerules, and the pages of memory-bank", _CLINE),
    System("roo", "Roo Code", _OTHERS, "rules in .roo/rules and .roo/rules-MODE, and .roorules", _ROO),
    System("continue", "Continue", _OTHERS, "rules in .continue/rules", (Rule("**/.continue/rules/**/*.md"),)),
    System("kiro", "Kiro", _OTHERS, "files of .kiro/steering", (Rule("**/.kiro/steering/**/*.md"),)),
    System("framework", "The framework of the memory rules", _OTHERS,
           "the tree that memory-rules/settings.json or modules/memory-rules/settings.json leads to"),
    System("memory-tool", "Anthropic's memory tool", _OTHERS,
           "files of the folder memories, as Anthropic's memory tool has them", _TOOL),
    System("axe", "axe", _LEGACY, "logs of runs as axe keeps them, wherever they lie", form=_AXE),
    System("mem0", "mem0", _LEGACY,
           "JSON files of mem0's memories, and OpenMemory's memories.json, wherever they lie", form=_MEM0),
    System("letta", "Letta", _LEGACY,
           "agent files (.af), and passages of an archive as JSON, wherever they lie", form=_LETTA),
    System("memory-store", "Anthropic's memory stores", _OTHERS,
           "JSON files of what a memory store answers, wherever they lie", form=_STORE),
    System("own", "Palimpsest", _LEGACY,
           "our own exports as JSON Lines, wherever they lie, and vaults of other agents", form=_OURS),
    System("plain", "Plain folders", _LEGACY, "markdown, text and JSON of the folders that are named"),
)
# fmt: on
SYSTEMS: dict[str, System] = {each.name: each for each in _ALL}

PLAIN = (Rule("**/*.md **/*.markdown **/*.txt", page, hidden=False), Rule("**/*.json", notes.read_json, hidden=False))
WHOLE = (Rule("**/memories/**", hidden=False), Rule("**", hidden=False))  # the memory tool, asked for by name
