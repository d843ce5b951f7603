"""Memory rules over the API: read by the agent's key, changed by no key (seed 004)."""

from __future__ import annotations

from memory.agents import rule_changes
from memory.policy.settings_document import DEFAULTS
from tests.api.calling import Caller
from tests.conftest import House
from tests.steps import PERSON, fresh

BEHAVIORAL_OFF = {"memory_rules": {"categories": {"behavioral": {"enabled": False}}}}


def test_the_api_reads_them_and_changes_none(runtime: Caller, house: House) -> None:
    assert runtime.get("rules").json == DEFAULTS
    for body in ({"memory_rules": {"enabled": False}}, {}):
        answer = runtime.patch("rules", body)
        assert (answer.status, answer.codes) == (403, ["persons_only"])
    rule_changes.change(house.ada, PERSON, enabled=False)
    answer = runtime.post("memories", {"content": "x"})
    assert (answer.status, answer.codes) == (409, ["memory_disabled"])
    assert answer.json["prompt"] == rule_changes.QUESTION
    rule_changes.change(fresh(house.ada), PERSON, enabled=True)
    rule_changes.change(fresh(house.ada), PERSON, rules=BEHAVIORAL_OFF)
    answer = runtime.post("memories", {"content": "x"})
    assert (answer.status, answer.codes) == (409, ["category_disabled"])
    assert answer.json["prompt"] == rule_changes.QUESTION
