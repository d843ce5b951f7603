"""The rules of memory, and what is changed to take each out: docs/memory-rules.md, Every MUST (musts.py has which)."""

from __future__ import annotations

from functools import partial

from tests.rules_out.entry import rule

_FILES = {
    "M": "tests/rules/test_musts.py",
    "P": "tests/property/test_switches.py",
    "G": "tests/rules/test_gate.py",
    "AG": "tests/property/test_agreed.py",
    "C": "tests/rules/test_command.py",
    "A": "tests/api/test_rules.py",
    "R": "tests/rules/test_recording.py",
    "RC": "tests/rules/test_recording_commands.py",
    "CU": "tests/rules/test_cleanup.py",
    "CC": "tests/rules/test_cleanup_command.py",
    "PL": "tests/rules/test_places.py",
    "T": "tests/rules/test_topics.py",
    "S": "tests/vault/test_storing.py",
    "F": "tests/vault/test_following.py",
    "VC": "tests/vault/test_commands.py",
    "ONE": "tests/commands/test_memory_rules.py",
    "I": "tests/moving/test_commands.py",
}
_MODULES = {
    "editing": "memory/writing/edits.py",
    "context": "memory/search/context.py",
    "reading": "memory/search/reading.py",
    "runs": "memory/run_log/runs.py",
    "gate": "memory/policy/switches.py",
    "switches": "memory/agents/rule_changes.py",
    "recording": "memory/recording/recorder.py",
    "topics": "memory/recording/topics.py",
    "conversations": "memory/recording/sessions.py",
    "cleanup": "memory/recording/cleanup.py",
    "overdue": "memory/recording/overdue.py",
    "places": "memory/policy/paths.py",
    "following": "memory/vault/writer.py",
    "files": "memory/vault/files.py",
    "disk": "memory/vault/disk.py",
    "rendering": "memory/vault/rendering.py",
    "command": "memory/management/commands/memory_rules.py",
    "deeds": "memory/management/rules/recording.py",
} | {name: f"memory/management/rules/{name}.py" for name in ("asking", "beginning", "keeping", "cleaning", "moving")}
_memory = partial(rule, _FILES, _MODULES)

_OFF_ROW, _OFF_AGENT = "if not row.memory_enabled:", "if not agent.memory_enabled:"
_REFUSED, _TURNED_ON = "raise MemoryDisabled\n", "Agent.objects.filter(pk={}.pk).update(memory_enabled=True)\n"
_MASTER_OF_AN_EDIT = ("editing", "if not (row.memory_enabled or is_notice):", "if False:")
_DUE_WHILE_OFF = ("refinement/schedule.py", "timezone.now(), memory_enabled=True)", "timezone.now())")
_NEW_OF_A_CATEGORY = ("editing", "switches.require_open(self.agent, (draft.category,))", "pass")
_CHANGE_OF_A_CATEGORY = ("editing", "switches.require_open(self.agent, (memory.category,))", "pass")
_READ_BACK = ("files", "if self.disk.read(each.line.path) != each.data:", "if False:")
_LEFT = "rows.exclude(switches.hidden(agent)) if switches.closed(agent) else rows"
_IS_RECORDED = 'settings_document.is_on(switches.rules_of(agent), "auto_recording", "enabled")'
_TOLD = "                    told += notify_overdue("

# --- switches

