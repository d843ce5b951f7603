"""What one session may do: defaults, and who may set them."""

from __future__ import annotations

import pytest

from memory.models import Agent, Tenant
from refinement import limits
from tests.refining import fill
from tests.steps import fresh

DEFAULTS = {
    "max_changes": 100,
    "max_steps": 30,
    "max_searches": 20,
    "max_failed_calls": 20,
    "max_seconds": 900,
    "max_model_tokens": 400_000,
}
EVERY = pytest.mark.parametrize("name", DEFAULTS)


def test_the_defaults(ada: Agent) -> None:
    assert limits.of(ada) == DEFAULTS


def test_half_of_a_large_memory_may_change(ada: Agent) -> None:
    ada.core_count = 301
    assert limits.of(ada)["max_changes"] == 150


def test_half_is_of_the_core_memories_there_are_at_the_start(ada: Agent) -> None:
    fill(ada, 203, 2)
    assert limits.of(fresh(ada))["max_changes"] == 101


@EVERY
def test_the_tenants_limit_goes_before_the_default(ada: Agent, name: str) -> None:
    Tenant.objects.filter(pk=ada.tenant_id).update(**{name: 7})
    assert limits.of(fresh(ada)) == DEFAULTS | {name: 7}


@EVERY
def test_the_agents_limit_goes_before_its_tenants(ada: Agent, name: str) -> None:
    Tenant.objects.filter(pk=ada.tenant_id).update(**{name: 7})
    Agent.objects.filter(pk=ada.pk).update(**{name: 9})
    assert limits.of(fresh(ada)) == DEFAULTS | {name: 9}


@EVERY
def test_a_limit_of_nothing_is_a_limit(ada: Agent, name: str) -> None:
    Tenant.objects.filter(pk=ada.tenant_id).update(**{name: 7})
    Agent.objects.filter(pk=ada.pk).update(**{name: 0})
    assert limits.of(fresh(ada))[name] == 0


def test_another_tenants_limits_do_not_apply(ada: Agent, bob: Agent) -> None:
    Tenant.objects.filter(pk=ada.tenant_id).update(max_steps=7)
    assert limits.of(fresh(bob)) == DEFAULTS


def test_protections_a_session_refusals_in_a_row_and_calls_a_reply_are_fixed() -> None:
    assert (limits.MAX_PROTECTIONS, limits.MAX_FLOOR_REFUSALS, limits.MAX_CALLS_PER_REPLY) == (5, 3, 200)
