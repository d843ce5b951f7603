"""The limits of a session in the Knife, and calls after its end."""

from datetime import timedelta

import pytest
import time_machine

from memory.models import Agent, Kind
from refinement import session as sessions
from refinement import tools
from refinement.errors import LimitReached, SessionEnded
from refinement.knife import Knife
from refinement.models import Outcome
from tests.refining import Held, change, fill, filler, notice, opened, protected, refused, untouched
from tests.steps import active, fresh, remember, row


def ended(held: Held) -> tuple[str, str]:
    return held.row.outcome, held.row.reason


def test_changes_are_counted_in_memories(ada: Agent) -> None:
    numbers = fill(ada, 12, 20)
    held = opened(ada, max_changes=5)
    held.call("consolidate_memories", ids_to_merge=numbers[:3], new_content=filler(60, "m"))
    assert held.row.changes == 3
    too_many = {"ids_to_merge": numbers[3:6], "new_content": filler(60)}
    answer = refused(held, "too_many_changes", "consolidate_memories", too_many)
    assert answer["error"] == "The call changes 3 memories, but this session has only 2 changes left."
    held.call("consolidate_memories", ids_to_merge=numbers[3:5], new_content=filler(40, "n"))
    assert held.row.changes == 5
    assert held.call("protect_memory", id=numbers[11])["ok"], "a protection is no change"


@pytest.mark.parametrize("tool", ["demote_memory", "update_memory", "consolidate_memories"])
def test_an_edit_beyond_the_changes_ends_the_session(ada: Agent, tool: str) -> None:
    merge = {"ids_to_merge": [8, 9], "new_content": filler(40)}
    arguments = {"demote_memory": {"id": 9}, "update_memory": {"id": 9, "content": filler(19)}}.get(tool, merge)
    fill(ada, 12, 20)
    held = opened(ada, max_changes=1)
    held.call("demote_memory", id=1)
    answer = held.send(tool, arguments)
    assert (answer["code"], answer["session_ended"]) == ("limit", True)
    assert ended(held) == (Outcome.COMPLETED, "limit_changes"), "it was useful"
    assert len(active(ada)) == 12  # eleven, and the notice
    assert notice(ada).startswith("Refinement completed at a limit (limit changes). Compressed 12 → 11 ")
    assert fresh(ada).failures_in_a_row == 0


def test_five_protections_a_session(ada: Agent) -> None:
    numbers = fill(ada, 12, 20)
    held = opened(ada)
    assert all(held.call("protect_memory", id=number)["ok"] for number in numbers[:5])
    refused(held, "protection_full", "protect_memory", {"id": numbers[5]})
    assert held.call("protect_memory", id=numbers[0])["already"]
    sessions.close(held.session, Outcome.COMPLETED)
    assert opened(ada).call("protect_memory", id=numbers[5])["ok"]


def test_the_agent_can_protect_at_most_half_of_the_budget(ada: Agent) -> None:
    numbers = fill(ada, 3, 50)
    held = opened(ada, budget_tokens=200, target_tokens=200)
    assert all(held.call("protect_memory", id=number)["ok"] for number in numbers[:2])
    refused(held, "protection_full", "protect_memory", {"id": numbers[2]})


def test_searches_end_the_session_beyond_their_limit(ada: Agent) -> None:
    held = opened(ada, max_searches=2)
    answers = [held.call("search_memories", query="tea") for _ in range(3)]
    assert [answer["ok"] for answer in answers] == [True, True, False]
    assert answers[-1]["session_ended"]
    assert ended(held) == (Outcome.INCOMPLETE, "limit_searches")


def test_failed_calls_end_the_session_beyond_their_limit(ada: Agent) -> None:
    held = opened(ada, max_failed_calls=2)
    answers = []
    for _ in range(3):
        held.call("search_memories", query="tea")  # a good call does not reset the count
        answers.append(held.call("nonsense"))
    assert [answer.get("session_ended", False) for answer in answers] == [False, False, True]
    assert ended(held) == (Outcome.INCOMPLETE, "limit_failed_calls")


def test_steps_end_at_their_limit(ada: Agent) -> None:
    held = opened(ada, max_steps=2)
    held.knife.begin_step()
    held.knife.begin_step()
    with pytest.raises(LimitReached) as reached:
        held.knife.begin_step()
    assert (reached.value.limit, held.row.steps) == ("steps", 2)


def test_a_call_after_the_time_is_up_ends_the_session(ada: Agent) -> None:
    fill(ada, 12, 20)
    held = opened(ada)
    with time_machine.travel(held.session.opened_at + timedelta(seconds=899)):
        assert held.call("demote_memory", id=2)["ok"]
    with time_machine.travel(held.session.opened_at + timedelta(seconds=901)):
        with pytest.raises(LimitReached):
            held.knife.begin_step()
        assert held.call("demote_memory", id=1)["session_ended"]
    assert ended(held) == (Outcome.COMPLETED, "limit_seconds")
    assert 1 in active(ada)


def test_limits_are_frozen_when_the_session_opens(ada: Agent) -> None:
    fill(ada, 12, 20)
    held = opened(ada, max_changes=1)
    change(ada, max_changes=100, retention=0.5, target_tokens=1, max_searches=0)
    assert held.call("search_memories", query="tea")["ok"]
    assert held.call("demote_memory", id=1)["ok"]
    assert (held.call("demote_memory", id=2)["code"], held.row.floor_tokens) == ("limit", 180)


def test_promoting_counts_as_a_change(ada: Agent) -> None:
    journal, other = remember(ada, "Watered the tomatoes.", "Watered the beans.", kind=Kind.JOURNAL)
    held = opened(ada, max_changes=1)
    held.call("search_memories", query="watered")
    assert held.call("promote_memory", id=journal)["ok"]
    assert (held.row.changes, held.call("promote_memory", id=other)["code"]) == (1, "limit")
    assert row(ada, other).kind == Kind.JOURNAL


@pytest.mark.parametrize("tool", ["protect_memory", "promote_memory"])
def test_a_call_without_effect_counts_as_a_failed_call(ada: Agent, tool: str) -> None:
    [number] = remember(ada, "Never share the harbour code.")
    protected(ada, number)
    held = opened(ada, max_failed_calls=2)
    assert [held.call(tool, id=number).get("session_ended", False) for _ in range(3)] == [False, False, True]
    assert ended(held) == (Outcome.INCOMPLETE, "limit_failed_calls")


@pytest.mark.parametrize("outcome", sorted(set(Outcome.values) - {Outcome.OPEN}))
def test_after_its_end_every_call_is_refused(ada: Agent, outcome: str) -> None:
    fill(ada, 4, 20)
    held = opened(ada)
    sessions.close(held.session, outcome)
    for tool in (*tools.TOOLS, "nonsense"):
        with untouched(ada):
            answer = held.send(tool, {"id": 1})
        assert (answer["code"], answer["session_ended"]) == ("session_ended", True)
    assert held.row.timeline.count() == 0
    with pytest.raises(SessionEnded):
        held.knife.begin_step()
    with pytest.raises(SessionEnded):
        held.knife.show(0, 1, [])
    assert Held(held.row, Knife(held.row)).call("demote_memory", id=1)["code"] == "session_ended"


def test_without_the_lease_a_call_is_refused(ada: Agent) -> None:
    fill(ada, 4, 20)
    held = opened(ada)
    type(held.row).objects.update(lease_token="another worker's")
    with untouched(ada):
        assert held.call("demote_memory", id=1)["code"] == "session_ended"
