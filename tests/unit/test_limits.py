"""What one session may do: defaults, and who may set them."""

from __future__ import annotations

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


def test_the_defaults(ada: Agent) -> None:
    assert limits.of(ada) == DEFAULTS


def test_half_is_of_the_core_memories_there_are_at_the_start(ada: Agent) -> None:
    fill(ada, 203, 2)
    assert limits.of(fresh(ada))["max_changes"] == 101


def test_the_agents_limit_goes_before_its_tenants_and_that_before_the_default(ada: Agent) -> None:
    for name in DEFAULTS:
        Tenant.objects.filter(pk=ada.tenant_id).update(**{name: 7})
        assert limits.of(fresh(ada)) == DEFAULTS | {name: 7}
        for own in (9, 0):
            Agent.objects.filter(pk=ada.pk).update(**{name: own})
            assert limits.of(fresh(ada)) == DEFAULTS | {name: own}
        Tenant.objects.filter(pk=ada.tenant_id).update(**{name: None})
        Agent.objects.filter(pk=ada.pk).update(**{name: None})


def test_another_tenants_limits_do_not_apply(ada: Agent, bob: Agent) -> None:
    Tenant.objects.filter(pk=ada.tenant_id).update(max_steps=7)
    assert limits.of(fresh(bob)) == DEFAULTS
