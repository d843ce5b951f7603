"""Valid Knife calls: their effects and their answers."""

from datetime import UTC, datetime
from typing import Any

import pytest

from audit.models import Operation
from memory.models import Agent, Kind
from memory.writing import operations
from refinement.models import Mode
from refinement.tools import schemas
from tests.refining import change, fill, filler, notice, opened, protected, sound, untouched
from tests.steps import ME, active, fresh, last_entry, remember, row, says

EARLY, LATE = datetime(2024, 5, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)


def merge(*ids: int) -> dict[str, Any]:
    return {"ids_to_merge": list(ids), "new_content": filler(38, "merged")}


@pytest.mark.parametrize("form", [int, str, "#{}".format])
def test_numbers_in_each_form_name_the_same_memory(ada: Agent, form: Any) -> None:
    fill(ada, 5, 20)
    assert opened(ada).call("demote_memory", id=form(3))["ok"]
    assert active(ada) == [1, 2, 4, 5]


def test_a_merge_replaces_its_sources_in_one_entry(ada: Agent) -> None:
    sources = remember(ada, filler(20, "a"), origin=LATE, tags=["x", "y"])
    sources += remember(ada, filler(20, "b"), origin=EARLY, tags=["y", "z"])
    fill(ada, 5, 20)
    held, before = opened(ada), last_entry(ada).seq
    answer = held.call("consolidate_memories", **merge(*sources))
    assert (answer["merged"], answer["saved"]) == (sources, 2)
    merged = says(ada, answer["id"])
    assert (merged.content, merged.tags) == (filler(38, "merged"), ("x", "y", "z"))
    assert row(ada, answer["id"]).origin == EARLY
    assert {row(ada, number).superseded_by for number in sources} == {answer["id"]}
    assert not set(sources) & set(active(ada))
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.changes) == (before + 1, Operation.CONSOLIDATED, 3)
    assert (entry.actor_kind, entry.actor_label, entry.session) == ("agent", "session 1", 1)
    again = held.call("consolidate_memories", ids_to_merge=[answer["id"], 3], new_content=filler(57, "again"))
    assert again["merged"] == [answer["id"], 3]


def test_constitutional_memories_in_a_merge_are_left_out_and_named(ada: Agent) -> None:
    fill(ada, 6, 20)
    protected(ada, 2, 5)
    answer = opened(ada).call("consolidate_memories", **merge(1, 2, 3, 5))
    assert (answer["merged"], answer["left_out_as_constitutional"]) == ([1, 3], [2, 5])
    assert row(ada, 2).discarded_at is None


def test_a_merge_of_two_categories_takes_the_category_argument(ada: Agent) -> None:
    remember(ada, filler(20, 1), category="behavioral")
    remember(ada, filler(20, 2), category="technical")
    answer = opened(ada).call("consolidate_memories", **merge(1, 2), category="technical")
    assert row(ada, answer["id"]).category == "technical"


def test_dropping_is_accepted_ignored_and_not_offered(ada: Agent) -> None:
    fill(ada, 8, 20)
    assert opened(ada).call("consolidate_memories", **merge(1, 2), dropping=["40 euros", 3])["ok"]
    assert last_entry(ada).sealed is None
    assert "dropping" not in str(schemas(Mode.FULL))


def test_an_update_rewrites_and_the_same_text_is_no_edit(ada: Agent) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    answer = held.call("update_memory", id=2, content=filler(15, "short"))
    assert (answer["id"], answer["saved"], says(ada, 2).content) == (2, 5, filler(15, "short"))
    before = last_entry(ada).seq
    answer = held.call("update_memory", id=2, content=filler(15, "short"))
    assert (answer["ok"], answer["unchanged"]) == (True, True)
    assert (last_entry(ada).seq, held.row.changes, held.row.updated) == (before, 1, 1)


def test_a_deleted_memory_is_discarded_and_keeps_its_content(ada: Agent) -> None:
    fill(ada, 10, 100)
    content = says(ada, 4).content
    answer = opened(ada).call("delete_memory", id=4)
    assert (answer["saved"], says(ada, 4).content) == (100, content)
    assert row(ada, 4).discarded_at is not None
    assert answer["tokens"] == {"core": 900, "target": 5_000, "floor": 750}
    assert answer["left"] == {"changes": 99, "tokens_to_cut": 150, "steps": 100, "searches": 20, "failed_calls": 20}


def test_completing_ends_the_session_with_counted_figures(ada: Agent) -> None:
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
    answer = held.call("complete_refinement", summary="I merged 500 memories\nand saved a million tokens.")
    assert (answer["session"], answer["merged"], answer["tokens_after"]) == ("completed", 2, 217)
    assert notice(ada) == (
        "Refinement completed. Compressed 12 → 10 core memories; saved 23 tokens; merged 2, rewrote 1, deleted 1, "
        "demoted 0, promoted 0; protected 1; exact duplicates removed 0. "
        'In your own words: "I merged 500 memories and saved a million tokens."'
    )
    assert sound(ada)


