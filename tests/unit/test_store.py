"""What each verb of the store writes and refuses. tests/property/test_store.py tries random calls."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.models import Agent
from memory.policy.validation import Draft
from memory.silo.silo import Opened, Silo
from memory.writing import operations
from tests import steps
from tests.steps import (
    ME,
    PERSON,
    SESSION,
    SYSTEM,
    active,
    fresh,
    last_entry,
    problems,
    refused,
    remember,
    row,
    says,
    signed_update,
)

pytestmark = pytest.mark.database

OLD, NEW = datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)


def check_record(agent: Agent, edited: Any, operation: str, before: list[bytes | None], *numbers: int) -> None:
    """One entry of the session holds each memory's snapshot before and after the edit."""
    entry, changes = last_entry(agent), steps.changes(agent, edited.seq)
    assert (entry.seq, entry.operation, entry.session) == (edited.seq, operation, SESSION)
    assert entry.changes == len(changes) == len(numbers)
    assert {row(agent, number).version for number in numbers} == {edited.seq}
    assert [change.before and bytes(change.before) for change in changes] == before
    assert [bytes(change.after) for change in changes] == [steps.snapshot(row(agent, number)) for number in numbers]


def weight(agent: Agent) -> tuple[int, int, int]:
    now = steps.fresh(agent)
    return now.core_count, now.core_tokens, now.high_water_tokens


def note(agent: Agent) -> str:
    entry = last_entry(agent)
    return Silo.for_agent(agent).open_text("note", entry.seq, bytes(entry.sealed))


def test_defaults_of_a_memory(ada: Agent) -> None:
    remember(ada, "  Tea, with milk.\n", tags=("drink", "habit"))
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.scope, memory.project) == ("core", "behavioral", "common", "")
    assert (memory.source, memory.constitutional, memory.discarded_at) == ("agent", False, None)
    assert (says(ada, 1).content, says(ada, 1).tags) == ("  Tea, with milk.\n", ("drink", "habit"))
    remember(ada, "uses tabs", project="site")
    assert (row(ada, 2).category, row(ada, 2).scope, row(ada, 2).project) == ("contextual", "project", "site")
    remember(ada, "uses tabs", category="topic")
    assert row(ada, 3).project == "default-project"


def test_origin_is_now_by_default(ada: Agent) -> None:
    origin = datetime(2024, 2, 1, 9, 30, tzinfo=timezone(timedelta(hours=2)))
    remember(ada, "new")
    remember(ada, "old", origin=origin)
    entry = AuditEntry.objects.get(agent_id=ada.pk, seq=row(ada, 1).version)
    assert row(ada, 1).origin == row(ada, 1).created_at == entry.at
    assert (row(ada, 2).origin, row(ada, 2).origin.tzinfo) == (origin, UTC)


def test_remembering_writes_one_entry_with_a_change_for_each(ada: Agent) -> None:
    edited = operations.remember(ada, [Draft("one"), Draft("two")], ME)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation) == (edited.seq, "remembered")
    assert (entry.actor_kind, entry.actor_label) == ("agent", "runtime")
    assert entry.changes == len(steps.changes(ada, entry.seq)) == 2
    assert (entry.agent_label, entry.tenant_id, entry.session, entry.sealed) == ("acme/ada", ada.tenant_id, None, None)
    for change in steps.changes(ada, entry.seq):
        assert change.before is change.before_digest is None
        assert bytes(change.after) == steps.snapshot(row(ada, change.number))


def test_an_earlier_due_date_is_kept(ada: Agent) -> None:
    earlier = last_entry(ada).at - timedelta(hours=1)
    signed_update(
        Agent.objects.filter(pk=ada.pk), budget_tokens=10, target_tokens=5, due_at=earlier, due_reason="manual"
    )
    remember(ada, "x" * 80)
    assert (steps.fresh(ada).due_reason, steps.fresh(ada).due_at) == ("manual", earlier)


def test_duplicates_counted_under_two_token_counters_agree_with_the_rows(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "x" * 40)
    monkeypatch.setattr("memory.policy.tokens.count", len)
    remember(ada, "x" * 40, "x" * 40)
    assert steps.fresh(ada).duplicate_tokens == 50
    assert steps.problems(ada) == []
    operations.discard(ada, [2], ME)
    operations.revise(ada, 1, ME, tags=["counted again"])
    assert steps.problems(ada) == []


