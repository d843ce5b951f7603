"""The rules: what is changed to take each out, and the tests of docs/refinement.md that hold it."""

from __future__ import annotations

from functools import partial

from tests.rules_out.entry import rule

_FILES = {
    "R": "tests/unit/test_knife_refusals.py",
    "T": "tests/unit/test_tools.py",
    "D": "tests/unit/test_knife_dedupe_only.py",
    "E": "tests/unit/test_knife_edits.py",
    "L": "tests/unit/test_knife_limits.py",
    "K": "tests/unit/test_knife_floor.py",
    "B": "tests/unit/test_breaker.py",
    "C": "tests/unit/test_schedule.py",
    "S": "tests/unit/test_session.py",
    "SB": "tests/unit/test_session_batches.py",
    "KS": "tests/unit/test_knife_specifics.py",
    "LI": "tests/unit/test_limits.py",
    "LE": "tests/unit/test_ledger.py",
    "P": "tests/unit/test_preview.py",
    "W": "tests/unit/test_prompts.py",
    "F": "tests/fault/test_refinement.py",
    "H": "tests/fault/test_batches.py",
    "TU": "tests/unit/test_line.py",
}
_MODULES = {
    name: f"refinement/{name}.py"
    for name in ("effects", "tools", "limits", "breaker", "knife", "session", "loop", "schedule", "ledger")
} | {
    "preview": "refinement/dry_run.py",
    "store": "memory/writing/operations.py",
    "editing": "memory/writing/edits.py",
    "counters": "memory/writing/counters.py",
    "rest": "memory/writing/cooldown.py",
}

_rule = partial(rule, _FILES, _MODULES)

_FIELDS_OF_TEXT = "Text = Annotated[Filled, Field(min_length=1, max_length=MAX_CONTENT)]"
_ACTIVE_THERE = "    _refuse(errors.Discarded, [m.number for m in memories if m.discarded_at])\n    return memories"
_MASS = "min(row.counted_tokens, agent.core_tokens - agent.duplicate_tokens)"

