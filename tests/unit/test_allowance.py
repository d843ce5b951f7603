"""A tenant's model tokens per month: counted when a session ends. Without any left, only people start sessions."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent, DueReason, Tenant
from memory.writing import edits
from refinement import allowance, backlog, schedule, scheduling, tasks
from refinement import session as sessions
from refinement.errors import AllowanceSpent
from refinement.llm.base import Usage
from refinement.models import Driver, RefinementSession, Share
from tests.fault.test_writers import at_once
from tests.queueing import waiting, work
from tests.refining import change, opened
from tests.steps import ME, PERSON, fresh

pytestmark = pytest.mark.database


def spend(agent: Agent, tokens: int, driver: str = Driver.SERVER) -> None:
    """Use these tokens in one session."""
    session = sessions.open_session(fresh(agent), trigger="weekly", driver=driver)
    sessions.count_model_calls(session, Usage(prompt=tokens - 1, completion=1), 1, 1)
    sessions.close(session, "completed")


def make_due(agent: Agent) -> None:
    change(agent, due_at=timezone.now() - timedelta(hours=1), due_reason=DueReason.WEEKLY)


def due() -> set[int]:
    return {agent.pk for agent in schedule.due()}


def allow(agent: Agent, tokens: int) -> None:
    Tenant.objects.filter(pk=agent.tenant_id).update(month_tokens=tokens)


@pytest.mark.parametrize("ends", ["before", "meanwhile"])
def test_a_call_counts_although_its_session_ends_during_it(ada: Agent, ends: str) -> None:
    """Dreams that were canceled during each call cost nothing of the allowance."""
    session = sessions.open_session(fresh(ada), trigger="manual")
    if ends == "before":
        sessions.close(session, "incomplete", "canceled")
    with edits.locked(fresh(ada)) as agent:
        row = RefinementSession.objects.get(pk=session.pk)
        sessions.count_model_calls(session, Usage(prompt=90, completion=30), 1, 1)
        if ends == "meanwhile":
            sessions.end(agent, row, "incomplete", "canceled")
    assert allowance.spent(ada.tenant_id) == 120
    assert RefinementSession.objects.get(pk=session.pk).prompt_tokens == 90


def test_the_tokens_of_a_month_are_counted(ada: Agent, bob: Agent) -> None:
    with time_machine.travel(datetime(2026, 11, 30, 23, 59, tzinfo=UTC)):
        for tokens in (100, 20):
            spend(ada, tokens)
        spend(ada, 100, Driver.RUNTIME)  # the runtime pays for its own model
        assert (allowance.spent(ada.tenant_id), allowance.spent(bob.tenant_id)) == (120, 0)
        session = opened(ada).session
        sessions.count_model_calls(session, Usage(prompt=1_000, cached=905, completion=10), 1, 1)
        sessions.close(session, "completed")
        assert allowance.spent(ada.tenant_id) == 120 + 95 + 91 + 10, "a cached token counts one tenth"
    with time_machine.travel(datetime(2026, 12, 1, 0, 1, tzinfo=UTC)):
        assert allowance.spent(ada.tenant_id) == 0
        spend(ada, 7)
        assert allowance.spent(ada.tenant_id) == 7
        spend(ada, 2**40)  # as a model's server that counts wrong
        assert allowance.spent(ada.tenant_id) == 7 + 2**40


def test_tokens_of_a_clock_that_was_ahead_count(ada: Agent) -> None:
    """Until the month that the clock had named, no token counted."""
    allow(ada, 1_000)
    right = datetime(2026, 11, 30, 12, tzinfo=UTC)
    with time_machine.travel(right, tick=False) as clock:
        clock.move_to(right + timedelta(days=1))
        allowance.add(ada.tenant_id, "openai/m", 900, timezone.now())
        clock.move_to(right)
        backlog.sweep()
        assert allowance.spent(ada.tenant_id) == 900
        allowance.add(ada.tenant_id, "openai/m", 100, timezone.now())
        assert allowance.spent(ada.tenant_id) == 1_000
        assert allowance.is_used_up(Tenant.objects.get(pk=ada.tenant_id))
        assert Agent.objects.filter(allowance.used_up(timezone.now()), pk=ada.pk).exists()
        clock.move_to(right + timedelta(days=1))
        assert allowance.spent(ada.tenant_id) == 0


def test_without_tokens_no_agent_of_the_tenant_is_due(ada: Agent, bob: Agent) -> None:
    allow(ada, 100)
    spend(ada, 99)
    make_due(ada)
    make_due(bob)
    assert due() == {ada.pk, bob.pk}
    spend(ada, 1)
    make_due(ada)
    assert due() == {bob.pk}
    tasks.sweep()
    assert waiting() == [("refinement.tasks.refine_agent", (bob.pk,))]
    Share.objects.update(month=date(2020, 1, 1))
    assert due() == {ada.pk, bob.pk}, "the tokens are those of another month"


def test_without_tokens_a_person_can_start_a_session_and_the_agents_side_cannot(ada: Agent) -> None:
    allow(ada, 0)
    with time_machine.travel(datetime(2026, 12, 24, tzinfo=UTC)), pytest.raises(AllowanceSpent, match="2027-01-01"):
        backlog.request(fresh(ada))
    assert waiting() == []
    backlog.request_for(ada, PERSON)
    assert work() == [("refine_agent", "completed")]


def test_a_tenants_allowance_replaces_that_of_the_service(ada: Agent, settings: Any) -> None:
    spend(ada, 100)
    make_due(ada)
    settings.MONTH_TOKENS = 100
    assert due() == set()
    allow(ada, 101)
    assert due() == {ada.pk}


def create_due(count: int) -> list[Agent]:
    agents = [lifecycle.create("big", f"a{n}", model="openai/gpt", actor=ME)[0] for n in range(count)]
    for agent in agents:
        make_due(agent)
    return agents


def test_open_sessions_reserve_the_allowance_and_give_back_the_rest(ada: Agent, settings: Any) -> None:
    settings.MODELS, settings.MONTH_TOKENS = {"openai/*": 3}, 1_500_000
    agents = create_due(3)
    make_due(ada)
    first, second = (scheduling.open_due(agent) or RefinementSession() for agent in agents[:2])
    assert (first.max_model_tokens, second.max_model_tokens) == (400_000, 100_000)
    assert (due(), scheduling.open_due(agents[2])) == ({ada.pk}, None)
    backlog.request(fresh(agents[2]))  # it waits for the others
    sessions.count_model_calls(first, Usage(prompt=1_000), 1, 1)
    sessions.close(first, "completed")
    assert allowance.spent(agents[0].tenant_id) == 3_000
    third = scheduling.open_due(agents[2]) or RefinementSession()
    assert third.max_model_tokens == 399_000
    sessions.close(second, "completed")
    sessions.close(third, "completed")
    assert Share.objects.get(tenant_id=agents[0].tenant_id).reserved_tokens == 0


@pytest.mark.django_db(transaction=True)
def test_sessions_that_open_at_the_same_time_cannot_together_exceed_the_allowance(settings: Any) -> None:
    settings.MONTH_TOKENS = 1_000_000
    found = at_once(*(partial(scheduling.open_due, agent) for agent in create_due(6)))
    assert sorted(session.max_model_tokens for session in found if session) == [200_000, 400_000, 400_000]


def test_the_next_month() -> None:
    for now, first in (("2026-11-22", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2026-01-01", "2026-02-01")):
        assert allowance.next_month(datetime.fromisoformat(f"{now}T12:00:00+00:00")).isoformat() == first
