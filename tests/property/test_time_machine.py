"""Random histories: every past moment can be gone back to, exactly, and come back from.

A dozen or so in every run; HISTORIES=400 for the figure in docs/internals/reliability.md.
"""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from audit import trail
from audit.models import AuditEntry, Change
from memory import errors
from memory.agents import lifecycle
from memory.consent import redaction, removal_requests
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.time_machine.rollback import What, preview, roll_back
from memory.time_machine.selection import Undone
from memory.writing import duplicates, operations
from memory.writing.edits import snapshot
from refinement.undone_sessions import sessions_undone
from tests import steps
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import ME, PERSON, SYSTEM, fresh

pytestmark = pytest.mark.database

WHO = st.sampled_from(["ada", "bob"])
TEXT = st.sampled_from(["tea", "milk", "a longer text about tea", "x" * 40, "y" * 80])
PICK = st.integers(0, 99)
EVER = datetime(2000, 1, 1, tzinfo=UTC)
REASON = {"include_constitutional": True, "reason": "a test"}
_run = itertools.count(1)

State = dict[int, bytes]


class History(Walk):
    """Two agents of two tenants. After each entry its state is noted down."""

    def __init__(self) -> None:
        super().__init__()
        run = next(_run)
        self.agents = {
            name: lifecycle.create(f"{name}-{run}", name, model="builtin/dedupe", actor=OPERATOR, budget_tokens=8_000)[
                0
            ]
            for name in ("ada", "bob")
        }
        self.noted: dict[str, dict[int, State]] = {name: {0: {}} for name in self.agents}
        self.session = {"ada": 0, "bob": 0}
        self.open = {"ada": False, "bob": False}

    def check_at_end(self) -> None:
        assert [steps.problems(agent) for agent in self.agents.values()] == [[], []]

    def state(self, who: str) -> State:
        return {m.number: snapshot(m) for m in Memory.objects.filter(agent_id=self.agents[who].pk)}

    def note(self, who: str) -> None:
        self.noted[who][self.seq(who)] = self.state(who)

    def seq(self, who: str) -> int:
        return int(fresh(self.agents[who]).audit_seq)

    def some(self, who: str, picks: list[int]) -> list[int]:
        numbers = sorted(self.state(who))
        return sorted({numbers[pick % len(numbers)] for pick in picks}) if numbers else []

    def attempt(self, who: str, verb: Any) -> None:
        """A verb that may be refused: then nothing happened."""
        before = self.seq(who), self.state(who)
        try:
            with transaction.atomic():
                verb(fresh(self.agents[who]))
        except errors.MemoryFault:
            assert (self.seq(who), self.state(who)) == before
        self.note(who)

    def of(self, who: str) -> int | None:
        return self.session[who] if self.open[who] else None

    @initialize(texts=st.lists(TEXT, min_size=2, max_size=5))
    def beginning(self, texts: list[str]) -> None:
        for who in self.agents:
            self.attempt(who, lambda agent: operations.remember(agent, [Draft(text) for text in texts], ME))

    @rule(who=WHO, texts=st.lists(TEXT, min_size=1, max_size=3), kind=st.sampled_from(["core", "core", "journal"]))
    def remember(self, who: str, texts: list[str], kind: str) -> None:
        self.attempt(who, lambda agent: operations.remember(agent, [Draft(text, kind=kind) for text in texts], ME))

    @rule(who=WHO, pick=PICK, text=TEXT)
    def revise(self, who: str, pick: int, text: str) -> None:
        for number in self.some(who, [pick]):
            self.attempt(who, lambda agent: operations.revise(agent, number, ME, content=text, session=self.of(who)))  # noqa: B023

    @rule(who=WHO, picks=st.lists(PICK, min_size=1, max_size=3))
    def discard(self, who: str, picks: list[int]) -> None:
        numbers = self.some(who, picks)
        self.attempt(who, lambda agent: operations.discard(agent, numbers, ME, session=self.of(who)))

    @rule(who=WHO, picks=st.lists(PICK, min_size=2, max_size=4), text=TEXT)
    def consolidate(self, who: str, picks: list[int], text: str) -> None:
        numbers = self.some(who, picks)
        self.attempt(who, lambda agent: operations.consolidate(agent, numbers, text, ME, session=self.of(who)))

    @rule(who=WHO, picks=st.lists(PICK, min_size=1, max_size=2), on=st.booleans())
    def protection(self, who: str, picks: list[int], on: bool) -> None:
        numbers = self.some(who, picks)
        if on:
            self.attempt(who, lambda agent: operations.protect(agent, numbers, PERSON))
        else:
            self.attempt(who, lambda agent: operations.unprotect(agent, numbers, PERSON, reason="a test"))

    @rule(who=WHO, picks=st.lists(PICK, min_size=1, max_size=2))
    def restore(self, who: str, picks: list[int]) -> None:
        numbers = self.some(who, picks)
        self.attempt(who, lambda agent: operations.restore(agent, numbers, ME))

    @rule(who=WHO)
    def deduplicate(self, who: str) -> None:
        self.attempt(who, lambda agent: duplicates.remove(agent, session=self.of(who) or 0))

    @rule(who=WHO)
    def begin_or_end_session(self, who: str) -> None:
        if not self.open[who]:
            self.session[who] += 1
            self.open[who] = True
            return
        number = self.session[who]
        self.attempt(
            who,
            lambda agent: operations.notify(
                agent, "done", operation="session_closed", actor=SYSTEM, detail={}, session=number
            ),
        )
        self.open[who] = False

    @rule(who=WHO, picks=st.lists(PICK, min_size=1, max_size=2))
    def redact(self, who: str, picks: list[int]) -> None:
        """Asked for and agreed to. What it covers is as it is from now on, whatever is gone back to."""

        def asked_and_done(agent: Agent) -> None:
            request = removal_requests.ask_redaction(agent, self.some(who, picks), PERSON, reason="a test")
            redaction.redact(agent, request.number, ME, include_constitutional=True)

        self.attempt(who, asked_and_done)

    def redacted(self, who: str) -> set[int]:
        rows = Memory.objects.filter(agent_id=self.agents[who].pk, redacted_at__isnull=False)
        return set(rows.values_list("number", flat=True))

    # Going back

    @rule(who=WHO, pick=PICK)
    def go_back_and_return(self, who: str, pick: int) -> None:
        """To any entry there was: what was active then is as it was, what came later is discarded. And back again."""
        seqs = sorted(self.noted[who])
        then = seqs[pick % len(seqs)]
        present = self.state(who)
        try:
            with transaction.atomic():
                roll_back(fresh(self.agents[who]), What.since_entry(then), PERSON, **REASON)
        except (errors.NothingToUndo, errors.Redacted):
            assert self.as_then(present, then, who)
            return
        went = self.state(who)
        assert self.as_then(went, then, who)
        self.note(who)
        roll_back(fresh(self.agents[who]), What.entry(self.seq(who)), PERSON, **REASON)
        assert self.state(who) == present
        self.note(who)

    def as_then(self, state: State, then: int, who: str) -> bool:
        past = self.noted[who][then]
        discarded = {m.number for m in Memory.objects.filter(agent_id=self.agents[who].pk, discarded_at__isnull=False)}
        left = set(past) - self.redacted(who)
        return all(state[number] == past[number] for number in left) and set(state) - set(past) <= discarded

    @rule(who=WHO, pick=PICK, force=st.booleans(), of_session=st.booleans())
    def undo_one(self, who: str, pick: int, force: bool, of_session: bool) -> None:
        """One entry or session: what nobody touched since is as before it; the rest as asked."""
        what = (
            What.session(1 + pick % max(1, self.session[who])) if of_session else What.entry(1 + pick % self.seq(who))
        )
        other = "bob" if who == "ada" else "ada"
        others = self.state(other)
        try:
            told = preview(fresh(self.agents[who]), what)
        except errors.MemoryFault:
            return
        before = self.state(who)
        with transaction.atomic():
            try:
                did = roll_back(fresh(self.agents[who]), what, PERSON, force=force, skip_conflicts=not force, **REASON)
            except errors.NothingToUndo:
                assert self.state(who) == before
                return
        after = self.state(who)
        if not force:
            assert all(after[number] == before[number] for number, _ in told.conflicts)
        assert did.tokens_after == fresh(self.agents[who]).core_tokens
        assert self.state(other) == others
        with pytest.raises((errors.AlreadyUndone, errors.Redacted)), transaction.atomic():
            roll_back(fresh(self.agents[who]), what, PERSON, force=True, **REASON)
        self.note(who)

    @invariant()
    def after_each_entry_all_holds(self) -> None:
        """Trails that a step left alone are verified at the end once more."""
        if self.grown(*self.agents.values()):
            self.a_session_is_undone_once_each_of_its_changes_is()
            self.what_was_redacted_says_nothing()

    def a_session_is_undone_once_each_of_its_changes_is(self) -> None:
        agents_sessions, told = [], {}
        for who, agent in self.agents.items():
            entries = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0)
            undone = Undone.of(agent)
            for number in range(self.session[who] + 1):
                by = [undone.by(entry.seq) for entry in entries.filter(session=number)]
                agents_sessions.append((agent.pk, number))
                if by and None not in by:
                    told[agent.pk, number] = max(by)
        assert sessions_undone(agents_sessions, EVER) == told

    def what_was_redacted_says_nothing(self) -> None:
        for who, agent in self.agents.items():
            numbers = self.redacted(who)
            rows = Memory.objects.filter(agent_id=agent.pk, number__in=numbers).values_list("sealed", "digest")
            assert not any(bytes(sealed) or bytes(digest) for sealed, digest in rows)
            for change in Change.objects.filter(agent_id=agent.pk, number__in=numbers):
                assert not any(trail.has_body(bytes(each)) for each in (change.before, change.after) if each)


@pytest.mark.django_db
@pytest.mark.timeout(0 if "HISTORIES" in os.environ else 600)
def test_random_histories() -> None:
    run_state_machine_as_test(History, settings=walks(int(os.environ.get("HISTORIES", "12")), steps=30))