_CALLS = (
    _rule("an unknown tool is refused", "R:an_unknown_tool", ("tools", "if name not in tools:", "if False:")),
    _rule(
        "a mode has only its own tools",
        "T:a_tool_of_full_sessions_is_unknown_in_dedupe_only D:other_edits_do_not_exist",
        ("tools", "    tools = offered(mode)\n", "    tools = TOOLS\n"),
    ),
    _rule(
        "arguments are an object",
        "R:arguments_that_are_no_object",
        (
            "tools",
            "    if arguments is None:",
            "    if arguments is None:\n        return tools[name].model_construct()\n    if False:",
        ),
    ),
    _rule(
        "a missing argument is refused",
        "R:missing_arguments T:missing_arguments_are_named",
        (
            "tools",
            "        told = _all_told(problem, tools[name])\n",
            "        if all(error['type'] == 'missing' for error in problem.errors()):\n"
            "            return tools[name].model_construct(id=1, **arguments)\n"
            "        told = _all_told(problem, tools[name])\n",
        ),
    ),
    _rule(
        "an unknown argument is refused",
        "R:an_unknown_argument T:an_unknown_argument_is_refused_without_its_name",
        ("tools", 'extra="forbid"', 'extra="ignore"'),
    ),
    _rule(
        "an unknown argument's name is not repeated",
        "T:an_unknown_argument_is_refused_without_its_name",
        ("tools", 'if error["type"] == "extra_forbidden":', "if False:"),
    ),
    _rule(
        "a number is a number",
        "R:what_is_no_number T:what_is_no_number_is_refused_for_its_argument",
        ("tools", "Field(ge=1, lt=2**63, strict=True)", "Field()"),
    ),
    _rule(
        '12, "12" and "#12" are the same number',
        "E:numbers_in_each_form_name_the_same_memory T:a_number_may_be_written_as_ledgers_and_models_do",
        ("tools", "return int(match[1]) if match else value", "return value"),
    ),
    _rule(
        "a merge is of two or more",
        "T:a_merge_needs_a_list_of_two_or_more_numbers",
        ("tools", "Field(min_length=2, max_length=1_000)", "Field(max_length=1_000)"),
    ),
    _rule(
        "a merge is of a thousand at most",
        "T:a_merge_takes_at_most_a_thousand",
        ("tools", "Field(min_length=2, max_length=1_000)", "Field(min_length=2)"),
    ),
    _rule(
        "content is text of 1 to 10,000 characters",
        "R:content_that_cannot_be_stored T:content_that_cannot_be_stored_is_refused",
        ("tools", _FIELDS_OF_TEXT, "Text = str"),
    ),
    _rule(
        "no NUL, no half of a surrogate pair",
        "T:half_surrogates_and_nul_are_refused_wherever_they_stand",
        ("tools", "if not _storable(arguments):", "if False:"),
    ),
    _rule(
        "a summary or reason is neither empty nor endless",
        "T:words_that_cannot_be_kept_are_refused",
        ("tools", "Filled = Field(min_length=1, max_length=2_000)", "str"),
    ),
    _rule(
        "dropping is a list of short texts",
        "T:what_is_dropped_is_a_list_of_short_texts",
        ("tools", "dropping: Dropping = []", "dropping: Any = []"),
    ),
    _rule(
        "a search has a kind and a limit that make sense",
        "T:a_search_that_makes_no_sense_is_refused",
        ("tools", 'kind: Literal["core", "journal"] | None = None', "kind: Any = None"),
        ("tools", "limit: int = Field(10, ge=1, le=50)", "limit: Any = 10"),
    ),
    _rule(
        "a search's dates are dates",
        "R:a_search_with_a_date_that_is_none",
        ("effects", 'parse_moment("since", call.since) if call.since else None', "None"),
        ("effects", 'parse_moment("until", call.until) if call.until else None', "None"),
    ),
    _rule(
        "thousands of mistakes get a short error",
        "T:a_thousand_wrong_numbers_are_told_in_a_short_error ten_thousand_unknown_arguments_are_told_in_a_short_error",
        ("tools", "told[:TOLD_AT_ONCE] + more", "told"),
        (
            "tools",
            "list(dict.fromkeys(_told(error, arguments) for error in errors))",
            "[_told(e, arguments) for e in errors]",
        ),
    ),
    _rule("an unknown number is refused", "R:a_number_nobody_has", ("editing", "    if unknown:", "    if False:")),
    _rule(
        "each unknown number is named",
        "R:each_unknown_number_is_named",
        ("editing", "UnknownMemory(unknown)", "UnknownMemory(unknown[:1])"),
    ),
    _rule(
        "another agent's memory is unknown",
        "R:a_number_of_another_agent",
        ("editing", '\'"agent_id" = %s\', [agent.pk], among=("number"', '\'"agent_id" <> %s\', [-1], among=("number"'),
    ),
    _rule(
        "a session reaches no other agent's memories, shown or not",
        "S:a_session_reaches_no_other_agents_memories",
        ("editing", '\'"agent_id" = %s\', [agent.pk], among=("number"', '\'"agent_id" <> %s\', [-1], among=("number"'),
        ("effects", "_refuse(errors.Stale, [m.number for m in unseen if m.version not in own])", "pass"),
    ),
    _rule(
        "a discarded memory is refused",
        "R:a_discarded_memory",
        ("effects", "_refuse(errors.Discarded, [m.number for m in memories if m.discarded_at])", "pass"),
        ("store", _ACTIVE_THERE, "    return memories"),
    ),
    _rule(
        "a number given twice is refused", "R:a_number_given_twice", ("editing", "    if repeated:", "    if False:")
    ),
    _rule(
        "a core memory is needed",
        "R:a_journal_memory_where_a_core_one_is_needed a_journal_memory_is_not_protected",
        ("effects", "_refuse(errors.NotCore, [m.number for m in memories if m.kind != Kind.CORE])", "pass"),
        ("store", "_refuse(errors.NotCore, [m.number for m in memories if m.kind != Kind.CORE])", "pass"),
    ),
    _rule(
        "a notice of the system is refused",
        "R:a_notice_of_the_system",
        ("effects", "_refuse(errors.Notice, [m.number for m in memories if m.source == Source.SYSTEM])", "pass"),
        ("store", "_refuse(errors.Notice, [m.number for m in memories if m.source == Source.SYSTEM])", "pass"),
    ),
    _rule(
        "a private memory is not edited",
        "R:a_private_memory",
        ("effects", "_refuse(errors.Private, [m.number for m in memories if m.category in UNREFINED])", "pass"),
        ("store", "_refuse(errors.Private, [m.number for m in sources if m.category in UNREFINED])", "pass"),
    ),
    _rule(
        "a private memory is not found",
        "R:a_private_memory_is_not_found",
        ("effects", "without_categories=left_out", "without_categories=()"),
        ("effects", "memory.category not in ledger.left_out(agent) and memory", "memory"),
    ),
    _rule(
        "a private memory is in no ledger",
        "LE:private_categories_are_not_in_it",
        ("ledger", "category__in=left_out(agent)", "category__in=()"),
    ),
    _rule(
        "scopes and projects are not mixed",
        "R:memories_of_two_scopes_are_not_merged memories_of_two_projects_are_not_merged",
        ("store", "_refuse(errors.Apart, ", "str(["),
        ("store", "!= (first.scope, first.project)])", "!= (first.scope, first.project)]])"),
    ),
    _rule(
        "a merge of two categories names one",
        "R:a_merge_of_two_categories_needs_one_of_their_scope",
        (
            "store",
            "    if not category:\n        raise errors",
            "    if not category:\n        return sources[0].category\n        raise errors",
        ),
        ("store", "if scope_of(category) != sources[0].scope or category in UNREFINED:", "if False:"),
    ),
    _rule(
        "a constitutional memory is neither rewritten nor deleted",
        "R:a_constitutional_memory_is_neither_rewritten_nor_deleted",
        ("effects", "_refuse(errors.Constitutional, [m.number for m in memories if m.constitutional])", "pass"),
        ("store", "_refuse(errors.Constitutional, [m.number for m in memories if m.constitutional])", "pass"),
    ),
    _rule(
        "constitutional memories in a merge are left out and named",
        "E:constitutional_memories_in_a_merge_are_left_out_and_named",
        ("effects", "sources = [m for m in memories if not m.constitutional]", "sources = memories"),
    ),
    _rule(
        "a merge has two sources left",
        "R:a_merge_with_fewer_than_two_left_does_nothing",
        ("effects", "if len(sources) < 2:", "if False:"),
    ),
    _rule(
        "what changed since it was shown is refused",
        "R:a_memory_changed_since_it_was_shown a_memory_that_was_never_shown a_memory_of_another_batch",
        ("effects", "_refuse(errors.Stale, [m.number for m in unseen if m.version not in own])", "pass"),
    ),
    _rule(
        "the present content is shown, and may then be edited",
        "R:a_memory_changed_since_it_was_shown after_its_present_content_was_shown_it_may_be_edited",
        ("effects", "if not isinstance(refused, errors.Stale):", "if True:"),
    ),
    _rule(
        "a result does not outweigh its sources",
        "K:padding_buys_no_room a_merge_that_grew_buys_no_room",
        ("effects", "if after > before + GROWTH:", "if False:"),
    ),
    _rule(
        "sources are bounded",
        "R:sources_that_would_take_long_to_compare",
        ("effects", "if sum(map(len, texts)) > MAX_SOURCE_CHARACTERS:", "if False:"),
    ),
    _rule(
        "declining comes before the first edit",
        "E:declining_after_an_edit_is_too_late",
        ("effects", "if row.changes or row.protected or row.promoted:", "if False:"),
    ),
    _rule(
        "in dedupe_only a deletion needs a double",
        "D:a_memory_without_a_double_cannot the_fuller_of_two_cannot_go_for_the_poorer a_look_alike_is_no_double "
        "the_last_of_two_cannot",
        ("effects", "if not alike:", "if False:"),
    ),
    _rule(
        "in dedupe_only a near duplicate can go",
        "D:a_near_duplicate_can_be_deleted",
        ("effects", "content in texts or similarity.stand_in(content, texts) is not None", "content in texts"),
    ),
    _rule(
        "after the end every call is refused",
        "L:after_its_end_every_call_is_refused",
        ("session", "if row.outcome != Outcome.OPEN or row.lease_token != session.lease_token:", "if False:"),
    ),
    _rule(
        "without the lease a call is refused",
        "L:without_the_lease_a_call_is_refused",
        ("session", " or row.lease_token != session.lease_token:", ":"),
    ),
    _rule(
        "with memory switched off nothing is read or edited",
        "E:with_memory_switched_off_meanwhile_nothing_is_read_or_edited",
        ("session", "    if not agent.memory_enabled:\n        raise MemoryDisabled\n    [row]", "    [row]"),
        ("editing", "if not (row.memory_enabled or is_notice):", "if False:"),
    ),
)

