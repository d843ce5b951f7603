"""The backlog of due agents: a sweep queues each agent once, and a worker refines it once."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from structlog.testing import capture_logs

from config.queue import SWEEP, QueueUnreachable, put
from memory.agents import lifecycle
from memory.models import Agent, DueReason
from memory.time_machine import rollback as history
from memory.time_machine.rollback import What
from memory.writing import operations
from refinement import backlog, loop, probe, providers, scheduling, tasks, worker
from refinement import session as sessions
from refinement.llm.base import ModelNotConfigured
from refinement.models import Provider, RefinementSession, Waiting
from tests import queueing, steps
from tests.queueing import carry_out, waiting, work
from tests.refining import change, fill, opened
from tests.steps import ME, PERSON, fresh, problems
from tests.unit.test_heads import shorten

pytestmark = pytest.mark.database

REFINE = "refinement.tasks.refine_agent"
LATE = timezone.now() - timedelta(hours=1)
LEASE = timedelta(seconds=settings.LEASE_SECONDS + 1)


def due(*agents: Agent) -> None:
    for agent in agents:
        change(agent, due_at=LATE, due_reason=DueReason.WEEKLY)


def due_and_swept(*agents: Agent) -> None:
    due(*agents)
    tasks.sweep()


def many_agents(count: int, tenant: str = "acme") -> list[Agent]:
    return [lifecycle.create(tenant, f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(count)]


def lose_queue() -> None:
    queueing.OrmQ.objects.all().delete()


def in_backlog() -> set[int]:
    return set(Waiting.objects.values_list("pk", flat=True))


def queued(agent: Agent) -> list[Any]:
    return [(REFINE, (agent.pk,))]


def outcomes(agent: Agent) -> list[tuple[str, str]]:
    return list(RefinementSession.objects.filter(agent=agent).order_by("number").values_list("trigger", "outcome"))


def test_a_sweep_queues_due_agents_longest_overdue_first_and_once(ada: Agent, bob: Agent) -> None:
    due(ada)
    change(bob, due_at=LATE - timedelta(hours=1))
    assert (tasks.sweep(), waiting()) == ("swept", queued(bob) + queued(ada))
    tasks.sweep()
    backlog.request(ada)
    assert waiting() == queued(bob) + queued(ada)


def test_a_stopping_worker_only_queues_the_task_again(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    due_and_swept(ada)
    monkeypatch.setattr("config.queue._ending", b"\x01")
    lose_queue()
    assert tasks.refine_agent(ada.pk) == "not_due"
    assert (in_backlog(), waiting(), outcomes(ada)) == ({ada.pk}, queued(ada), [])


def test_an_agent_keeps_its_place_while_its_worker_lives(ada: Agent) -> None:
    due_and_swept(ada)
    turn = scheduling.take()
    assert turn is not None
    opened(ada)
    tasks.sweep()
    assert in_backlog() == {ada.pk}
    RefinementSession.objects.update(lease_until=timezone.now() + 2 * LEASE)
    with time_machine.travel(timezone.now() + LEASE):
        tasks.sweep()
    assert Waiting.objects.get(pk=ada.pk).taken_at == turn.taken_at


def test_a_sweeps_queries_do_not_grow_with_the_due_agents(ada: Agent, bob: Agent) -> None:
    with CaptureQueriesContext(connection) as none:
        backlog.sweep()
    due(ada, bob, *many_agents(30))
    with CaptureQueriesContext(connection) as many:
        assert backlog.sweep() == 32
    queue_inserts = sum("INSERT" in query["sql"] and "django_q" in query["sql"] for query in many)
    assert (queue_inserts, len(none)) == (backlog.AT_ONCE, 15)
    assert len(many) - len(none) <= 5 + 3 * queue_inserts  # a row, and the savepoint around it


def test_a_due_agent_is_refined_once_also_if_its_task_is_delivered_twice(ada: Agent) -> None:
    steps.remember(ada, "Ann likes green tea in the morning.", "Ann likes green tea in the mornings.")
    due_and_swept(ada)
    assert work() == [("refine_agent", "completed")]
    assert not Waiting.objects.exists()
    assert (carry_out((REFINE, (ada.pk,)))[1], outcomes(ada)) == ("not_due", [("weekly", "completed")])
    assert problems(ada) == []


def test_a_paused_agent_leaves_the_backlog(ada: Agent) -> None:
    due_and_swept(ada)
    change(ada, paused=True)
    assert (work(), in_backlog()) == ([("refine_agent", "not_due")], set())
    change(ada, paused=False)
    tasks.sweep()
    change(ada, paused=True)
    tasks.sweep()
    assert in_backlog() == set()


def test_a_second_request_after_a_minute_queues_a_second_task(ada: Agent) -> None:
    """The first task may be lost with a worker."""
    backlog.request(ada)
    backlog.request(ada)
    assert len(waiting()) == 1
    Waiting.objects.update(since=timezone.now() - timedelta(minutes=2))
    backlog.request(ada)
    assert len(waiting()) == 2
    work()
    assert outcomes(ada) == [("agent", "completed")]


def test_a_write_beyond_the_budget_queues_it_at_once_and_once(ada: Agent, bob: Agent) -> None:
    change(ada, budget_tokens=100, target_tokens=60)
    fill(ada, 3, 30)
    assert waiting() == []
    fill(ada, 1, 30, "more")
    fill(ada, 1, 30, "yet more")
    assert waiting() == queued(ada)
    work()
    assert outcomes(ada)[0][0] == "over_budget"
    fill(bob, 3, 30)
    lifecycle.change(bob, PERSON, budget_tokens=80, target_tokens=60)
    assert waiting() == queued(bob)


def test_a_rolled_back_session_is_not_repeated_at_once(ada: Agent) -> None:
    fill(ada, 20, 30)
    change(ada, budget_tokens=600, target_tokens=590)
    loop.refine(ada, trigger="manual")
    twin = "The pier closes at nine in the evening, on every day of the week."
    steps.remember(ada, twin, twin)
    change(ada, budget_tokens=fresh(ada).core_tokens - 10, due_at=None)
    loop.refine(fresh(ada), trigger="manual")
    assert fresh(ada).core_tokens <= fresh(ada).budget_tokens
    Waiting.objects.all().delete()
    lose_queue()
    session = RefinementSession.objects.filter(agent=ada).latest("number")
    assert history.roll_back(fresh(ada), What("session", session.number), PERSON).rests
    tasks.sweep()
    assert waiting() == []
    after = fresh(ada)
    assert after.core_tokens > after.budget_tokens
    assert after.due_at is not None
    assert timedelta(hours=23) < after.due_at - timezone.now() <= timedelta(hours=24)
    backlog.request(ada)
    assert waiting() == queued(ada), "a request ends the cool-down"


def test_growth_ends_the_cool_down_after_a_rollback(ada: Agent) -> None:
    change(ada, budget_tokens=60, target_tokens=50)
    numbers = steps.remember(ada, *(f"{'word ' * 10}{number}" for number in range(6)))
    operations.discard(fresh(ada), numbers, ME)
    Waiting.objects.all().delete()
    lose_queue()
    change(ada, due_at=None, quiet_until=None)
    assert history.roll_back(fresh(ada), What("entry", fresh(ada).audit_seq), PERSON).rests
    assert waiting() == []
    fill(ada, 4, 30, "more")
    assert waiting() == queued(ada)


def test_a_failure_to_open_a_session_is_retried_later(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(ada, "same", "same")
    key = bytes(fresh(ada).wrapped_key)
    change(ada, wrapped_key=key[:-1] + bytes([key[-1] ^ 1]))
    due(ada)
    assert tasks.refine_agent(ada.pk) == "seal_broken"
    after = fresh(ada)
    assert (after.due_reason, after.failures_in_a_row) == (DueReason.RETRY, 1)
    assert after.due_at is not None
    assert after.due_at > timezone.now() + timedelta(minutes=56)
    tasks.sweep()
    assert waiting() == []
    due(bob)
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "open_session", lambda *_, **__: {}["an unexpected error"])
        assert tasks.refine_agent(bob.pk) == "fault"
    assert fresh(bob).due_reason == DueReason.RETRY


@pytest.mark.parametrize("harm", [lambda agent: Agent.objects.filter(pk=agent.pk).update(retention="0.90"), shorten])
def test_an_agent_whose_row_is_broken_is_tried_once_an_hour_and_holds_up_no_other(
    harm: Any, ada: Agent, settings: Any, tmp_path: Path
) -> None:
    settings.VAR_DIR, settings.TENANT_SESSIONS = tmp_path, 1
    [other] = many_agents(1)
    due(ada, other)
    harm(ada)
    with time_machine.travel(timezone.now()) as clock, capture_logs() as logged:
        for _ in range(10):
            tasks.close_stale()
            tasks.sweep()
            work()
            clock.shift(timedelta(minutes=10))
    assert [line["agent"] for line in logged if line["event"] == "agent not refined"] == [ada.pk] * 2
    assert outcomes(other) == [("weekly", "completed")]


def test_an_agent_is_queued_again_after_its_task_is_lost(ada: Agent) -> None:
    due_and_swept(ada)
    lose_queue()
    tasks.close_stale()
    assert waiting() == queued(ada)


def test_other_tasks_in_the_queue_do_not_prevent_a_session(ada: Agent) -> None:
    due_and_swept(ada)
    lose_queue()
    for _ in range(backlog.AT_ONCE):
        put(SWEEP)
    Waiting.objects.update(since=timezone.now() - backlog.REPEAT_AFTER)
    backlog.wake()
    assert waiting()[backlog.AT_ONCE :] == queued(ada)


def test_an_agent_whose_worker_died_is_added_again_within_a_minute(ada: Agent) -> None:
    due_and_swept(ada)
    lose_queue()
    Waiting.objects.update(taken_at=timezone.now() - timedelta(seconds=settings.LEASE_SECONDS + 1))
    tasks.close_stale()
    assert waiting() == queued(ada)


def test_an_unreachable_queue_does_not_undo_a_session(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise QueueUnreachable

    due_and_swept(ada, bob)
    monkeypatch.setattr(backlog, "depth", fails)
    assert tasks.refine_agent(ada.pk) == "completed"


def test_a_worker_queues_the_next_agent_after_a_session(ada: Agent, bob: Agent) -> None:
    due_and_swept(ada, bob)
    lose_queue()
    assert (carry_out((REFINE, (ada.pk,)))[1], set(waiting())) == ("completed", set(queued(bob)))


def test_the_backlog_holds_at_most_sweep_agents(ada: Agent, bob: Agent, settings: Any) -> None:
    due(ada, bob)
    change(bob, due_at=LATE - timedelta(hours=1))
    settings.SWEEP_AGENTS = 1
    tasks.sweep()
    tasks.sweep()
    assert in_backlog() == {bob.pk}


def test_an_empty_backlog_starts_a_sweep(ada: Agent, bob: Agent, settings: Any) -> None:
    settings.SWEEP_AGENTS = 1
    due_and_swept(ada, bob)
    assert work() == [("refine_agent", "completed"), ("sweep", "swept"), ("refine_agent", "completed")]
    assert waiting() == []


def test_a_tenant_at_its_limit_does_not_keep_others_out(ada: Agent, settings: Any) -> None:
    settings.SWEEP_AGENTS, settings.TENANT_SESSIONS = 3, 1
    due_and_swept(*many_agents(6, "big"))
    assert scheduling.take() is not None
    due(ada)
    lose_queue()
    backlog.wake_next()
    assert waiting() == [("refinement.tasks.sweep", ())]
    backlog.sweep()
    taken = scheduling.take()
    assert taken is not None
    assert taken.pk == ada.pk
    lose_queue()
    backlog.wake_next()
    assert waiting() == [], "the large tenant is at its limit"


def test_a_tenant_with_many_agents_makes_room_for_another(ada: Agent, bob: Agent, settings: Any) -> None:
    settings.SWEEP_AGENTS = 3
    due_and_swept(ada, *many_agents(4))
    assert len(in_backlog()) == 3
    change(bob, due_at=timezone.now(), due_reason=DueReason.WEEKLY)
    tasks.sweep()
    assert len(in_backlog()) == 3
    assert bob.pk in in_backlog()


def test_few_agents_of_an_unavailable_model_are_in_the_backlog(ada: Agent, settings: Any) -> None:
    """As many as the probes need. A manual request comes first."""
    settings.SWEEP_AGENTS = 1
    agents = [lifecycle.create(f"t{n}", "a", model="openai/any", actor=ME)[0] for n in range(9)]
    for agent in agents:
        change(agent, due_at=LATE - timedelta(days=1), due_reason=DueReason.WEEKLY)
    change(agents[-1], due_at=LATE, due_reason=DueReason.MANUAL)
    due(ada)
    for name in ("openai", "openai/any"):
        Provider.objects.create(name=name, failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    tasks.sweep()
    assert in_backlog() == {ada.pk, agents[-1].pk, *(agent.pk for agent in agents[: backlog.AT_ONCE - 1])}
    assert work() == [("refine_agent", "completed")], "no sweep follows: all others wait for the model"
    Provider.objects.all().delete()
    tasks.sweep()
    assert len(in_backlog()) == 1


def test_an_agent_that_is_no_longer_due_causes_no_check(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    due_and_swept(ada)
    change(ada, due_at=None)
    monkeypatch.setattr(probe, "trouble", lambda _: pytest.fail("the model is called"))
    assert (worker.refine_next(ada.pk), in_backlog()) == (worker.NOT_DUE, set())


def test_agents_with_refused_models_do_not_keep_a_task(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "take", lambda: Waiting(pk=ada.pk))
    monkeypatch.setattr(worker, "_refine", lambda _: worker.NOT_DUE)
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.05)
    assert worker.refine_next(ada.pk) == worker.NOT_DUE


def test_a_sweep_adds_agents_of_a_few_failing_models(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = many_agents(5)
    for agent in agents:
        lifecycle.change(agent, PERSON, model=f"anthropic/m{agent.pk}")
        providers.refuse(f"anthropic/m{agent.pk}", ModelNotConfigured("No key."))
    due(*agents[3:])
    monkeypatch.setattr(backlog, "MOST_FAILING", 1)
    monkeypatch.setattr(backlog, "AT_ONCE", 1)
    backlog.sweep()
    assert in_backlog() == {agents[3].pk}, "models without due agents take no place"
