"""Categories that are off: nothing of them is written or read, and only a person changes the rules (seed 004)."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import rule_changes
from memory.models import Agent, Memory
from memory.policy import settings_document, switches
from memory.run_log.runs import log_run
from memory.search import context, reading
from memory.search.selection import Filters
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from refinement import ledger
from tests.conftest import OPERATOR
from tests.rules.recordings import agreed, off, settings
from tests.steps import ME, PERSON, SYSTEM, exported, fresh, last_entry, problems, refused, remember, tell

CATEGORY, RUNS = "technical", "behavioral"


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Memories 1 and 2 are technical, 3 is behavioral. 2 is discarded. The category technical is off."""
    remember(ada, "tea at four", "tea at five", category=CATEGORY)
    remember(ada, "likes tea")
    operations.discard(fresh(ada), [2], ME)
    return off(ada, CATEGORY)


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


def test_no_memory_of_a_category_that_is_off_is_written(past: Agent) -> None:
    agent = settings(past, **{f"categories__{name}__enabled": False for name in (CATEGORY, RUNS)})
    edits: list[Callable[[], object]] = [
        lambda: operations.revise(agent, 1, ME, content="x"),
        lambda: operations.revise(agent, 1, ME, tags=["x"]),
        lambda: operations.discard(agent, [1], ME),
        lambda: operations.restore(agent, [2], ME),
        lambda: operations.protect(agent, [1], PERSON),
        lambda: log_run(agent, "Brew", "tea", ME),
    ]
    for edit in edits:
        with refused(agent, errors.CategoryDisabled):
            edit()


def test_system_notices_are_written_and_read_in_a_category_that_is_off(ada: Agent) -> None:
    number = tell(ada, "a person read")
    off(ada, Memory.objects.get(agent=ada, number=number).category)
    later = tell(fresh(ada), "another read")
    assert reading.one(fresh(ada), later).opened.content == "another read"
    assert {memory.number for memory, _ in context.read(fresh(ada)).journal} == {number, later}


def test_rollback_and_export_work_while_a_category_is_off(past: Agent) -> None:
    before = last_entry(past).seq
    roll_back(past, What("entry", AuditEntry.objects.get(agent_id=past.pk, operation="discarded").seq), OPERATOR)
    assert last_entry(past).seq == before + 1
    with pytest.raises(errors.CategoryDisabled):
        reading.one(fresh(past), 2)
    assert {json.loads(line)["id"] for line in exported(fresh(past))} == {1, 2, 3}
    assert problems(past) == []


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
