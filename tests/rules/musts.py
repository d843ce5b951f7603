"""Each sentence of the memory rules' specification that commands or forbids something, and the tests that hold it.

A sentence is here if it has MUST, ALWAYS, NEVER, MANDATORY, REQUIRED, FORBIDDEN, CRITICAL or "Do NOT", or forbids in
other words. Two sentences differ on a prompt for a switch that is off: an operation that a person requests prompts,
and work inside another operation is skipped without a prompt.
"""

from __future__ import annotations

# heading → sentence → the tests that fail if the sentence is broken
MUSTS: dict[str, dict[str, tuple[str, ...]]] = {
    "Critical Requirements": {
        'MANDATORY: Agents MUST respect user settings. When `"enabled": false`:': (
            "tests/property/test_switches.py::test_what_is_off_is_neither_written_nor_read",
        ),
        "NEVER auto-enable memory functionality": (
            "tests/rules/test_musts.py::test_nothing_turns_memory_on_by_itself",
        ),
        "NEVER modify user settings without explicit consent": (
            "tests/rules/test_gate.py::test_nobody_but_a_person_changes_rules",
            "tests/rules/test_command.py::test_declined_nothing_is_done",
            "tests/rules/test_command.py::test_where_nobody_can_be_asked_it_is_a_no",
        ),
        "ALWAYS prompt user for consent OR skip operations gracefully": (
            "tests/rules/test_musts.py::test_store_asks_and_does_nothing_where_it_is_declined",
            "tests/rules/test_musts.py::test_automatic_recording_is_skipped_without_a_word",
        ),
        "SECURITY VIOLATION: Auto-enabling is forbidden and constitutes a breach": (
            "tests/rules/test_musts.py::test_nothing_turns_memory_on_by_itself",
            "tests/api/test_rules.py::test_the_api_reads_them_and_changes_none",
        ),
        "MANDATORY: When memory construction is requested and memory is enabled, agents MUST:": (
            "tests/vault/test_storing.py::test_the_storage_process",
        ),
        "ALWAYS create actual local files in the configured storage location": (
            "tests/vault/test_storing.py::test_files_are_in_the_configured_location",
        ),
        "NEVER store memory only in session context - persist to filesystem": (
            "tests/commands/test_memory_rules.py::test_nothing_is_kept_in_a_process_alone",
            "tests/vault/test_storing.py::test_a_memory_of_another_road_is_a_file_too",
        ),
        "ALWAYS follow the Memory Storage Process algorithm exactly": (
            "tests/vault/test_storing.py::test_the_storage_process",
        ),
        "ALWAYS verify file creation and provide confirmation": (
            "tests/vault/test_storing.py::test_what_is_confirmed_is_there_to_be_read",
            "tests/vault/test_storing.py::test_what_was_not_written_as_it_was_said_is_not_confirmed",
        ),
    },
    "Implementation Guards": {
        "REQUIRED: Every memory operation must check `memory_rules.enabled` first.": (
            "tests/rules/test_musts.py::test_every_operation_asks_the_switch_before_anything_else",
        ),
        "return null; // Exit immediately - NEVER auto-enable": (
            "tests/rules/test_musts.py::test_every_operation_asks_the_switch_before_anything_else",
            "tests/rules/test_musts.py::test_nothing_turns_memory_on_by_itself",
        ),
        "FORBIDDEN: Auto-enabling, bypassing checks, or modifying user settings without consent.": (
            "tests/rules/test_musts.py::test_nothing_turns_memory_on_by_itself",
            "tests/property/test_agreed.py::test_nothing_is_turned_on_that_nobody_agreed_to",
            "tests/property/test_switches.py::test_what_is_off_is_neither_written_nor_read",
        ),
    },
    "Memory Initialization Process": {
        "CRITICAL: Do NOT auto-enable - respect user's configuration choice": (
            "tests/rules/test_musts.py::test_init_asks_and_ends_there_where_it_is_declined",
        ),
        'REQUIRED: Prompt user: "Memory rules are currently disabled. Enable memory functionality? (y/n)"': (
            "tests/rules/test_musts.py::test_init_asks_and_ends_there_where_it_is_declined",
            "tests/rules/test_musts.py::test_init_goes_on_once_somebody_agrees",
        ),
        "If user declines: MUST skip memory initialization and return null": (
            "tests/rules/test_musts.py::test_init_asks_and_ends_there_where_it_is_declined",
        ),
    },
    "Automatic Interaction Recording Process": {
        "CRITICAL: Do NOT auto-enable - respect user's configuration choice": (
            "tests/rules/test_musts.py::test_automatic_recording_is_skipped_without_a_word",
            "tests/rules/test_recording.py::test_by_default_nothing_is_recorded_automatically",
        ),
        "MUST skip all memory operations silently without prompting": (
            "tests/rules/test_musts.py::test_automatic_recording_is_skipped_without_a_word",
            "tests/rules/test_recording_commands.py::test_automatically_what_is_off_is_skipped_in_silence",
        ),
        "Always exclude framework licensing and branding from captured content": (
            "tests/rules/test_recording.py::test_brands_are_left_out",
        ),
    },
    "Memory Storage Process": {
        "CRITICAL: Do NOT auto-enable - respect user's configuration choice": (
            "tests/rules/test_musts.py::test_a_category_that_is_off_stays_off_and_takes_nothing_in",
        ),
        "MUST skip storage operation without prompting": (
            "tests/rules/test_musts.py::test_storing_inside_other_work_is_skipped_without_a_word",
        ),
        "Always exclude framework licensing and branding from generated content": (
            "tests/rules/test_musts.py::test_what_is_stored_is_without_brand_and_licence",
        ),
        "MANDATORY - Create all necessary directories if they don't exist": (
            "tests/vault/test_storing.py::test_folders_are_made_where_there_are_none",
        ),
        "MANDATORY - Create actual markdown files with content": (
            "tests/vault/test_following.py::test_a_memory_is_a_file_a_person_can_read",
        ),
        "MANDATORY - Save to local filesystem and verify file exists": (
            "tests/vault/test_storing.py::test_what_was_not_written_as_it_was_said_is_not_confirmed",
        ),
        "MANDATORY - Confirm file was created and is readable": (
            "tests/vault/test_storing.py::test_what_is_confirmed_is_there_to_be_read",
        ),
        "MANDATORY - Report successful file creation with path": (
            "tests/vault/test_storing.py::test_the_storage_process",
            "tests/vault/test_commands.py::test_a_vault_that_cannot_be_written_is_said_and_the_memory_stands",
        ),
    },
    "Credential Naming Decision Algorithm": {
        "Always route to `[storage.base_path]/private/credentials/`": (
            "tests/vault/test_storing.py::test_a_credential_is_always_private_and_sealed",
        ),
    },
    "Memory Routing Algorithm": {
        "If credential category: Apply credential naming decision algorithm (always private)": (
            "tests/rules/test_places.py::test_what_is_private_stays_so_whatever_is_kept",
        ),
    },
    "User-Guided Cleanup Algorithm": {
        "Require explicit approval for any cleanup actions": (
            "tests/rules/test_cleanup_command.py::test_where_nobody_is_asked_nothing_is_decided",
            "tests/rules/test_cleanup.py::test_the_agents_side_alone_decides",
        ),
    },
    "Memory Disabled Behavior Algorithm": {
        "CRITICAL: Do NOT auto-enable - respect user's configuration choice": (
            "tests/rules/test_musts.py::test_store_asks_and_does_nothing_where_it_is_declined",
        ),
        'REQUIRED: Prompt user: "Memory functionality is currently disabled. Would you like to enable it? (y/n)"': (
            "tests/rules/test_musts.py::test_store_asks_and_does_nothing_where_it_is_declined",
            "tests/rules/test_musts.py::test_store_goes_on_once_somebody_agrees",
        ),
        "If user declines: MUST skip operation and return gracefully without enabling": (
            "tests/rules/test_musts.py::test_store_asks_and_does_nothing_where_it_is_declined",
            "tests/rules/test_recording_commands.py::test_declined_nothing_is_done",
        ),
        "Only proceed if explicitly enabled by user": (
            "tests/rules/test_musts.py::test_store_goes_on_once_somebody_agrees",
            "tests/rules/test_musts.py::test_store_fails_where_nobody_can_be_asked",
        ),
    },
    "Migration Prompting Algorithm": {
        "Require explicit approval before migration begins": (
            "tests/moving/test_commands.py::test_nothing_is_stored_before_a_person_agrees",
            "tests/moving/test_commands.py::test_where_nobody_can_be_asked_nothing_is_stored",
            "tests/moving/test_commands.py::test_init_takes_nothing_in_without_a_yes",
        ),
    },
    "Settings Configuration": {
        '"memory_rules.enabled": CRITICAL - Master switch. When `false`, agent MUST NOT auto-enable': (
            "tests/rules/test_musts.py::test_nothing_turns_memory_on_by_itself",
        ),
        '"cleanup_guidance_days": Advisory period for cleanup notifications (no auto-deletion)': (
            "tests/rules/test_musts.py::test_what_is_overdue_stays_whatever_workers_do",
        ),
        '"auto_recording.enabled": CRITICAL - When `false`, agent MUST skip recording silently': (
            "tests/rules/test_musts.py::test_automatic_recording_is_skipped_without_a_word",
        ),
        'Category "enabled" flags: CRITICAL - Must be respected, never auto-enable': (
            "tests/rules/test_musts.py::test_a_category_that_is_off_stays_off_and_takes_nothing_in",
            "tests/rules/test_gate.py::test_nothing_of_a_category_that_is_off_is_written",
        ),
        'Category "suggested_retention_days": Advisory guideline (no automatic cleanup)': (
            "tests/rules/test_musts.py::test_what_is_overdue_stays_whatever_workers_do",
            "tests/rules/test_cleanup.py::test_looking_changes_nothing",
        ),
        "Cleanup Policy - User Consent Required": (
            "tests/rules/test_cleanup_command.py::test_where_nobody_is_asked_nothing_is_decided",
            "tests/rules/test_cleanup_command.py::test_nothing_goes_that_was_not_said_to",
        ),
        "NO automatic deletion - Never delete memories automatically": (
            "tests/rules/test_musts.py::test_what_is_overdue_stays_whatever_workers_do",
            "tests/rules/test_cleanup.py::test_nothing_discards_without_numbers",
        ),
        "User-guided cleanup - Interactive process requiring explicit consent": (
            "tests/rules/test_cleanup_command.py::test_nothing_goes_that_was_not_said_to",
        ),
    },
    "Storage Format": {
        "Generated memory content must always exclude framework licensing and branding to maintain neutrality.": (
            "tests/rules/test_musts.py::test_no_template_has_a_brand_or_a_licence",
            "tests/rules/test_topics.py::test_it_is_masked_and_neutral",
        ),
    },
}
