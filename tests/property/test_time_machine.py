"""Random histories: a rollback to any past moment restores it exactly, and can be undone.

About a dozen in every run; HISTORIES=400 for the figure in docs/internals/reliability.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from audit import trail
from audit.models import AuditEntry, Change
from memory import errors
from memory.consent import redaction, requests
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.time_machine.rollback import What, preview, roll_back
from memory.time_machine.selection import Undone
from memory.writing import duplicates, operations
from memory.writing.edits import snapshot
from refinement.undone_sessions import sessions_undone
from tests.property.walk import Walk, walk
from tests.steps import ME, PERSON, SYSTEM, fresh

pytestmark = pytest.mark.database

WHO = st.sampled_from(["ada", "bob"])
TEXT = st.sampled_from(["tea", "milk", "a longer text about tea", "x" * 40, "y" * 80])
PICK = st.integers(0, 99)
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)
REASON = {"include_constitutional": True, "reason": "a test"}

State = dict[int, bytes]


def operation(name: str, most: int, verb: Callable[[Agent, list[int], str, int | None], Any], least: int = 1) -> Any:
    """A rule of an operation on some memories (`ns`), with a text, in the open session (`of`) if there is one."""

    def run(self: History, who: str, picks: list[int], text: str) -> None:
        numbers, session = self.some(who, picks), self.open_session(who)
        self.attempt(who, lambda agent: verb(agent, numbers, text, session))

    run.__name__ = name
    return rule(who=WHO, picks=st.lists(PICK, min_size=least, max_size=most), text=TEXT)(run)


class History(Walk):
    """Two agents of two tenants. The walk keeps their state after each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = {name: self.create(name, budget_tokens=8_000) for name in ("ada", "bob")}
        self.states: dict[str, dict[int, State]] = {name: {0: {}} for name in self.agents}
        self.session = {"ada": 0, "bob": 0}
        self.is_open = {"ada": False, "bob": False}

    def now(self, who: str) -> State:
        return {m.number: snapshot(m) for m in Memory.objects.filter(agent_id=self.agents[who].pk)}

    def keep(self, who: str) -> None:
        self.states[who][self.seq(who)] = self.now(who)

    def seq(self, who: str) -> int:
        return int(fresh(self.agents[who]).audit_seq)

    def some(self, who: str, picks: list[int]) -> list[int]:
        numbers = sorted(self.now(who))
        return sorted({numbers[pick % len(numbers)] for pick in picks}) if numbers else []

    def attempt(self, who: str, verb: Callable[[Agent], Any]) -> None:
        """An operation that may be refused. Then it leaves nothing."""
        before = self.seq(who), self.now(who)
        try:
            with transaction.atomic():
                verb(fresh(self.agents[who]))
        except errors.MemoryFault:
            assert (self.seq(who), self.now(who)) == before
        self.keep(who)

    def open_session(self, who: str) -> int | None:
        return self.session[who] if self.is_open[who] else None

    @initialize(texts=st.lists(TEXT, min_size=2, max_size=5))
    def begin(self, texts: list[str]) -> None:
        for who in self.agents:
            self.remember(who, texts, "core")

    @rule(who=WHO, texts=st.lists(TEXT, min_size=1, max_size=3), kind=st.sampled_from(["core", "core", "journal"]))
    def remember(self, who: str, texts: list[str], kind: str) -> None:
        self.attempt(who, lambda agent: operations.remember(agent, [Draft(text, kind=kind) for text in texts], ME))

    revise = operation(
        "revise", 1, lambda agent, ns, text, of: [operations.revise(agent, n, ME, content=text, session=of) for n in ns]
    )
    consolidate = operation(
        "consolidate", 4, lambda agent, ns, text, of: operations.consolidate(agent, ns, text, ME, session=of), least=2
    )
    discard = operation("discard", 3, lambda agent, ns, _, of: operations.discard(agent, ns, ME, session=of))
    restore = operation("restore", 2, lambda agent, ns, *_: operations.restore(agent, ns, ME))
    protect = operation("protect", 2, lambda agent, ns, *_: operations.protect(agent, ns, PERSON))
    unprotect = operation("unprotect", 2, lambda agent, ns, *_: operations.unprotect(agent, ns, PERSON, reason="17"))
    deduplicate = operation("deduplicate", 1, lambda agent, _, __, of: duplicates.remove(agent, session=of or 0))

    @rule(who=WHO)
    def begin_or_end_session(self, who: str) -> None:
        if self.is_open[who]:
            notice = {"operation": "session_closed", "actor": SYSTEM, "detail": {}, "session": self.session[who]}
            self.attempt(who, lambda agent: operations.notify(agent, "done", **notice))
        else:
            self.session[who] += 1
        self.is_open[who] = not self.is_open[who]

    @rule(who=WHO, picks=st.lists(PICK, min_size=1, max_size=2))
    def redact(self, who: str, picks: list[int]) -> None:
        """No rollback changes the redacted memories after this."""

        def request_and_redact(agent: Agent) -> None:
            request = requests.ask_redaction(agent, self.some(who, picks), PERSON, reason="a test")
            redaction.redact(agent, request.number, ME, include_constitutional=True)

        self.attempt(who, request_and_redact)

    def redacted(self, who: str) -> set[int]:
        rows = Memory.objects.filter(agent_id=self.agents[who].pk, redacted_at__isnull=False)
        return set(rows.values_list("number", flat=True))

    @rule(who=WHO, pick=PICK)
    def go_back_and_return(self, who: str, pick: int) -> None:
        """To any past entry: memories are as they were then, and later ones are discarded. Then the rollback of the
        rollback."""
        seqs = sorted(self.states[who])
        then, present = seqs[pick % len(seqs)], self.now(who)
        try:
            with transaction.atomic():
                roll_back(fresh(self.agents[who]), What("since_entry", then), PERSON, **REASON)
        except (errors.NothingToUndo, errors.Redacted):
            assert self.is_as_then(present, then, who)
            return
        assert self.is_as_then(self.now(who), then, who)
        self.keep(who)
        roll_back(fresh(self.agents[who]), What("entry", self.seq(who)), PERSON, **REASON)
        assert self.now(who) == present
        self.keep(who)

    def is_as_then(self, state: State, then: int, who: str) -> bool:
        past = self.states[who][then]
        discarded = {m.number for m in Memory.objects.filter(agent_id=self.agents[who].pk, discarded_at__isnull=False)}
        left = set(past) - self.redacted(who)
        return all(state[number] == past[number] for number in left) and set(state) - set(past) <= discarded

    @rule(who=WHO, pick=PICK, force=st.booleans(), of_session=st.booleans())
    def undo_one(self, who: str, pick: int, force: bool, of_session: bool) -> None:
        """One entry or session. Without force, memories with a conflict stay as they are."""
        session, entry = 1 + pick % max(1, self.session[who]), 1 + pick % self.seq(who)
        what = What("session", session) if of_session else What("entry", entry)
        other = "bob" if who == "ada" else "ada"
        before, before_other = self.now(who), self.now(other)
        try:
            conflicts = preview(fresh(self.agents[who]), what).conflicts
        except errors.MemoryFault:
            return
        with transaction.atomic():
            try:
                done = roll_back(fresh(self.agents[who]), what, PERSON, force=force, skip_conflicts=not force, **REASON)
            except errors.NothingToUndo:
                assert self.now(who) == before
                return
        after = self.now(who)
        assert force or all(after[number] == before[number] for number, _ in conflicts)
        assert done.tokens_after == fresh(self.agents[who]).core_tokens
        assert self.now(other) == before_other
        with pytest.raises((errors.AlreadyUndone, errors.Redacted)), transaction.atomic():
            roll_back(fresh(self.agents[who]), what, PERSON, force=True, **REASON)
        self.keep(who)

    @invariant()
    def after_each_entry_all_holds(self) -> None:
        if self.grown(*self.agents.values()):
            self.a_session_is_undone_when_all_its_changes_are()
            self.redacted_memories_have_no_content()

    def a_session_is_undone_when_all_its_changes_are(self) -> None:
        agents_sessions, expected = [], {}
        for who, agent in self.agents.items():
            entries = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0)
            undone = Undone.of(agent)
            for number in range(self.session[who] + 1):
                by = [undone.by(entry.seq) for entry in entries.filter(session=number)]
                agents_sessions.append((agent.pk, number))
                if by and None not in by:
                    expected[agent.pk, number] = max(by)
        assert sessions_undone(agents_sessions, ALWAYS) == expected

    def redacted_memories_have_no_content(self) -> None:
        for who, agent in self.agents.items():
            numbers = self.redacted(who)
            rows = Memory.objects.filter(agent_id=agent.pk, number__in=numbers).values_list("sealed", "digest")
            assert not any(bytes(sealed) or bytes(digest) for sealed, digest in rows)
            for change in Change.objects.filter(agent_id=agent.pk, number__in=numbers):
                assert not any(trail.has_body(bytes(each)) for each in (change.before, change.after) if each)


