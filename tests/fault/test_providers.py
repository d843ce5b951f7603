"""Providers that are down, and attempts to shut a provider for all agents.

A provider that is down costs a few calls, but no sessions. Then all continue. The clock
moves by a minute; the tests carry out the tasks of workers.
"""

import random
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from django_q.models import Schedule

from config import queue
from memory.agents import lifecycle
from memory.models import Agent
from refinement import allowance, backlog, knife, loop, probe, providers, scheduling, tasks
from refinement import session as sessions
from refinement.errors import BackingOff
from refinement.models import Driver, Outcome, Provider, RefinementSession, Waiting
from refinement.providers import Availability
from tests import queueing, refining, steps
from tests.conftest import OPERATOR
from tests.fault.test_writers import at_once
from tests.fault.whole_sessions import DONE, MINUTE, due
from tests.model_server import YES, Action, ModelServer, Slow, Status, Turn, is_check
from tests.steps import signed_update

pytestmark = pytest.mark.django_db

MODELS: dict[str, Action] = {"bad": Status(429), "usual": Slow(1.5, then=DONE), "slow": Slow(2, then=DONE)}


def by_model(turn: Turn) -> Action:
    return MODELS.get(turn.model, DONE)


def work() -> None:
    tasks.sweep()
    queueing.work()


def decline(agent: Agent) -> None:
    """Open a session of the runtime and decline it, which removes the back-off of a failed agent."""
    agent.refresh_from_db()
    with suppress(BackingOff):
        session = sessions.open_session(agent, trigger="agent", driver=Driver.RUNTIME)
        knife.call(agent, session.number, "decline_refinement", {"reason": "no"})


def test_a_tenant_with_short_sessions_shuts_no_provider(serve: Any) -> None:
    """The server answers within 2 seconds, as usual. A tenant may set max_seconds to any number."""
    serve(by_model)
    for n in range(2):
        due("hostile", f"a{n}", "openai/slow", max_seconds=1)
    work()
    assert providers.closed() == {}


def test_a_model_over_its_quota_shuts_no_other_model(serve: Any, settings: Any) -> None:
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 2
    Provider.objects.create(name="openai/bad", has_answered=True)
    due("hostile", "a", "openai/bad")
    work()
    assert set(providers.closed()) == {"openai/bad"}


def test_models_that_never_answer_shut_no_provider(serve: Any, settings: Any) -> None:
    """A tenant names slow models and models over their quota for many agents."""
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 1
    hostile = [due(f"hostile{n}", model, f"openai/{model}") for n in range(3) for model in ("bad", "slow")]
    good = due("usual", "a", "openai/good")
    work()
    assert set(providers.closed()) <= {str(agent.pk) for agent in hostile}
    assert RefinementSession.objects.get(agent=good).outcome == "completed"


def test_a_runtime_cannot_have_a_failing_model_called_repeatedly(
    serve: Any, settings: Any, clock: time_machine.Traveller
) -> None:
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 2
    agent = due("hostile", "a", "openai/bad")
    due("hostile", "a2")
    refused = 0
    for _ in range(6):
        try:
            backlog.request(agent)
        except BackingOff:
            refused += 1
        queueing.work()
        decline(agent)
        clock.shift(6 * MINUTE)
    assert (RefinementSession.objects.filter(outcome="failed").count(), refused) == (0, 5)  # no session opens


def test_after_a_change_of_model_the_limit_of_the_new_provider_holds(settings: Any) -> None:
    settings.PROVIDER_SESSIONS = {"ollama": 1}
    agents = [due("any", f"a{n}") for n in range(4)]
    tasks.sweep()
    for agent in agents:
        lifecycle.change(agent, OPERATOR, model="ollama/large")
    tasks.sweep()
    assert scheduling.take() is not None
    assert scheduling.take() is None


def test_after_a_change_of_model_a_shut_provider_does_not_block_the_agent() -> None:
    Provider.objects.create(name="openai", failures=9, shut_until=timezone.now() + 4 * MINUTE)
    agent = due("any", "a", "openai/gone")
    tasks.sweep()
    lifecycle.change(agent, OPERATOR, model="builtin/dedupe")
    work()
    assert RefinementSession.objects.filter(outcome="completed").count() == 1