_LIMITS = (
    _rule("the defaults", "LI:the_defaults", ("limits", '"max_steps": 30', '"max_steps": 31')),
    _rule(
        "the tenant's limit goes before the default",
        "LI:the_tenants_limit_goes_before_the_default",
        ("limits", "return default if tenants is None else tenants", "return default"),
    ),
    _rule(
        "the agent's limit goes before its tenant's",
        "LI:the_agents_limit_goes_before_its_tenants",
        ("limits", "    if agents is not None:\n        return agents\n", ""),
    ),
    _rule("none is a limit", "LI:a_limit_of_nothing_is_a_limit", ("limits", "if agents is not None:", "if agents:")),
    _rule(
        "limits are frozen when the session opens",
        "L:limits_are_frozen_when_the_session_opens",
        ("limits", 'allowed = getattr(session, f"max_{what}")', 'allowed = of(session.agent)[f"max_{what}"]'),
    ),
    _rule(
        "changes are counted in memories",
        "L:changes_are_counted_in_memories",
        ("effects", "row.changes += changed", "row.changes += 1"),
    ),
    _rule(
        "changes are limited",
        "L:an_edit_beyond_the_changes_ends_the_session",
        ("effects", "    if left <= 0:\n        raise LimitReached", "    if False:\n        raise LimitReached"),
        ("effects", "if changed > left:", "if False:"),
    ),
    _rule(
        "promoting is a change",
        "L:promoting_counts_as_a_change",
        ("effects", "cut.session.promoted += 1\n    cut.session.changes += 1", "cut.session.promoted += 1"),
    ),
    _rule(
        "half of a large memory may change",
        "LI:half_of_a_large_memory_may_change",
        ("limits", "max(MIN_DEFAULT_CHANGES, agent.core_count // 2)", "MIN_DEFAULT_CHANGES"),
    ),
    _rule(
        "a call that is too large is refused alone",
        "L:a_call_that_is_too_large_says_what_is_left changes_are_counted_in_memories",
        ("effects", "if changed > left:", "if False:"),
    ),
    _rule(
        "steps are limited",
        "L:steps_end_at_their_limit F:a_model_at_fault_ends_the_session_early",
        ("knife", 'limits.within(row, "steps")', "pass"),
    ),
    _rule(
        "searches are limited",
        "L:searches_end_the_session_beyond_their_limit F:a_model_at_fault_ends_the_session_early",
        ("effects", 'limits.within(cut.session, "searches")', "pass"),
    ),
    _rule(
        "failed calls are limited",
        "L:failed_calls_end_the_session_beyond_their_limit F:a_model_at_fault_ends_the_session_early",
        ("knife", "if row.failed_calls > row.max_failed_calls else", "if False else"),
    ),
    _rule(
        "asking for what is so already is a failed call",
        "L:asking_for_what_is_so_already_counts_as_a_failed_call F:a_model_at_fault_ends_the_session_early",
        ("effects", "cut.session.failed_calls += 1", "pass"),
    ),
    _rule(
        "seconds are limited",
        "L:a_call_after_the_time_is_up_ends_the_session a_step_after_the_time_is_up_is_refused",
        ("limits", "if (timezone.now() - session.opened_at).total_seconds() > session.max_seconds:", "if False:"),
    ),
    _rule(
        "a call that the session's time cuts off is out of time",
        "H:a_call_the_sessions_time_cuts_off_ends_it_as_out_of_time",
        ("loop", "if self._seconds_left() <= 0:", "if False:"),
    ),
    _rule(
        "model tokens are limited",
        "F:model_tokens_end_the_session",
        ("loop", "if self.spent.total >= self.session.max_model_tokens:", "if False:"),
    ),
    _rule(
        "what failed calls cost is counted",
        "F:tokens_of_a_reply_that_makes_no_sense_are_counted",
        ("loop", "self._count(failure.usage, failure.calls, started)", "self._count(Usage(), failure.calls, started)"),
    ),
    _rule(
        "what a server does not count is counted for it",
        "F:a_server_that_counts_no_tokens_is_counted_for",
        ("loop", "reply.usage if reply.usage.total or not reply.calls else _estimated(messages, reply)", "reply.usage"),
    ),
    _rule(
        "calls in one reply are limited",
        "F:where_failed_calls_are_allowed_by_the_thousand_other_limits_hold",
        ("loop", "if place >= limits.MAX_CALLS_PER_REPLY:", "if False:"),
    ),
    _rule(
        "five protections a session",
        "L:five_protections_a_session H:what_protects_itself_is_bounded",
        ("effects", "cut.session.protected >= limits.MAX_PROTECTIONS:", "False:"),
    ),
    _rule(
        "an agent protects half its budget at most",
        "L:by_agents_constitutional_memories_hold_at_most_half_the_budget",
        ("store", "            _within_half_the_budget(edit.agent, memories)\n", ""),
    ),
    _rule(
        "three refusals at the floor end the session",
        "K:three_refusals_in_a_row_end_the_session",
        ("knife", "if row.floor_refusals >= limits.MAX_FLOOR_REFUSALS:", "if False:"),
    ),
    _rule(
        "one reply without a tool call gets a nudge, a second ends the session",
        "F:a_model_at_fault_ends_the_session_early a_second_one_ends_the_session_after_two_calls",
        ("loop", "                if nudged:", "                if False:"),
    ),
    _rule(
        "no batch is larger than allowed",
        "LE:no_batch_is_larger_than_allowed",
        ("ledger", "allowed = batch_tokens or settings.BATCH_TOKENS", "allowed = 10**9"),
    ),
    _rule(
        "a batch has 24,000 tokens by default",
        "LE:the_default_batch_is_24_000_tokens",
        ("config/settings.py", '"BATCH_TOKENS", 24_000', '"BATCH_TOKENS", 25_000'),
    ),
    _rule(
        "a lease lasts as the settings say",
        "S:a_lease_lasts_as_the_settings_say",
        ("session", "timedelta(seconds=settings.LEASE_SECONDS)", "timedelta(seconds=60)"),
    ),
)