WRITING = _memory(
    "what is off is not written",
    "P:what_is_off_is_neither_written_nor_read",
    _NEW_OF_A_CATEGORY,
    _CHANGE_OF_A_CATEGORY,
)
AGREED = _memory(
    "nothing is turned on that nobody agreed to",
    "AG:nothing_is_turned_on_that_nobody_agreed_to",
    ("switches", "if unknown := sorted(set(on) - set(agreed)):", "if unknown := []:"),
)
READING = _memory(
    "what is off is not read back",
    "P:what_is_off_is_neither_written_nor_read",
    ("reading", _LEFT, "rows"),
)
ASKED_FIRST = _memory(
    "every operation asks the master switch first",
    "M:every_operation_asks_the_switch_before_anything_else P:what_is_off_is_neither_written_nor_read",
    _MASTER_OF_AN_EDIT,
    *((name, _OFF_ROW, "if False:") for name in ("topics", "conversations", "runs")),
    *((name, _OFF_AGENT, "if False:") for name in ("gate", "recording", "cleanup", "context", "deeds")),
    *((f"refinement/{name}.py", _OFF_ROW, "if False:") for name in ("backlog", "schedule")),
    ("refinement/session.py", _OFF_AGENT, "if False:"),
    _DUE_WHILE_OFF,
    ("beginning", "if begun.agent.memory_enabled:", "if True:"),
)
AN_OPERATION_TURNS_NOTHING_ON = _memory(
    "an operation turns memory not on",
    "M:nothing_turns_memory_on_by_itself A:the_api_reads_them_and_changes_none",
    ("editing", "raise errors.MemoryDisabled\n", _TURNED_ON.format("row")),
    *((name, _REFUSED, _TURNED_ON.format("row")) for name in ("topics", "conversations", "runs")),
    *((name, _REFUSED, _TURNED_ON.format("agent")) for name in ("gate", "recording", "cleanup", "context", "deeds")),
    *((f"refinement/{name}.py", _REFUSED, _TURNED_ON.format("row")) for name in ("backlog", "schedule")),
    ("refinement/session.py", _REFUSED, _TURNED_ON.format("agent")),
    ("recording", "return MEMORY_OFF\n", _TURNED_ON.format("agent")),
    _DUE_WHILE_OFF,
)
A_COMMAND_TURNS_NOTHING_ON = _memory(
    "a command turns nothing on that it was not told to",
    "M:nothing_turns_memory_on_by_itself store_asks_and_does_nothing_where_it_is_declined RC:declined_nothing_is_done",
    ("asking", "if not agreed(task, [path], hint=hint, question=rule_changes.QUESTION):", "if False:"),
)
A_KEY_TURNS_NOTHING_ON = _memory(
    "a key turns nothing on",
    "M:nothing_turns_memory_on_by_itself A:the_api_reads_them_and_changes_none",
    (
        "memory/api/rules.py",
        "raise PersonsOnly",
        "return Response(rule_changes.whole(rule_changes.change(self.agent, self.actor, enabled=True)))",
    ),
    ("switches", "if actor.kind not in _PEOPLE:", "if False:"),
)
PERSONS_ONLY = _memory(
    "a person alone changes rules",
    "G:nobody_but_a_person_changes_rules",
    ("switches", "if actor.kind not in _PEOPLE:", "if False:"),
)
A_SWITCH_IS_ASKED_ABOUT = _memory(
    "a switch is asked about before it is turned on",
    "C:declined_nothing_is_done where_nobody_can_be_asked_it_is_a_no M:nothing_turns_memory_on_by_itself",
    ("command", "if on and not asking.agreed(self, on, yes=yes):", "if False:"),
)
NOBODY_IS_A_NO = _memory(
    "nobody there to ask is a no",
    "C:where_nobody_can_be_asked_it_is_a_no I:where_nobody_can_be_asked_nothing_is_stored",
    ("asking", 'which is a no{hint}.")\n        return False', 'which is a no{hint}.")\n        return True'),
)
A_CATEGORY_TAKES_NOTHING_IN = _memory(
    "a category that is off takes nothing in",
    "M:a_category_that_is_off_stays_off_and_takes_nothing_in G:nothing_of_a_category_that_is_off_is_written",
    _NEW_OF_A_CATEGORY,
    _CHANGE_OF_A_CATEGORY,
)
A_CATEGORY_STAYS_OFF = _memory(
    "storing turns no category on",
    "M:a_category_that_is_off_stays_off_and_takes_nothing_in",
    ("asking", "if not agreed(task, [path], hint=hint, question=rule_changes.QUESTION):", "if False:"),
)

# --- asking, and not asking

