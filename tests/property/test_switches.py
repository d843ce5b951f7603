"""With any sequence of settings, edits, recordings, sessions and rollbacks: nothing of a category that is off is
written, except by the Time Machine, nothing of it is read, and its files do not change (seed 004)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory import errors
from memory.agents import rule_changes
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
from tests.property.walk import Walk, attempt, walk
from tests.rules.recordings import agreed, overhear, talk
from tests.steps import ME, PERSON, SYSTEM, remember

CATEGORIES = tuple(SCOPES)
CATEGORY = st.sampled_from(CATEGORIES)
RECORDED = "user_interaction"
PICK = st.integers(0, 99)
NAMES = st.sampled_from(["", "monday", "friday"])


def mark(category: str) -> str:
    """A word that only memories of the category contain."""
    return f"zebra{CATEGORIES.index(category):02}"


def operation(name: str, verb: Callable[[Agent, int], Any]) -> Any:
    """A rule of an operation on one memory. It may be refused."""

    def run(self: Switches, pick: int) -> None:
        attempt(lambda: verb(self.row(), self.one(pick)))

    run.__name__ = name
    return rule(pick=PICK)(run)


class Switches(Walk):
    """Switches change while an agent writes, records and refines. The walk knows what is off."""

    def __init__(self) -> None:
        super().__init__()
        self.vault = self.create_with_vault(last_n=1)
        for category in CATEGORIES:
            remember(self.agent, f"what is {mark(category)}", *[mark(category)] * 2, category=category)
        self.off: set[str] = set()
        self.is_on = self.is_recording = True
        self.set_rules()
        self.record_everything("", "Tea", is_over=False)
        self.sync()
        self.checked = self.row().audit_seq

    def one(self, pick: int) -> int:
        last = self.row().next_number - 1
        return 1 + pick % last if last else 1

    def closed(self) -> set[str]:
        return self.off if self.is_on else set(CATEGORIES)

    def may(self, act: Callable[[], Any], *categories: str) -> None:
        """The act succeeds if all these categories are on, and is refused if one is off."""
        is_allowed = self.is_on and self.off.isdisjoint(categories)
        try:
            with transaction.atomic():
                act()
        except (errors.MemoryDisabled, errors.CategoryDisabled):
            assert not is_allowed
        except errors.Constitutional:  # the walk has protected the topic
            assert is_allowed
        else:
            assert is_allowed

    @rule(which=st.sampled_from(["memory", "recording", "one", "many"]), off=st.sets(CATEGORY), category=CATEGORY)
    def switch(self, which: str, off: set[str], category: str) -> None:
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
    def only_a_person_changes_rules(self, actor: Actor) -> None:
        with pytest.raises(errors.PersonRequired):
            rule_changes.change(self.row(), actor, enabled=not self.is_on, rules={})

    @rule(category=CATEGORY)
    def remember(self, category: str) -> None:
        self.may(lambda: remember(self.row(), mark(category), category=category), category)

    revise = operation("revise", lambda agent, number: operations.revise(agent, number, ME, tags=["new"]))
    discard = operation("discard", lambda agent, number: operations.discard(agent, [number], ME))
    restore = operation("restore", lambda agent, number: operations.restore(agent, [number], ME))
    protect = operation("protect", lambda agent, number: operations.protect(agent, [number], PERSON))

    @rule(pick=PICK, other=PICK)
    def consolidate(self, pick: int, other: int) -> None:
        attempt(lambda: operations.consolidate(self.row(), [self.one(pick), self.one(other)], "both", ME))

    @rule()
    def log_runs(self) -> None:
        attempt(lambda: [log_run(self.row(), "Brew", "tea", ME) for _ in range(2)])

    @rule()
    def trim_and_deduplicate(self) -> None:
        attempt(lambda: operations.trim(self.row(), 1, ME))
        attempt(lambda: duplicates.remove(self.row()))

    @rule(pick=PICK)
    def roll_back(self, pick: int) -> None:
        seq = pick % (self.row().audit_seq + 1)
        attempt(lambda: roll_back(self.row(), What("since_entry", seq), OPERATOR))

    @rule(name=NAMES, topic=st.sampled_from(["", "Tea"]), is_over=st.booleans())
    def record_everything(self, name: str, topic: str, is_over: bool) -> None:
        self.may(lambda: talk(self.agent, mark(RECORDED), mark(RECORDED), session=name, topic=topic), RECORDED)
        self.overhear(name)
        self.may(lambda: topics.evolve(self.row(), mark("topic"), ME, Stage(insights=("hot",))), "topic")
        self.may(lambda: gc_reports.keep(self.row(), "tea", model="openai/gpt", entries=1))
        self.may(lambda: gc_reports.opened(self.row(), list(GcReport.objects.filter(agent_id=self.agent.pk))))
        if is_over:
            self.end_quiet_sessions()

    def overhear(self, name: str) -> None:
        recorded = Memory.objects.filter(agent_id=self.agent.pk, category=RECORDED)
        before = recorded.count()
        found = overhear(self.agent, f"From now on always {mark(RECORDED)}.", "I will.", session=name)
        is_allowed = self.is_on and self.is_recording and RECORDED not in self.off
        assert (found.skipped is None) == is_allowed
        assert is_allowed or recorded.count() == before

    @rule(name=NAMES)
    def end_a_session(self, name: str) -> None:
        attempt(lambda: sessions.end_session(self.row(), name, ME))

    def end_quiet_sessions(self) -> None:
        RecordedSession.objects.filter(agent_id=self.agent.pk).update(last_at=timezone.now() - QUIET)
        open_before = RecordedSession.objects.filter(agent_id=self.agent.pk, ended_at=None).count()
        assert automatic.end_quiet() == (open_before if self.is_on else 0)

    @rule()
    def refine(self) -> None:
        attempt(lambda: loop.refine(self.row(), trigger="manual"))

    @rule(tool=st.sampled_from(sorted(TOOLS)), pick=PICK, other=PICK, later=st.booleans())
    def call_the_knife(self, tool: str, pick: int, other: int, later: bool) -> None:
        """In a session that opened, and showed the memories, before or after the last switch."""
        session = attempt(lambda: self.session(is_new=not later))
        if isinstance(session, Exception):
            return
        arguments = {
            "search_memories": {"query": mark(CATEGORIES[pick % len(CATEGORIES)])},
            "consolidate_memories": {"ids_to_merge": [self.one(pick), self.one(other)], "new_content": "both"},
            "update_memory": {"id": self.one(pick), "content": "new"},
            "decline_refinement": {"reason": "not now"},
            "complete_refinement": {"summary": "Done."},
        }
        answer = Knife(session).call(tool, arguments.get(tool, {"id": self.one(pick)})).text
        assert not [category for category in self.closed() if f'"content":"{mark(category)}' in answer]

    def session(self, *, is_new: bool) -> RefinementSession:
        held = RefinementSession.objects.filter(agent_id=self.agent.pk, outcome="open").first()
        if held is not None and not is_new:
            return held
        if held is not None:
            refining.close(held, "incomplete", "interrupted")
        session = refining.open_session(self.row(), trigger="manual", mode=Mode.FULL)
        Knife(session).show(0, 1, ledger.read(self.row()))
        return session

    def closed_files(self) -> dict[str, bytes]:
        """The files of categories that are off, wherever they are."""
        places = tuple(f"{folder(category, DEFAULT_PROJECT, {})}/" for category in self.closed())
        paths = {path.relative_to(self.vault).as_posix(): path for path in self.vault.rglob("*.md")}
        return {
            name: path.read_bytes()
            for name, path in paths.items()
            if path.name != "index.md" and name.removeprefix(".discarded/").startswith(places)
        }

    @rule()
    def sync(self) -> None:
        before = self.closed_files()
        with suppress(errors.FileFault):
            writer.sync(self.row())
        assert self.closed_files() == before

    @invariant()
    def after_each_entry_all_holds(self) -> None:
        """Only entries change switches and memories."""
        if self.grown(self.agent):
            self.nothing_that_is_off_is_written()
            self.nothing_that_is_off_is_read()
            self.checked = self.row().audit_seq

    def nothing_that_is_off_is_written(self) -> None:
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__gt=self.checked)
        seqs = list(entries.exclude(operation="rolled_back").values_list("seq", flat=True))
        changed = Change.objects.filter(agent_id=self.agent.pk, seq__in=seqs).values_list("number", flat=True)
        written = Memory.objects.filter(agent_id=self.agent.pk, number__in=list(changed)).exclude(source="system")
        assert not written.filter(category__in=self.off).exists()
        assert self.is_on or not written.exists()

    def nothing_that_is_off_is_read(self) -> None:
        row = self.row()
        found = list(ledger.refinable(row))
        if self.is_on:
            block = context.read(row)
            found += [memory for memory, _ in (*block.core, *block.journal)]
            found += [each.memory for each in reading.page(row, Filters(discarded=None), after=0, limit=200)]
            found += [each.memory for each in reading.search(row, "", filters=Filters(), limit=200)]
            found += [each.memory for each in retrieval.retrieve(row, " OR ".join(map(mark, CATEGORIES))).reads]
            assert {each.category for each in cleanup.review(row).suggestions}.isdisjoint(self.off)
        assert {memory.category for memory in found if memory.source != "system"}.isdisjoint(self.off)


@pytest.mark.usefixtures("db")
def test_a_category_that_is_off_can_be_neither_written_nor_read() -> None:
    walk(Switches, 6, steps=30)