def test_a_protected_memory_is_constitutional(ada: Agent) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    assert held.call("protect_memory", id=2)["already"] is False
    assert row(ada, 2).constitutional
    assert held.call("delete_memory", id=2)["code"] == "constitutional"
    with untouched(ada):
        assert held.call("protect_memory", id=2)["already"] is True


def test_a_journal_memory_can_be_promoted(ada: Agent) -> None:
    fill(ada, 1, 20)
    [journal] = remember(ada, "Watered the tomatoes.", kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    answers = [held.call("promote_memory", id=number)["already"] for number in (journal, journal, 1)]
    assert (answers, row(ada, journal).kind, held.row.promoted) == ([False, True, True], Kind.CORE, 1)


def test_a_search_shows_active_memories_and_allows_to_edit_them(ada: Agent, bob: Agent) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    [late] = remember(ada, "The tomatoes need water.", tags=["garden"])
    operations.discard(ada, remember(ada, "The old tomatoes."), ME)
    remember(bob, "The tomatoes need water.")
    before = last_entry(ada).seq
    [found] = held.call("search_memories", query="tomatoes")["found"]
    assert (found["id"], found["content"], found["tags"]) == (late, "The tomatoes need water.", ["garden"])
    assert (last_entry(ada).seq, held.row.searches, held.row.changes) == (before, 1, 0)
    assert held.call("delete_memory", id=late)["ok"]


def test_a_search_by_kind_and_dates(ada: Agent) -> None:
    [old] = remember(ada, "Old tomatoes.", origin=EARLY)
    [late] = remember(ada, "New tomatoes.", origin=LATE)
    [journal] = remember(ada, "Journal of tomatoes.", kind=Kind.JOURNAL, origin=LATE)
    held = opened(ada)

    def found(**filters: Any) -> set[int]:
        return {memory["id"] for memory in held.call("search_memories", query="tomatoes", **filters)["found"]}

    assert (found(since="2026-01-01"), found(until="2026-01-01", kind="core")) == ({late, journal}, {old})
    assert len(found(limit=2)) == 2


def test_declining_ends_the_session_also_after_searches_and_refused_calls(ada: Agent) -> None:
    fill(ada, 3, 20)
    held = opened(ada)
    held.call("search_memories", query="tea")
    held.call("delete_memory", id=999)
    held.call("update_memory", id=1, content=says(ada, 1).content)
    assert held.call("decline_refinement", reason="All is\nwell.")["session"] == "declined"
    assert fresh(ada).journal_count == 0


EDITS: dict[str, dict[str, Any]] = {
    **{f"{verb}_memory": {"id": 1} for verb in ("delete", "protect")},
    "promote_memory": {"id": 11},
    "update_memory": {"id": 1, "content": filler(19, "u")},
    "consolidate_memories": merge(1, 2),
}


@pytest.mark.parametrize("tool", EDITS)
def test_declining_after_an_edit_is_too_late(ada: Agent, tool: str) -> None:
    fill(ada, 10, 20)
    remember(ada, "Watered the tomatoes.", kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    assert held.send(tool, EDITS[tool])["ok"]
    with untouched(ada):
        assert held.call("decline_refinement", reason="Changed my mind.")["code"] == "too_late"


def test_after_memory_is_switched_off_nothing_is_read_or_edited(ada: Agent) -> None:
    remember(ada, "The tomatoes need water.")
    held = opened(ada)
    change(ada, memory_enabled=False)
    assert "tomatoes" not in str(held.call("search_memories", query="water"))
    assert held.row.outcome != "open"
    assert row(ada, 1).discarded_at is None


def test_a_demoted_memory_leaves_the_budget_and_is_found(ada: Agent) -> None:
    fill(ada, 20, 20)
    held = opened(ada)
    answer = held.call("demote_memory", id=3, reason="It is out of date.")
    assert (answer["saved"], row(ada, 3).layer, fresh(ada).core_tokens) == (20, "beneath", 380)
    assert fresh(ada).beneath_tokens == 20
    found = held.call("search_memories", query=says(ada, 3).content, kind="beneath")["found"]
    assert [(each["id"], each["layer"]) for each in found] == [(3, "beneath")]
    assert held.call("demote_memory", id=3)["code"] == "not_core"
    assert held.call("promote_memory", id=3)["ok"]
    assert (row(ada, 3).layer, held.row.demoted, held.row.promoted, sound(ada)) == ("core", 1, 1, True)


def test_a_rewrite_keeps_the_old_text_beneath(ada: Agent) -> None:
    fill(ada, 20, 20)
    held = opened(ada)
    old = says(ada, 3).content
    held.call("update_memory", id=3, content="short")
    found = held.call("search_memories", query=old, kind="beneath")["found"]
    assert [(each["content"], each.get("superseded_by")) for each in found] == [("short", None), (old, 3)]
