"""The breaker of a provider: one that does not answer is left alone by everybody, and found again by one."""

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

pytestmark = pytest.mark.django_db
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


def down(times: int = 2) -> Availability:
    gate = Availability("openai/gpt")
    for _ in range(times):
        assert gate.wait() == 0
        gate.failed()
    return gate


def test_a_provider_nobody_called_is_open() -> None:
    assert Availability("openai/gpt").wait() == 0
    assert providers.shut() == {}


def test_one_failure_shuts_nothing() -> None:
    assert down(1).wait() == 0


def test_two_in_a_row_shut_the_model_for_everybody(clock: time_machine.Traveller) -> None:
    down()
    assert Availability("openai/gpt").wait() == FIRST.total_seconds()
    assert set(providers.shut()) == {"openai/gpt"}


def test_one_model_shuts_no_other(clock: time_machine.Traveller) -> None:
    """Over its quota, perhaps, or slow; whoever is set to it must not keep all others waiting."""
    gate = down()
    clock.shift(FIRST)
    assert gate.wait() == 0
    gate.failed(86_400)
    assert [Availability(model).wait() for model in ("openai/other", "anthropic/claude")] == [0, 0]


def test_two_models_that_fail_shut_their_provider(clock: time_machine.Traveller) -> None:
    for model in ("openai/gpt", "openai/other"):
        gate = Availability(model)
        assert gate.wait() == 0
        gate.failed()
    assert Availability("openai/a-third").wait() == FIRST.total_seconds()
    assert Availability("anthropic/claude").wait() == 0


def test_a_server_that_is_not_there_shuts_its_provider(clock: time_machine.Traveller) -> None:
    for _ in range(2):
        Availability("openai/gpt").failed(is_unreachable=True)
    assert Availability("openai/other").wait() == FIRST.total_seconds()


def test_who_failed_three_times_leaves_it_to_others(clock: time_machine.Traveller) -> None:
    """It may be what this one asks that the server cannot answer."""
    gate = down()
    clock.shift(FIRST)
    assert gate.wait() == 0
    gate.failed()
    clock.shift(timedelta(minutes=2))
    assert gate.wait() > 3_600
    assert Availability("openai/gpt").wait() == 0


def test_an_answer_between_two_failures_forgets_the_first() -> None:
    gate = down(1)
    assert gate.wait() == 0
    gate.answered()
    down(1)
    assert Availability("openai/gpt").wait() == 0


def test_after_a_pause_one_of_all_may_try(clock: time_machine.Traveller) -> None:
    down()
    clock.shift(FIRST)
    assert [Availability("openai/gpt").wait() > 0 for _ in range(4)] == [False, True, True, True]


def test_what_it_answers_opens_it_for_everybody(clock: time_machine.Traveller) -> None:
    gate = down()
    clock.shift(FIRST)
    assert gate.wait() == 0
    gate.answered()
    assert Availability("openai/gpt").wait() == 0
    assert not providers.is_doubted("openai/gpt")


def test_pauses_double_up_to_five_minutes(clock: time_machine.Traveller) -> None:
    gate = down()
    pauses = []
    for _ in range(8):
        pauses.append(gate.wait())
        clock.shift(timedelta(seconds=pauses[-1]))
        gate = Availability("openai/gpt")
        assert gate.wait() == 0
        gate.failed()
    assert pauses == [15, 30, 60, 120, 240, 300, 300, 300]
    assert timedelta(seconds=pauses[-1]) == LONGEST


def test_failures_of_calls_that_were_under_way_count_once(clock: time_machine.Traveller) -> None:
    gates = [Availability("openai/gpt") for _ in range(50)]
    assert {gate.wait() for gate in gates} == {0}
    for gate in gates:
        gate.failed()
    assert Availability("openai/gpt").wait() == FIRST.total_seconds()


def test_what_the_server_asks_for_holds_for_everybody(clock: time_machine.Traveller) -> None:
    down(1)
    gate = Availability("anthropic/claude")
    gate.failed(7)
    assert Availability("anthropic/claude").wait() == 7
    clock.shift(7 * SECOND)
    assert [Availability("anthropic/claude").wait() for _ in range(3)] == [0, 0, 0], (
        "it is busy, not down: nobody has to try first"
    )


def test_nobody_is_kept_away_for_longer_than_five_minutes(clock: time_machine.Traveller) -> None:
    Availability("openai/gpt").failed(86_400)
    assert Availability("openai/gpt").wait() == LONGEST.total_seconds()


def test_a_clock_that_was_set_back_keeps_nobody_away(clock: time_machine.Traveller) -> None:
    clock.shift(timedelta(days=2))
    down()
    clock.shift(-timedelta(days=2))
    assert providers.shut() == {}
    assert Availability("openai/gpt").wait() == 0
    Availability("openai/gpt").failed()
    assert 0 < Availability("openai/gpt").wait() <= LONGEST.total_seconds()


@pytest.mark.parametrize("callers", [1, 2, 12])
@pytest.mark.parametrize("models", [1, 7])
def test_one_that_is_down_costs_at_most_five_calls_a_minute(
    models: int, callers: int, clock: time_machine.Traveller
) -> None:
    """However many sessions go on trying, of however many models, in any minute from the first failure on."""
    calls: list[int] = []
    for second in range(300):
        for caller in range(callers):
            gate = Availability(f"openai/{caller % models}")
            if gate.wait() == 0:
                calls.append(second)
                gate.failed()
        clock.shift(SECOND)
    assert max(sum(start <= call < start + 60 for call in calls) for start in range(300)) <= 5
    assert len(calls) >= 5, "somebody goes on looking"


@pytest.mark.django_db(transaction=True)
def test_of_many_at_the_same_moment_one_tries() -> None:
    down()
    Provider.objects.update(shut_until=timezone.now() - SECOND)
    start, waits = threading.Barrier(8), []

    def ask() -> None:
        try:
            start.wait()
            waits.append(Availability("openai/gpt").wait())
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 8
    assert waits.count(0) == 1
