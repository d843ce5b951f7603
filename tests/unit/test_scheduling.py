"""Which waiting agent a worker takes next: fair between tenants, within limits of tenants and providers."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from memory.models import Tenant
from refinement import scheduling
from refinement.models import Provider, Served, Waiting

pytestmark = [pytest.mark.database, pytest.mark.django_db]
NOON = datetime.fromisoformat("2026-11-22T12:00:00+00:00")


@pytest.fixture(autouse=True)
def _no_limit(settings: Any) -> None:
    settings.TENANT_SESSIONS = 0


def wait(agent: int, tenant: int, provider: str = "builtin", *, minutes: int = 0, asked: bool = False) -> None:
    """Put an agent into the backlog, overdue for some minutes."""
    values: Any = {"agent_id": agent, "tenant_id": tenant, "provider": provider, "asked": asked}
    Waiting.objects.create(due_at=NOON - timedelta(minutes=minutes), since=NOON, claim=agent, **values)


def take() -> int | None:
    turn = scheduling.take()
    return turn.pk if turn else None


def run_all(count: int) -> list[int | None]:
    """The agents that one worker refines, one after the other."""
    done: list[int | None] = []
    for _ in range(count):
        turn = scheduling.take()
        done.append(turn.pk if turn else None)
        if turn:
            scheduling.end(turn)
    return done


def test_within_a_tenant_requested_agents_go_first_and_then_the_longest_overdue() -> None:
    """A request does not go before other tenants."""
    wait(1, 1, minutes=5)
    wait(2, 1, minutes=50)
    wait(3, 1, asked=True)
    assert run_all(4) == [3, 2, 1, None]
    for agent in (4, 5):
        wait(agent, 1, asked=True)
    wait(6, 2, minutes=1)
    assert 6 in run_all(2)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_thousand_agents_of_one_tenant_delay_another_tenant_by_one_session(workers: int) -> None:
    Waiting.objects.bulk_create(
        Waiting(agent_id=n, tenant_id=1, provider="builtin", due_at=NOON, since=NOON, claim=n) for n in range(1, 1_001)
    )
    running = [scheduling.take() for _ in range(workers)]
    wait(2_000, 2)
    first = running[0]
    assert first is not None
    scheduling.end(first)
    assert take() == 2_000


def test_tenants_take_turns() -> None:
    for agent in range(9):
        wait(agent, agent // 6, minutes=agent)
    assert [agent // 6 for agent in run_all(9) if agent is not None] == [1, 0, 1, 0, 1, 0, 0, 0, 0]


def test_the_tenant_with_the_fewest_running_sessions_goes_first() -> None:
    for agent in range(6):
        wait(agent, 1 if agent < 4 else 2)
    order = [take() for _ in range(6)]
    assert [agent is not None and agent >= 4 for agent in order] == [False, True, False, True, False, False]


@pytest.mark.parametrize(("own", "allowed"), [(1, 1), (3, 3), (0, 4), (None, 2)])
def test_a_tenant_has_a_limit_of_running_sessions(own: int | None, allowed: int, settings: Any) -> None:
    settings.TENANT_SESSIONS = 2
    tenant = Tenant.objects.create(slug="own", sessions_at_once=own)
    for agent in range(4):
        wait(agent, tenant.pk)
    assert sum(take() is not None for _ in range(4)) == allowed
    wait(9, tenant.pk + 1)
    assert take() == 9
    Waiting.objects.filter(tenant_id=tenant.pk, taken_at__isnull=False).first().delete()  # type: ignore[union-attr]
    assert (take() is not None) == (allowed < 4)


def test_a_provider_has_a_limit_of_running_sessions(settings: Any) -> None:
    settings.PROVIDER_SESSIONS = {"ollama": 1}
    wait(1, 1, "ollama", minutes=9)
    wait(2, 2, "ollama", minutes=8)
    wait(3, 2, "openai")
    assert [take() for _ in range(3)] == [1, 3, None]


def test_agents_of_a_closed_provider_are_skipped() -> None:
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    wait(1, 1, "openai", minutes=9)
    wait(2, 1, "anthropic")
    assert [take() for _ in range(2)] == [2, None]
    Provider.objects.update(shut_until=timezone.now() - timedelta(seconds=1))
    assert take() == 1


def test_a_turn_that_is_given_back_waits_again_and_an_old_turn_cannot_end_a_new_one() -> None:
    """A lost worker may come back after its agent was queued again."""
    wait(1, 1)
    turn = scheduling.take()
    assert turn is not None
    scheduling.give_back(turn)
    old = scheduling.take()
    assert old is not None
    Waiting.objects.filter(pk=1).update(claim=77)
    scheduling.end(old)
    scheduling.give_back(old)
    assert Waiting.objects.get(pk=1).taken_at is not None


def test_taking_a_turn_needs_a_constant_number_of_queries(django_assert_max_num_queries: Any) -> None:
    for agent in range(50):
        wait(agent, agent % 7)
    Served.objects.create(tenant_id=0, at=NOON)
    with django_assert_max_num_queries(15):
        assert take() is not None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 4))
def test_no_waiting_tenant_is_passed_over_for_long(tenants: list[int], workers: int) -> None:
    Waiting.objects.all().delete()
    Served.objects.all().delete()
    for agent, tenant in enumerate(tenants):
        wait(agent, tenant)
    running: list[Waiting] = []
    passed_over = dict.fromkeys(set(tenants), 0)
    while (turn := scheduling.take()) is not None:
        waits = set(Waiting.objects.filter(taken_at=None).values_list("tenant_id", flat=True))
        for tenant in waits - {turn.tenant_id}:
            passed_over[tenant] += 1
        passed_over[turn.tenant_id] = 0
        assert max(passed_over.values()) <= 5 + workers
        running.append(turn)
        if len(running) == workers:
            scheduling.end(running.pop(0))
    assert not Waiting.objects.filter(taken_at=None).exists()
