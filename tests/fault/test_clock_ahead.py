"""The clock is a day ahead, and then right: what was dated by it counts as expired."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from axes.models import AccessAttempt
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ, Schedule

from config import queue
from memory.access.authentication import agent_key
from memory.accounts import invitations, people
from memory.errors import InvalidLink
from memory.models import Agent, AgentKey, Authenticator, Creation, DueReason, Person, Role
from memory.writing import cooldown
from refinement import backlog, schedule, scheduling, tasks
from refinement.models import Outcome, Provider, RefinementSession, Waiting
from refinement.providers import Availability
from tests import queueing, steps
from tests.admin.conftest import enrolled, sign_in
from tests.conftest import House
from tests.members import join
from tests.refining import change, fill, opened
from tests.steps import fresh

pytestmark = [pytest.mark.database, pytest.mark.django_db]

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
AHEAD, RIGHT = NOON + timedelta(days=1), NOON + timedelta(minutes=20)
Clock = time_machine.Traveller


@pytest.fixture
def clock(ada: Agent) -> Iterator[Clock]:
    """It is noon, and the clock is a day ahead."""
    with time_machine.travel(AHEAD) as clock:
        Agent.objects.exclude(pk=ada.pk).update(due_at=None)
        fill(ada, 10, 20)
        yield clock


def test_a_session_and_its_turn_are_taken_over(ada: Agent, clock: Clock) -> None:
    change(ada, due_at=AHEAD)
    tasks.sweep()
    assert scheduling.take() is not None
    opened(ada)
    OrmQ.objects.all().delete()
    clock.move_to(RIGHT)
    tasks.close_stale()
    assert RefinementSession.objects.get().outcome == Outcome.ABANDONED
    assert Waiting.objects.get().taken_at is None, "it is in the backlog again, without a sweep"
    assert "completed" in [code for _, code in queueing.work()]


@pytest.mark.parametrize("failures", [0, 1, 2, 20])
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED])
def test_a_due_date_and_a_cool_down_end(ada: Agent, clock: Clock, outcome: str, failures: int) -> None:
    session = opened(ada, failures_in_a_row=failures).session
    session.outcome, session.closed_at = outcome, AHEAD
    schedule.set_next(fresh(ada), session)
    before = fresh(ada).due_at
    clock.move_to(AHEAD)
    backlog.sweep()
    assert fresh(ada).due_at == before, "the date is right while the clock is"
    clock.move_to(RIGHT)
    backlog.sweep()
    row = fresh(ada)
    assert (row.due_at is not None and row.due_at <= RIGHT + timedelta(minutes=1), row.quiet_until) == (True, None)


def test_a_request_and_the_quiet_day_end(ada: Agent, clock: Clock) -> None:
    row = backlog.request(fresh(ada))
    cooldown.begin(row, AHEAD, 100)
    row.save()
    clock.move_to(RIGHT)
    backlog.sweep()
    assert (fresh(ada).due_reason, fresh(ada).quiet_until) == (DueReason.AGENT, None)
    assert schedule.due().filter(pk=ada.pk).exists()


def test_memory_over_its_budget_is_due_at_once(ada: Agent, clock: Clock) -> None:
    clock.move_to(RIGHT)
    change(ada, budget_tokens=100, target_tokens=100)
    steps.remember(ada, "one more memory")
    assert schedule.due().filter(pk=ada.pk).exists()


@pytest.mark.django_db(transaction=True)  # django-q2 closes a connection that is older than a day
def test_the_queue_continues(ada: Agent, clock: Clock) -> None:
    queue.keep_schedules()
    queue.put_later(queue.REFINE_AGENT, ada.pk, wait=timedelta(minutes=5))
    queue.put(queue.CLOSE_STALE)
    OrmQ.objects.update(lock=AHEAD + timedelta(hours=2))
    clock.move_to(RIGHT)
    assert "no worker" in queue.unattended()
    queue.queue_due(queue._broker())
    due = {queue.SWEEP, queue.REFINE_AGENT, queue.CLOSE_STALE, queue.WRITE_HEADS}
    assert {name for name, _ in queueing.waiting()} == due
    assert not OrmQ.objects.filter(lock__gt=RIGHT + timedelta(minutes=1)).exists()
    assert not Schedule.objects.filter(next_run__gt=RIGHT + timedelta(minutes=61)).exists()


def test_a_provider_is_called(ada: Agent, clock: Clock) -> None:
    for _ in range(3):
        Availability("openai/gpt", ada).failed(60, is_unreachable=True)
    Provider.objects.update(shut_until=AHEAD)
    clock.move_to(RIGHT)
    assert Availability("openai/gpt", ada).wait() == 0


def test_a_keys_last_use_is_right(house: House, clock: Clock) -> None:
    agent_key(house.ada_key)
    clock.move_to(RIGHT)
    agent_key(house.ada_key)
    used = AgentKey.objects.get(agent=house.ada).last_used_at
    assert str(used) < str(RIGHT + timedelta(minutes=1))


def test_what_opens_something_ends(house: House, clock: Clock) -> None:
    """These lasted a day longer."""
    person = enrolled("pat@acme.test")
    join(person=person, tenant=house.ada.tenant, role=Role.OWNER)
    invitation = invitations.invite(house.ada.tenant, "new@acme.test", Role.ADMIN, person)
    client = Client()
    assert sign_in(client, person).status_code == 302
    page = reverse("admin:memory_agent_changelist")
    assert client.get(page).status_code == 200
    clock.move_to(RIGHT)
    assert client.get(page).status_code == 302
    with pytest.raises(InvalidLink, match="expired"):
        invitations.look(invitation)


def test_nobody_is_locked_out(clock: Clock) -> None:
    AccessAttempt.objects.create(attempt_time=AHEAD, failures_since_start=5)
    person = Person.objects.create(email="pat@acme.test")
    factor = people.candidate(person, "pat")
    factor.proof, factor.throttling_failure_timestamp, factor.throttling_failure_count = b"", AHEAD, 3
    factor.last_step = int(AHEAD.timestamp()) // people.STEP
    factor.save()
    AccessAttempt.objects.update(attempt_time=AHEAD)
    clock.move_to(RIGHT)
    backlog.sweep()
    assert not AccessAttempt.objects.exists()
    factor = Authenticator.objects.get()
    assert factor.verify_is_allowed()[0]
    later = RIGHT.timestamp() + people.STEP
    clock.move_to(later)
    assert people.consume_code(factor, people.code_at(factor, later)), "the next code is taken"


def test_an_idempotency_key_is_not_remembered_for_ever(house: House, clock: Clock, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    clock.move_to(AHEAD + timedelta(days=300))
    headers = {"Authorization": f"Bearer {house.ada_key}", "Idempotency-Key": "same"}
    for moment in (AHEAD + timedelta(days=300), RIGHT):
        clock.move_to(moment)
        created = Client().post("/api/v1/memories", {"content": "tea"}, "application/json", headers=headers)
        assert created.status_code == 201
    assert Creation.objects.get().at < RIGHT + timedelta(minutes=1)