@pytest.mark.django_db
@pytest.mark.timeout(0 if "HISTORIES" in os.environ else 600)
def test_random_histories() -> None:
    walk(History, int(os.environ.get("HISTORIES", "8")), steps=30)


LAST = 30
Rollbacks = list[tuple[int, list[tuple[int, int]]]]


@st.composite
def rollbacks(draw: st.DrawFn) -> Rollbacks:
    """Entries of rollbacks and the runs of earlier entries that each undoes, newest first."""
    found = []
    for seq in sorted(draw(st.sets(st.integers(2, LAST), max_size=12)), reverse=True):
        undone = sorted(draw(st.sets(st.integers(1, seq - 1), min_size=1)))
        starts = [entry for entry in undone if entry - 1 not in undone]
        ends = [entry for entry in undone if entry + 1 not in undone]
        found.append((seq, list(zip(starts, ends, strict=True))))
    return found


def undone_by(entry: int, rolled: Rollbacks) -> int | None:
    for seq, runs in rolled:
        if any(first <= entry <= last for first, last in runs) and undone_by(seq, rolled) is None:
            return seq
    return None


@given(rollbacks())
def test_entries_are_undone_as_a_plain_search_says(rolled: Rollbacks) -> None:
    undone = Undone(rolled)
    assert [undone.by(entry) for entry in range(LAST + 1)] == [undone_by(entry, rolled) for entry in range(LAST + 1)]
