"""The circuit breaker in the Knife: no session, and no year of sessions, brings core memory below its floor."""

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
    """Delete these memories and return the error codes."""
    answers = [held.call("demote_memory", id=number) for number in numbers]
    return [answer["code"] for answer in answers if not answer["ok"]]


def is_updated(held: Held, number: int, content: str) -> bool:
    return bool(held.call("update_memory", id=number, content=content)["ok"])


def merge(numbers: list[int], tokens: int) -> dict[str, object]:
    return {"ids_to_merge": numbers, "new_content": filler(tokens, "merged")}


def test_a_session_cuts_to_its_floor_and_no_further(ada: Agent, bob: Agent) -> None:
    for agent, tokens, target, floor, count in ((ada, 100, 800, 600, 4), (bob, 10, 5_000, 60, 2)):
        numbers = fill(agent, 10 if agent == ada else 8, tokens)
        held = opened(agent, target_tokens=target)
        assert (held.session.floor_tokens, cut(held, *numbers[:count])) == (floor, [])
        refused(held, "floor", "demote_memory", {"id": numbers[count]})


def test_the_retention_is_the_agents(ada: Agent) -> None:
    numbers = fill(ada, 10, 100)
    refused(opened(ada, retention=Decimal("1.00")), "floor", "demote_memory", {"id": numbers[0]})


def test_a_rewrite_counts_by_what_it_saves(ada: Agent) -> None:
    fill(ada, 4, 100)
    held = opened(ada)
    assert is_updated(held, 1, filler(1, "x"))
    refused(held, "floor", "update_memory", {"id": 2, "content": filler(98, "y")})
    assert is_updated(held, 2, filler(99, "y"))


