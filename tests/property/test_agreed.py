"""Whatever order several people look, agree and write in: nothing is turned on that whoever wrote did not agree to, and
what was set by one is not undone by another's change of something else (seed 004, "Implementation Guards")."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import NotConfirmed
from memory.models import Agent
from memory.policy import settings_document
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import PERSON, fresh

SWITCHES = (
    "memory_rules.auto_recording.enabled",
    "memory_rules.categories.topic.enabled",
    "memory_rules.categories.credentials.enabled",
    "memory_rules.project_support.git_history_analysis.enabled",
)
PEOPLE = range(3)
_run = itertools.count(1)


def as_document(on: dict[str, bool], days: int) -> settings_document.Document:
    given = settings_document.with_value({}, "memory_rules.cleanup_guidance_days", str(days))
    for path, is_on in on.items():
        given = settings_document.with_value(given, path, "true" if is_on else "false")
    return given


ONE = st.builds(Wanted, key=st.sampled_from(SWITCHES), value=st.sampled_from(["true", "false"]))
DAYS = st.builds(Wanted, key=st.just("memory_rules.cleanup_guidance_days"), value=st.integers(0, 9).map(str))
MASTER = st.builds(Wanted, enabled=st.booleans())
WHOLE = st.builds(
    Wanted,
    enabled=st.sampled_from([None, True, False]),
    rules=st.builds(as_document, st.dictionaries(st.sampled_from(SWITCHES), st.booleans()), st.integers(0, 9)),
)
ANY = st.one_of(ONE, DAYS, MASTER, WHOLE)


class Several(Walk):
    """People who each look at an agent's rules, are asked about what they saw to be off, and write later."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = lifecycle.create(f"g{next(_run)}", "ada", model="builtin/dedupe", actor=OPERATOR)[0]
        self.about_to: dict[int, tuple[Agent, Wanted, list[str]]] = {}

    def check_at_end(self) -> None:
        self.grown(self.agent)

    def on(self) -> set[str]:
        whole = rule_changes.whole(fresh(self.agent))
        return {path for path in (*SWITCHES, settings_document.MASTER) if _at(whole, path) is True}

    @rule(who=st.sampled_from(PEOPLE), wanted=ANY)
    def look_and_say_yes(self, who: int, wanted: Wanted) -> None:
        seen = fresh(self.agent)
        self.about_to[who] = seen, wanted, rule_changes.turned_on(seen, wanted)

    @rule(who=st.sampled_from(PEOPLE))
    def write(self, who: int) -> None:
        if who not in self.about_to:
            return
        seen, wanted, agreed = self.about_to.pop(who)
        before, whole = self.on(), rule_changes.whole(fresh(self.agent))
        closed = set(rule_changes.turned_on(fresh(self.agent), wanted)) - set(agreed)
        if closed:
            with transaction.atomic(), pytest.raises(NotConfirmed):
                rule_changes.make(seen, PERSON, wanted, agreed=agreed)
            assert rule_changes.whole(fresh(self.agent)) == whole
            return
        rule_changes.make(seen, PERSON, wanted, agreed=agreed)
        now = rule_changes.whole(fresh(self.agent))
        assert self.on() - before <= set(agreed)
        if wanted.key:
            assert str(_at(now, wanted.key)).lower() == wanted.value
        if wanted.rules is None:  # all else is as somebody left it last
            assert _without(now, wanted.key or settings_document.MASTER) == _without(
                whole, wanted.key or settings_document.MASTER
            )

    @rule(one=ANY, other=ANY)
    def one_writes_while_the_other_is_asked(self, one: Wanted, other: Wanted) -> None:
        self.look_and_say_yes(0, one)
        self.look_and_say_yes(1, other)
        self.write(1)
        self.write(0)


def _at(whole: Any, path: str) -> Any:
    for name in path.split("."):
        whole = whole[name]
    return whole


def _without(whole: settings_document.Document, path: str) -> dict[str, Any]:
    return {each: value for each, value in _leaves(whole) if each != path}


def _leaves(found: Any, above: str = "") -> list[tuple[str, Any]]:
    if not isinstance(found, dict):
        return [(above, found)]
    return [leaf for name, inner in found.items() for leaf in _leaves(inner, f"{above}.{name}" if above else name)]


@pytest.mark.usefixtures("db")
def test_nothing_is_turned_on_that_nobody_agreed_to() -> None:
    run_state_machine_as_test(Several, settings=walks(15, steps=20))