def test_a_revision_records_the_row_before_and_after(ada: Agent) -> None:
    remember(ada, "tea with milk", tags=("drink",))
    before, digest = row(ada, 1), bytes(row(ada, 1).digest)
    edited = operations.revise(ada, 1, ME, content="tea", session=SESSION)
    after = row(ada, 1)
    check_record(ada, edited, "revised", [steps.snapshot(before), None], 1, 2)
    assert (says(ada, 1).content, says(ada, 1).tags, after.tokens, weight(ada)) == ("tea", ("drink",), 1, (1, 1, 4))
    assert (after.origin, after.created_at) == (before.origin, before.created_at)
    assert last_entry(ada).sealed is None
    assert bytes(after.digest) != digest
    operations.revise(ada, 1, ME, tags=["habit", "habit"])
    assert (says(ada, 1).content, says(ada, 1).tags, row(ada, 1).digest) == ("tea", ("habit",), after.digest)


def test_discarded_memories_are_gone_from_use_and_kept(ada: Agent) -> None:
    remember(ada, "tea", "coffee", "x" * 40)
    before = [steps.snapshot(row(ada, n)) for n in (1, 3)]
    edited = operations.discard(ada, [3, 1], ME, session=SESSION)
    check_record(ada, edited, "discarded", before, 1, 3)
    assert (active(ada), says(ada, 1).content, weight(ada)) == ([2], "tea", (1, 2, 13))
    assert row(ada, 1).discarded_at == last_entry(ada).at
    edited = operations.restore(ada, [1, 2], PERSON)
    assert ([memory.number for memory in edited.memories], steps.snapshot(row(ada, 1))) == ([1], before[0])
    assert (row(ada, 1).version, last_entry(ada).operation) == (edited.seq, "restored")


def test_a_promoted_memory_is_core_and_counts(ada: Agent) -> None:
    remember(ada, "x" * 40, kind="journal")
    steps.protect(ada, 1)
    before = steps.snapshot(row(ada, 1))
    edited = operations.promote(ada, 1, ME, session=SESSION)
    check_record(ada, edited, "promoted", [before], 1)
    assert (row(ada, 1).kind, row(ada, 1).constitutional, weight(ada)) == ("core", True, (1, 10, 10))
    assert steps.fresh(ada).journal_count == 0


@pytest.fixture
def pair(ada: Agent) -> list[int]:
    return remember(ada, "x" * 20, tags=("a", "b"), origin=NEW) + remember(ada, "y" * 20, tags=("b", "c"), origin=OLD)


def test_a_merge_replaces_its_sources_by_one_memory(ada: Agent, pair: list[int]) -> None:
    before = [steps.snapshot(row(ada, n)) for n in pair]
    edited = operations.consolidate(ada, pair, "both", ME, session=SESSION)
    check_record(ada, edited, "consolidated", [*before, None], 1, 2, 3)
    assert (active(ada), says(ada, 3).content, weight(ada)) == ([3], "both", (1, 1, 10))
    assert [row(ada, n).superseded_by for n in pair] == [3, 3]
    assert {(row(ada, n).beneath_at, row(ada, n).layer) for n in pair} == {(last_entry(ada).at, "beneath")}
    assert (fresh(ada).beneath_count, fresh(ada).beneath_tokens) == (2, sum(row(ada, n).tokens for n in pair))


def test_a_rewrite_in_a_session_keeps_the_old_text_beneath(ada: Agent) -> None:
    remember(ada, "tea with milk", tags=("drink",), origin=OLD)
    operations.revise(ada, 1, ME, content="tea with milk and sugar", session=SESSION)
    assert active(ada) == [1], "the new text has the old one"
    operations.revise(ada, 1, ME, content="tea", session=SESSION)
    old = row(ada, 2)
    assert (says(ada, 1).content, says(ada, 2)) == ("tea", Opened("tea with milk and sugar", ("drink",)))
    assert (old.layer, old.superseded_by, old.origin, weight(ada)) == ("beneath", 1, OLD, (1, 1, 6))
    [entry] = remember(ada, "a walk", kind="journal")
    operations.revise(ada, entry, ME, content="a run", session=SESSION)
    assert (says(ada, entry).content, fresh(ada).beneath_count) == ("a run", 1), "only core memories go beneath"


def test_promoting_and_restoring_return_a_memory_to_its_layer(ada: Agent, pair: list[int]) -> None:
    operations.consolidate(ada, pair, "both", ME)
    operations.discard(ada, [1], ME)
    operations.restore(ada, [1], PERSON)
    assert (row(ada, 1).layer, row(ada, 1).superseded_by) == ("beneath", 3)
    operations.promote(ada, 1, ME)
    assert (row(ada, 1).layer, row(ada, 1).superseded_by, active(ada)) == ("core", None, [1, 3])
    operations.demote(ada, [1], ME, reason="out of date")
    assert (row(ada, 1).layer, note(ada), problems(ada)) == ("beneath", "out of date", [])


