"""Several people read, agree and write in any order: no switch is turned on without the agreement of the person who
writes, and a change does not undo another person's change of something else (seed 004, "Implementation Guards")."""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import rule

from memory.agents import rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import NotConfirmed
from memory.models import Agent
from memory.policy import settings_document
from tests.property.walk import Walk, walk
from tests.steps import PERSON

SWITCHES = (
    "memory_rules.auto_recording.enabled",
    "memory_rules.categories.topic.enabled",
    "memory_rules.categories.credentials.enabled",
    "memory_rules.project_support.git_history_analysis.enabled",
)
NUMBER = "memory_rules.cleanup_guidance_days"
WHO = st.integers(0, 2)


def as_document(on: dict[str, bool], days: int) -> settings_document.Document:
    document = settings_document.with_value({}, NUMBER, str(days))
    for path, is_on in on.items():
        document = settings_document.with_value(document, path, "true" if is_on else "false")
    return document


ANY = st.one_of(
    st.builds(Wanted, key=st.sampled_from(SWITCHES), value=st.sampled_from(["true", "false"])),
    st.builds(Wanted, key=st.just(NUMBER), value=st.integers(0, 9).map(str)),
    st.builds(Wanted, enabled=st.booleans()),
    st.builds(
        Wanted,
        enabled=st.sampled_from([None, True, False]),
        rules=st.builds(as_document, st.dictionaries(st.sampled_from(SWITCHES), st.booleans()), st.integers(0, 9)),
    ),
)


class Rules(Walk):
    """Each person reads the rules, agrees to what was off then, and writes later."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = self.create()
        self.agreed: dict[int, tuple[Agent, Wanted, list[str]]] = {}

    def values(self) -> dict[str, Any]:
        """The value of every key."""
        return dict(leaves(rule_changes.whole(self.row())))

    def on(self) -> set[str]:
        rules = self.values()
        return {path for path in (*SWITCHES, settings_document.MASTER) if rules[path] is True}

    @rule(who=WHO, wanted=ANY)
    def read_and_agree(self, who: int, wanted: Wanted) -> None:
        read = self.row()
        self.agreed[who] = read, wanted, rule_changes.turned_on(read, wanted)

    @rule(who=WHO)
    def write(self, who: int) -> None:
        if who not in self.agreed:
            return
        read, wanted, agreed = self.agreed.pop(who)
        on, before = self.on(), self.values()
        if set(rule_changes.turned_on(self.row(), wanted)) - set(agreed):
            with transaction.atomic(), pytest.raises(NotConfirmed):
                rule_changes.make(read, PERSON, wanted, agreed=agreed)
            assert self.values() == before
            return
        rule_changes.make(read, PERSON, wanted, agreed=agreed)
        now = self.values()
        assert self.on() - on <= set(agreed)
        if wanted.key:
            assert str(now[wanted.key]).lower() == wanted.value
        if wanted.rules is None:  # every other key keeps its value
            key = wanted.key or settings_document.MASTER
            assert now | {key: None} == before | {key: None}

    @rule(one=ANY, other=ANY)
    def write_while_another_person_agrees(self, one: Wanted, other: Wanted) -> None:
        self.read_and_agree(0, one)
        self.read_and_agree(1, other)
        self.write(1)
        self.write(0)


def leaves(found: Any, above: str = "") -> list[tuple[str, Any]]:
    if not isinstance(found, dict):
        return [(above, found)]
    return [leaf for name, inner in found.items() for leaf in leaves(inner, f"{above}.{name}" if above else name)]


@pytest.mark.usefixtures("db")
def test_nothing_is_switched_on_without_agreement() -> None:
    walk(Rules, 10, steps=20)