_BREAKER = (
    _rule(
        "the floor follows the target",
        "B:the_floor_is_the_retention_of_the_target_for_a_large_memory K:an_agent_over_its_target_may_cut_to_its_floor",
        ("breaker", "min(target, high_water)", "high_water"),
    ),
    _rule(
        "the floor of a small memory follows its high-water mark",
        "B:the_floor_is_the_retention_of_the_high_water_mark_for_a_small_memory "
        "K:a_small_memory_may_be_tidied_by_a_quarter",
        ("breaker", "min(target, high_water)", "target"),
    ),
    _rule("rounded up", "B:the_floor_is_rounded_up", ("breaker", "ROUND_CEILING", "ROUND_FLOOR")),
    _rule(
        "to the floor",
        "B:a_cut_down_to_the_floor_passes",
        ("breaker", "counted - cut < floor", "counted - cut <= floor"),
    ),
    _rule(
        "not below it",
        "B:a_cut_below_the_floor_is_refused K:a_year_of_hostile_weekly_sessions_never_goes_below_the_floor "
        "a_year_of_growing_and_cutting_never_goes_below_the_floor "
        "H:a_model_that_obeys_a_memory_reaches_the_floor_and_no_further",
        ("breaker", "counted - cut < floor", "False"),
    ),
    _rule(
        "the retention is the agent's",
        "K:the_retention_is_the_agents",
        ("session", "breaker.floor(agent.retention,", 'breaker.floor(type(agent.retention)("0.75"),'),
    ),
    _rule(
        "a refusal shows its arithmetic",
        "K:a_refusal_shows_its_arithmetic_and_what_is_left",
        (
            "breaker",
            'f"floor of {floor:,}. At most {max(0, counted - floor):,} can still be cut. Nothing was changed."',
            '"floor."',
        ),
    ),
    _rule(
        "rewrites and merges count by what they save",
        "K:a_rewrite_counts_by_what_it_saves a_merge_counts_by_what_it_saves",
        ("effects", "breaker.loss([before], _weight(cut, sources, content))", "breaker.loss([before])"),
    ),
    _rule(
        "a loss is never negative",
        "B:padding_is_no_negative_loss K:padding_and_cutting_the_padding_is_a_loss",
        ("breaker", "return max(0, sum(sources) - result)", "return sum(sources) - result"),
    ),
    _rule(
        "what comes meanwhile buys no room",
        "K:memories_added_meanwhile_buy_no_room promoting_buys_no_room",
        ("effects", _MASS, "agent.core_tokens - agent.duplicate_tokens"),
    ),
    _rule(
        "what others discard leaves less room",
        "K:what_others_discard_meanwhile_leaves_less_room",
        ("effects", _MASS, "row.counted_tokens"),
    ),
    _rule(
        "exact duplicates do not raise the high-water mark",
        "K:exact_duplicates_do_not_count_in_the_high_water_mark",
        ("counters", "self.agent.core_tokens - self.agent.duplicate_tokens", "self.agent.core_tokens"),
    ),
    _rule(
        "removing exact duplicates is no loss",
        "K:removing_exact_duplicates_is_no_loss",
        (
            "session",
            "        session.duplicates_removed = sum(",
            "        session.lost_tokens = sum(m.tokens for m in removed.memories if m.discarded_at)\n"
            "        session.duplicates_removed = sum(",
        ),
    ),
    _rule(
        "removed duplicates hold no room",
        "K:removed_duplicates_leave_no_room_for_what_comes_meanwhile",
        ("refinement/models.py", "self.tokens_before - self.repeated_tokens", "self.tokens_before"),
    ),
    _rule(
        "making an exact duplicate is",
        "K:making_an_exact_duplicate_is_a_loss a_merge_into_an_exact_duplicate_is_a_loss",
        ("effects", "return 0 if repeated else tokens.count(content)", "return tokens.count(content)"),
    ),
    _rule(
        "constitutional duplicates hold no room",
        "K:constitutional_duplicates_hold_no_room",
        ("effects", _MASS, "min(row.counted_tokens, agent.core_tokens)"),
    ),
    _rule(
        "an edit begins the count of refusals anew",
        "K:an_edit_between_refusals_begins_the_count_anew",
        ("knife", "row.floor_refusals = 0 if cut.memories else row.floor_refusals", "pass"),
    ),
    _rule(
        "nothing else does",
        "K:what_is_no_edit_does_not_begin_the_count_anew",
        ("knife", "row.floor_refusals = 0 if cut.memories else row.floor_refusals", "row.floor_refusals = 0"),
    ),
)

