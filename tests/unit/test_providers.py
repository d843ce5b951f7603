"""A model that does not answer is closed for all processes, and one caller finds out when it answers again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from refinement import providers
from refinement.models import Provider
from refinement.providers import FIRST, LONGEST, Availability

pytestmark = [pytest.mark.database, pytest.mark.django_db]
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


def waits(*models: str) -> list[float]:
    return [Availability(model).wait() for model in models]


def failed(model: str = "openai/gpt", times: int = 2) -> Availability:
    """So many failures in a row of one caller."""
    caller = Availability(model)
    for _ in range(times):
        assert caller.wait() == 0
        caller.failed()
    return caller


def test_two_in_a_row_close_the_model_and_no_other(clock: time_machine.Traveller) -> None:
    caller = failed()
    assert waits("openai/gpt", "openai/other", "anthropic/claude") == [FIRST.total_seconds(), 0, 0]
    assert set(providers.closed()) == {"openai/gpt"}
    clock.shift(FIRST)
    assert caller.wait() == 0
    caller.failed(86_400)  # it is over its quota
    assert waits("openai/gpt", "openai/other") == [LONGEST.total_seconds(), 0], "and nobody waits longer than that"


def test_two_models_that_fail_close_their_provider() -> None:
    failed("openai/gpt", 1)
    failed("openai/other", 1)
    assert waits("openai/a-third", "anthropic/claude") == [FIRST.total_seconds(), 0]


def test_a_server_that_cannot_be_reached_closes_its_provider() -> None:
    for _ in range(2):
        Availability("openai/gpt").failed(is_unreachable=True)
    assert waits("openai/other") == [FIRST.total_seconds()]


def test_a_caller_that_failed_three_times_leaves_it_to_others(clock: time_machine.Traveller) -> None:
    """Its request may be the cause."""
    caller = failed()
    clock.shift(FIRST)
    assert caller.wait() == 0
    caller.failed()
    clock.shift(timedelta(minutes=2))
    assert caller.wait() > 3_600
    assert waits("openai/gpt") == [0]


def test_an_answer_between_two_failures_forgets_the_first() -> None:
    caller = failed(times=1)
    assert caller.wait() == 0
    caller.answered()
    failed(times=1)
    assert waits("openai/gpt") == [0]


def test_after_a_pause_one_caller_tries_and_its_answer_opens_the_model(clock: time_machine.Traveller) -> None:
    failed()
    clock.shift(FIRST)
    callers = [Availability("openai/gpt") for _ in range(5)]
    assert [caller.wait() > 0 for caller in callers] == [False, True, True, True, True]
    callers[0].answered()
    assert waits("openai/gpt") == [0]
    assert not providers.is_failing("openai/gpt")


def test_pauses_double_up_to_five_minutes(clock: time_machine.Traveller) -> None:
    failed()
    pauses = []
    for _ in range(8):
        pauses += waits("openai/gpt")
        clock.shift(timedelta(seconds=pauses[-1]))
        failed(times=1)
    assert pauses == [15, 30, 60, 120, 240, 300, 300, 300]


def test_failures_of_calls_that_were_under_way_count_once() -> None:
    callers = [Availability("openai/gpt") for _ in range(50)]
    assert {caller.wait() for caller in callers} == {0}
    for caller in callers:
        caller.failed()
    assert waits("openai/gpt") == [FIRST.total_seconds()]


def test_a_retry_after_holds_for_everybody(clock: time_machine.Traveller) -> None:
    Availability("anthropic/claude").failed(7)
    assert waits("anthropic/claude") == [7]
    clock.shift(7 * SECOND)
    assert waits(*["anthropic/claude"] * 3) == [0, 0, 0], "it is busy, not down: nobody has to try first"


def test_a_clock_that_was_set_back_keeps_nobody_away(clock: time_machine.Traveller) -> None:
    clock.shift(timedelta(days=2))
    failed()
    clock.shift(-timedelta(days=2))
    assert (providers.closed(), waits("openai/gpt")) == ({}, [0])
    Availability("openai/gpt").failed()
    assert 0 < waits("openai/gpt")[0] <= LONGEST.total_seconds()


@pytest.mark.parametrize(("models", "callers"), [(1, 1), (7, 12)])
def test_a_provider_that_is_down_costs_at_most_five_calls_a_minute(
    models: int, callers: int, clock: time_machine.Traveller
) -> None:
    """However many sessions try, with however many models, in any minute from the first failure on."""
    calls: list[int] = []
    for second in range(300):
        for number in range(callers):
            caller = Availability(f"openai/{number % models}")
            if caller.wait() == 0:
                calls.append(second)
                caller.failed()
        clock.shift(SECOND)
    assert max(sum(start <= call < start + 60 for call in calls) for start in range(300)) <= 5
    assert len(calls) >= 5, "somebody still tries"


@pytest.mark.django_db(transaction=True)
def test_of_many_at_the_same_moment_one_tries() -> None:
    failed()
    Provider.objects.update(shut_until=timezone.now() - SECOND)
    start, found = threading.Barrier(8), []

    def ask() -> None:
        try:
            start.wait()
            found.extend(waits("openai/gpt"))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert found.count(0) == 1
