"""Switches: what a category that is off lets through, by every road, and who turns one on (seed 004)."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import rule_changes
from memory.agents.rule_changes import Wanted
from memory.models import Agent, Memory
from memory.policy import settings_document, switches
from memory.policy.validation import Draft
from memory.run_log.runs import log_run
from memory.search import context, reading
from memory.search.selection import Filters
from memory.time_machine.rollback import What, roll_back
from memory.transfer import importing
from memory.writing import duplicates, operations
from refinement import ledger
from tests.conftest import OPERATOR
from tests.rules.talking import agreed
from tests.steps import ME, PERSON, SYSTEM, exported, fresh, last_entry, problems, refused, remember, says, tell

CATEGORY = "technical"


def off(agent: Agent, *categories: str) -> None:
    given = {"memory_rules": {"categories": {name: {"enabled": False} for name in categories}}}
    rule_changes.change(fresh(agent), PERSON, rules=given)


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Three memories: 1 and 2 technical, 3 behavioral; then technical memories are switched off."""
    remember(ada, "tea at four", "tea at five", category=CATEGORY)
    remember(ada, "likes tea")
    operations.discard(fresh(ada), [2], ME)
    off(ada, CATEGORY)
    return fresh(ada)


WRITES: dict[str, Callable[[Agent], Any]] = {
    "remember": lambda ada: remember(ada, "x", category=CATEGORY),
    "remember several": lambda ada: operations.remember(ada, [Draft("x"), Draft("y", category=CATEGORY)], ME),
    "revise": lambda ada: operations.revise(ada, 1, ME, content="x"),
    "tag": lambda ada: operations.revise(ada, 1, ME, tags=["x"]),
    "discard": lambda ada: operations.discard(ada, [1], ME),
    "restore": lambda ada: operations.restore(ada, [2], ME),
    "protect": lambda ada: operations.protect(ada, [1], PERSON),
    "consolidate": lambda ada: operations.consolidate(ada, [1, 3], "x", ME),
    "import": lambda ada: importing.check_lines([json.dumps({"content": "x", "category": CATEGORY}).encode()]).store(
        ada, ME
    ),
}


def test_nothing_of_a_category_that_is_off_is_written(past: Agent) -> None:
    for road, write in WRITES.items():
        with refused(past, errors.MemoryFault) as refusal:
            write(past)
        if road not in ("consolidate", "import"):  # refused for mixed scopes, and by its line
            assert isinstance(refusal.value, errors.CategoryDisabled)
            assert CATEGORY in str(refusal.value)
    remember(past, "x")  # what else there is goes on
    operations.revise(fresh(past), 3, ME, content="likes milk")
    assert says(past, 3).content == "likes milk"
    assert problems(past) == []


def test_what_is_off_is_not_read_back(past: Agent) -> None:
    for act in (lambda: reading.one(past, 1), lambda: reading.several(past, [1, 3])):
        with pytest.raises(errors.CategoryDisabled):
            act()
    assert [each.memory.number for each in reading.page(past, Filters(discarded=None), after=0, limit=9)] == [3]
    assert [each.memory.number for each in reading.search(past, "tea", filters=Filters())] == [3]
    assert [memory.number for memory, _ in context.read(past).core] == [3]
    assert [memory.number for memory in ledger.refinable(past)] == [3]


def test_once_it_is_on_again_it_is_all_there(past: Agent) -> None:
    before = context.etag(past, max_tokens=None, form="text")
    agreed(past, {})
    now = fresh(past)
    assert (now.rules, context.etag(now, max_tokens=None, form="text") == before) == ("", False)
    assert reading.one(now, 1).opened.content == "tea at four"
    assert [memory.number for memory, _ in context.read(now).core] == [1, 3]


def test_notices_of_the_system_pass_and_are_read(ada: Agent) -> None:
    number = tell(ada, "a person read")
    off(ada, *[row.category for row in Memory.objects.filter(agent=ada, number=number)])
    later = tell(fresh(ada), "another read")
    assert reading.one(fresh(ada), later).opened.content == "another read"
    assert {memory.number for memory, _ in context.read(fresh(ada)).journal} == {number, later}


def test_the_time_machine_and_the_export_are_not_affected(past: Agent) -> None:
    before = last_entry(past).seq
    discarded = AuditEntry.objects.get(agent_id=past.pk, operation="discarded")
    roll_back(past, What.entry(discarded.seq), OPERATOR)
    assert last_entry(past).seq == before + 1
    with pytest.raises(errors.CategoryDisabled):
        reading.one(fresh(past), 2)
    assert {json.loads(line)["id"] for line in exported(fresh(past))} == {1, 2, 3}
    assert problems(past) == []


def test_duplicates_of_what_is_off_are_left(ada: Agent) -> None:
    remember(ada, "same", "same", category=CATEGORY)
    off(ada, CATEGORY)
    assert duplicates.find(fresh(ada)) == []
    assert duplicates.remove(fresh(ada)).seq is None


def test_runs_of_a_category_that_is_off_are_not_logged(ada: Agent) -> None:
    number = log_run(ada, "Brew", "tea", ME)
    off(ada, Memory.objects.get(agent=ada, number=number).category)
    with pytest.raises(errors.CategoryDisabled):
        log_run(fresh(ada), "Brew", "tea", ME)
    assert operations.runs(fresh(ada)).count() == 0


# --- who turns one on


def test_nobody_but_a_person_changes_rules(past: Agent) -> None:
    changes: list[dict[str, Any]] = [{"enabled": True}, {"enabled": False}, {"rules": {}}]
    for actor, change in product([ME, SYSTEM, Actor.steward("sue@acme.test")], changes):
        with refused(past, errors.PersonRequired):
            rule_changes.change(past, actor, **change)


def test_a_change_is_in_the_trail_with_who_and_what(ada: Agent) -> None:
    rule_changes.change(
        ada, PERSON, enabled=False, rules={"mine": "secret", "memory_rules": {"cleanup_guidance_days": 5}}
    )
    entry = last_entry(ada)
    assert (entry.operation, entry.actor_label) == ("agent_changed", PERSON.label)
    assert entry.detail == {
        "rules": {"memory_rules.cleanup_guidance_days": 5, "memory_rules.enabled": False, "mine": None}
    }
    now = fresh(ada)
    assert (
        now.memory_enabled,
        settings_document.value(switches.rules_of(now), "memory_rules.cleanup_guidance_days"),
    ) == (False, 5)
    assert rule_changes.whole(now)["mine"] == "secret"
    rule_changes.change(now, PERSON, enabled=False, rules=rule_changes.whole(now))
    assert last_entry(ada).seq == entry.seq  # what is as it was is no entry
    assert problems(ada) == []


def test_what_would_be_turned_on_is_told(past: Agent) -> None:
    assert rule_changes.turned_on(past, Wanted(True, {})) == [f"memory_rules.categories.{CATEGORY}.enabled"]
    assert rule_changes.turned_on(past, Wanted()) == []
    recording = settings_document.with_value({}, "memory_rules.auto_recording.enabled", "true")
    assert "memory_rules.auto_recording.enabled" in rule_changes.turned_on(past, Wanted(rules=recording))
