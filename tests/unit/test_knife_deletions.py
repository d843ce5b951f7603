"""How much the agent may delete: search no longer finds it. `demote_memory` has no such limit."""

from datetime import timedelta

import time_machine
from django.utils import timezone

from memory.models import Agent
from refinement.models import Mode
from tests.refining import Held, change, fill, filler, opened
from tests.steps import active, remember


def delete(held: Held, *numbers: int) -> list[str]:
    """Delete memories, and return the code of each answer."""
    return [held.call("delete_memory", id=number).get("code", "ok") for number in numbers]


def complete(held: Held) -> None:
    held.call("complete_refinement", summary="Done.")


def test_a_session_deletes_exactly_15_percent_of_the_tokens_before_it(ada: Agent) -> None:
    """Of core memory as it is when the session opens, rounded down: 61 of 408 tokens."""
    numbers = fill(ada, 40, 10) + fill(ada, 1, 7) + fill(ada, 1, 1, "last")
    change(ada, retention="0.50")
    held = opened(ada)
    assert delete(held, *numbers[:6], numbers[-1]) == ["ok"] * 7
    assert (held.session.tokens_before, held.row.deleted_tokens) == (408, 61)
    assert delete(held, numbers[6]) == ["deleted_too_much"]
    refusal = held.call("delete_memory", id=numbers[6])["error"]
    assert "has 10 tokens. At most 0 can be deleted" in refusal
    assert "demote_memory" in refusal
    assert held.call("demote_memory", id=numbers[6])["ok"]


def test_deletions_from_beneath_count_too(ada: Agent) -> None:
    numbers = fill(ada, 20, 10)
    held = opened(ada, retention="0.50")
    for number in numbers[:3]:
        held.call("demote_memory", id=number)
    assert delete(held, *numbers[:2], numbers[3], numbers[2], numbers[4]) == ["ok"] * 3 + ["deleted_too_much"] * 2


def test_any_30_days_delete_at_most_30_percent(ada: Agent) -> None:
    """Of core memory at the start of the present session."""
    change(ada, retention="0.50")
    numbers, start = fill(ada, 40, 10), timezone.now()

    def deleted(day: float) -> int:
        with time_machine.travel(start + timedelta(days=day)):
            held = opened(ada)
            codes = delete(held, *[number for number in numbers if number in active(ada)][:8])
            complete(held)
        return codes.count("ok")

    # 15 % of 400 are 60. 30 % of 340 are 102, of which 60 are used. 30 % of 300 are 90, and all are used.
    assert [deleted(day) for day in (0, 1, 29.9)] == [6, 4, 0]
    assert deleted(30.5) == 4, "the first six no longer count, so 15 % of 300 can be deleted"


def test_exact_duplicates_do_not_count_as_tokens_before(ada: Agent) -> None:
    numbers = fill(ada, 20, 10)
    remember(ada, *[filler(10, "same")] * 21)
    held = opened(ada, retention="0.50")
    assert (held.session.tokens_before, held.session.repeated_tokens) == (410, 200)
    assert delete(held, *numbers[:4]) == ["ok"] * 3 + ["deleted_too_much"]


def test_in_dedupe_only_the_deletion_of_a_memory_with_a_double_does_not_count(ada: Agent) -> None:
    fill(ada, 20, 20)
    doubles = remember(ada, *(f"The team meets at {hour}:45 on the quay" for hour in range(10, 20)))
    remember(ada, *(f"The team always meets at {hour}:45 on the quay." for hour in range(10, 20)))
    held = opened(ada, mode=Mode.DEDUPE_ONLY, retention="0.50")
    assert delete(held, *doubles) == ["ok"] * 10
    assert held.row.deleted_tokens == 0
