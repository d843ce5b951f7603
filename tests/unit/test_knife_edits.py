"""What good Knife calls do, and what they are answered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from audit.models import Operation
from memory.models import Agent, Kind
from memory.writing import operations
from tests.refining import change, dropped, fill, filler, notice, opened, protected, sound, untouched
from tests.steps import ME, active, fresh, last_entry, remember, row, says

EARLY, LATE = datetime(2024, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)


def pair(agent: Agent) -> list[int]:
    """Two memories of 20 tokens, the later one first."""
    late = remember(agent, filler(20, "a"), origin=LATE, tags=["x", "y"])
    return late + remember(agent, filler(20, "b"), origin=EARLY, tags=["y", "z"])


def merge(*ids: int) -> dict[str, Any]:
    return {"ids_to_merge": list(ids), "new_content": filler(38, "merged")}


@pytest.mark.parametrize("form", [int, str, "#{}".format])
def test_numbers_in_each_form_name_the_same_memory(ada: Agent, form: Any) -> None:
    fill(ada, 5, 20)
    assert opened(ada).call("delete_memory", id=form(3))["ok"]
    assert active(ada) == [1, 2, 4, 5]


# --- consolidate


def test_a_merge_replaces_its_sources(ada: Agent) -> None:
    sources = pair(ada)
    fill(ada, 5, 20)
    answer = opened(ada).call("consolidate_memories", **merge(*sources))
    assert (answer["merged"], answer["saved"]) == (sources, 2)
    assert says(ada, answer["id"]).content == filler(38, "merged")
    assert (row(ada, answer["id"]).origin, says(ada, answer["id"]).tags) == (EARLY, ("x", "y", "z"))
    assert {row(ada, number).superseded_by for number in sources} == {answer["id"]}
    assert not set(sources) & set(active(ada))


def test_a_merge_is_one_entry_of_the_trail_by_the_agent_in_its_session(ada: Agent) -> None:
    sources = pair(ada)
    fill(ada, 5, 20)
    before = last_entry(ada).seq
    held = opened(ada)
    held.call("consolidate_memories", **merge(*sources))
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.changes) == (before + 2, Operation.CONSOLIDATED, 3)
    assert (entry.actor_kind, entry.actor_label, entry.session) == ("agent", "session 1", 1)


def test_constitutional_memories_in_a_merge_are_left_out_and_named(ada: Agent) -> None:
    fill(ada, 6, 20)
    protected(ada, 2, 5)
    held = opened(ada)
    with_them = merge(1, 2, 3, 5)
    answer = held.call("consolidate_memories", **with_them)
    assert (answer["merged"], answer["left_out_as_constitutional"]) == ([1, 3], [2, 5])
    assert row(ada, 2).discarded_at is None


def test_a_merge_of_two_categories_takes_the_one_given(ada: Agent) -> None:
    remember(ada, filler(20, 1), category="behavioral")
    remember(ada, filler(20, 2), category="technical")
    answer = opened(ada).call("consolidate_memories", **merge(1, 2), category="technical")
    assert row(ada, answer["id"]).category == "technical"


def test_a_merged_memory_may_be_merged_again(ada: Agent) -> None:
    fill(ada, 6, 20)
    held = opened(ada)
    new = held.call("consolidate_memories", **merge(1, 2))["id"]
    answer = held.call("consolidate_memories", ids_to_merge=[new, 3], new_content=filler(57, "again"))
    assert answer["merged"] == [new, 3]


def test_what_a_merge_drops_is_kept_sealed_in_its_entry(ada: Agent) -> None:
    fill(ada, 8, 20)
    remember(ada, "It costs 40 euros and comes with a long guarantee.", "It comes in green and in a shade of blue.")
    answer = opened(ada).call(
        "consolidate_memories",
        ids_to_merge=[9, 10],
        new_content="It comes with a long guarantee, in green and in a shade of blue.",
        dropping=["40 euros"],
    )
    assert answer["ok"], answer
    entry = last_entry(ada)
    assert dropped(ada, entry) == ["40 euros"]
    assert b"euros" not in bytes(entry.sealed or b"")
    assert "euros" not in str(entry.detail)


# --- update, delete


def test_an_update_rewrites(ada: Agent) -> None:
    fill(ada, 5, 20)
    answer = opened(ada).call("update_memory", id=2, content=filler(15, "short"))
    assert (answer["id"], answer["saved"]) == (2, 5)
    assert says(ada, 2).content == filler(15, "short")


def test_an_update_to_the_same_words_is_no_edit(ada: Agent) -> None:
    fill(ada, 3, 20)
    held = opened(ada)
    before = last_entry(ada).seq
    answer = held.call("update_memory", id=2, content=says(ada, 2).content)
    assert (answer["ok"], answer["unchanged"]) == (True, True)
    assert (last_entry(ada).seq, held.row.changes, held.row.updated) == (before, 0, 0)


def test_a_deletion_discards_and_keeps(ada: Agent) -> None:
    fill(ada, 5, 20)
    content = says(ada, 4).content
    assert opened(ada).call("delete_memory", id=4)["saved"] == 20
    assert row(ada, 4).discarded_at is not None
    assert says(ada, 4).content == content


def test_figures_are_counted_and_the_trail_is_sound(ada: Agent) -> None:
    fill(ada, 12, 20)
    held = opened(ada)
    held.call("consolidate_memories", **merge(1, 2))
    held.call("update_memory", id=3, content=filler(19, "u"))
    held.call("delete_memory", id=4)
    held.call("protect_memory", id=5)
    session = held.row
    counted = (session.merged, session.updated, session.deleted, session.protected, session.changes)
    assert counted == (2, 1, 1, 1, 4)
    assert (session.tokens_before, session.lost_tokens, session.tokens_after) == (240, 23, 217)
    assert fresh(ada).core_tokens == 217
    held.call("complete_refinement", summary="Done.")
    assert sound(ada)


def test_every_result_tells_tokens_and_what_is_left(ada: Agent) -> None:
    fill(ada, 10, 100)
    answer = opened(ada).call("delete_memory", id=1)
    assert answer["tokens"] == {"core": 900, "target": 5_000, "floor": 750}
    assert answer["left"] == {"changes": 99, "tokens_to_cut": 150, "steps": 30, "searches": 20, "failed_calls": 20}


# --- protect, promote


def test_a_protected_memory_is_constitutional_from_then_on(ada: Agent) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    assert held.call("protect_memory", id=2)["already"] is False
    assert row(ada, 2).constitutional
    assert held.call("delete_memory", id=2)["code"] == "constitutional"


def test_protecting_a_constitutional_memory_is_no_edit(ada: Agent) -> None:
    fill(ada, 5, 20)
    protected(ada, 2)
    held = opened(ada)
    with untouched(ada):
        assert held.call("protect_memory", id=2)["already"] is True


def test_a_journal_memory_can_be_promoted(ada: Agent) -> None:
    fill(ada, 1, 20)
    [journal] = remember(ada, "Watered the tomatoes.", kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    assert held.call("promote_memory", id=journal)["already"] is False
    assert held.call("promote_memory", id=journal)["already"] is True
    assert (row(ada, journal).kind, held.row.promoted) == (Kind.CORE, 1)
    assert held.call("promote_memory", id=1)["already"] is True


# --- search


def test_a_search_finds_and_shows_and_is_counted(ada: Agent) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    [late] = remember(ada, "The tomatoes need water.", tags=["garden"])
    operations.discard(ada, remember(ada, "The old tomatoes."), ME)
    before = last_entry(ada).seq
    [found] = held.call("search_memories", query="tomatoes")["found"]
    assert (found["id"], found["content"], found["tags"]) == (late, "The tomatoes need water.", ["garden"])
    assert (last_entry(ada).seq, held.row.searches, held.row.changes) == (before, 1, 0)
    assert held.call("delete_memory", id=late)["ok"], "what was shown may be edited"


def test_a_search_by_kind_and_dates(ada: Agent) -> None:
    remember(ada, "Old tomatoes.", origin=EARLY)
    [late] = remember(ada, "New tomatoes.", origin=LATE)
    [journal] = remember(ada, "Journal of tomatoes.", kind=Kind.JOURNAL, origin=LATE)
    held = opened(ada)
    found = held.call("search_memories", query="tomatoes", since="2026-01-01")["found"]
    assert {memory["id"] for memory in found} == {late, journal}
    found = held.call("search_memories", query="tomatoes", until="2026-01-01", kind="core")["found"]
    assert [memory["id"] for memory in found] == [1]
    assert len(held.call("search_memories", query="tomatoes", limit=2)["found"]) == 2


def test_a_search_finds_nothing_of_another_agent(ada: Agent, bob: Agent) -> None:
    remember(bob, "The tomatoes need water.")
    assert opened(ada).call("search_memories", query="tomatoes")["found"] == []


# --- ending


def test_completing_ends_the_session_with_counted_figures(ada: Agent) -> None:
    fill(ada, 10, 20)
    held = opened(ada)
    held.call("consolidate_memories", **merge(1, 2))
    answer = held.call("complete_refinement", summary="I merged 500 memories\nand saved a million tokens.")
    assert (answer["session"], answer["merged"], answer["tokens_after"]) == ("completed", 2, 198)
    assert notice(ada) == (
        "Refinement completed. Compressed 10 → 9 core memories; saved 2 tokens; merged 2, rewrote 0, deleted 0, "
        "promoted 0; protected 0; exact duplicates removed 0. "
        'In your own words: "I merged 500 memories and saved a million tokens."'
    )


def test_declining_ends_the_session_and_keeps_the_reason(ada: Agent) -> None:
    fill(ada, 3, 20)
    held = opened(ada)
    assert held.call("decline_refinement", reason="All is\nwell.")["session"] == "declined"
    assert notice(ada).startswith("Refinement declined. ")
    assert notice(ada).endswith(' "All is well."')


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("delete_memory", {"id": 1}),
        ("update_memory", {"id": 1, "content": filler(19, "u")}),
        ("consolidate_memories", merge(1, 2)),
        ("protect_memory", {"id": 1}),
        ("promote_memory", {"id": 11}),
    ],
)
def test_declining_after_an_edit_is_too_late(ada: Agent, tool: str, arguments: dict[str, Any]) -> None:
    fill(ada, 10, 20)
    remember(ada, "Watered the tomatoes.", kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    assert held.send(tool, arguments)["ok"]
    with untouched(ada):
        assert held.call("decline_refinement", reason="Changed my mind.")["code"] == "too_late"


def test_declining_after_searches_and_refused_calls_is_in_time(ada: Agent) -> None:
    fill(ada, 3, 20)
    held = opened(ada)
    held.call("search_memories", query="tea")
    held.call("delete_memory", id=999)
    held.call("update_memory", id=1, content=says(ada, 1).content)
    assert held.call("decline_refinement", reason="All is well.")["ok"]


def test_with_memory_switched_off_meanwhile_nothing_is_read_or_edited(ada: Agent) -> None:
    remember(ada, "The tomatoes need water.")
    held = opened(ada)
    change(ada, memory_enabled=False)
    assert "tomatoes" not in str(held.call("search_memories", query="water"))
    assert held.row.outcome != "open"
    assert row(ada, 1).discarded_at is None