def test_after_a_short_pause_of_a_provider_a_worker_is_woken(clock: time_machine.Traveller) -> None:
    """All wake-ups are used during the one second that the provider asks for."""
    for n in range(5):
        due(f"t{n}", "a", "openai/any")
    tasks.sweep()
    Provider.objects.create(name="openai", failures=1, shut_until=timezone.now() + timedelta(seconds=1))
    queueing.work()
    clock.shift(2)
    assert scheduling.free().count() == 5
    assert Schedule.objects.get(func=queue.REFINE_AGENT).next_run <= timezone.now()


def test_a_turn_taken_by_a_clock_that_was_ahead_is_freed() -> None:
    due("any", "a")
    with time_machine.travel(timezone.now() + timedelta(days=30)):
        tasks.sweep()
        assert scheduling.take() is not None
    Waiting.objects.update(since=timezone.now())
    tasks.close_stale()
    tasks.sweep()
    assert Waiting.objects.filter(taken_at__isnull=False).count() == 0


def test_a_call_that_spent_its_time_waiting_for_a_pause_is_not_a_failure_of_the_provider(
    serve: Any, settings: Any
) -> None:
    """Of its 3 seconds it waits for 2.8, and the server answers in 1.5."""
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 3
    due("any", "a", "openai/usual")
    tasks.sweep()
    turn = scheduling.take()
    assert turn is not None
    session = scheduling.open_due(Agent.objects.get(pk=turn.pk))
    assert session is not None
    Provider.objects.create(name="openai", failures=1, shut_until=timezone.now() + timedelta(seconds=2.8))
    loop.drive(session)
    assert Provider.objects.get(name="openai").failures <= 1


class Outage:
    """A provider that fails until `trouble` is None, the clock, and workers."""

    def __init__(self, clock: time_machine.Traveller) -> None:
        self.clock, self.trouble = clock, Status(503)
        self.server: ModelServer

    def reply(self, turn: Turn) -> Action:
        return self.trouble or DONE

    def work(self, minutes: int) -> list[int]:
        """Let workers work; the number of calls in each minute."""
        calls = []
        for minute in range(minutes):
            before = len(self.server.requests)
            tasks.close_stale() if minute % 5 else tasks.sweep()
            queueing.work()
            calls.append(len(self.server.requests) - before)
            self.clock.shift(MINUTE)
        return calls


@pytest.fixture
def outage(clock: time_machine.Traveller, serve: Any, settings: Any) -> Outage:
    outage = Outage(clock)
    outage.server = serve(outage.reply)
    Provider.objects.create(name="openai/scripted", has_answered=True)
    settings.MODEL_CALL_SECONDS = 1
    return outage


def create_due(count: int) -> list[Agent]:
    """So many agents of three tenants with a model of the provider, all due."""
    return [due(f"t{n % 3}", f"a{n}", "openai/scripted") for n in range(count)]


def create_others() -> set[int]:
    """Due agents that need no provider."""
    return {due("other", f"b{n}").pk for n in range(5)}


def outcomes() -> Counter[str]:
    return Counter(RefinementSession.objects.values_list("outcome", flat=True))


def completed() -> set[int]:
    return set(RefinementSession.objects.filter(outcome="completed").values_list("agent_id", flat=True))


@pytest.mark.parametrize("trouble", [Status(503), Status(429), Slow(5)])
def test_an_hour_of_failure_fails_no_session(trouble: Action, outage: Outage, settings: Any) -> None:
    outage.trouble = trouble
    settings.MODEL_CALL_SECONDS = 0.2 if isinstance(trouble, Slow) else 5
    create_due(20)
    calls = outage.work(50)
    assert max(calls) <= 5
    assert sum(calls) >= 10, "the provider is checked"
    assert outcomes() == {}
    outage.trouble = None
    settings.MODEL_CALL_SECONDS = 5
    outage.work(6)
    assert outcomes() == {Outcome.COMPLETED: 20}


