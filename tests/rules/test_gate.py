"""Categories that are off: nothing of them is written or read, and only a person changes the rules (seed 004)."""

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
from tests.rules.talking import agreed, off
from tests.steps import ME, PERSON, SYSTEM, exported, fresh, last_entry, problems, refused, remember, says, tell

CATEGORY = "technical"
LINE = json.dumps({"content": "x", "category": CATEGORY}).encode()


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Memories 1 and 2 are technical, 3 is behavioral. 2 is discarded. The category technical is off."""
    remember(ada, "tea at four", "tea at five", category=CATEGORY)
    remember(ada, "likes tea")
    operations.discard(fresh(ada), [2], ME)
    return off(ada, CATEGORY)


WRITES: dict[str, Callable[[Agent], Any]] = {
    "remember": lambda ada: remember(ada, "x", category=CATEGORY),
    "remember several": lambda ada: operations.remember(ada, [Draft("x"), Draft("y", category=CATEGORY)], ME),
    "revise": lambda ada: operations.revise(ada, 1, ME, content="x"),
    "tag": lambda ada: operations.revise(ada, 1, ME, tags=["x"]),
    "discard": lambda ada: operations.discard(ada, [1], ME),
    "restore": lambda ada: operations.restore(ada, [2], ME),
    "protect": lambda ada: operations.protect(ada, [1], PERSON),
    "consolidate": lambda ada: operations.consolidate(ada, [1, 3], "x", ME),
    "import": lambda ada: importing.check_lines([LINE]).store(ada, ME),
}


def test_nothing_of_a_category_that_is_off_is_written(past: Agent) -> None:
    for name, write in WRITES.items():
        with refused(past, errors.MemoryFault) as refusal:
            write(past)
        if name not in ("consolidate", "import"):  # these are refused for mixed scopes, and by line
            assert isinstance(refusal.value, errors.CategoryDisabled)
            assert CATEGORY in str(refusal.value)
    remember(past, "x")  # other categories still work
    operations.revise(fresh(past), 3, ME, content="likes milk")
    assert says(past, 3).content == "likes milk"
    assert problems(past) == []


def test_a_category_that_is_off_is_not_read_and_is_complete_once_it_is_on_again(past: Agent) -> None:
    for read in (lambda: reading.one(past, 1), lambda: reading.several(past, [1, 3])):
        with pytest.raises(errors.CategoryDisabled):
            read()
    assert [each.memory.number for each in reading.page(past, Filters(discarded=None), after=0, limit=9)] == [3]
    assert [each.memory.number for each in reading.search(past, "tea", filters=Filters())] == [3]
    assert [memory.number for memory, _ in context.read(past).core] == [3]
    assert [memory.number for memory in ledger.refinable(past)] == [3]
    before = context.etag(past, max_tokens=None, form="text")
    now = agreed(past, {})
    assert (now.rules, context.etag(now, max_tokens=None, form="text") == before) == ("", False)
    assert reading.one(now, 1).opened.content == "tea at four"
    assert [memory.number for memory, _ in context.read(now).core] == [1, 3]


def test_system_notices_are_written_and_read_in_a_category_that_is_off(ada: Agent) -> None:
    number = tell(ada, "a person read")
    off(ada, Memory.objects.get(agent=ada, number=number).category)
    later = tell(fresh(ada), "another read")
    assert reading.one(fresh(ada), later).opened.content == "another read"
    assert {memory.number for memory, _ in context.read(fresh(ada)).journal} == {number, later}


def test_rollback_and_export_work_while_a_category_is_off(past: Agent) -> None:
    before = last_entry(past).seq
    roll_back(past, What.entry(AuditEntry.objects.get(agent_id=past.pk, operation="discarded").seq), OPERATOR)
    assert last_entry(past).seq == before + 1
    with pytest.raises(errors.CategoryDisabled):
        reading.one(fresh(past), 2)
    assert {json.loads(line)["id"] for line in exported(fresh(past))} == {1, 2, 3}
    assert problems(past) == []


def test_duplicates_and_runs_of_a_category_that_is_off_are_left_alone(ada: Agent) -> None:
    remember(ada, "same", "same", category=CATEGORY)
    off(ada, CATEGORY)
    assert (duplicates.find(fresh(ada)), duplicates.remove(fresh(ada)).seq) == ([], None)
    number = log_run(fresh(ada), "Brew", "tea", ME)
    off(ada, Memory.objects.get(agent=ada, number=number).category)
    with pytest.raises(errors.CategoryDisabled):
        log_run(fresh(ada), "Brew", "tea", ME)
    assert operations.runs(fresh(ada)).count() == 0


def test_only_a_person_changes_rules(past: Agent) -> None:
    changes: list[dict[str, Any]] = [{"enabled": True}, {"enabled": False}, {"rules": {}}]
    for actor, change in product([ME, SYSTEM, Actor.steward("sue@acme.test")], changes):
        with refused(past, errors.PersonRequired):
            rule_changes.change(past, actor, **change)


def test_the_trail_has_each_changed_setting_and_its_author(ada: Agent) -> None:
    days = "memory_rules.cleanup_guidance_days"
    rules = {"mine": "secret", "memory_rules": {"cleanup_guidance_days": 5}}
    rule_changes.change(ada, PERSON, enabled=False, rules=rules)
    entry = last_entry(ada)
    assert (entry.operation, entry.actor_label) == ("agent_changed", PERSON.label)
    assert entry.detail == {"rules": {days: 5, "memory_rules.enabled": False, "mine": None}}
    now = fresh(ada)
    assert (now.memory_enabled, settings_document.value(switches.rules_of(now), days)) == (False, 5)
    assert rule_changes.whole(now)["mine"] == "secret"
    rule_changes.change(now, PERSON, enabled=False, rules=rule_changes.whole(now))
    assert last_entry(ada).seq == entry.seq  # nothing changed
    assert problems(ada) == []


def test_the_switches_that_a_change_would_turn_on_are_named(past: Agent) -> None:
    recording = "memory_rules.auto_recording.enabled"
    assert rule_changes.turned_on(past, Wanted(True, {})) == [f"memory_rules.categories.{CATEGORY}.enabled"]
    assert rule_changes.turned_on(past, Wanted()) == []
    rules = settings_document.with_value({}, recording, "true")
    assert recording in rule_changes.turned_on(past, Wanted(rules=rules))
