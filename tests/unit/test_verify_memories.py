"""What is wrong with an agent's memories, its counters, its row and its keys, beside its trail, is found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.models import F

from memory.agents import lifecycle
from memory.models import Agent, AgentKey, Memory
from memory.writing import operations
from memory.writing.edits import fields_of
from tests import steps
from tests.steps import ME, problems, remember
from tests.tampering import LAST, called, changes, columns, found, memories, others, undone

pytestmark = pytest.mark.database


def test_an_altered_column_of_any_memory_is_found(past: Agent) -> None:
    for column in columns(Memory, "redacted_at"):
        became = "is missing" if column in ("agent_id", "number") else "is not as this entry left it"
        for memory in list(memories(past)):
            if column == "constitutional" and memory.discarded_at:  # which the database refuses
                continue
            for value in others(Memory, column, getattr(memory, column)):
                with undone():
                    assert memories(past).filter(pk=memory.pk).update(**{column: value}) == 1
                    told = found(past)[0]
                    assert (told.seq, told.problem) == (memory.version, f"memory {memory.number} {became}"), (
                        column,
                        value,
                    )


def test_an_inserted_memory_is_found(past: Agent) -> None:
    for number in (77, 88):
        memory = steps.row(past, 6)
        memory.pk, memory.number = None, number
        memory._state.adding = True
        memory.save()
    assert [p.problem for p in found(past)][:2] == ["memory 77 is not in the trail", "memory 88 is not in the trail"]


def test_any_removed_memory_is_found(past: Agent) -> None:
    for memory in list(memories(past)):
        with undone():
            memories(past).filter(pk=memory.pk).delete()
            told = found(past)[0]
            assert (told.seq, told.problem) == (memory.version, f"memory {memory.number} is missing")


def test_two_memories_that_took_each_others_body_are_found(past: Agent) -> None:
    one, other = memories(past).filter(number__in=(4, 6))
    for mine, theirs in ((one, other), (other, one)):
        memories(past).filter(pk=mine.pk).update(sealed=theirs.sealed, digest=theirs.digest)
    assert {(p.seq, p.problem) for p in found(past)} >= {
        (each.version, f"memory {each.number} is not as this entry left it") for each in (one, other)
    }


def test_an_older_body_of_any_memory_put_back_is_found(past: Agent) -> None:
    """With all that was written beside it, and as the version it was."""
    older = [change for change in changes(past) if memories(past).get(number=change.number).version > change.seq]
    assert len(older) == 6
    for change in older:
        memory = memories(past).get(number=change.number)
        state = fields_of(bytes(change.after))
        for values in ({"sealed": state["sealed"]}, state, state | {"version": change.seq}):
            if all(getattr(memory, name) == value for name, value in values.items()):
                continue
            with undone():
                memories(past).filter(pk=memory.pk).update(**values)
                told, expected = found(past)[0], f"memory {memory.number} is not as this entry left it"
                assert (told.seq, told.problem) == (memory.version, expected)


def test_an_altered_counter_is_found(past: Agent) -> None:
    rows: Any = [
        "core_count",
        "core_tokens",
        "journal_count",
        "constitutional_count",
        "constitutional_tokens",
        "duplicate_tokens",
        "next_number",
    ]
    for counter in rows:
        for by in [1, -1]:
            with undone():
                Agent.objects.filter(pk=past.pk).update(**{counter: 50})
                Agent.objects.filter(pk=past.pk).update(**{counter: F(counter) + by})
                assert any(counter in p.problem for p in found(past))


def test_an_altered_high_water_mark_is_found(past: Agent) -> None:
    """Trap: lowered to what the memories weigh now, it lowers the floor of the next session."""
    for by in [1, -1]:
        with undone():
            row = steps.fresh(past)
            assert row.high_water_tokens - 1 > row.core_tokens - row.duplicate_tokens
            Agent.objects.filter(pk=past.pk).update(high_water_tokens=F("high_water_tokens") + by)
            assert ["high-water" in p.problem for p in found(past)] == [True]


def test_the_high_water_mark_follows_repeats_of_unlike_sizes(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal texts stored under other token counters weigh what they were stored with; the largest counts."""
    for size in (7, 90, 20):
        monkeypatch.setattr("memory.policy.tokens.count", lambda _, size=size: size)
        remember(ada, "the same")
    assert steps.fresh(ada).high_water_tokens == 90
    operations.discard(ada, [2], ME)
    remember(ada, "other", "other")
    operations.restore(ada, [2], ME)
    assert steps.fresh(ada).high_water_tokens == 110
    assert problems(ada) == []


def test_an_altered_head_in_the_agents_row_is_found(past: Agent) -> None:
    rows: Any = [
        ("audit_seq", LAST + 1, (LAST + 1, "truncated")),
        ("audit_seq", LAST - 1, (LAST, "inserted")),
        ("audit_seq", 0, (1, "inserted")),
        ("audit_mac", b"", (LAST, "altered")),
        ("audit_mac", bytes(32), (LAST, "altered")),
        ("audit_at", datetime(2990, 1, 1, tzinfo=UTC), (LAST, "altered")),  # the next entry's time never goes back
        ("audit_at", datetime(1990, 1, 1, tzinfo=UTC), (LAST, "altered")),
        ("audit_at", None, (LAST, "altered")),
    ]
    for column, value, named in rows:
        with undone():
            Agent.objects.filter(pk=past.pk).update(**{column: value})
            assert [called(problem) for problem in found(past)] == [named]


def test_an_agent_handed_to_another_tenant_is_found_also_when_it_went_on_writing(past: Agent, bob: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(tenant=bob.tenant)
    assert [(p.agent, p.seq) for p in found(past)] == [("globex/ada", 1)]
    remember(steps.fresh(past), "as another's")
    assert [p.seq for p in found(past)] == [1]
    Agent.objects.filter(pk=past.pk).update(tenant=past.tenant)
    assert [p.seq for p in found(past)] == [steps.fresh(past).audit_seq]


def test_a_renamed_agent_is_found(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(slug="eve")
    assert [p.seq for p in found(past)] == [1]


def test_a_key_put_in_by_sql_is_found(past: Agent) -> None:
    mine = AgentKey.objects.get(agent=past)
    AgentKey.objects.create(agent=past, prefix="x" * 12, mac=mine.mac)
    assert [p.problem for p in found(past)] == [f"inserted: the agent key {'x' * 12} is not in the trail"]


def test_a_key_brought_back_to_life_is_found(past: Agent) -> None:
    [key] = AgentKey.objects.filter(agent=past)
    lifecycle.revoke_key(past, key.prefix, ME)
    assert problems(past) == []
    AgentKey.objects.filter(pk=key.pk).update(revoked_at=None)
    assert [(p.seq, p.problem.split(":")[0]) for p in found(past)] == [(2, "altered")]


def test_a_key_said_to_be_another_than_it_is_is_found(past: Agent) -> None:
    """As a tenant's to hand out, for a first key would then be had for the silo."""
    AgentKey.objects.filter(agent=past).update(is_handed_out=False)
    assert [(p.seq, p.problem.split(":")[0]) for p in found(past)] == [(2, "altered")]


def test_a_key_that_was_removed_is_found(past: Agent) -> None:
    AgentKey.objects.filter(agent=past).delete()
    assert [p.seq for p in found(past)] == [2]


def test_a_data_key_taken_away_by_sql_is_found(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"")
    assert [p.problem for p in found(past)] == ["missing: the data key does not exist, but no entry destroyed it"]
