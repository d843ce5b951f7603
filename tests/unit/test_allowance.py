"""A tenant's model tokens per month: counted when a session ends. Without any left, only people start sessions."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.models import Agent, DueReason, Tenant
from refinement import allowance, backlog, schedule, tasks
from refinement import session as sessions
from refinement.errors import AllowanceSpent
from refinement.llm.base import Usage
from refinement.models import Driver, Share
from tests.queueing import waiting, work
from tests.refining import change
from tests.steps import PERSON, fresh

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


def test_the_tokens_of_a_month_are_counted(ada: Agent, bob: Agent) -> None:
    with time_machine.travel(datetime(2026, 11, 30, 23, 59, tzinfo=UTC)):
        for tokens in (100, 20):
            spend(ada, tokens)
        spend(ada, 100, Driver.RUNTIME)  # the runtime pays for its own model
        assert (allowance.spent(ada.tenant_id), allowance.spent(bob.tenant_id)) == (120, 0)
    with time_machine.travel(datetime(2026, 12, 1, 0, 1, tzinfo=UTC)):
        assert allowance.spent(ada.tenant_id) == 0
        spend(ada, 7)
        assert allowance.spent(ada.tenant_id) == 7


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


def test_the_next_month() -> None:
    for now, first in (("2026-11-22", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2026-01-01", "2026-02-01")):
        assert allowance.next_month(datetime.fromisoformat(f"{now}T12:00:00+00:00")).isoformat() == first
