from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from audit.models import AuditEntry
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import operations
from tests import steps
from tests.steps import ME, last_entry, remember, row, says

pytestmark = pytest.mark.database


def test_numbers_follow_each_other_within_an_agent(ada: Agent, bob: Agent) -> None:
    assert remember(ada, "one", "two") == [1, 2]
    assert remember(bob, "one") == [1]
    assert remember(ada, "three") == [3]


def test_a_remembered_memory_starts_core_common_and_unprotected(ada: Agent) -> None:
    remember(ada, "tea")
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.scope, memory.project) == ("core", "behavioral", "common", "")
    assert (memory.source, memory.constitutional, memory.discarded_at) == ("agent", False, None)
    [number] = remember(ada, "  Tea, with milk.\n", tags=("drink", "habit"))
    assert (says(ada, number).content, says(ada, number).tags) == ("  Tea, with milk.\n", ("drink", "habit"))


def test_a_project_memory_without_a_category_is_contextual(ada: Agent) -> None:
    remember(ada, "uses tabs", project="site")
    memory = row(ada, 1)
    assert (memory.category, memory.scope, memory.project) == ("contextual", "project", "site")
    remember(ada, "uses tabs", category="topic")
    assert row(ada, 2).project == "default-project"


def test_origin_is_now_unless_it_is_given(ada: Agent) -> None:
    given = datetime(2024, 2, 1, 9, 30, tzinfo=timezone(timedelta(hours=2)))
    remember(ada, "new")
    remember(ada, "old", origin=given)
    entry = AuditEntry.objects.get(agent_id=ada.pk, seq=row(ada, 1).version)
    assert row(ada, 1).origin == row(ada, 1).created_at == entry.at
    assert row(ada, 2).origin == given
    assert row(ada, 2).origin.tzinfo == UTC


def test_remembering_writes_one_entry_with_a_change_for_each(ada: Agent) -> None:
    edited = operations.remember(ada, [Draft("one"), Draft("two")], ME)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.actor_kind, entry.actor_label) == (
        edited.seq,
        "remembered",
        "agent",
        "runtime",
    )
    assert entry.changes == len(steps.changes(ada, entry.seq)) == 2
    assert (entry.agent_label, entry.tenant_id, entry.session, entry.sealed) == ("acme/ada", ada.tenant_id, None, None)
    for change in steps.changes(ada, entry.seq):
        assert change.before is change.before_digest is None
        assert bytes(change.after) == steps.snapshot(row(ada, change.number))


def test_remembering_counts_core_and_journal(ada: Agent) -> None:
    remember(ada, "x" * 9, "y" * 8)
    remember(ada, "z" * 100, kind="journal")
    agent = steps.fresh(ada)
    assert (agent.core_count, agent.core_tokens, agent.journal_count) == (2, 5, 1)
    assert (agent.high_water_tokens, agent.duplicate_tokens, agent.next_number) == (5, 0, 4)


def test_the_same_text_elsewhere_is_no_repeat(ada: Agent) -> None:
    remember(ada, "x" * 40)
    remember(ada, "x" * 40, project="site")
    remember(ada, "x" * 40, kind="journal")
    assert steps.fresh(ada).duplicate_tokens == 0
    remember(ada, "x" * 40)
    agent = steps.fresh(ada)
    assert (agent.core_tokens, agent.duplicate_tokens, agent.high_water_tokens) == (30, 10, 20)


def test_growing_over_the_budget_makes_the_agent_due_at_once(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(budget_tokens=10, target_tokens=5)
    remember(ada, "x" * 40)
    assert steps.fresh(ada).due_reason == "weekly"
    remember(ada, "y")
    agent = steps.fresh(ada)
    assert (agent.due_reason, agent.due_at) == ("over_budget", last_entry(ada).at)


def test_an_agent_told_to_keep_quiet_is_due_when_the_quiet_ends(ada: Agent) -> None:
    quiet = last_entry(ada).at + timedelta(hours=24)
    Agent.objects.filter(pk=ada.pk).update(budget_tokens=10, target_tokens=5, quiet_until=quiet, quiet_below_tokens=100)
    remember(ada, "x" * 80)
    assert (steps.fresh(ada).due_reason, steps.fresh(ada).due_at) == ("over_budget", quiet)
    remember(ada, "y" * 320)
    assert steps.fresh(ada).due_at == last_entry(ada).at


def test_a_sooner_due_date_is_kept(ada: Agent) -> None:
    sooner = last_entry(ada).at - timedelta(hours=1)
    Agent.objects.filter(pk=ada.pk).update(budget_tokens=10, target_tokens=5, due_at=sooner, due_reason="manual")
    remember(ada, "x" * 80)
    assert (steps.fresh(ada).due_reason, steps.fresh(ada).due_at) == ("manual", sooner)


def test_repeats_counted_under_two_token_counters_still_agree_with_the_rows(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "x" * 40)
    monkeypatch.setattr("memory.policy.tokens.count", len)
    remember(ada, "x" * 40, "x" * 40)
    assert steps.fresh(ada).duplicate_tokens == 50
    assert steps.problems(ada) == []
    operations.discard(ada, [2], ME)
    operations.revise(ada, 1, ME, tags=["counted anew"])
    assert steps.problems(ada) == []
