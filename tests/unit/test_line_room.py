"""Who stands in line where there is not room for all: some of each tenant, and nobody whom others keep out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent, DueReason
from refinement import backlog, scheduling, tasks
from refinement.models import Provider
from tests import queueing
from tests.queueing import waiting, work
from tests.refining import change
from tests.steps import ME
from tests.unit.test_line import LATE, due, in_line

pytestmark = pytest.mark.database


def test_no_more_stand_in_line_than_there_is_room_for(ada: Agent, bob: Agent, settings: Any) -> None:
    due(ada, bob)
    change(bob, due_at=LATE - timedelta(hours=1))
    settings.SWEEP_AGENTS = 1
    tasks.sweep()
    tasks.sweep()
    assert in_line() == {bob.pk}


def test_when_the_line_is_empty_others_that_are_due_are_looked_for(ada: Agent, bob: Agent, settings: Any) -> None:
    """Else a line of a thousand would be all that is done between two sweeps."""
    due(ada, bob)
    settings.SWEEP_AGENTS = 1
    tasks.sweep()
    assert work() == [("refine_agent", "completed"), ("sweep", "swept"), ("refine_agent", "completed")]
    assert waiting() == []


def test_a_tenant_at_its_limit_does_not_keep_others_from_the_line(ada: Agent, settings: Any) -> None:
    """Those of it that wait for their turn are no reason to leave others waiting for the next sweep."""
    settings.SWEEP_AGENTS, settings.TENANT_SESSIONS = 3, 1
    crowd = [lifecycle.create("big", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(6)]
    due(*crowd)
    tasks.sweep()
    assert scheduling.take() is not None
    due(ada)
    queueing.OrmQ.objects.all().delete()  # the wake-ups of others, who found nothing to do
    backlog.wake_next()
    assert waiting() == [("refinement.tasks.sweep", ())]
    backlog.sweep()
    taken = scheduling.take()
    assert taken is not None
    assert taken.pk == ada.pk
    queueing.OrmQ.objects.all().delete()
    backlog.wake_next()
    assert waiting() == [], "of the large one nobody can be refined now, in line or not"


def test_a_tenant_with_many_makes_room_for_one_of_another(ada: Agent, bob: Agent, settings: Any) -> None:
    settings.SWEEP_AGENTS = 3
    crowd = [lifecycle.create("acme", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(4)]
    due(ada, *crowd)
    tasks.sweep()
    assert len(in_line()) == 3
    change(bob, due_at=timezone.now(), due_reason=DueReason.WEEKLY)
    tasks.sweep()
    assert len(in_line()) == 3
    assert bob.pk in in_line()


def test_of_what_does_not_answer_a_few_stand_in_line(ada: Agent, settings: Any) -> None:
    """As many as find out when it does again; who was asked for is the first of them."""
    settings.SWEEP_AGENTS = 1
    crowd = [lifecycle.create(f"t{n}", "a", model="openai/any", actor=ME)[0] for n in range(9)]
    for agent in crowd:
        change(agent, due_at=LATE - timedelta(days=1), due_reason=DueReason.WEEKLY)
    change(crowd[-1], due_at=LATE, due_reason=DueReason.MANUAL)
    due(ada)
    for name in ("openai", "openai/any"):
        Provider.objects.create(name=name, failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    tasks.sweep()
    assert in_line() == {ada.pk, crowd[-1].pk, *(agent.pk for agent in crowd[: backlog.AT_ONCE - 1])}
    assert work() == [("refine_agent", "completed")], "and no sweep after it: all others wait for the model"
    Provider.objects.all().delete()
    tasks.sweep()
    assert len(in_line()) == 1
