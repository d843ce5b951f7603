"""With any sequence of settings, edits, sessions and rollbacks: nothing of a category that is off is written, by no
road but the Time Machine's, and nothing of it is read back (seed 004)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from audit.models import AuditEntry, Change
from memory import agents, context, duplicates, errors, reading, store
from memory.models import Agent, Memory
from memory.reading import Filters
from memory.rules import switches
from memory.rules.categories import SCOPES
from memory.runs import log_run
from memory.time_machine import What, roll_back
from refinement import ledger, loop
from tests.conftest import OPERATOR
from tests.property.effort import walks
from tests.rules.talking import agreed
from tests.steps import ME, PERSON, fresh, problems, remember

CATEGORIES = ("technical", "behavioral", "contextual", "personal")
PASSING = {"rolled_back"}
PICK = st.integers(0, 99)
_run = itertools.count(1)


class Switched(RuleBasedStateMachine):
    """An agent whose switches are turned while everything else goes on; what is off is known here as well."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        run = next(_run)
        self.agent = agents.create(f"s{run}", "ada", model="builtin/dedupe", actor=OPERATOR, last_n=1)[0]
        for category in CATEGORIES:
            remember(self.agent, f"what is {category}", "the same", "the same", category=category)
        self.off: set[str] = set()
        self.is_on = True
        self.checked = self.row().audit_seq

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    def row(self) -> Agent:
        return fresh(self.agent)

    def one(self, pick: int) -> int:
        last = self.row().next_number - 1
        return 1 + pick % last if last else 1

    def attempt(self, act: Callable[[], Any]) -> None:
        """Whatever becomes of it: what was written is looked at in the trail."""
        with transaction.atomic():
            inner = transaction.savepoint()
            try:
                act()
            except errors.MemoryFault:
                transaction.savepoint_rollback(inner)

    # --- settings

    @rule(category=st.sampled_from(CATEGORIES), is_on=st.booleans())
    def switch_a_category(self, category: str, is_on: bool) -> None:
        self.off = self.off - {category} if is_on else self.off | {category}
        given = {"memory_rules": {"categories": {name: {"enabled": False} for name in self.off}}}
        agreed(self.agent, given)

    @rule(is_on=st.booleans())
    def switch_memory(self, is_on: bool) -> None:
        switches.change(self.row(), PERSON, enabled=is_on)
        self.is_on = is_on

    @rule(actor=st.just(ME))
    def a_key_changes_nothing(self, actor: Any) -> None:
        with pytest.raises(errors.PersonsOnly):
            switches.change(self.row(), actor, enabled=not self.is_on, rules={})

    # --- what an agent does

    @rule(category=st.sampled_from(CATEGORIES), text=st.sampled_from(["tea", "milk", "sugar"]))
    def remember(self, category: str, text: str) -> None:
        may = self.is_on and category not in self.off
        try:
            with transaction.atomic():
                remember(self.row(), text, category=category)
        except (errors.MemoryDisabled, errors.CategoryDisabled):
            assert not may
        else:
            assert may

    @rule(pick=PICK)
    def revise(self, pick: int) -> None:
        self.attempt(lambda: store.revise(self.row(), self.one(pick), ME, content="anew"))

    @rule(pick=PICK)
    def discard(self, pick: int) -> None:
        self.attempt(lambda: store.discard(self.row(), [self.one(pick)], ME))

    @rule(pick=PICK)
    def restore(self, pick: int) -> None:
        self.attempt(lambda: store.restore(self.row(), [self.one(pick)], ME))

    @rule(pick=PICK)
    def protect(self, pick: int) -> None:
        self.attempt(lambda: store.protect(self.row(), [self.one(pick)], PERSON))

    @rule(pick=PICK, other=PICK)
    def consolidate(self, pick: int, other: int) -> None:
        self.attempt(lambda: store.consolidate(self.row(), [self.one(pick), self.one(other)], "both", ME))

    @rule()
    def log_runs(self) -> None:
        self.attempt(lambda: [log_run(self.row(), "Brew", "tea", ME) for _ in range(2)])

    @rule()
    def trim(self) -> None:
        self.attempt(lambda: store.trim(self.row(), 1, ME))

    @rule()
    def deduplicate(self) -> None:
        self.attempt(lambda: duplicates.remove(self.row()))

    @rule()
    def refine(self) -> None:
        self.attempt(lambda: loop.refine(self.row(), trigger="manual"))

    @rule(pick=PICK)
    def roll_back(self, pick: int) -> None:
        seq = pick % (self.row().audit_seq + 1)
        self.attempt(lambda: roll_back(self.row(), What.since_entry(seq), OPERATOR))

    # --- what holds

    @invariant()
    def nothing_that_is_off_was_written(self) -> None:
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__gt=self.checked).exclude(operation__in=PASSING)
        seqs = list(entries.values_list("seq", flat=True))
        touched = Change.objects.filter(agent_id=self.agent.pk, seq__in=seqs).values_list("number", flat=True)
        written = Memory.objects.filter(agent_id=self.agent.pk, number__in=list(touched)).exclude(source="system")
        assert not written.filter(category__in=self.off).exists()
        assert self.is_on or not written.exists()
        self.checked = self.row().audit_seq

    @invariant()
    def nothing_that_is_off_is_read(self) -> None:
        row = self.row()
        shown = list(ledger.refinable(row))
        if self.is_on:
            block = context.read(row)
            shown += [memory for memory, _ in (*block.core, *block.journal)]
            shown += [each.memory for each in reading.page(row, Filters(discarded=None), after=0, limit=200)]
            shown += [each.memory for each in reading.search(row, "", filters=Filters(), limit=200)]
        assert {memory.category for memory in shown if memory.source != "system"}.isdisjoint(self.off)

    @invariant()
    def the_trail_is_whole(self) -> None:
        assert problems(self.agent) == []


@pytest.mark.usefixtures("db")
def test_what_is_off_is_neither_written_nor_read() -> None:
    assert set(CATEGORIES) <= set(SCOPES)
    run_state_machine_as_test(Switched, settings=walks(12, steps=30))
