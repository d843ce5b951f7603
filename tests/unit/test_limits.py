"""The limits of one session: defaults, and who can set them."""

from memory.models import Agent, Tenant
from refinement import limits
from tests.refining import change, fill
from tests.steps import fresh

DEFAULTS = {"max_changes": 100, "max_steps": 100, "max_searches": 20, "max_failed_calls": 20, "max_seconds": 900}
DEFAULTS |= {"max_model_tokens": 400_000}


def test_each_core_memory_may_change_twice_if_that_is_more_than_the_default(ada: Agent) -> None:
    assert limits.of(ada) == DEFAULTS
    fill(ada, 203, 2)
    assert limits.of(fresh(ada)) == DEFAULTS | {"max_changes": 406}


def test_limits_come_from_the_agent_then_its_tenant_then_the_default(ada: Agent, bob: Agent) -> None:
    for name in DEFAULTS:
        Tenant.objects.filter(pk=ada.tenant_id).update(**{name: 7})
        assert (limits.of(fresh(ada)), limits.of(fresh(bob))) == (DEFAULTS | {name: 7}, DEFAULTS)
        for own in (9, 0):
            change(ada, **{name: own})
            assert limits.of(fresh(ada)) == DEFAULTS | {name: own}
        Tenant.objects.filter(pk=ada.tenant_id).update(**{name: None})
        change(ada, **{name: None})