def test_the_result_has_the_earliest_origin_and_all_tags_in_order(ada: Agent, pair: list[int]) -> None:
    operations.consolidate(ada, pair, "both", ME)
    assert (row(ada, 3).origin, row(ada, 3).created_at, says(ada, 3).tags) == (OLD, last_entry(ada).at, ("a", "b", "c"))
    operations.consolidate(ada, [3, *remember(ada, "z", origin=NEW)], "all", ME, category="technical")
    assert (row(ada, 5).origin, row(ada, 5).category) == (OLD, "behavioral"), "the category of its sources"


def test_the_result_has_all_tags_even_above_the_limit_of_one_memory(ada: Agent) -> None:
    for name in ("a", "b"):
        remember(ada, name, tags=[f"{name}{i}" for i in range(32)])
    operations.consolidate(ada, [1, 2], "both", ME)
    assert len(says(ada, 3).tags) == 64


def test_merges_of_merges_have_a_limited_number_of_tags(ada: Agent) -> None:
    for number in range(10):
        remember(ada, f"memory {number}", tags=[f"{number}/{tag}" for tag in range(32)])
    operations.consolidate(ada, range(1, 11), "all", ME)
    assert len(says(ada, 11).tags) == operations.MOST_TAGS


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"kind": "journal"}, errors.CoreMemoryRequired),
        ({"project": "site"}, errors.MixedScope),
        ({"category": "personal"}, errors.MixedScope),
        ({"category": "credentials"}, errors.Private),
        ({"category": "keys"}, errors.Private),
        ({"category": "sensitive"}, errors.Private),
    ],
)
def test_a_merge_names_a_source_that_does_not_belong(
    ada: Agent, pair: list[int], values: dict[str, Any], error: type[errors.NumbersError]
) -> None:
    [odd] = remember(ada, "odd one", **values)
    with refused(ada, error) as caught:
        operations.consolidate(ada, [*pair, odd], "all", ME)
    assert caught.value.numbers == (odd,)


def test_a_merge_of_two_categories_needs_one_of_them(ada: Agent, pair: list[int]) -> None:
    remember(ada, "tech", category="technical")
    for category in ("", "topic", "personal", "credentials", "no such"):
        with refused(ada, errors.Invalid) as caught:
            operations.consolidate(ada, [1, 3], "both", ME, category=category)
        assert caught.value.field == "category"
    operations.consolidate(ada, [1, 3], "both", ME, category="technical")
    assert row(ada, 4).category == "technical"


def test_a_notice_is_a_journal_memory_in_one_entry_also_while_memory_is_off(ada: Agent) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    closed: dict[str, Any] = {"operation": "session_closed", "detail": {"merged": 3}, "session": SESSION}
    edited = operations.notify(ada, "closed", actor=SYSTEM, **closed)
    entry, memory = last_entry(ada), edited.memory
    check_record(ada, edited, "session_closed", [None], memory.number)
    assert (entry.detail, entry.actor_kind) == ({"merged": 3}, "system")
    assert (memory.kind, memory.source, memory.scope, memory.constitutional) == ("journal", "system", "common", False)
    assert (says(ada, memory.number).content, steps.fresh(ada).journal_count) == ("closed", 1)


def test_an_agent_protects_core_memories_during_its_session(ada: Agent) -> None:
    remember(ada, "never on Sundays")
    remember(ada, "log", kind="journal")
    before = steps.snapshot(row(ada, 1))
    edited = operations.protect(ada, [1], ME, session=SESSION)
    check_record(ada, edited, "protected", [before], 1)
    assert row(ada, 1).constitutional
    assert (steps.fresh(ada).constitutional_count, steps.fresh(ada).constitutional_tokens) == (1, 4)
    with refused(ada, errors.CoreMemoryRequired):
        operations.protect(ada, [2], ME, session=SESSION)
    operations.protect(ada, [2], PERSON)
    assert row(ada, 2).constitutional


def test_a_person_may_protect_beyond_half_the_budget(ada: Agent) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), budget_tokens=20, target_tokens=20)
    remember(ada, "x" * 60)
    with refused(ada, errors.ProtectionFull):
        operations.protect(ada, [1], ME, session=SESSION)
    operations.protect(ada, [1], PERSON)
    assert row(ada, 1).constitutional


@pytest.mark.parametrize("actor", [PERSON, Actor.operator("op")])
def test_a_person_removes_protection_and_the_reason_is_kept(ada: Agent, actor: Actor) -> None:
    remember(ada, "never on Sundays")
    steps.protect(ada, 1)
    edited = operations.unprotect(ada, [1], actor, reason="  asked by the steward ")
    assert (last_entry(ada).operation, last_entry(ada).detail) == ("unprotected", {"reason": "asked by the steward"})
    assert (row(ada, 1).constitutional, row(ada, 1).version) == (False, edited.seq)
    operations.discard(ada, [1], ME)