_KINDS = ("number", "date", "time", "quote", "name", "url", "email", "identifier", "negation", "polarity")
_SPECIFICS = (
    *(
        _rule(
            f"a rewrite keeps every {kind}",
            " ".join(
                f"KS:{test}[{kind}]"
                for test in ("a_rewrite_that_loses_one_is_refused", "a_merge_that_loses_one_is_refused")
            ),
            (
                "refinement/specifics/__init__.py",
                "    gone = lost([read(source) for source in sources], read(result))\n",
                "    gone = lost([read(source) for source in sources], read(result))\n"
                f"    gone = [one for one in gone if one.kind != {kind!r}]\n",
            ),
        )
        for kind in _KINDS
    ),
    _rule(
        "naming what is lost lets it go",
        "KS:naming_what_is_lost_lets_it_go",
        (
            "refinement/specifics/__init__.py",
            "if not any(names_it(item, one) for item in named)",
            "if named is not None",
        ),
    ),
    _rule(
        "naming something else does not",
        "KS:naming_something_else_does_not",
        ("refinement/specifics/__init__.py", "if not any(names_it(item, one) for item in named)", "if not named"),
    ),
    _rule(
        "keeping all passes",
        "KS:keeping_all_passes",
        ("effects", "    if lost:\n", "    if lost or dropping == []:\n"),
    ),
    _rule(
        "the same facts in other forms pass",
        "KS:the_same_facts_in_other_forms_pass",
        ("refinement/specifics/comparing.py", "        if reading in self.offers:\n            return True\n", ""),
    ),
    _rule("one error lists fifty", "KS:one_error_lists_fifty_at_most", ("effects", "lost[:50]", "lost")),
    _rule(
        "a constitutional source that is left out need not be kept",
        "KS:a_constitutional_source_that_is_left_out_need_not_be_kept",
        ("effects", "_rewrites(cut, sources, call.new_content", "_rewrites(cut, memories, call.new_content"),
        ("effects", "_refuse(errors.Constitutional, [m.number for m in memories if m.constitutional])", "pass"),
    ),
)

