"""Workers that choose at the same moment: no agent is taken twice, no limit is exceeded, and sweeps do not wait for
each other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from memory.models import Agent
from refinement import backlog, scheduling
from refinement.models import RefinementSession, Served, Waiting
from tests.fault.playing import due
from tests.fault.test_writers import at_once

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def in_workers(work: Callable[[int], Any], count: int = 8) -> list[Any]:
    return at_once(*(lambda place=place: work(place) for place in range(count)))


def enqueue(count: int, tenants: int) -> None:
    now = timezone.now()
    Waiting.objects.bulk_create(
        Waiting(agent_id=n, tenant_id=n % tenants, provider="openai", due_at=now, since=now, claim=n)
        for n in range(1, count + 1)
    )


def create_due(count: int) -> list[Agent]:
    return [due(f"t{n % 3}", f"a{n}") for n in range(count)]


@pytest.mark.parametrize(("per_tenant", "per_provider"), [(0, {}), (2, {"openai": 5})])
def test_no_agent_is_taken_twice_and_no_limit_is_exceeded(
    settings: Any, per_tenant: int, per_provider: dict[str, int]
) -> None:
    settings.TENANT_SESSIONS, settings.PROVIDER_SESSIONS = per_tenant, per_provider
    enqueue(80, 4)
    running: Counter[int] = Counter()
    most: list[tuple[int, int]] = []
    lock, done = threading.Lock(), []

    def work(place: int) -> None:
        dice = random.Random(place)
        while len(done) < 80:
            turn = scheduling.take()
            if turn is None:
                continue
            with lock:
                running[turn.tenant_id] += 1
                most.append((max(running.values()), sum(running.values())))
            for _ in range(dice.randrange(3)):
                Served.objects.count()
            with lock:
                running[turn.tenant_id] -= 1
                done.append(turn.pk)
            scheduling.end(turn)

    in_workers(work)
    assert sorted(done) == list(range(1, 81))
    if per_tenant:
        assert max(tenant for tenant, _ in most) <= per_tenant
        assert max(provider for _, provider in most) <= per_provider["openai"]


def test_concurrent_sweeps_queue_each_agent_once() -> None:
    agents = {agent.pk for agent in create_due(30)}
    queued = in_workers(lambda _: backlog.sweep(), 4)
    assert set(Waiting.objects.values_list("pk", flat=True)) == agents
    assert sum(queued) == 30


def test_one_of_several_workers_opens_the_session_of_an_agent() -> None:
    [agent] = create_due(1)
    opened = in_workers(lambda _: scheduling.open_due(agent))
    assert sum(session is not None for session in opened) == 1
    assert RefinementSession.objects.count() == 1


def test_requests_and_workers_that_choose_do_not_block_each_other() -> None:
    """A request holds the agent's lock, a worker that chooses holds the workers' lock. Neither needs the other."""
    agents = create_due(12)
    backlog.sweep()

    def act(place: int) -> None:
        if place % 2:
            for agent in agents[place::4]:
                backlog.request(agent)
        else:
            for _ in range(6):
                turn = scheduling.take()
                if turn is not None:
                    scheduling.end(turn)

    in_workers(act)
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()
