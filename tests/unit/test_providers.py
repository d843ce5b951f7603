"""The circuit breaker of models and providers. After a pause, one caller tries whether they answer again."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from memory.models import Agent
from refinement import backlog, providers
from refinement.models import Provider
from refinement.monitoring import health
from refinement.providers import FIRST, LONGEST, Availability
from tests.refining import change

pytestmark = [pytest.mark.database, pytest.mark.django_db]
SECOND = timedelta(seconds=1)
GPT = "openai/gpt"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[time_machine.Traveller]:
    monkeypatch.setattr(providers, "require_same_model", lambda *_: None)  # most callers here have no row
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


def caller_of(model: str = GPT, *, agent: Any = None, answered: bool = True) -> Availability:
    """A caller for an agent of the only tenant, or for this agent. `answered`: the model has answered before."""
    if answered:
        Provider.objects.update_or_create(name=model, defaults={"has_answered": True})
    return Availability(model, agent or SimpleNamespace(pk=1, tenant_id=1))


def waits(*models: str) -> list[float]:
    return [caller_of(model).wait() for model in models or [GPT]]


def fail(model: str = GPT, times: int = 2) -> Availability:
    """One caller whose calls fail several times in a row."""
    caller = caller_of(model)
    for _ in range(times):
        assert caller.wait() == 0
        caller.failed()
    return caller


def test_two_failures_in_a_row_close_one_model(clock: time_machine.Traveller) -> None:
    caller = fail()
    assert waits(GPT, "openai/other", "anthropic/claude") == [FIRST.total_seconds(), 0, 0]
    assert set(providers.closed()) == {GPT}
    clock.shift(FIRST)
    assert caller.wait() == 0
    caller.failed(86_400)  # the provider asks for a longer pause than ours
    assert waits(GPT, "openai/other") == [LONGEST.total_seconds(), 0]


def test_two_failing_models_or_an_unreachable_server_close_the_provider() -> None:
    fail(GPT, 1)
    fail("openai/other", 1)
    assert waits("openai/a-third", "anthropic/claude") == [FIRST.total_seconds(), 0]
    for _ in range(2):
        caller_of("ollama/one").failed(is_unreachable=True)
    assert waits("ollama/other") == [FIRST.total_seconds()]


def test_only_two_tenants_close_a_provider(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        change(agent, model=GPT)
    for model in (GPT, "openai/other", "openai/third"):
        caller_of(model, agent=ada).failed(is_unreachable=True)
    assert "openai" not in providers.closed()
    caller_of("openai/fourth", agent=bob).failed()
    assert "openai" in providers.closed()


def test_a_model_that_never_answered_is_closed_for_one_agent(ada: Agent, bob: Agent, settings: Any) -> None:
    """Everybody can name a model that does not exist, or that is slow."""
    settings.OPENAI_API_KEY = "key"
    change(ada, model="openai/bad")
    for model in ("openai/bad", "openai/bad2"):
        caller_of(model, agent=ada, answered=False).failed(is_unreachable=True)
    assert set(providers.closed()) == {str(ada.pk)}
    assert (providers.failing_names(), waits()) == ([], [0])
    assert health._models().startswith("a model of openai does not respond")  # the operator sees it, too
    assert caller_of("openai/bad", agent=ada, answered=False).wait() == 15
    other = caller_of("openai/bad", agent=bob, answered=False)
    assert other.wait() == 0
    other.answered(is_reply=False)  # an error is no answer of the model
    assert not Provider.objects.filter(has_answered=True).exclude(name=GPT).exists()
    other.answered()
    assert caller_of("openai/bad", agent=bob, answered=False).wait() == 0


def test_one_tenant_closes_a_model_only_for_its_own_agents(ada: Agent, bob: Agent) -> None:
    """Its texts may make the server fail: sessions of others took 80 seconds longer."""
    for agent in (ada, bob):
        change(agent, model=GPT)
    for _ in range(3):
        caller_of(agent=ada).failed()
    assert (set(providers.closed()), caller_of(agent=ada).wait()) == ({str(ada.pk)}, 15)
    other = caller_of(agent=bob)
    assert other.wait() == 0
    other.failed()
    assert set(providers.closed()) == {str(ada.pk), GPT}


def test_models_that_no_agent_has_any_more_are_forgotten(ada: Agent) -> None:
    """Each of their names would make the sweep slower."""
    change(ada, model="ollama/now")
    closed = {"failures": 2, "shut_until": timezone.now() + SECOND}
    for name in ("ollama", "ollama/now", "ollama/typo", "ollama/earlier"):
        Provider.objects.create(name=name, has_answered=name == "ollama/earlier", **closed)
    assert providers.failing_names() == ["ollama", "ollama/now"]
    assert health._models().count("a model of ollama") == 1
    backlog.sweep()
    assert {row.name for row in Provider.objects.all()} == {"ollama", "ollama/now", "ollama/earlier"}


def test_a_caller_that_failed_three_times_lets_others_try(clock: time_machine.Traveller) -> None:
    """Its own request may be the cause."""
    caller = fail()
    clock.shift(FIRST)
    assert caller.wait() == 0
    caller.failed()
    clock.shift(timedelta(minutes=2))
    assert caller.wait() > 3_600
    assert waits() == [0]


def test_an_answer_between_two_failures_resets_the_count() -> None:
    caller = fail(times=1)
    assert caller.wait() == 0
    caller.answered()
    fail(times=1)
    assert waits() == [0]


def test_after_a_pause_one_caller_tries_and_its_answer_opens_the_model(clock: time_machine.Traveller) -> None:
    fail()
    clock.shift(FIRST)
    callers = [caller_of() for _ in range(5)]
    assert [caller.wait() > 0 for caller in callers] == [False, True, True, True, True]
    callers[0].answered()
    assert waits() == [0]
    assert providers.failing_names() == []


def test_pauses_double_up_to_five_minutes(clock: time_machine.Traveller) -> None:
    fail()
    pauses = []
    for _ in range(8):
        pauses += waits()
        clock.shift(timedelta(seconds=pauses[-1]))
        fail(times=1)
    assert pauses == [15, 30, 60, 120, 240, 300, 300, 300]


def test_failures_of_concurrent_calls_count_once() -> None:
    callers = [caller_of() for _ in range(50)]
    assert {caller.wait() for caller in callers} == {0}
    for caller in callers:
        caller.failed()
    assert waits() == [FIRST.total_seconds()]


def test_retry_after_applies_to_the_agent_and_after_a_second_tenant_to_all(
    ada: Agent, bob: Agent, clock: time_machine.Traveller
) -> None:
    for agent in (ada, bob):
        change(agent, model=GPT)
    callers = [caller_of(agent=agent) for agent in (ada, bob)]
    callers[0].failed(7)
    assert [caller.wait() for caller in callers] == [7, 0]
    clock.shift(7 * SECOND)
    assert [caller.wait() for caller in callers] == [0, 0]
    callers[1].failed(60)
    assert [caller.wait() for caller in callers] == [60, 60]


def test_a_clock_that_is_set_back_does_not_prolong_a_pause(clock: time_machine.Traveller) -> None:
    clock.shift(timedelta(days=2))
    fail()
    clock.shift(-timedelta(days=2))
    assert (providers.closed(), waits()) == ({}, [0])
    caller_of().failed()
    assert 0 < waits()[0] <= LONGEST.total_seconds()


@pytest.mark.parametrize(("models", "callers"), [(1, 1), (7, 12)])
def test_a_provider_that_is_down_gets_at_most_five_calls_in_any_minute(
    models: int, callers: int, clock: time_machine.Traveller
) -> None:
    calls: list[int] = []
    for second in range(0, 300, 3):
        for number in range(callers):
            caller = caller_of(f"openai/{number % models}")
            if caller.wait() == 0:
                calls.append(second)
                caller.failed()
        clock.shift(3 * SECOND)
    assert max(sum(start <= call < start + 60 for call in calls) for start in range(300)) <= 5
    assert len(calls) >= 5


@pytest.mark.django_db(transaction=True)
def test_of_concurrent_callers_one_tries() -> None:
    fail()
    Provider.objects.update(shut_until=timezone.now() - SECOND)
    start, found = threading.Barrier(8), []

    def ask() -> None:
        try:
            start.wait()
            found.extend(waits())
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), found.count(0)) == (8, 1)