_OUTCOMES = (
    _rule(
        "completing completes",
        "F:a_good_session_does_what_its_model_asked SB:the_last_batch_ends_it_with_all_summaries_together",
        ("effects", "cut.ends = (Outcome.COMPLETED,", "cut.ends = (Outcome.DECLINED,"),
    ),
    _rule(
        "declining declines",
        "F:a_declined_session_tells_why",
        ("effects", "cut.ends = (Outcome.DECLINED,", "cut.ends = (Outcome.COMPLETED,"),
    ),
    _rule(
        "the next is due by cadence",
        "C:after_a_session_the_next_is_due_in_a_week",
        ("schedule", "following(now, every, agent.pk)", "following(now, 2 * every, agent.pk)"),
    ),
    _rule(
        "still over its budget: a quiet day",
        "C:still_over_its_budget_an_agent_has_a_quiet_day",
        ("schedule", "elif session.tokens_after > agent.budget_tokens:", "elif False:"),
    ),
    _rule(
        "growth by a tenth ends it",
        "C:growth_by_more_than_a_tenth_ends_the_quiet_day",
        ("rest", "GROWTH_PERCENT = 10 ", "GROWTH_PERCENT = 1000 "),
    ),
    _rule(
        "a little growth does not",
        "C:a_little_growth_does_not_end_the_quiet_day",
        ("rest", "GROWTH_PERCENT = 10 ", "GROWTH_PERCENT = 0 "),
    ),
    _rule(
        "rolled back: the same",
        "TU:what_a_person_took_back_is_not_refined_again_at_once",
        ("rest", "    agent.quiet_until = at + QUIET\n", "    agent.quiet_until = None\n"),
    ),
    _rule(
        "trouble backs off",
        "C:trouble_backs_off_doubling_up_to_seven_days",
        ("schedule", "    if troubled:\n", "    if False:\n"),
    ),
    _rule(
        "a limit makes it incomplete",
        "F:a_model_at_fault_ends_the_session_early",
        ("loop", 'Outcome.INCOMPLETE, f"limit_', 'Outcome.COMPLETED, f"limit_'),
        ("knife", 'Outcome.INCOMPLETE, f"limit_', 'Outcome.COMPLETED, f"limit_'),
    ),
    _rule(
        "memory switched off meanwhile ends it, and the agent is told",
        "S:with_memory_switched_off_meanwhile_the_agent_is_still_told",
        ("editing", "if not (row.memory_enabled or is_notice):", "if not row.memory_enabled:"),
    ),
    _rule(
        "a model's failure fails it",
        "F:a_server_at_fault_fails_the_session_with_a_code a_server_that_is_not_there_fails_the_session "
        "a_model_that_is_not_set_up_fails_the_session a_broken_seal_fails_the_session",
        ("loop", "sessions.close(session, Outcome.FAILED, failure.code)", "sessions.close(session, Outcome.COMPLETED)"),
    ),
    _rule(
        "one stopped from outside is closed",
        "S:a_session_stopped_from_outside_is_closed",
        ("loop", "sessions.close(session, Outcome.FAILED, sessions.INTERRUPTED)", "pass"),
    ),
    _rule(
        "a worker that is stopped hands over",
        "S:a_worker_that_is_stopped_hands_its_agent_over",
        ("schedule", "(LEASE_EXPIRED, WORKER_STOPPED)", "(LEASE_EXPIRED,)"),
    ),
    _rule(
        "who lost its worker is taken over, once at once",
        "C:when_a_worker_died_another_takes_over_at_once",
        ("schedule", "(LEASE_EXPIRED, WORKER_STOPPED)", "(WORKER_STOPPED,)"),
    ),
    _rule(
        "a session that workers die of backs off",
        "C:a_session_that_workers_die_of_backs_off_the_second_time",
        ("schedule", "agent.failures_in_a_row == 1 and _was", "_was"),
    ),
    _rule(
        "one whose silo does not open is closed all the same",
        "S:a_session_whose_silo_does_not_open_is_closed_all_the_same",
        ("session", "except (SealBroken, SiloKeyMissing):  # nothing can", "except ZeroDivisionError:  # nothing can"),
    ),
    _rule(
        "one whose lease ran out is abandoned",
        "S:a_stale_session_is_closed_as_abandoned_with_its_edits_intact",
        ("session", "ended += _end_stale(agent)", "pass"),
    ),
    _rule(
        "one at a time, says the session",
        "S:of_two_opens_at_once_one_wins",
        ("session", "    if row.lease_until >= timezone.now():\n", "    if False:\n"),
    ),
    _rule(
        "one at a time, says the database",
        "S:the_database_refuses_a_second_open_session",
        (
            "refinement/migrations/0001_initial.py",
            "condition=models.Q(('outcome', 'open')), fields=('agent',)",
            "fields=('agent', 'number', 'id')",
        ),
    ),
    _rule(
        "a stale one is closed as the next opens",
        "S:a_stale_session_is_closed_in_the_transaction_that_opens_the_next",
        ("session", "        _end_stale(agent)\n        number", "        number"),
    ),
    _rule(
        "the ending is one entry with counted figures",
        "S:ending_is_one_entry_with_counted_figures_and_no_content",
        ("session", "                detail=figures(row),", "                detail={},"),
    ),
    _rule(
        "figures count the duplicates in that went as it opened",
        "S:what_a_session_saved_is_what_its_rollback_restores a_session_that_failed_tells_of_the_duplicates_it_removed",
        ("session", "        tokens_before=before.core_tokens,", "        tokens_before=agent.core_tokens,"),
    ),
    _rule(
        "the agent finds a journal memory",
        "S:the_agent_finds_a_journal_memory_whatever_the_outcome E:completing_ends_the_session_with_counted_figures",
        (
            "session",
            'f"{told} Compressed {session.memories_before:,} → {session.memories_after:,} core memories; "',
            'f"{told} "',
        ),
    ),
)

