"""A tenant's month of model tokens: counted when a session ends; once used up, only people begin sessions."""

from __future__ import annotations

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


def uses(agent: Agent, tokens: int, driver: str = Driver.SERVER) -> None:
    """In one session."""
    session = sessions.open_session(fresh(agent), trigger="weekly", driver=driver)
    sessions.count_model_calls(session, Usage(prompt=tokens - 1, completion=1), 1, 1)
    sessions.close(session, "completed")


def due(agent: Agent, reason: str = DueReason.WEEKLY) -> None:
    change(agent, due_at=timezone.now() - timedelta(hours=1), due_reason=reason)


def allowed(agent: Agent, tokens: int | None) -> None:
    Tenant.objects.filter(pk=agent.tenant_id).update(month_tokens=tokens)


def test_a_months_tokens_are_counted_when_sessions_end(ada: Agent, bob: Agent) -> None:
    for tokens in (100, 20):
        uses(ada, tokens)
    uses(ada, 100, Driver.RUNTIME)  # which pays for its own model
    assert (allowance.spent(ada.tenant_id), allowance.spent(bob.tenant_id)) == (120, 0)


def test_a_month_begins_with_nothing(ada: Agent) -> None:
    with time_machine.travel(datetime(2026, 11, 30, 23, 59, tzinfo=UTC)):
        uses(ada, 100)
        assert allowance.spent(ada.tenant_id) == 100
    with time_machine.travel(datetime(2026, 12, 1, 0, 1, tzinfo=UTC)):
        assert allowance.spent(ada.tenant_id) == 0
        uses(ada, 7)
        assert allowance.spent(ada.tenant_id) == 7


def test_once_it_is_used_up_nobody_is_due(ada: Agent, bob: Agent) -> None:
    allowed(ada, 100)
    uses(ada, 99)
    due(ada)
    due(bob)
    assert {agent.pk for agent in schedule.due()} == {ada.pk, bob.pk}
    uses(ada, 1)
    due(ada)
    assert [agent.pk for agent in schedule.due()] == [bob.pk]
    tasks.sweep()
    assert waiting() == [("refinement.tasks.refine_agent", (bob.pk,))]
    Share.objects.update(month=date(2020, 1, 1))
    assert {agent.pk for agent in schedule.due()} == {ada.pk, bob.pk}, "of another month"


def test_what_a_person_asks_for_is_begun_all_the_same(ada: Agent) -> None:
    allowed(ada, 0)
    backlog.request_for(ada, PERSON)
    assert work() == [("refine_agent", "completed")]


def test_its_own_side_is_told_when_to_ask_again(ada: Agent) -> None:
    allowed(ada, 0)
    with time_machine.travel(datetime(2026, 12, 24, tzinfo=UTC)), pytest.raises(AllowanceSpent, match="2027-01-01"):
        backlog.request(fresh(ada))
    assert waiting() == []


def test_the_service_has_an_allowance_for_whoever_has_none(ada: Agent, settings: Any) -> None:
    uses(ada, 100)
    due(ada)
    settings.MONTH_TOKENS = 100
    assert not schedule.due().exists()
    allowed(ada, 101)
    assert schedule.due().exists()


@pytest.mark.parametrize(
    ("now", "first"), [("2026-11-22", "2026-12-01"), ("2026-12-31", "2027-01-01"), ("2026-01-01", "2026-02-01")]
)
def test_the_month_that_follows(now: str, first: str) -> None:
    assert allowance.next_month(datetime.fromisoformat(f"{now}T12:00:00+00:00")).isoformat() == first
