"""Memory rules over the API: the agent's key reads them, and no key changes them (seed 004)."""

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
    off = {"memory_disabled": {"enabled": False}, "category_disabled": {"enabled": True, "rules": BEHAVIORAL_OFF}}
    for code, change in off.items():
        rule_changes.change(fresh(house.ada), PERSON, **change)
        answer = runtime.post("memories", {"content": "x"})
        assert (answer.status, answer.codes, answer.json["prompt"]) == (409, [code], rule_changes.QUESTION)
