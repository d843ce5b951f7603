"""With any sequence of settings, edits, recordings, sessions and rollbacks: nothing of a category that is off is
written, by no road but the Time Machine's, nothing of it is read back, and its files stay as they are (seed 004)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from audit.models import AuditEntry, Change
from audit.trail import Actor
from config.errors import DomainError
from memory import errors
from memory.agents import lifecycle, rule_changes
from memory.models import Agent, Memory, RecordedSession
from memory.policy.categories import DEFAULT_PROJECT, SCOPES
from memory.policy.paths import folder
from memory.recording import automatic, cleanup, retrieval, sessions, topics
from memory.recording.sessions import QUIET
from memory.recording.topics import Stage
from memory.run_log.runs import log_run
from memory.search import context, reading
from memory.search.reading import Filters
from memory.time_machine.rollback import What, roll_back
from memory.vault import writer
from memory.writing import duplicates, operations
from refinement import gc_reports, ledger, loop
from refinement import session as refining
from refinement.knife import Knife
from refinement.models import GcReport, Mode, RefinementSession
from refinement.tools import TOOLS
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.rules.talking import agreed, overhear, talk
from tests.steps import ME, PERSON, SYSTEM, fresh, problems, remember

CATEGORIES = tuple(SCOPES)
OWN = "user_interaction"
PASSING = {"rolled_back"}
PICK = st.integers(0, 99)
OFF = st.sets(st.sampled_from(CATEGORIES))
NAMES = st.sampled_from(["", "monday", "friday"])
_run = itertools.count(1)


def mark(category: str) -> str:
    """What memories of a category say, and those of no other."""
    return f"zebra{CATEGORIES.index(category):02}"


class Switched(Walk):
    """An agent whose switches are turned while everything else goes on; what is off is known here as well."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(self.at_end.enter_context(TemporaryDirectory()))
        self.at_end.enter_context(mock.patch.object(django_settings, "VAULT_ROOTS", [str(self.root)]))
        run, vault = next(_run), self.root / "vault"
        given: dict[str, Any] = {"model": "builtin/dedupe", "actor": OPERATOR, "last_n": 1, "vault_path": str(vault)}
        self.agent, self.vault = lifecycle.create(f"s{run}", "ada", **given)[0], vault
        for category in CATEGORIES:
            remember(self.agent, f"what is {mark(category)}", *[mark(category)] * 2, category=category)
        self.off: set[str] = set()
        self.is_on = self.is_recording = True
        self.set_rules()
        self.ask_for_all("", "Tea", is_over=False)
        self.follow()
        self.checked = self.row().audit_seq

    def check_at_end(self) -> None:
        assert problems(self.agent) == []

    def row(self) -> Agent:
        return fresh(self.agent)

    def one(self, pick: int) -> int:
        last = self.row().next_number - 1
        return 1 + pick % last if last else 1

    def attempt(self, act: Callable[[], Any]) -> Any:
        """Whatever becomes of it: what was written is looked at in the trail."""
        with transaction.atomic():
            inner = transaction.savepoint()
            try:
                return act()
            except DomainError:
                transaction.savepoint_rollback(inner)
        return None

    def may(self, act: Callable[[], Any], *categories: str) -> None:
        """It is done where all of these are on, and refused for that where one is not."""
        is_open = self.is_on and self.off.isdisjoint(categories)
        try:
            with transaction.atomic():
                act()
        except (errors.MemoryDisabled, errors.CategoryDisabled):
            assert not is_open
        else:
            assert is_open

    # --- settings

    @rule(which=st.sampled_from(["memory", "recording", "one", "many"]), off=OFF, category=st.sampled_from(CATEGORIES))
    def turn(self, which: str, off: set[str], category: str) -> None:
        if which == "memory":
            self.is_on = not self.is_on
            rule_changes.change(self.row(), PERSON, enabled=self.is_on)
            return
        if which == "recording":
            self.is_recording = not self.is_recording
        self.off = {"one": self.off ^ {category}, "many": off}.get(which, self.off)
        self.set_rules()

    def set_rules(self) -> None:
        categories = {name: {"enabled": False} for name in self.off}
        recording = {"enabled": self.is_recording, "interaction_threshold": "low", "min_interaction_length": 0}
        agreed(self.agent, {"memory_rules": {"categories": categories, "auto_recording": recording}})

    @rule(actor=st.sampled_from([ME, SYSTEM, Actor.steward("sue@acme.test")]))
    def a_key_changes_nothing(self, actor: Actor) -> None:
        with pytest.raises(errors.PersonRequired):
            rule_changes.change(self.row(), actor, enabled=not self.is_on, rules={})

    # --- what an agent does

    @rule(category=st.sampled_from(CATEGORIES))
    def remember(self, category: str) -> None:
        self.may(lambda: remember(self.row(), mark(category), category=category), category)

    @rule(pick=PICK)
    def revise(self, pick: int) -> None:
        self.attempt(lambda: operations.revise(self.row(), self.one(pick), ME, tags=["anew"]))

    @rule(pick=PICK)
    def discard(self, pick: int) -> None:
        self.attempt(lambda: operations.discard(self.row(), [self.one(pick)], ME))

    @rule(pick=PICK)
    def restore(self, pick: int) -> None:
        self.attempt(lambda: operations.restore(self.row(), [self.one(pick)], ME))

    @rule(pick=PICK)
    def protect(self, pick: int) -> None:
        self.attempt(lambda: operations.protect(self.row(), [self.one(pick)], PERSON))

    @rule(pick=PICK, other=PICK)
    def consolidate(self, pick: int, other: int) -> None:
        self.attempt(lambda: operations.consolidate(self.row(), [self.one(pick), self.one(other)], "both", ME))

    @rule()
    def log_runs(self) -> None:
        self.attempt(lambda: [log_run(self.row(), "Brew", "tea", ME) for _ in range(2)])

    @rule()
    def trim_and_deduplicate(self) -> None:
        self.attempt(lambda: operations.trim(self.row(), 1, ME))
        self.attempt(lambda: duplicates.remove(self.row()))

    @rule(pick=PICK)
    def roll_back(self, pick: int) -> None:
        seq = pick % (self.row().audit_seq + 1)
        self.attempt(lambda: roll_back(self.row(), What.since_entry(seq), OPERATOR))

    # --- recordings

    @rule(name=NAMES, topic=st.sampled_from(["", "Tea"]), is_over=st.booleans())
    def ask_for_all(self, name: str, topic: str, is_over: bool) -> None:
        self.record(name, topic)
        self.overhear(name)
        self.evolve()
        self.keep_a_report()
        if is_over:
            self.fall_silent()

    def record(self, name: str, topic: str) -> None:
        self.may(lambda: talk(self.agent, mark(OWN), mark(OWN), session=name, topic=topic), OWN)

    def overhear(self, name: str) -> None:
        before = Memory.objects.filter(agent_id=self.agent.pk, category=OWN).count()
        found = overhear(self.agent, f"From now on always {mark(OWN)}.", "I will.", session=name)
        is_open = self.is_on and self.is_recording and OWN not in self.off
        assert (found.skipped is None) == is_open
        assert is_open or Memory.objects.filter(agent_id=self.agent.pk, category=OWN).count() == before

    def evolve(self) -> None:
        """Also with what is known already, which would be no edit."""
        self.may(lambda: topics.evolve(self.row(), mark("topic"), ME, Stage(insights=("hot",))), "topic")

    @rule(name=NAMES)
    def end_a_session(self, name: str) -> None:
        self.attempt(lambda: sessions.end_session(self.row(), name, ME))

    def fall_silent(self) -> None:
        RecordedSession.objects.filter(agent_id=self.agent.pk).update(last_at=timezone.now() - QUIET)
        open_before = RecordedSession.objects.filter(agent_id=self.agent.pk, ended_at=None).count()
        assert automatic.end_quiet() == (open_before if self.is_on else 0)

    # --- refinement, and the log

    @rule()
    def refine(self) -> None:
        self.attempt(lambda: loop.refine(self.row(), trigger="manual"))

    @rule(tool=st.sampled_from(sorted(TOOLS)), pick=PICK, other=PICK, later=st.booleans())
    def call_the_knife(self, tool: str, pick: int, other: int, later: bool) -> None:
        """Of a session that was opened, and shown what there is, before switches were turned, or after it."""
        session = self.attempt(lambda: self.session(is_new=not later))
        if session is None:
            return
        given = {
            "search_memories": {"query": mark(CATEGORIES[pick % len(CATEGORIES)])},
            "consolidate_memories": {"ids_to_merge": [self.one(pick), self.one(other)], "new_content": "both"},
            "update_memory": {"id": self.one(pick), "content": "anew"},
            "decline_refinement": {"reason": "not now"},
            "complete_refinement": {"summary": "Done."},
        }
        told = Knife(session).call(tool, given.get(tool, {"id": self.one(pick)})).text
        closed = CATEGORIES if not self.is_on else self.off
        assert not [category for category in closed if f'"content":"{mark(category)}' in told]

    def session(self, *, is_new: bool) -> RefinementSession:
        held = RefinementSession.objects.filter(agent_id=self.agent.pk, outcome="open").first()
        if held is not None and not is_new:
            return held
        if held is not None:
            refining.close(held, "incomplete", "interrupted")
        session = refining.open_session(self.row(), trigger="manual", mode=Mode.FULL)
        row = self.row()
        Knife(session).show(0, 1, ledger.read(row))
        return session

    def keep_a_report(self) -> None:
        self.may(lambda: gc_reports.keep(self.row(), "tea", model="openai/gpt", entries=1))
        self.may(lambda: gc_reports.opened(self.row(), list(GcReport.objects.filter(agent_id=self.agent.pk))))

    # --- its vault

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.vault.rglob("*.md") if path.name != "index.md")
        return {path.relative_to(self.vault).as_posix(): path.read_bytes() for path in found}

    def of_closed(self) -> dict[str, bytes]:
        """Files of categories that are off, wherever they were put."""
        closed = CATEGORIES if not self.is_on else self.off
        places = tuple(f"{folder(category, DEFAULT_PROJECT, {})}/" for category in closed)
        return {
            path: data for path, data in self.files().items() if path.removeprefix(".discarded/").startswith(places)
        }

    @rule()
    def follow(self) -> None:
        """As a commit does it."""
        before = self.of_closed()
        with suppress(errors.FileFault):
            writer.sync(self.row())
        assert self.of_closed() == before

    # --- what holds

    @invariant()
    def after_each_entry_all_holds(self) -> None:
        """Switches and memories are changed by entries alone."""
        if self.grown(self.agent):
            self.nothing_that_is_off_was_written()
            self.nothing_that_is_off_is_read()
            self.checked = self.row().audit_seq

    def nothing_that_is_off_was_written(self) -> None:
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__gt=self.checked).exclude(operation__in=PASSING)
        seqs = list(entries.values_list("seq", flat=True))
        touched = Change.objects.filter(agent_id=self.agent.pk, seq__in=seqs).values_list("number", flat=True)
        written = Memory.objects.filter(agent_id=self.agent.pk, number__in=list(touched)).exclude(source="system")
        assert not written.filter(category__in=self.off).exists()
        assert self.is_on or not written.exists()

    def nothing_that_is_off_is_read(self) -> None:
        row = self.row()
        shown = list(ledger.refinable(row))
        if self.is_on:
            block = context.read(row)
            shown += [memory for memory, _ in (*block.core, *block.journal)]
            shown += [each.memory for each in reading.page(row, Filters(discarded=None), after=0, limit=200)]
            shown += [each.memory for each in reading.search(row, "", filters=Filters(), limit=200)]
            shown += [each.memory for each in retrieval.retrieve(row, " OR ".join(map(mark, CATEGORIES))).reads]
            assert {each.category for each in cleanup.review(row).suggestions}.isdisjoint(self.off)
        assert {memory.category for memory in shown if memory.source != "system"}.isdisjoint(self.off)


@pytest.mark.usefixtures("db")
def test_what_is_off_is_neither_written_nor_read() -> None:
    run_state_machine_as_test(Switched, settings=walks(10, steps=30))
