"""What an agent can be set to: looked at when it is set, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from memory.agents import lifecycle
from memory.errors import Invalid
from memory.models import Agent, AgentKey
from tests.conftest import OPERATOR
from tests.steps import ME, fresh, refused

WRONG = [{"language": "klingon"}, {"language": ""}, {"budget_tokens": 0, "target_tokens": 0}, {"target_tokens": 0}]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_agent_can_have(ada: Agent, wrong: dict[str, Any]) -> None:
    for do in (lifecycle.check, lambda row, **given: lifecycle.change(row, ME, **given)):
        with refused(ada, Invalid) as caught:
            do(fresh(ada), **wrong)
        assert caught.value.field == next(iter(wrong))
    with pytest.raises(Invalid):
        lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR, **wrong)
    assert not Agent.objects.filter(slug="eve").exists()


def test_what_an_agent_had_before_stands_in_nobodys_way(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(language="klingon", budget_tokens=0, target_tokens=0, steward="s@acme.test")
    lifecycle.change(fresh(ada), OPERATOR, paused=True)
    assert lifecycle.exchange_key(AgentKey.objects.get(agent=ada), ME)
    assert (fresh(ada).paused, fresh(ada).steward, fresh(ada).language) == (True, "", "klingon")