A_DEED_ASKS = _memory(
    "a deed that meets a closed switch asks",
    "M:store_asks_and_does_nothing_where_it_is_declined store_goes_on_once_somebody_agrees",
    ("asking", "if not agreed(task, [path], hint=hint, question=rule_changes.QUESTION):", "if True:"),
)
A_NO_ENDS_A_DEED = _memory(
    "a no to a deed is a no",
    "M:store_asks_and_does_nothing_where_it_is_declined RC:declined_nothing_is_done",
    ("asking", "return _WORDS[said]", "return True"),
)
INIT_TURNS_NOTHING_ON = _memory(
    "init turns memory not on by itself",
    "M:init_asks_and_ends_there_where_it_is_declined nothing_turns_memory_on_by_itself",
    ("beginning", "if not asking.agreed(begun.task, [settings_document.MASTER], yes=", "if not dict(yes="),
)
INIT_ASKS = _memory(
    "init asks",
    "M:init_asks_and_ends_there_where_it_is_declined init_goes_on_once_somebody_agrees",
    ("beginning", "if not asking.agreed(begun.task, [settings_document.MASTER], yes=", "if dict(yes="),
)
A_NO_ENDS_INIT = _memory(
    "a no ends init",
    "M:init_asks_and_ends_there_where_it_is_declined",
    ("beginning", "begun.is_over = True", "pass"),
)
RECORDING_STAYS_OFF = _memory(
    "what is recorded automatically needs its switch",
    "M:automatic_recording_is_skipped_without_a_word R:by_default_nothing_is_recorded_automatically "
    "RC:automatically_what_is_off_is_skipped_in_silence",
    ("recording", _IS_RECORDED, "True"),
)
RECORDING_IS_SILENT = _memory(
    "what is recorded automatically asks nobody",
    "M:automatic_recording_is_skipped_without_a_word RC:automatically_what_is_off_is_skipped_in_silence",
    ("deeds", "requested=not automatic", "requested=True"),
)
RECORDING_OF_A_CLOSED_CATEGORY = _memory(
    "… also where memory or its category is off",
    "M:automatic_recording_is_skipped_without_a_word",
    ("recording", "        if requested:\n", "        if True:\n"),
)
INSIDE_OTHER_WORK = _memory(
    "inside other work nothing of a closed category is stored, nor asked about",
    "M:storing_inside_other_work_is_skipped_without_a_word",
    ("recording", '"topic" not in settings_document.closed_categories(rules) and ', ""),
)
INSIDE_THE_NEXT_TALK = _memory(
    "… nor the memory of a session that ended",
    "M:storing_inside_other_work_is_skipped_without_a_word",
    ("conversations", "if CATEGORY not in switches.closed(row) and session.numbers:", "if session.numbers:"),
)

# --- brands and licences

CAPTURED_IS_NEUTRAL = _memory(
    "what is captured is neutral",
    "R:brands_are_left_out",
    ("memory/recording/interactions.py", "[*map(neutral_whole, said[:2]), *map(neutral, said[2:])]", "said"),
)
STORED_IS_NEUTRAL = _memory(
    "what is stored is neutral",
    "M:what_is_stored_is_without_brand_and_licence S:the_storage_process",
    ("keeping", "text = neutral_whole(text)", "pass"),
)
TOPICS_ARE_NEUTRAL = _memory(
    "what a topic is told is neutral",
    "T:it_is_masked_and_neutral",
    ("memory/recording/topic_memory.py", "neutral(one_line(each, name, _TEXT))", "one_line(each, name, _TEXT)"),
)
TEMPLATES_ARE_NEUTRAL = _memory(
    "a template is neutral",
    "M:no_template_has_a_brand_or_a_licence",
    ("templates/memory_rules/standard.md", "\n## Context\n", "\nGenerated with Palimpsest\n\n## Context\n"),
)

# --- files