@pytest.mark.parametrize(
    ("actor", "reason", "error"),
    [(PERSON, " \n", errors.Invalid), (ME, "tidy", errors.ProtectionRefused), (SYSTEM, "x", errors.ProtectionRefused)],
)
def test_only_a_person_with_a_reason_removes_protection(
    ada: Agent, actor: Actor, reason: str, error: type[Exception]
) -> None:
    remember(ada, "never on Sundays")
    steps.protect(ada, 1)
    with refused(ada, error):
        operations.unprotect(ada, [1], actor, reason=reason)


# Each edits memory `number`, where the agent has another core memory 1.
VERBS: dict[str, Callable[..., Any]] = {
    "consolidate": lambda agent, number, **more: operations.consolidate(agent, [1, number], "both", ME, **more),
    "discard": lambda agent, number, **more: operations.discard(agent, [1, number], ME, **more),
    "promote": lambda agent, number, **more: operations.promote(agent, number, ME, **more),
    "protect": lambda agent, number, **more: operations.protect(agent, [1, number], ME, session=SESSION, **more),
    "revise": lambda agent, number, **more: operations.revise(agent, number, ME, content="other", **more),
}


def test_trim_keeps_the_newest_runs_by_origin_then_by_number(ada: Agent) -> None:
    for year in (2005, 2001, 2004, 2002):
        remember(ada, f"run of {year}", kind="journal", source="run", origin=OLD.replace(year=year))
    edited = operations.trim(ada, 2, SYSTEM)
    assert (active(ada), last_entry(ada).operation, last_entry(ada).seq) == ([1, 3], "trimmed", edited.seq)
    remember(ada, "tea", "milk", kind="journal", source="run", origin=NEW)
    operations.trim(ada, 1, SYSTEM)
    assert active(ada) == [6]
    with refused(ada, errors.Invalid):
        operations.trim(ada, -1, SYSTEM)


@pytest.fixture
def other(ada: Agent) -> int:
    return remember(ada, "tea", "coffee")[1]


def test_a_constitutional_memory_is_neither_merged_nor_discarded_nor_rewritten(ada: Agent, other: int) -> None:
    steps.protect(ada, other)
    for name in ("consolidate", "discard", "revise"):
        with refused(ada, errors.Constitutional) as caught:
            VERBS[name](ada, other)
        assert caught.value.numbers == (other,)
    with refused(ada, errors.Constitutional):
        operations.discard(ada, [other], PERSON)
    with refused(ada, errors.Constitutional):
        operations.revise(ada, other, PERSON, tags=["other"])


@pytest.mark.parametrize(
    "edit",
    [
        *(lambda agent, verb=verb: verb(agent, 2) for verb in VERBS.values()),
        lambda agent: operations.remember(agent, [Draft("milk")], ME),
        lambda agent: operations.restore(agent, [2], ME),
        lambda agent: operations.trim(agent, 0, ME),
        lambda agent: operations.unprotect(agent, [2], PERSON, reason="tidy"),
    ],
    ids=[*VERBS, "remember", "restore", "trim", "unprotect"],
)
def test_while_memory_is_off_nothing_is_edited(ada: Agent, other: int, edit: Callable[[Agent], Any]) -> None:
    """The switch is read from the database, not from the caller."""
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    ada.memory_enabled = True
    with refused(ada, errors.MemoryDisabled):
        edit(ada)


def test_texts_and_tags_that_cannot_be_stored_are_refused(ada: Agent, other: int) -> None:
    bad: list[dict[str, Any]] = [{"content": " "}, {"content": "x" * 10_001}, {"tags": ["x" * 65]}, {"tags": "drink"}]
    for values in bad:
        with refused(ada, errors.Invalid):
            operations.revise(ada, other, ME, **values)
    with refused(ada, errors.Invalid) as caught:
        operations.consolidate(ada, [1, other], "x" * 10_001, ME)
    assert caught.value.field == "new_content"
    with refused(ada, errors.Invalid):
        steps.tell(ada, "")
    with refused(ada, errors.Invalid):
        operations.remember(ada, [Draft("good"), Draft(" ")], ME)


def test_an_edit_without_effect_writes_no_entry(ada: Agent, other: int) -> None:
    steps.protect(ada, other)
    before = steps.state(ada)
    edits = [
        operations.remember(ada, [], ME),
        operations.discard(ada, [], ME),
        operations.restore(ada, [1, 2], PERSON),
        operations.promote(ada, 1, ME),
        operations.protect(ada, [other], ME, session=SESSION),
        operations.unprotect(ada, [1], PERSON, reason="tidy"),
        operations.revise(ada, 1, ME, content="tea", tags=[]),
        operations.trim(ada, 2, ME),
    ]
    assert [edit.seq for edit in edits] == [None] * len(edits)
    assert steps.state(ada) == before
