"""Every MUST of docs/memory-rules.md, as its table has them, and the rules that are taken out to see its tests fail."""

from __future__ import annotations

from tests.rules_out import memory
from tests.rules_out.entry import Rule

_NOTHING_TURNS_ON = (
    memory.AN_OPERATION_TURNS_NOTHING_ON,
    memory.A_COMMAND_TURNS_NOTHING_ON,
    memory.A_KEY_TURNS_NOTHING_ON,
    memory.A_SWITCH_IS_ASKED_ABOUT,
    memory.INIT_TURNS_NOTHING_ON,
)
_RECORDING = (memory.RECORDING_STAYS_OFF, memory.RECORDING_IS_SILENT, memory.RECORDING_OF_A_CLOSED_CATEGORY)
_CATEGORIES = (memory.A_CATEGORY_TAKES_NOTHING_IN, memory.A_CATEGORY_STAYS_OFF)
_CONFIRMED = (memory.READ_BACK, memory.WRITTEN_FIRST)
_INIT_ASKS = (memory.INIT_ASKS, memory.INIT_TURNS_NOTHING_ON)
_DECLINED = (memory.A_COMMAND_TURNS_NOTHING_ON, memory.A_NO_ENDS_A_DEED)

MUSTS: dict[str, tuple[Rule, ...]] = {
    "MANDATORY: Agents MUST respect user settings": (memory.WRITING, memory.READING),
    "NEVER auto-enable memory functionality": _NOTHING_TURNS_ON,
    "NEVER modify user settings without explicit consent": (
        memory.PERSONS_ONLY,
        memory.A_SWITCH_IS_ASKED_ABOUT,
        memory.NOBODY_IS_A_NO,
    ),
    "ALWAYS prompt user for consent OR skip operations gracefully": (memory.A_DEED_ASKS, *_DECLINED, *_RECORDING),
    "SECURITY VIOLATION: Auto-enabling is forbidden": _NOTHING_TURNS_ON,
    "MANDATORY: When memory construction is requested and memory is enabled, agents MUST": (memory.FILES_FOLLOW,),
    "ALWAYS create actual local files in the configured storage location": (memory.PLACE_IS_CONFIGURED,),
    "NEVER store memory only in session context - persist to filesystem": (memory.FILES_FOLLOW,),
    "ALWAYS follow the Memory Storage Process algorithm exactly": memory.STEPS,
    "ALWAYS verify file creation and provide confirmation": _CONFIRMED,
    "REQUIRED: Every memory operation must check `memory_rules.enabled` first": (memory.ASKED_FIRST,),
    "return null; // Exit immediately - NEVER auto-enable": (memory.ASKED_FIRST, *_NOTHING_TURNS_ON),
    "FORBIDDEN: Auto-enabling, bypassing checks, or modifying user settings without consent": (
        *_NOTHING_TURNS_ON,
        memory.ASKED_FIRST,
        memory.AGREED,
        memory.WRITING,
        memory.READING,
        memory.PERSONS_ONLY,
    ),
    "initialization, CRITICAL: Do NOT auto-enable": (memory.INIT_TURNS_NOTHING_ON,),
    'REQUIRED: Prompt user: "Memory rules are currently disabled. Enable memory functionality? (y/n)"': _INIT_ASKS,
    "If user declines: MUST skip memory initialization and return null": (memory.A_NO_ENDS_INIT,),
    "recording, CRITICAL: Do NOT auto-enable": _RECORDING,
    "MUST skip all memory operations silently without prompting": (
        memory.RECORDING_IS_SILENT,
        memory.RECORDING_OF_A_CLOSED_CATEGORY,
    ),
    "Always exclude framework licensing and branding from captured content": (memory.CAPTURED_IS_NEUTRAL,),
    "storage, CRITICAL: Do NOT auto-enable": _CATEGORIES,
    "MUST skip storage operation without prompting": (memory.INSIDE_OTHER_WORK, memory.INSIDE_THE_NEXT_TALK),
    "Always exclude framework licensing and branding from generated content": (memory.STORED_IS_NEUTRAL,),
    "MANDATORY - Create all necessary directories": (memory.FOLDERS_ARE_MADE,),
    "MANDATORY - Create actual markdown files with content": (memory.FILES_FOLLOW,),
    "MANDATORY - Save to local filesystem and verify file exists": (memory.READ_BACK,),
    "MANDATORY - Confirm file was created and is readable": (memory.WRITTEN_FIRST,),
    "MANDATORY - Report successful file creation with path": (memory.THE_PATH_IS_TOLD, memory.A_FAILURE_IS_TOLD),
    "Always route to `[storage.base_path]/private/credentials/`": (memory.PRIVATE_IS_PRIVATE,),
    "If credential category: Apply credential naming decision algorithm (always private)": (memory.PRIVATE_IS_PRIVATE,),
    "Require explicit approval for any cleanup actions": (memory.CLEANUP_IS_ASKED, memory.CLEANUP_IS_THE_AGENTS),
    "a disabled operation, CRITICAL: Do NOT auto-enable": _DECLINED,
    'REQUIRED: Prompt user: "Memory functionality is currently disabled. Would you like to enable it? (y/n)"': (
        memory.A_DEED_ASKS,
    ),
    "If user declines: MUST skip operation and return gracefully without enabling": _DECLINED,
    "Require explicit approval before migration begins": (memory.MOVING_IN_IS_AGREED_TO,),
    "`memory_rules.enabled`: CRITICAL - Master switch. When `false`, agent MUST NOT auto-enable": _NOTHING_TURNS_ON,
    "`auto_recording.enabled`: CRITICAL - When `false`, agent MUST skip recording silently": _RECORDING,
    "Category `enabled` flags: CRITICAL - Must be respected, never auto-enable": _CATEGORIES,
    "NO automatic deletion - Never delete memories automatically": (
        memory.NOTHING_GOES_BY_ITSELF,
        memory.NOTHING_GOES_UNNAMED,
    ),
    "User-guided cleanup - Interactive process requiring explicit consent": (memory.CLEANUP_TAKES_A_YES,),
    "must always exclude framework licensing and branding to maintain neutrality": (
        memory.TEMPLATES_ARE_NEUTRAL,
        memory.TOPICS_ARE_NEUTRAL,
    ),
}

RULES = tuple(dict.fromkeys(rule for rules in MUSTS.values() for rule in rules))
