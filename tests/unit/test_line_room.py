"""A full backlog: it holds agents of each tenant, and none that cannot run keeps others out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent, DueReason
from refinement import backlog, scheduling, tasks
from refinement.models import Provider
from tests.queueing import waiting, work
from tests.refining import change
from tests.steps import ME
from tests.unit.test_line import LATE, due, due_and_swept, in_backlog, lose_queue, many_agents

pytestmark = pytest.mark.database


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