FILES_FOLLOW = _memory(
    "each edit's files are written",
    "S:the_storage_process a_memory_of_another_road_is_a_file_too F:a_memory_is_a_file_a_person_can_read "
    "ONE:nothing_is_kept_in_a_process_alone",
    (
        "following",
        "transaction.on_commit(partial(follow, agent.pk, numbers, agent=agent if agent.wrapped_key else None))",
        "pass",
    ),
)
PLACE_IS_CONFIGURED = _memory(
    "files are where the settings say",
    "S:files_are_in_the_configured_location",
    ("beginning", 'settings_document.value(begun.rules, "storage.base_path")', '"./memory"'),
)
READ_BACK = _memory(
    "a file is read back before it is confirmed",
    "S:what_was_not_written_as_it_was_said_is_not_confirmed",
    _READ_BACK,
)
WRITTEN_FIRST = _memory(
    "what is confirmed was written",
    "S:what_is_confirmed_is_there_to_be_read",
    _READ_BACK,
    ("files", "self.disk.publish()", "()"),
    ("following", " and path.is_file()", ""),
)
FOLDERS_ARE_MADE = _memory(
    "folders are made",
    "S:folders_are_made_where_there_are_none",
    ("disk", "return self._opened(parts, create=True)", "return self._opened(parts, create=False)"),
)
THE_PATH_IS_TOLD = _memory(
    "the path is told",
    "S:the_storage_process",
    ("keeping", 'task.result(told | {"file": told_file(task, agent, number)})', "task.result(told)"),
)
A_FAILURE_IS_TOLD = _memory(
    "a file that is not there is told",
    "VC:a_vault_that_cannot_be_written_is_said_and_the_memory_stands "
    "S:what_was_not_written_as_it_was_said_is_not_confirmed",
    ("keeping", "    if number is not None and path is None:\n", "    if False:\n"),
)
STEPS = tuple(
    _memory(f"the storage process: {step}", "S:the_storage_process", change)
    for step, change in {
        "project": ("keeping", "project=_project(agent, category, options", 'project=(lambda *_: "")(options'),
        "routing": ("places", "    if where == PROJECT:\n", "    if False:\n"),
        "version": ("rendering", '"version": version,', '"version": "",'),
        "what is not known": ("rendering", 'told += [f"- **{ABSENT}**: {absent}\\n"] if absent else []', "pass"),
        "template": (
            "rendering",
            "return _filled(_template_of(memory.category), values)",
            'return _filled("session", values)',
        ),
        "index": ("files", "index_pages.add(self.disk, added, gone)", "pass"),
    }.items()
)
PRIVATE_IS_PRIVATE = _memory(
    "what is private is in the private folders",
    "S:a_credential_is_always_private_and_sealed PL:what_is_private_stays_so_whatever_is_kept",
    ("places", "if SCOPES[category] == PRIVATE:", "if False:"),
)

# --- cleaning up, and moving in

CLEANUP_IS_ASKED = _memory(
    "cleanup is decided where somebody is asked",
    "CC:where_nobody_is_asked_nothing_is_decided",
    ("cleaning", "is_agents and is_attended() and", "is_agents and"),
)
CLEANUP_IS_THE_AGENTS = _memory(
    "cleanup is decided on the agent's side",
    "CU:the_agents_side_alone_decides",
    ("cleanup", "if actor.kind not in (ActorKind.AGENT, ActorKind.STEWARD):", "if False:"),
)
CLEANUP_TAKES_A_YES = _memory(
    "what is not said to go stays",
    "CC:nothing_goes_that_was_not_said_to",
    ("cleaning", '_ANSWERS = {"": "s"}', '_ANSWERS = {"": "d"}'),
)
NOTHING_GOES_BY_ITSELF = _memory(
    "no worker discards what is overdue",
    "M:what_is_overdue_stays_whatever_workers_do CU:nothing_discards_without_numbers",
    (
        "overdue",
        _TOLD,
        "                    gone = memories(retention(agent), now).filter(agent_id=agent.pk)\n"
        '                    operations.discard(agent, [*gone.values_list("number", flat=True)], SYSTEM)\n' + _TOLD,
    ),
)
NOTHING_GOES_UNNAMED = _memory(
    "cleanup is told the numbers",
    "CU:nothing_discards_without_numbers",
    ("cleanup", "    discard: Sequence[int],\n", "    discard: Sequence[int] = (),\n"),
    ("cleanup", "    actor: Actor,\n", '    actor: Actor = Actor.system("cleanup"),\n'),
)
MOVING_IN_IS_AGREED_TO = _memory(
    "what other systems left is stored once a person agrees",
    "I:nothing_is_stored_before_a_person_agrees where_nobody_can_be_asked_nothing_is_stored "
    "init_takes_nothing_in_without_a_yes",
    ("moving", "if not asking.confirmed(task, question, yes=", "if not dict(yes="),
)
