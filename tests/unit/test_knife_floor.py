"""The circuit breaker in the Knife: what a session, and a year of sessions, cannot bring core memory below."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.utils import timezone

from memory.models import Agent, Kind
from memory.writing import operations
from refinement import session as sessions
from refinement.models import Outcome
from tests.refining import Held, change, fill, filler, notice, opened, protected, refused, sound
from tests.steps import ME, PERSON, active, fresh, remember, row


def cut(held: Held, *numbers: int) -> list[str]:
    """Delete these; the codes of what was refused."""
    answers = [held.call("delete_memory", id=number) for number in numbers]
    return [answer["code"] for answer in answers if not answer["ok"]]


def test_an_agent_over_its_target_may_cut_to_its_floor(ada: Agent) -> None:
    made = fill(ada, 10, 100)
    held = opened(ada, target_tokens=800)
    assert held.session.floor_tokens == 600
    assert cut(held, *made[:4]) == []
    refused(held, "floor", "delete_memory", {"id": made[4]})


def test_a_small_memory_may_be_tidied_by_a_quarter(ada: Agent) -> None:
    made = fill(ada, 8, 10)
    held = opened(ada)
    assert held.session.floor_tokens == 60
    assert cut(held, *made[:2]) == []
    refused(held, "floor", "delete_memory", {"id": made[2]})


def test_the_retention_is_the_agents(ada: Agent) -> None:
    made = fill(ada, 10, 100)
    held = opened(ada, retention=Decimal("1.00"))
    refused(held, "floor", "delete_memory", {"id": made[0]})


def test_a_rewrite_counts_by_what_it_saves(ada: Agent) -> None:
    fill(ada, 4, 100)
    held = opened(ada)
    assert held.call("update_memory", id=1, content=filler(1, "x"))["ok"]
    refused(held, "floor", "update_memory", {"id": 2, "content": filler(98, "y")})
    assert held.call("update_memory", id=2, content=filler(99, "y"))["ok"]


def test_a_merge_counts_by_what_it_saves(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    held = opened(ada)
    refused(held, "floor", "consolidate_memories", {"ids_to_merge": made, "new_content": filler(299, "x")})
    assert held.call("consolidate_memories", ids_to_merge=made, new_content=filler(300, "x"))["ok"]


def test_a_refusal_shows_its_arithmetic_and_what_is_left(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    held = opened(ada)
    answer = refused(held, "floor", "consolidate_memories", {"ids_to_merge": made, "new_content": filler(10, "x")})
    assert "The remaining 10 are below the floor of 300. You can still cut at most 100 tokens." in answer["error"]
    assert answer["left"]["tokens_to_cut"] == 100


def test_memories_added_meanwhile_buy_no_room(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    held = opened(ada)
    fill(ada, 10, 100, "meanwhile")
    assert cut(held, made[0]) == []
    refused(held, "floor", "delete_memory", {"id": made[1]})


def test_promoting_buys_no_room(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    remember(ada, filler(300, "tomatoes"), kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query=filler(300, "tomatoes")[:100])
    assert held.call("promote_memory", id=5)["ok"]
    assert cut(held, *made[:2]) == ["floor"]


def test_padding_buys_no_room(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    held = opened(ada)
    refused(held, "grown", "update_memory", {"id": made[3], "content": filler(117, "padding")})
    refused(held, "grown", "consolidate_memories", {"ids_to_merge": made[2:], "new_content": filler(217, "grown")})
    assert held.call("update_memory", id=made[3], content=filler(116, "padding"))["ok"]
    assert held.call("update_memory", id=made[3], content=filler(100, "back"))["ok"]
    assert held.row.lost_tokens == 16, "the padding that was cut again is a loss"
    assert cut(held, made[0]) == ["floor"]


def test_a_memory_padded_in_one_session_buys_no_other_in_the_next(ada: Agent) -> None:
    made = fill(ada, 20, 100)
    for _ in range(10):
        held = opened(ada)
        for number in made[:2]:
            held.call("update_memory", id=number, content=filler(2_000, "padding"))
        cut(held, *made[2:])
        held.call("complete_refinement", summary="Done.")
    assert fresh(ada).core_count >= 14


def test_what_others_discard_meanwhile_leaves_less_room(ada: Agent) -> None:
    made = fill(ada, 8, 100)
    held = opened(ada)
    operations.discard(ada, made[:2], ME)
    refused(held, "floor", "delete_memory", {"id": made[2]})
    assert fresh(ada).core_tokens == held.session.floor_tokens == 600


def test_below_its_floor_an_agent_can_still_merge_what_loses_nothing(ada: Agent) -> None:
    made = fill(ada, 8, 100)
    operations.discard(ada, made[:6], ME)
    merged = {"ids_to_merge": made[6:], "new_content": filler(200, "all of it")}
    assert opened(ada).call("consolidate_memories", **merged)["ok"]


def test_exact_duplicates_do_not_count_in_the_high_water_mark(ada: Agent) -> None:
    remember(ada, *[filler(100, "same")] * 10, filler(100, "other"))
    assert fresh(ada).high_water_tokens == 200
    held = opened(ada)
    assert (held.session.tokens_before, held.session.counted_tokens, held.session.floor_tokens) == (1_100, 200, 150)


def test_removed_duplicates_leave_no_room_for_what_comes_meanwhile(ada: Agent) -> None:
    """They are in what there was before, and in nothing the session may cut."""
    remember(ada, *[filler(100, "same")] * 10, *(filler(100, n) for n in range(3)))
    held = opened(ada)
    assert held.row.lost_tokens == 0
    fill(ada, 9, 100, "meanwhile")
    assert held.row.counted_tokens == 400
    assert cut(held, 11, 12) == ["floor"]


def test_making_an_exact_duplicate_is_a_loss(ada: Agent) -> None:
    """It would be removed, as no loss, before the next session."""
    fill(ada, 4, 100)
    held = opened(ada)
    same = filler(100, "same")
    assert held.call("update_memory", id=1, content=same)["ok"]
    assert held.call("update_memory", id=2, content=same)["ok"]
    refused(held, "floor", "update_memory", {"id": 3, "content": same})


def test_a_merge_into_an_exact_duplicate_is_a_loss(ada: Agent) -> None:
    fill(ada, 4, 100)
    remember(ada, filler(200, "same"))
    merged = {"ids_to_merge": [1, 2], "new_content": filler(200, "same")}
    refused(opened(ada), "floor", "consolidate_memories", merged)


def test_constitutional_duplicates_hold_no_room(ada: Agent) -> None:
    """They stay, until somebody unprotects them; then they are removed as duplicates."""
    remember(ada, *[filler(200, "kept")] * 2, *(filler(100, n) for n in range(2)))
    protected(ada, 1, 2)
    held = opened(ada)
    assert held.session.floor_tokens == 300
    assert cut(held, 3, 4) == ["floor"]
    sessions.close(held.session, Outcome.COMPLETED)
    operations.unprotect(ada, [1, 2], PERSON, reason="a mistake")
    session = opened(ada).session
    assert (session.tokens_before, session.counted_tokens) == (500, 300)


def test_three_refusals_in_a_row_end_the_session(ada: Agent) -> None:
    made = fill(ada, 4, 100)
    held = opened(ada)
    held.call("delete_memory", id=made[0])
    answers = [held.call("delete_memory", id=made[1]) for _ in range(3)]
    assert [answer.get("session_ended", False) for answer in answers] == [False, False, True]
    assert (held.row.outcome, held.row.reason) == (Outcome.INCOMPLETE, "floor")
    assert active(ada)[:3] == made[1:]
    assert notice(ada).startswith("Refinement ended early (floor). Compressed 4 → 3 core memories; saved 100 tokens")
    assert sound(ada)


def test_an_edit_between_refusals_begins_the_count_anew(ada: Agent) -> None:
    made = fill(ada, 8, 100)
    held = opened(ada)
    big = {"ids_to_merge": made, "new_content": filler(10, "x")}
    for number in made[:2]:
        assert held.call("consolidate_memories", **big)["code"] == "floor"
        assert held.call("consolidate_memories", **big)["code"] == "floor"
        assert held.call("update_memory", id=number, content=filler(99, number))["ok"]
    assert held.row.outcome == Outcome.OPEN


@pytest.mark.parametrize("between", ["search_memories", "delete_memory", "nonsense"])
def test_what_is_no_edit_does_not_begin_the_count_anew(ada: Agent, between: str) -> None:
    made = fill(ada, 8, 100)
    held = opened(ada)
    big = {"ids_to_merge": made, "new_content": filler(10, "x")}
    for _ in range(2):
        assert held.call("consolidate_memories", **big)["code"] == "floor"
        held.send(between, {"query": "x"})
    assert held.call("consolidate_memories", **big)["session_ended"]


def greedy(held: Held, numbers: list[int], week: int) -> None:
    """All a hostile model can do to lose mass, until it is stopped."""
    same = filler(20, "same")
    for number in numbers:
        for arguments in ({"id": number}, {"id": number, "content": same}, {"id": number, "content": f"x{week}"}):
            tool = "update_memory" if "content" in arguments else "delete_memory"
            if held.send(tool, arguments).get("session_ended"):
                return


def test_a_year_of_hostile_weekly_sessions_never_goes_below_the_floor(ada: Agent) -> None:
    fill(ada, 40, 20)
    change(ada, target_tokens=600)
    for week in range(52):
        with time_machine.travel(timezone.now() + timedelta(weeks=week)):
            held = opened(ada, shown=True)
            greedy(held, active(ada)[:12], week)
            sessions.close(held.session, Outcome.COMPLETED)
            remember(ada, filler(5, f"week {week}"))
            distinct = fresh(ada).core_tokens - fresh(ada).duplicate_tokens
            assert distinct >= held.session.floor_tokens == 450
    assert sound(ada)


def test_a_year_of_growing_and_cutting_never_goes_below_the_floor(ada: Agent) -> None:
    for week in range(12):
        fill(ada, 4, 50, week)
        held = opened(ada, target_tokens=300)
        for number in [n for n in active(ada) if row(ada, n).kind == Kind.CORE]:
            if held.call("delete_memory", id=number).get("session_ended"):
                break
        sessions.close(held.session, Outcome.COMPLETED)
        assert fresh(ada).core_tokens >= held.session.floor_tokens
