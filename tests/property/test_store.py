"""Random verbs, in any order, against a model in plain dictionaries: the database never differs from it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memory import errors
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import duplicates, operations
from tests import steps
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import ME, PERSON, SESSION, SYSTEM

pytestmark = pytest.mark.database

WHO = st.sampled_from(["ada", "bob"])
TEXT = st.sampled_from(["tea", "milk", "a longer text about tea", "x" * 400]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40
).filter(str.strip)
TAGS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)
PLACE = st.sampled_from(
    [
        ("", ""),
        ("", ""),
        ("", ""),
        ("", ""),
        ("technical", ""),
        ("credentials", ""),
        ("", "site"),
        ("topic", "shop"),
        ("personal", ""),
    ]
)
DAYS = st.integers(0, 30)
PICK = st.integers(0, 99)  # which memory; see `Store.pick`
PICKS = st.lists(PICK, min_size=1, max_size=4)
START = datetime(2026, 1, 1, tzinfo=UTC)
_run = itertools.count(1)


@dataclass(frozen=True)
class Model:
    """One memory, as the rules of the product have it."""

    content: str
    tags: tuple[str, ...]
    kind: str
    place: tuple[str, str]
    origin: datetime
    source: str = "agent"
    constitutional: bool = False
    discarded: bool = False
    superseded_by: int | None = None

    @property
    def tokens(self) -> int:
        return -(-len(self.content) // 4)

    @property
    def in_core(self) -> bool:
        return self.kind == "core" and not self.discarded


class Store(Walk):
    def __init__(self) -> None:
        super().__init__()
        run = next(_run)
        self.agents = {
            name: lifecycle.create(
                f"{name}-{run}", name, model="builtin/dedupe", actor=OPERATOR, budget_tokens=400, target_tokens=300
            )[0]
            for name in ("ada", "bob")
        }
        self.model: dict[str, dict[int, Model]] = {"ada": {}, "bob": {}}
        self.versions: dict[str, dict[int, int]] = {"ada": {}, "bob": {}}
        self.high_water = {"ada": 0, "bob": 0}
        self.touched = ""
        self.quiet: dict[str, Any] = {}

    def check_at_end(self) -> None:
        assert [steps.problems(agent) for agent in self.agents.values()] == [[], []]

    # What the product does, and what the model says it should do

    def attempt(self, who: str, expected: type[Exception] | None, verb: Any) -> bool:
        """Run a verb on one agent; it must fail exactly when the model says so. True when it went through."""
        other = "bob" if who == "ada" else "ada"
        before = steps.state(self.agents[other])
        own = steps.state(self.agents[who]) if expected else None
        raised: type[Exception] | None = None
        try:
            verb(self.agents[who])
        except errors.MemoryFault as error:
            raised = type(error)
        assert raised is expected
        assert raised is None or steps.state(self.agents[who]) == own
        assert steps.state(self.agents[other]) == before
        return expected is None

    def first_problem(self, who: str, numbers: list[int], *checks: Any) -> type[Exception] | None:
        memories = self.model[who]
        if len(set(numbers)) < len(numbers):
            return errors.DuplicateNumbers
        if any(number not in memories for number in numbers):
            return errors.UnknownMemory
        for error, wrong in checks:
            if any(wrong(memories[number]) for number in numbers):
                return error
        return None

    def pick(self, who: str, picks: list[int]) -> list[int]:
        """Numbers of memories there are; now and then one there is none of, or one given twice."""
        there = sorted(self.model[who]) or [1]
        numbers = [there[pick % len(there)] if pick < 97 else 900 + pick for pick in picks]
        return numbers if picks[0] % 20 == 7 else list(dict.fromkeys(numbers))

    def set(self, who: str, numbers: list[int], **values: Any) -> None:
        for number in numbers:
            self.model[who][number] = replace(self.model[who][number], **values)

    def next(self, who: str) -> int:
        return len(self.model[who]) + 1

    # The verbs

    @initialize()
    def begin(self) -> None:
        for who in self.agents:
            for day, text in ((9, "tea"), (5, "milk"), (7, "tea"), (3, "coffee")):
                self.remember(who, [text], [text[0]], ("", ""), day, "core", "agent")

    @rule(
        who=WHO,
        texts=st.lists(TEXT, min_size=1, max_size=3),
        tags=TAGS,
        place=PLACE,
        day=DAYS,
        kind=st.sampled_from(["core", "core", "journal"]),
        source=st.sampled_from(["agent", "run"]),
    )
    def remember(
        self, who: str, texts: list[str], tags: list[str], place: tuple[str, str], day: int, kind: str, source: str
    ) -> None:
        category, project = place
        origin = START + timedelta(days=day)
        drafts = [Draft(text, kind, category, project, tags, origin, source) for text in texts]
        self.attempt(who, None, lambda agent: operations.remember(agent, drafts, ME))
        category = category or ("contextual" if project else "behavioral")
        for text in texts:
            self.model[who][self.next(who)] = Model(
                text, tuple(dict.fromkeys(tags)), kind, (category, project), origin, source
            )

    @rule(who=WHO, pick=PICK, content=st.none() | TEXT, tags=st.none() | TAGS)
    def revise(self, who: str, pick: int, content: str | None, tags: list[str] | None) -> None:
        [number] = self.pick(who, [pick])
        problem = self.first_problem(who, [number], *EDITABLE)
        verb = lambda agent: operations.revise(agent, number, ME, content=content, tags=tags)  # noqa: E731
        if self.attempt(who, problem, verb):
            if content is not None:
                self.set(who, [number], content=content)
            if tags is not None:
                self.set(who, [number], tags=tuple(dict.fromkeys(tags)))

    @rule(who=WHO, picks=PICKS)
    def discard(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        problem = self.first_problem(who, numbers, *EDITABLE)
        if self.attempt(who, problem, lambda agent: operations.discard(agent, numbers, ME)):
            self.set(who, numbers, discarded=True)

    @rule(who=WHO, picks=PICKS)
    def restore(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        problem = self.first_problem(who, numbers)
        if self.attempt(who, problem, lambda agent: operations.restore(agent, numbers, PERSON)):
            self.set(who, numbers, discarded=False, superseded_by=None)

    @rule(who=WHO, picks=PICKS)
    def protect_as_agent(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        problem = self.first_problem(
            who, numbers, DISCARDED, NOTICE, (errors.CoreMemoryRequired, lambda m: m.kind != "core")
        )
        memories = self.model[who]
        new = sum(memories[n].tokens for n in numbers if n in memories and not memories[n].constitutional)
        held = sum(m.tokens for m in memories.values() if m.constitutional)
        if problem is None and new and held + new > 200:
            problem = errors.ProtectionFull
        if self.attempt(who, problem, lambda agent: operations.protect(agent, numbers, ME, session=SESSION)):
            self.set(who, numbers, constitutional=True)

    @rule(who=WHO, picks=PICKS)
    def protect_as_person(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        problem = self.first_problem(who, numbers, DISCARDED, NOTICE)
        if self.attempt(who, problem, lambda agent: operations.protect(agent, numbers, PERSON)):
            self.set(who, numbers, constitutional=True)

    @rule(who=WHO, picks=PICKS)
    def unprotect(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        problem = self.first_problem(who, numbers)
        if self.attempt(who, problem, lambda agent: operations.unprotect(agent, numbers, PERSON, reason="asked")):
            self.set(who, numbers, constitutional=False)

    @rule(who=WHO, picks=st.lists(PICK, min_size=2, max_size=3), content=TEXT)
    def consolidate(self, who: str, picks: list[int], content: str) -> None:
        numbers = self.pick(who, picks)
        memories = self.model[who]
        first = memories.get(numbers[0])
        too_few = errors.Invalid if len(numbers) < 2 else None
        problem = too_few or self.first_problem(
            who,
            numbers,
            *EDITABLE,
            (errors.CoreMemoryRequired, lambda m: m.kind != "core"),
            (errors.Private, lambda m: m.place[0] == "credentials"),
            (errors.MixedScope, lambda m: first is None or where(m) != where(first)),
        )
        sources = [memories[n] for n in numbers if n in memories]
        if problem is None and len({m.place[0] for m in sources}) > 1:
            problem = errors.Invalid  # a category has to be given
        if self.attempt(
            who, problem, lambda agent: operations.consolidate(agent, numbers, content, ME, session=SESSION)
        ):
            tags = tuple(dict.fromkeys(tag for m in sources for tag in m.tags))
            merged = Model(content, tags, "core", sources[0].place, min(m.origin for m in sources))
            number = self.next(who)
            memories[number] = merged
            self.set(who, numbers, discarded=True, superseded_by=number)

    @rule(who=WHO, pick=PICK)
    def promote(self, who: str, pick: int) -> None:
        [number] = self.pick(who, [pick])
        problem = self.first_problem(who, [number], DISCARDED, NOTICE)
        if self.attempt(who, problem, lambda agent: operations.promote(agent, number, ME)):
            self.set(who, [number], kind="core")

    @rule(who=WHO, keep=st.integers(0, 3))
    def trim(self, who: str, keep: int) -> None:
        runs = sorted(
            (
                (m.origin, n)
                for n, m in self.model[who].items()
                if (m.kind, m.source) == ("journal", "run") and not m.discarded and not m.constitutional
            ),
            reverse=True,
        )
        self.attempt(who, None, lambda agent: operations.trim(agent, keep, SYSTEM))
        self.set(who, [number for _, number in runs[keep:]], discarded=True)

    @rule(who=WHO)
    def notify(self, who: str) -> None:
        self.attempt(who, None, steps.tell)
        number = self.next(who)
        origin = steps.row(self.agents[who], number).origin
        self.model[who][number] = Model("told", (), "journal", ("behavioral", ""), origin, "system")

    @rule(who=WHO)
    def remove_duplicates(self, who: str) -> None:
        self.attempt(who, None, duplicates.remove)
        groups = defaultdict(list)
        for number, m in self.model[who].items():
            if not m.discarded and m.source != "system":
                groups[m.content, m.kind, m.place].append((number, m))
        for group in groups.values():
            number, survivor = min(group, key=lambda pair: (not pair[1].constitutional, pair[1].origin, pair[0]))
            extra = [n for n, m in group if n != number and not m.constitutional]
            if extra and not survivor.constitutional:
                tags = tuple(dict.fromkeys([*survivor.tags, *(t for _, m in group for t in m.tags)]))
                self.set(who, [number], tags=tags, origin=min(m.origin for _, m in group))
            self.set(who, extra, discarded=True, superseded_by=number)

    @precondition(lambda self: self.model["ada"])
    @rule(who=WHO, pick=PICK)
    def edit_what_has_changed_since(self, who: str, pick: int) -> None:
        [number] = self.pick(who, [pick])
        if number in self.model[who]:
            stale = {number: self.versions[who][number] - 1}
            verb = lambda agent: operations.discard(agent, [number], ME, expect=stale)  # noqa: E731
            self.attempt(who, errors.Stale, verb)

    # What always holds

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        for who, agent in self.agents.items():
            assert stored(agent) == self.model[who]

    @invariant()
    def the_counters_are_as_the_model_says(self) -> None:
        for who, agent in self.agents.items():
            row, memories = steps.fresh(agent), self.model[who].values()
            core = [m for m in memories if m.in_core]
            repeated = sum(m.tokens for m in core) - sum({(m.content, m.place): m.tokens for m in core}.values())
            self.high_water[who] = max(self.high_water[who], sum(m.tokens for m in core) - repeated)
            assert (row.core_count, row.core_tokens) == (len(core), sum(m.tokens for m in core))
            assert row.journal_count == sum(m.kind == "journal" and not m.discarded for m in memories)
            assert row.constitutional_count == sum(m.constitutional for m in memories)
            assert row.constitutional_tokens == sum(m.tokens for m in memories if m.constitutional)
            assert (row.duplicate_tokens, row.high_water_tokens) == (repeated, self.high_water[who])

    @invariant()
    def each_entry_leaves_a_trail_that_holds(self) -> None:
        self.grown(*self.agents.values())

    @invariant()
    def versions_never_go_back(self) -> None:
        for who, agent in self.agents.items():
            now = dict(Memory.objects.filter(agent=agent).values_list("number", "version"))
            assert all(now[number] >= version for number, version in self.versions[who].items())
            self.versions[who] = now


DISCARDED = (errors.Discarded, lambda m: m.discarded)
NOTICE = (errors.Notice, lambda m: m.source == "system")
EDITABLE = (DISCARDED, NOTICE, (errors.Constitutional, lambda m: m.constitutional))


def where(memory: Model) -> tuple[str, str]:
    scopes = {"credentials": "private", "personal": "private", "contextual": "project", "topic": "project"}
    return scopes.get(memory.place[0], "common"), memory.place[1]


def stored(agent: Agent) -> dict[int, Model]:
    silo = Silo.for_agent(agent)
    found = {}
    for memory in Memory.objects.filter(agent=agent).order_by("number"):
        opened = silo.open(memory)
        place = (memory.category, memory.project)
        assert not (memory.constitutional and memory.discarded_at)
        assert memory.digest == silo.digest(opened.content)
        found[memory.number] = Model(
            opened.content, opened.tags, memory.kind, place, memory.origin, memory.source, memory.constitutional,
            memory.discarded_at is not None, memory.superseded_by,
        )  # fmt: skip
    return found


@pytest.mark.django_db
def test_random_verbs_never_part_the_database_from_the_model() -> None:
    run_state_machine_as_test(Store, settings=walks(12, steps=20))
