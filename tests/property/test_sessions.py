"""Random calls of the Knife, good and bad, over several sessions, while others edit: what always holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from memory.models import Kind, Memory
from memory.writing import operations
from refinement import session as sessions
from refinement.models import Mode, Outcome, RefinementSession
from tests.property.walk import Walk, attempt, walk
from tests.refining import Held, change, entries, everything, filler, opened
from tests.steps import ME, PERSON, remember

pytestmark = pytest.mark.database

NUMBERS = st.one_of(
    st.integers(1, 40), st.integers(1, 40).map("#{}".format), st.sampled_from([0, -1, True, 1.0, "x", None, 2**63, 999])
)
# Few texts, so that exact duplicates occur; with and without specifics, valid and invalid.
TEXTS = st.one_of(
    st.tuples(st.integers(1, 60), st.integers(0, 5)).map(lambda pair: filler(*pair)),
    st.builds(lambda: "x" * 10_001),
    st.sampled_from(["", " ", "a\0b", "\ud800", "Bob has 3 cats.", "Bob has 4 cats.", 7, None]),
)
CALLS = st.one_of(
    *(
        st.tuples(st.just(f"{verb}_memory"), st.fixed_dictionaries({"id": NUMBERS}))
        for verb in ("delete", "demote", "protect", "promote")
    ),
    st.tuples(st.just("update_memory"), st.fixed_dictionaries({"id": NUMBERS, "content": TEXTS})),
    st.tuples(
        st.just("consolidate_memories"),
        st.fixed_dictionaries(
            {"ids_to_merge": st.lists(NUMBERS, max_size=5), "new_content": TEXTS},
            optional={"dropping": st.just(["3", "4", "Bob"]), "category": st.sampled_from(["technical", "keys", "?"])},
        ),
    ),
    st.tuples(st.just("search_memories"), st.fixed_dictionaries({"query": st.sampled_from(["cats", "-", "\0", ""])})),
    st.tuples(st.sampled_from(["nonsense", "", "delete_memory"]), st.sampled_from([None, [], {}, {"?": 1}])),
)


def operation(name: str, verb: Any) -> Any:
    """A rule of an edit by someone else. It may be refused."""

    def run(self: Sessions, number: int) -> None:
        attempt(lambda: verb(self.agent, number), atomic=False)

    run.__name__ = name
    return rule(number=st.integers(1, 30))(run)


EDITS = CALLS.map(lambda call: {"tool": call[0], "arguments": call[1]})
APPLY = st.lists(EDITS, max_size=6).map(lambda edits: ("apply", {"edits": edits}))


class Sessions(Walk):
    """One agent, its sessions, and someone else who edits."""

    @initialize()
    def begin(self) -> None:
        self.agent = self.create()
        change(self.agent, target_tokens=300, budget_tokens=400, max_failed_calls=8)
        remember(self.agent, *(filler(15, place) for place in range(20)), "Bob has 3 cats.", "Bob has 4 cats.")
        remember(self.agent, "A log of cats.", kind=Kind.JOURNAL)
        remember(self.agent, "The key is under the pot.", category="keys")
        self.held: Held | None = None
        self.ended: list[Held] = []
        self.constitutional: dict[int, bytes] = {}

    def _mass(self) -> int:
        return self.row().core_tokens - self.row().duplicate_tokens

    @precondition(lambda self: self.held is None)
    @rule(mode=st.sampled_from([Mode.FULL, Mode.FULL, Mode.DEDUPE_ONLY]))
    def open(self, mode: str) -> None:
        self.held = opened(self.agent, mode=mode)

    @precondition(lambda self: self.held is not None)
    @rule(calls=st.lists(CALLS | APPLY, min_size=1, max_size=6))
    def work(self, calls: list[tuple[str, Any]]) -> None:
        for tool, arguments in calls:
            if self.held is not None:  # the last call may end the session
                self._call(tool, arguments)

    def _call(self, tool: str, arguments: Any) -> None:
        assert self.held is not None
        mass, before = self._mass(), everything(self.agent)
        answer = self.held.send(tool, arguments)
        floor = self.held.session.floor_tokens
        assert self._mass() >= min(mass, floor), "an edit of a session went below the floor"
        if not answer["ok"] and not answer.get("session_ended"):
            assert everything(self.agent) == before, "a refused call changed something"
        if answer.get("session_ended"):
            self._over()

    @precondition(lambda self: self.held is not None)
    @rule(how=st.sampled_from(["complete", "decline", "show", "abandon"]))
    def end(self, how: str) -> None:
        assert self.held is not None
        if how == "show":
            self.held.knife.show(0, 1, entries(self.agent))
        elif how == "abandon":
            with time_machine.travel(timezone.now() + timedelta(hours=1)):
                assert sessions.close_stale()
            self._over()
        else:
            arguments = {"summary": "Done."} if how == "complete" else {"reason": "No."}
            answer = self.held.send(f"{how}_refinement", arguments)
            if answer["ok"] or "session_ended" in answer:
                self._over()

    def _over(self) -> None:
        assert self.held is not None
        assert self.held.row.outcome != Outcome.OPEN
        self.ended.append(self.held)
        self.held = None

    @precondition(lambda self: self.ended)
    @rule(call=CALLS, which=st.integers(0, 9))
    def call_an_ended_session(self, call: tuple[str, Any], which: int) -> None:
        before = everything(self.agent)
        assert self.ended[which % len(self.ended)].send(*call)["code"] == "session_ended"
        assert everything(self.agent) == before

    @rule(tokens=st.integers(1, 40), seed=st.integers(0, 5))
    def add(self, tokens: int, seed: int) -> None:
        remember(self.agent, filler(tokens, seed))

    @rule(number=st.integers(1, 30), content=st.integers(1, 40))
    def rewrite(self, number: int, content: int) -> None:
        text = filler(content, number)
        attempt(lambda: operations.revise(self.agent, number, ME, content=text), atomic=False)

    discard = operation("discard", lambda agent, number: operations.discard(agent, [number], ME))
    protect = operation("protect", lambda agent, number: operations.protect(agent, [number], PERSON))

    @invariant()
    def each_entry_leaves_a_sound_trail(self) -> None:
        self.grown(self.agent)

    @invariant()
    def no_constitutional_memory_changes(self) -> None:
        rows = Memory.objects.filter(agent_id=self.agent.pk)
        now = {row.number: bytes(row.digest) for row in rows.filter(constitutional=True, discarded_at=None)}
        assert self.constitutional.items() <= now.items()
        self.constitutional = now

    @invariant()
    def at_most_one_session_is_open(self) -> None:
        opened = RefinementSession.objects.filter(agent=self.agent, outcome=Outcome.OPEN)
        assert opened.count() == (self.held is not None)

    @invariant()
    def a_session_counts_its_edits(self) -> None:
        if self.held:
            row = self.held.row
            assert row.changes == row.merged + row.updated + row.deleted + row.demoted + row.promoted
            assert row.counted_tokens >= min(row.tokens_before - row.repeated_tokens, row.floor_tokens)

    @invariant()
    def the_private_memory_does_not_change(self) -> None:
        private = Memory.objects.get(agent_id=self.agent.pk, number=24)
        assert private.superseded_by is None
        assert private.category == "keys"


def test_sessions_keep_every_invariant(db: None) -> None:
    walk(Sessions, 12, steps=20)
