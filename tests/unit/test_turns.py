"""Whose turn it is: fair between tenants, within what each tenant and provider may have under way."""

from __future__ import annotations

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


def stands(agent: int, tenant: int, provider: str = "builtin", *, minutes: int = 0, asked: bool = False) -> None:
    """In line, and overdue for so many minutes."""
    due_at = NOON - timedelta(minutes=minutes)
    Waiting.objects.create(
        agent_id=agent, tenant_id=tenant, provider=provider, asked=asked, due_at=due_at, since=NOON, claim=agent
    )


def taken() -> int | None:
    turn = scheduling.take()
    return turn.pk if turn else None


def served(count: int) -> list[int | None]:
    """Whose turn comes, one after the other, where one worker refines them."""
    done: list[int | None] = []
    for _ in range(count):
        turn = scheduling.take()
        done.append(turn.pk if turn else None)
        if turn:
            scheduling.end(turn)
    return done


def test_of_one_tenant_who_was_asked_for_goes_first_and_then_the_longest_overdue() -> None:
    """Asking does not go before other tenants."""
    stands(1, 1, minutes=5)
    stands(2, 1, minutes=50)
    stands(3, 1, asked=True)
    assert served(4) == [3, 2, 1, None]
    for agent in (4, 5):
        stands(agent, 1, asked=True)
    stands(6, 2, minutes=1)
    assert 6 in served(2)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_thousand_of_one_tenant_delay_one_of_another_by_one_session(workers: int) -> None:
    """Each worker has taken one of the thousand when the other comes: it is the very next."""
    Waiting.objects.bulk_create(
        Waiting(agent_id=n, tenant_id=1, provider="builtin", due_at=NOON, since=NOON, claim=n) for n in range(1, 1_001)
    )
    under_way = [scheduling.take() for _ in range(workers)]
    stands(2_000, 2)
    first = under_way[0]
    assert first is not None
    scheduling.end(first)
    assert taken() == 2_000


def test_tenants_take_turns() -> None:
    for agent in range(9):
        stands(agent, agent // 6, minutes=agent)
    assert [agent // 6 for agent in served(9) if agent is not None] == [1, 0, 1, 0, 1, 0, 0, 0, 0]


def test_the_tenant_with_the_fewest_under_way_goes_first() -> None:
    for agent in range(6):
        stands(agent, 1 if agent < 4 else 2)
    order = [taken() for _ in range(6)]
    assert [agent is not None and agent >= 4 for agent in order] == [False, True, False, True, False, False]


def test_a_tenant_has_no_more_under_way_than_it_may(settings: Any) -> None:
    settings.TENANT_SESSIONS = 2
    for agent in range(4):
        stands(agent, 1)
    stands(9, 2)
    assert [taken() is not None for _ in range(4)] == [True, True, True, False]
    Waiting.objects.filter(tenant_id=1, taken_at__isnull=False).first().delete()  # type: ignore[union-attr]
    assert taken() is not None


@pytest.mark.parametrize(("own", "allowed"), [(1, 1), (3, 3), (0, 4), (None, 2)])
def test_a_tenant_may_have_a_number_of_its_own(own: int | None, allowed: int, settings: Any) -> None:
    settings.TENANT_SESSIONS = 2
    tenant = Tenant.objects.create(slug="own", sessions_at_once=own)
    for agent in range(4):
        stands(agent, tenant.pk)
    assert sum(taken() is not None for _ in range(4)) == allowed


def test_a_provider_has_no_more_under_way_than_it_may(settings: Any) -> None:
    settings.PROVIDER_SESSIONS = {"ollama": 1}
    stands(1, 1, "ollama", minutes=9)
    stands(2, 2, "ollama", minutes=8)
    stands(3, 2, "openai")
    assert [taken() for _ in range(3)] == [1, 3, None]


def test_a_provider_that_is_shut_is_passed_over() -> None:
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    stands(1, 1, "openai", minutes=9)
    stands(2, 1, "anthropic")
    assert [taken() for _ in range(2)] == [2, None]
    Provider.objects.update(shut_until=timezone.now() - timedelta(seconds=1))
    assert taken() == 1


def test_who_is_given_back_waits_again_and_an_old_turn_ends_nothing_of_a_new_one() -> None:
    """As where a worker that was lost comes back after its agent had stood in line anew."""
    stands(1, 1)
    turn = scheduling.take()
    assert turn is not None
    scheduling.give_back(turn)
    old = scheduling.take()
    assert old is not None
    assert old.pk == 1
    Waiting.objects.filter(pk=1).update(claim=77)
    scheduling.end(old)
    scheduling.give_back(old)
    assert Waiting.objects.get(pk=1).taken_at is not None


def test_a_turn_costs_the_same_however_many_wait(django_assert_max_num_queries: Any) -> None:
    for agent in range(50):
        stands(agent, agent % 7)
    Served.objects.create(tenant_id=0, at=NOON)
    with django_assert_max_num_queries(15):
        assert taken() is not None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 4))
def test_no_tenant_is_ever_served_twice_before_one_that_waits(tenants: list[int], workers: int) -> None:
    """However many workers there are, and whoever ends first."""
    Waiting.objects.all().delete()
    Served.objects.all().delete()
    for agent, tenant in enumerate(tenants):
        stands(agent, tenant)
    under_way: list[Waiting] = []
    passed_over = dict.fromkeys(set(tenants), 0)
    while (turn := scheduling.take()) is not None:
        waits = set(Waiting.objects.filter(taken_at=None).values_list("tenant_id", flat=True))
        for tenant in waits - {turn.tenant_id}:
            passed_over[tenant] += 1
        passed_over[turn.tenant_id] = 0
        assert max(passed_over.values()) <= 5 + workers
        under_way.append(turn)
        if len(under_way) == workers:
            scheduling.end(under_way.pop(0))
    assert not Waiting.objects.filter(taken_at=None).exists()