_BATCHES = (
    _rule(
        "a large ledger is worked in batches, in one session",
        "H:a_large_ledger_is_worked_in_batches_in_one_session",
        ("ledger", "allowed = batch_tokens or settings.BATCH_TOKENS", "allowed = 10**9"),
    ),
    _rule(
        "similar memories share a batch",
        "LE:similar_memories_share_a_batch",
        ("ledger", "in _together(entries):", "in [[entry] for entry in entries]:"),
    ),
    _rule(
        "a later batch is read anew",
        "H:numbers_of_a_later_batch_are_read_anew",
        ("loop", "entries = ledger.still_there(agent, [entry.memory.number for entry in entries])", "pass"),
    ),
    _rule(
        "limits and floor are the session's",
        "SB:limits_and_floor_are_the_sessions_not_the_batchs changes_of_every_batch_count_together",
        (
            "knife",
            '            row.save(update_fields=["batch", "batches", "shown", "shown_at"])',
            "            row.changes = row.searches = row.failed_calls = row.lost_tokens = 0\n            row.save()",
        ),
    ),
    _rule(
        "what is asked after the end of a batch is not done",
        "H:calls_after_the_end_of_a_batch_are_not_made",
        ("loop", "if result.is_over or result.is_batch_done:", "if result.is_over:"),
    ),
    _rule(
        "what is asked after the end of the session is not done",
        "F:calls_after_the_end_are_not_made",
        ("effects", "_refuse(errors.Stale, [m.number for m in unseen if m.version not in own])", "pass"),
        ("session", "if row.outcome != Outcome.OPEN or row.lease_token != session.lease_token:", "if False:"),
        ("loop", "if result.is_over or result.is_batch_done:", "if result.is_batch_done:"),
    ),
    _rule(
        "summaries are joined",
        "SB:the_last_batch_ends_it_with_all_summaries_together",
        ("session", "said = [*read_summaries(agent, row), words] if words else", "said = [words] if words else"),
    ),
    _rule(
        "summaries wait sealed",
        "SB:summaries_wait_sealed",
        (
            "session",
            'Silo.for_agent(agent).seal_text("summary", session.number, "\\n".join(said))',
            '"\\n".join(said).encode()',
        ),
    ),
    _rule(
        "the dry run changes nothing",
        "P:it_changes_nothing",
        (
            "preview",
            "    batches = ledger.batches(entries)\n",
            "    batches = ledger.batches(entries)\n    duplicates.remove(agent)\n",
        ),
    ),
    _rule(
        "the dry run calls nobody",
        "P:it_opens_no_model",
        (
            "preview",
            "    batches = ledger.batches(entries)\n",
            "    from refinement.llm.catalog import open_model\n\n    open_model(agent.model)\n"
            "    batches = ledger.batches(entries)\n",
        ),
    ),
    _rule(
        "the agent's wishes are added to the rules",
        "W:the_agents_wishes_are_added_to_the_rules",
        ("templates/refinement/rules.txt", "{{ refinement_prompt }}", ""),
    ),
    _rule(
        "a wish replaces no rule",
        "W:a_hostile_wish_replaces_no_rule",
        (
            "refinement/prompts.py",
            'system = f"{agent.system_prompt.strip()}\\n\\n{rules}".strip()',
            "system = agent.refinement_prompt or rules",
        ),
    ),
    _rule(
        "a memory forges no line",
        "LE:a_newline_in_a_memory_forges_no_line H:a_forged_ledger_line_is_no_line",
        ("ledger", "return one_line(self.record())", 'return one_line(self.record()).replace("\\\\n", "\\n")'),
    ),
)

RULES = (*_CALLS, *_LIMITS, *_BREAKER, *_SPECIFICS, *_OUTCOMES, *_BATCHES)