def test_a_merge_counts_by_what_it_saves(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    held = opened(ada)
    refused(held, "floor", "consolidate_memories", merge(numbers, 299))
    assert held.call("consolidate_memories", **merge(numbers, 300))["ok"]


def test_a_refusal_shows_the_tokens_and_the_remaining_cut(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    answer = refused(opened(ada), "floor", "consolidate_memories", merge(numbers, 10))
    assert "The remaining 10 are below the floor of 300. You can still cut at most 100 tokens." in answer["error"]
    assert answer["left"]["tokens_to_cut"] == 100


def test_memories_added_during_a_session_do_not_allow_more_cuts(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    held = opened(ada)
    fill(ada, 10, 100, "meanwhile")
    assert cut(held, *numbers[:2]) == ["floor"]


def test_promotions_do_not_allow_more_cuts(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    remember(ada, filler(300, "tomatoes"), kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query=filler(300, "tomatoes")[:100])
    assert held.call("promote_memory", id=5)["ok"]
    assert cut(held, *numbers[:2]) == ["floor"]


def test_padding_does_not_allow_more_cuts(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    held = opened(ada)
    refused(held, "grown", "update_memory", {"id": numbers[3], "content": filler(117, "padding")})
    refused(held, "grown", "consolidate_memories", merge(numbers[2:], 217))
    assert is_updated(held, numbers[3], filler(116, "padding"))
    assert is_updated(held, numbers[3], filler(100, "back"))
    assert held.row.lost_tokens == 16, "to cut the padding is a loss"
    assert cut(held, numbers[0]) == ["floor"]


def test_padding_in_one_session_buys_no_room_in_the_next(ada: Agent) -> None:
    numbers = fill(ada, 20, 100)
    for _ in range(10):
        held = opened(ada)
        for number in numbers[:2]:
            held.call("update_memory", id=number, content=filler(2_000, "padding"))
        cut(held, *numbers[2:])
        held.call("complete_refinement", summary="Done.")
    assert fresh(ada).core_count >= 14


def test_memories_discarded_by_others_allow_fewer_cuts(ada: Agent) -> None:
    numbers = fill(ada, 8, 100)
    held = opened(ada)
    operations.discard(ada, numbers[:2], ME)
    refused(held, "floor", "demote_memory", {"id": numbers[2]})
    assert fresh(ada).core_tokens == held.session.floor_tokens == 600


def test_below_the_floor_a_merge_without_loss_is_allowed(ada: Agent) -> None:
    numbers = fill(ada, 8, 100)
    operations.discard(ada, numbers[:6], ME)
    assert opened(ada).call("consolidate_memories", **merge(numbers[6:], 200))["ok"]


def test_exact_duplicates_do_not_count_in_the_high_water_mark(ada: Agent) -> None:
    remember(ada, *[filler(100, "same")] * 10, filler(100, "other"))
    assert fresh(ada).high_water_tokens == 200
    session = opened(ada).session
    assert (session.tokens_before, session.counted_tokens, session.floor_tokens) == (1_100, 200, 150)


def test_removed_duplicates_do_not_allow_more_cuts(ada: Agent) -> None:
    remember(ada, *[filler(100, "same")] * 10, *(filler(100, n) for n in range(3)))
    held = opened(ada)
    assert held.row.lost_tokens == 0
    fill(ada, 9, 100, "meanwhile")
    assert (held.row.counted_tokens, cut(held, 11, 12)) == (400, ["floor"])


def test_a_rewrite_to_an_exact_duplicate_counts_as_a_loss(ada: Agent) -> None:
    """The next session removes it before it counts losses."""
    fill(ada, 4, 100)
    held, same = opened(ada), filler(100, "same")
    assert is_updated(held, 1, same)
    assert is_updated(held, 2, same)
    refused(held, "floor", "update_memory", {"id": 3, "content": same})


def test_a_merge_into_an_exact_duplicate_is_a_loss(ada: Agent) -> None:
    fill(ada, 4, 100)
    remember(ada, filler(200, "merged"))
    refused(opened(ada), "floor", "consolidate_memories", merge([1, 2], 200))


def test_constitutional_duplicates_do_not_count_twice(ada: Agent) -> None:
    """They stay until a person unprotects them. Then they are removed as duplicates."""
    remember(ada, *[filler(200, "kept")] * 2, *(filler(100, n) for n in range(2)))
    protected(ada, 1, 2)
    held = opened(ada)
    assert (held.session.floor_tokens, cut(held, 3, 4)) == (300, ["floor"])
    sessions.close(held.session, Outcome.COMPLETED)
    operations.unprotect(ada, [1, 2], PERSON, reason="a mistake")
    session = opened(ada).session
    assert (session.tokens_before, session.counted_tokens) == (500, 300)


def test_three_refusals_in_a_row_end_the_session(ada: Agent) -> None:
    numbers = fill(ada, 4, 100)
    held = opened(ada)
    held.call("demote_memory", id=numbers[0])
    answers = [held.call("demote_memory", id=numbers[1]) for _ in range(3)]
    assert [answer.get("session_ended", False) for answer in answers] == [False, False, True]
    assert (held.row.outcome, held.row.reason, active(ada)[:3]) == (Outcome.COMPLETED, "floor", numbers[1:])
    assert notice(ada).startswith("Refinement completed at a limit (floor). Compressed 4 → 3 core memories; saved 100")
    assert sound(ada)


def test_an_edit_resets_the_count_of_refusals(ada: Agent) -> None:
    numbers = fill(ada, 8, 100)
    held = opened(ada)
    for number in numbers[:2]:
        for _ in range(2):
            assert held.call("consolidate_memories", **merge(numbers, 10))["code"] == "floor"
        assert is_updated(held, number, filler(99, number))
    assert held.row.outcome == Outcome.OPEN


@pytest.mark.parametrize("between", ["search_memories", "demote_memory", "nonsense"])
def test_a_call_without_an_edit_does_not_reset_the_count(ada: Agent, between: str) -> None:
    numbers = fill(ada, 8, 100)
    held = opened(ada)
    for _ in range(2):
        assert held.call("consolidate_memories", **merge(numbers, 10))["code"] == "floor"
        held.send(between, {"query": "x"})
    assert held.call("consolidate_memories", **merge(numbers, 10))["session_ended"]


def cut_all(held: Held, numbers: list[int], week: int) -> None:
    """Try each kind of loss, as a hostile model does, until the session ends."""
    same = filler(20, "same")
    for number in numbers:
        for arguments in ({"id": number}, {"id": number, "content": same}, {"id": number, "content": f"x{week}"}):
            tool = "update_memory" if "content" in arguments else "demote_memory"
            if held.send(tool, arguments).get("session_ended"):
                return


def test_a_year_of_hostile_weekly_sessions_never_goes_below_the_floor(ada: Agent) -> None:
    fill(ada, 40, 20)
    change(ada, target_tokens=600)
    for week in range(52):
        with time_machine.travel(timezone.now() + timedelta(weeks=week)):
            held = opened(ada, shown=True)
            cut_all(held, active(ada)[:12], week)
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
            if held.call("demote_memory", id=number).get("session_ended"):
                break
        sessions.close(held.session, Outcome.COMPLETED)
        assert fresh(ada).core_tokens >= held.session.floor_tokens