def test_agents_that_wait_for_a_provider_take_no_place_of_others(outage: Outage, settings: Any) -> None:
    """They are more than one sweep queues, and of as many tenants."""
    settings.SWEEP_AGENTS = 3
    for number in range(12):
        agent = due(f"s{number}", "a", "openai/scripted")
        refining.change(agent, due_at=timezone.now() - timedelta(days=1))
    outage.work(1)
    others = create_others()
    outage.clock.shift(4 * MINUTE)
    outage.work(1)
    assert completed() == others
    outage.trouble = None
    outage.work(6)
    assert outcomes() == {Outcome.COMPLETED: 12 + len(others)}, "they all complete at once"


@pytest.mark.parametrize("has_answered", [True, False])
@pytest.mark.parametrize("wrong", ["key", "name", "no key"])
def test_an_error_of_the_configuration_costs_no_session_and_work_resumes_after_the_fix(
    wrong: str, has_answered: bool, outage: Outage, settings: Any
) -> None:
    agents = create_due(3)
    Provider.objects.update(has_answered=has_answered)
    outage.trouble = {"key": Status(401), "name": Status(404), "no key": None}[wrong]
    if wrong == "no key":
        settings.ANTHROPIC_API_KEY = ""
        signed_update(Agent.objects.all(), model="anthropic/scripted")
    others = create_others()
    outage.work(4)
    assert (completed(), outcomes()[Outcome.FAILED]) == (others, 0)
    for agent in agents:
        agent.refresh_from_db()
        assert (agent.failures_in_a_row, agent.quiet_until, agent.journal_count) == (0, None, 0)
    outage.trouble, settings.ANTHROPIC_API_KEY = None, "any"
    outage.work(1)
    assert outcomes() == {Outcome.COMPLETED: 3 + len(others)}


def test_a_key_that_is_revoked_during_a_session_causes_no_back_off(outage: Outage) -> None:
    [agent] = create_due(1)
    steps.remember(agent, "tea", "tea")  # an exact duplicate, which the session removes
    outage.server.script = lambda turn: YES if is_check(turn) and turn.number == 0 else Status(401)
    outage.work(3)
    assert list(RefinementSession.objects.values_list("reason", flat=True)) == ["model_not_configured"]
    agent.refresh_from_db()
    assert (agent.failures_in_a_row, agent.quiet_until, agent.journal_count) == (0, None, 0)
    outage.server.script = DONE
    outage.work(1)
    assert outcomes()[Outcome.COMPLETED] == 1


def test_a_check_of_a_provider_sends_no_memory(outage: Outage) -> None:
    for agent in create_due(3):
        refining.fill(agent, 3, 30)
    outage.work(20)
    checks = [request.body for request in outage.server.requests[2:]]
    assert outage.server.refused == []
    assert checks
    assert all([each["content"] for each in body["messages"]] == ["Answer with one word: yes."] for body in checks)


def test_the_tokens_of_a_check_count(serve: Any) -> None:
    """A key could ask for a dream and cancel it, again and again."""
    serve(by_model)
    agent = due("hostile", "a", "openai/usual")
    assert probe.trouble(agent) is None
    assert allowance.spent(agent.tenant_id) > 0


def test_an_agent_that_stays_over_its_budget_is_refined_once_a_day(outage: Outage) -> None:
    """Neither at every sweep, nor by its weekly date in addition."""
    outage.trouble = None
    [agent] = create_due(1)
    refining.change(agent, budget_tokens=100, target_tokens=80)
    refining.fill(agent, 6, 40)
    days = []
    for _ in range(2):
        before = RefinementSession.objects.count()
        for _ in range(144):
            tasks.sweep()
            queueing.work()
            outage.clock.shift(10 * MINUTE)
        days.append(RefinementSession.objects.count() - before)
    assert days == [1, 1]


@pytest.mark.database
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_answers_and_failures_of_a_provider_at_once_are_no_deadlock() -> None:
    """PostgreSQL ended one of the two, and so a session failed."""
    agents = [due(f"t{place}", "one", f"openai/m{place % 3}") for place in range(9)]

    def work(place: int) -> None:
        dice = random.Random(place)
        for _ in range(60):
            availability = Availability(agents[place].model, agents[place])
            availability.wait()
            time.sleep(0.02 * dice.random())
            availability.answered() if dice.random() < 0.5 else availability.failed(is_unreachable=dice.random() < 0.5)

    at_once(*(partial(work, place) for place in range(len(agents))))
