"""Workers that choose at the same moment: nobody is taken twice, no limit is passed, two sweeps do not wait for each
other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from refinement import backlog, scheduling
from refinement.models import RefinementSession, Served, Waiting
from tests.refining import change

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
ME = Actor.operator("tests")
WORKERS = 8


def at_once(act: Callable[[int], None], count: int = WORKERS) -> None:
    """In so many threads, each on a connection of its own; what one of them raised is raised here."""
    start, failures = threading.Barrier(count), []

    def run(place: int) -> None:
        try:
            start.wait()
            act(place)
        except Exception as failure:  # noqa: BLE001  raised below
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def stand(count: int, tenants: int) -> None:
    now = timezone.now()
    Waiting.objects.bulk_create(
        Waiting(agent_id=n, tenant_id=n % tenants, provider="openai", due_at=now, since=now, claim=n)
        for n in range(1, count + 1)
    )


def test_nobody_is_taken_twice(settings: Any) -> None:
    settings.TENANT_SESSIONS = 0
    stand(60, 5)
    taken: list[int] = []

    def work(_: int) -> None:
        while (turn := scheduling.take()) is not None:
            taken.append(turn.pk)

    at_once(work)
    assert Counter(taken) == dict.fromkeys(range(1, 61), 1)


def test_no_limit_is_passed(settings: Any) -> None:
    settings.TENANT_SESSIONS, settings.PROVIDER_SESSIONS = 2, {"openai": 5}
    stand(80, 4)
    under_way: Counter[int] = Counter()
    most: list[tuple[int, int]] = []
    lock, done = threading.Lock(), []

    def work(place: int) -> None:
        dice = random.Random(place)
        while len(done) < 80:
            turn = scheduling.take()
            if turn is None:
                continue
            with lock:
                under_way[turn.tenant_id] += 1
                most.append((max(under_way.values()), sum(under_way.values())))
            for _ in range(dice.randrange(3)):
                Served.objects.count()
            with lock:
                under_way[turn.tenant_id] -= 1
                done.append(turn.pk)
            scheduling.end(turn)

    at_once(work)
    assert sorted(done) == list(range(1, 81))
    assert max(tenant for tenant, _ in most) <= 2
    assert max(provider for _, provider in most) <= 5


def due(count: int) -> list[Agent]:
    made = [lifecycle.create(f"t{n % 3}", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(count)]
    for agent in made:
        change(agent, due_at=timezone.now() - timedelta(hours=1))
    return made


def test_sweeps_at_the_same_moment_have_each_stand_in_line_once() -> None:
    there = {agent.pk for agent in due(30)}
    came: list[int] = []
    at_once(lambda _: came.append(backlog.sweep()), 4)
    assert set(Waiting.objects.values_list("pk", flat=True)) == there
    assert sum(came) == 30


def test_of_workers_with_the_same_agent_one_opens_its_session() -> None:
    [agent] = due(1)
    opened: list[Any] = []
    at_once(lambda _: opened.append(scheduling.open_due(agent)))
    assert sum(session is not None for session in opened) == 1
    assert RefinementSession.objects.count() == 1


def test_who_asks_while_workers_choose_waits_for_nobody(settings: Any) -> None:
    """Asking holds the agent's lock, choosing the workers': neither needs the other's."""
    made = due(12)
    backlog.sweep()

    def act(place: int) -> None:
        if place % 2:
            for agent in made[place::4]:
                backlog.request(agent)
        else:
            for _ in range(6):
                turn = scheduling.take()
                if turn is not None:
                    scheduling.end(turn)

    at_once(act)
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()
