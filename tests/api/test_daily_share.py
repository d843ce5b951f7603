"""What a day outside sessions may cost: half the core memories, whoever holds the key, however it is gone about."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import time_machine as clock
from django.db import connections

from memory.models import Agent
from memory.policy.validation import Draft
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import duplicates, operations
from tests import steps
from tests.api.calling import Answer, Caller
from tests.conftest import OPERATOR
from tests.steps import ME, problems

NOW = datetime(2100, 5, 5, 12, tzinfo=UTC)  # after whatever was done before the test
OLD = 60  # core memories from before the day: 30 of them may go


@pytest.fixture
def at() -> Iterator[clock.Coordinates]:
    with clock.travel(NOW - timedelta(days=3), tick=False) as coordinates:
        yield coordinates


@pytest.fixture
def old(ada: Agent, at: clock.Coordinates) -> Agent:
    steps.remember(ada, *(f"fact {n}" for n in range(OLD)))
    at.move_to(NOW)
    return ada


def is_beyond(answer: Answer) -> bool:
    return (answer.status, answer.codes) == (409, ["discard_share"])


def gone(agent: Agent, first: int, last: int) -> None:
    """The agent discards these, in one edit of its own."""
    operations.discard(agent, range(first, last + 1), ME)


def test_half_may_go_and_no_more(runtime: Caller, old: Agent) -> None:
    for number in range(1, 31):
        assert runtime.delete(f"memories/{number}").status == 204
    before = steps.state(old)
    assert is_beyond(runtime.patch(f"memories/{OLD}", {"content": "rewritten"}))
    assert is_beyond(runtime.patch(f"memories/{OLD}", {"tags": ["rewritten"]}))
    assert steps.state(old) == before
    assert runtime.patch("memories/1", {"content": "x"}).codes == ["discarded"]
    assert problems(old) == []


def test_rewriting_counts_once_for_each_memory(runtime: Caller, old: Agent) -> None:
    for number in range(1, 31):
        operations.revise(old, number, ME, content=f"rewritten {number}")
    assert is_beyond(runtime.delete(f"memories/{OLD}"))
    assert runtime.patch("memories/1", {"content": "again"}).status == 200
    assert runtime.delete("memories/1").status == 204


def test_merging_outside_a_session_counts_too(runtime: Caller, old: Agent) -> None:
    operations.consolidate(old, range(1, 31), "all of it", ME)
    assert is_beyond(runtime.delete("memories/31"))


def test_the_next_day_is_another(runtime: Caller, old: Agent, at: clock.Coordinates) -> None:
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    at.shift(timedelta(hours=23, minutes=59))
    assert is_beyond(runtime.delete("memories/31"))
    at.shift(timedelta(minutes=2))
    gone(old, 31, 50)  # half of the 30 that are left would be fewer
    assert is_beyond(runtime.delete("memories/51"))


def test_neither_a_small_silo_nor_the_journal_is_hampered(runtime: Caller, ada: Agent, at: clock.Coordinates) -> None:
    steps.remember(ada, *(f"fact {n}" for n in range(20)))
    steps.remember(ada, *(f"day {n}" for n in range(50)), kind="journal")
    at.move_to(NOW)
    gone(ada, 1, 69)
    assert runtime.delete("memories/70").status == 204


def test_what_the_day_brought_is_free_and_buys_nothing(runtime: Caller, old: Agent) -> None:
    steps.remember(old, *(f"junk {n}" for n in range(100)))
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    gone(old, OLD + 1, OLD + 100)


def test_restoring_gives_nothing_back_and_buys_nothing(runtime: Caller, old: Agent, at: clock.Coordinates) -> None:
    operations.discard(old, range(1, 31), OPERATOR)
    at.shift(timedelta(days=2))  # 30 are there, 30 were discarded long ago
    operations.restore(old, range(1, 31), ME)
    gone(old, 31, 50)
    assert is_beyond(runtime.delete("memories/51"))
    assert runtime.post("memories/31/restore").status == 200
    assert is_beyond(runtime.delete("memories/51"))


def test_another_key_of_the_silo_has_no_share_of_its_own(runtime: Caller, old: Agent) -> None:
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    other = Caller(runtime.post("agent/keys", {"exchange": True}).json["key"])
    assert is_beyond(other.delete(f"memories/{OLD}"))


def test_people_the_system_and_sessions_have_limits_of_their_own(old: Agent, runtime: Caller) -> None:
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    operations.discard(old, [31], OPERATOR)
    operations.discard(old, [32], ME, session=1)
    steps.remember(old, "fact 40")
    assert duplicates.remove(old).seq
    assert is_beyond(runtime.delete("memories/60"))


def test_what_an_operator_takes_back_is_there_again(runtime: Caller, old: Agent) -> None:
    before = steps.last_entry(old).seq
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    rollback.roll_back(old, What.since_entry(before), OPERATOR)
    assert is_beyond(runtime.delete("memories/60"))
    gone(old, 1, 30)  # the same ones


def test_the_agents_side_lifts_it_for_a_day_at_most(runtime: Caller, old: Agent, at: clock.Coordinates) -> None:
    gone(old, 1, 30)
    assert is_beyond(runtime.delete("memories/31"))
    too_long = runtime.patch("agent", {"discard_share_lifted_until": "2100-05-06T12:00:01Z"})
    assert (too_long.status, too_long.attrs) == (422, ["discard_share_lifted_until"])
    lifted = runtime.patch("agent", {"discard_share_lifted_until": "2100-05-05T13:00:00Z"})
    assert (lifted.status, lifted.json["discard_share_lifted_until"]) == (200, "2100-05-05T13:00:00Z")
    assert steps.last_entry(old).detail["changed"] == {"discard_share_lifted_until": "2100-05-05 13:00:00+00:00"}
    assert runtime.delete("memories/50").status == 204
    at.move_to(NOW + timedelta(hours=1))
    assert is_beyond(runtime.delete("memories/51"))
    runtime.patch("agent", {"discard_share_lifted_until": "2100-05-05T14:00:00Z"})
    assert runtime.delete("memories/51").status == 204
    assert runtime.patch("agent", {"discard_share_lifted_until": None}).json["discard_share_lifted_until"] is None
    assert is_beyond(runtime.delete("memories/52"))


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_requests_at_once_do_not_share_what_is_left(runtime: Caller, ada: Agent) -> None:
    operations.remember(ada, [Draft(f"fact {n}") for n in range(50)], ME)

    def discard(number: int) -> int:
        try:
            return runtime.delete(f"memories/{number}").status
        finally:
            connections.close_all()

    with clock.travel(NOW), ThreadPoolExecutor(4) as pool:
        gone(ada, 1, 20)
        statuses = list(pool.map(discard, range(21, 36)))
    assert sorted(statuses) == [204] * 5 + [409] * 10
    assert problems(ada) == []
