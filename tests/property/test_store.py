"""Random operations in any order, compared with a model in plain dictionaries: the database never differs from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from memory import errors
from memory.models import Agent, Memory
from memory.policy.categories import UNREFINED
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import duplicates, operations
from tests import steps
from tests.property.walk import Walk, walk
from tests.steps import ME, PERSON, SESSION, SYSTEM

pytestmark = pytest.mark.database

WHO = st.sampled_from(["ada", "bob"])
TEXT = st.sampled_from(["tea", "milk", "a longer text about tea", "x" * 400]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40
).filter(str.strip)
TAGS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)
CATEGORIES = [("technical", ""), ("credentials", ""), ("", "site"), ("topic", "shop"), ("personal", "")]
PLACE = st.sampled_from([("", "")] * 4 + CATEGORIES)
PICK = st.integers(0, 99)  # which memory; see `Store.pick`
PICKS = st.lists(PICK, min_size=1, max_size=4)
START = datetime(2026, 1, 1, tzinfo=UTC)

Problem = type[Exception] | None


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
    beneath: bool = False
    discarded: bool = False
    superseded_by: int | None = None
    latest: datetime | None = None

    @property
    def layer(self) -> str:
        return "discarded" if self.discarded else "beneath" if self.beneath else self.kind

    @property
    def tokens(self) -> int:
        return -(-len(self.content) // 4)

    @property
    def scope(self) -> tuple[str, str]:
        scopes = {"credentials": "private", "personal": "private", "contextual": "project", "topic": "project"}
        return scopes.get(self.place[0], "common"), self.place[1]


DISCARDED = (errors.Discarded, lambda m: m.discarded)
NOTICE = (errors.Notice, lambda m: m.source == "system")
EDITABLE = (DISCARDED, NOTICE, (errors.Constitutional, lambda m: m.constitutional))
BENEATH = (errors.Beneath, lambda m: m.layer == "beneath")
NOT_CORE = (errors.CoreMemoryRequired, lambda m: m.layer != "core")
NEITHER_CORE_NOR_BENEATH = (errors.CoreMemoryRequired, lambda m: m.layer not in ("core", "beneath"))


def operation(name: str, verb: Callable[[Agent, list[int]], Any], checks: tuple[Any, ...], **effect: Any) -> Any:
    """A rule of an operation that sets the same fields of every memory."""

    def run(self: Store, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        if self.attempt(who, self.first_problem(who, numbers, *checks), lambda agent: verb(agent, numbers)):
            self.set(who, numbers, **effect)

    run.__name__ = name
    return rule(who=WHO, picks=PICKS)(run)


class Store(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.agents = {name: self.create(name, budget_tokens=400, target_tokens=300) for name in ("ada", "bob")}
        self.model: dict[str, dict[int, Model]] = {"ada": {}, "bob": {}}
        self.versions: dict[str, dict[int, int]] = {"ada": {}, "bob": {}}
        self.high_water = {"ada": 0, "bob": 0}

    def attempt(self, who: str, expected: Problem, verb: Callable[[Agent], Any]) -> bool:
        """Run an operation on one agent. It must fail exactly as the model expects. Whether it succeeded."""
        other = self.agents["bob" if who == "ada" else "ada"]
        before = steps.state(other)
        own = steps.state(self.agents[who]) if expected else None
        raised: Problem = None
        try:
            verb(self.agents[who])
        except errors.MemoryFault as error:
            raised = type(error)
        assert raised is expected
        assert raised is None or steps.state(self.agents[who]) == own
        assert steps.state(other) == before
        return expected is None

    def first_problem(self, who: str, numbers: list[int], *checks: Any) -> Problem:
        memories = self.model[who]
        if len(set(numbers)) < len(numbers):
            return errors.DuplicateNumbers
        if any(number not in memories for number in numbers):
            return errors.UnknownMemory
        return next((error for error, wrong in checks if any(wrong(memories[number]) for number in numbers)), None)

    def pick(self, who: str, picks: list[int]) -> list[int]:
        """Numbers of memories, sometimes with an unknown number, or with one number twice."""
        numbers = sorted(self.model[who]) or [1]
        picked = [numbers[pick % len(numbers)] if pick < 97 else 900 + pick for pick in picks]
        return picked if picks[0] % 20 == 7 else list(dict.fromkeys(picked))

    def set(self, who: str, numbers: list[int], **values: Any) -> None:
        for number in numbers:
            self.model[who][number] = replace(self.model[who][number], **values)

    def next(self, who: str) -> int:
        return len(self.model[who]) + 1

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
        day=st.integers(0, 30),
        kind=st.sampled_from(["core", "core", "journal"]),
        source=st.sampled_from(["agent", "run"]),
    )
    def remember(
        self, who: str, texts: list[str], tags: list[str], place: tuple[str, str], day: int, kind: str, source: str
    ) -> None:
        (category, project), origin = place, START + timedelta(days=day)
        drafts = [Draft(text, kind, category, project, tags, origin, source) for text in texts]
        self.attempt(who, None, lambda agent: operations.remember(agent, drafts, ME))
        place = (category or ("contextual" if project else "behavioral"), project)
        for text in texts:
            self.model[who][self.next(who)] = Model(text, tuple(dict.fromkeys(tags)), kind, place, origin, source)

    @rule(who=WHO, pick=PICK, content=st.none() | TEXT, tags=st.none() | TAGS, session=st.none() | st.just(SESSION))
    def revise(self, who: str, pick: int, content: str | None, tags: list[str] | None, session: int | None) -> None:
        [number], memories = self.pick(who, [pick]), self.model[who]
        problem = self.first_problem(who, [number], *EDITABLE, BENEATH)
        change = {"content": content, "tags": tags, "session": session}
        if self.attempt(who, problem, lambda agent: operations.revise(agent, number, ME, **change)):
            old = memories[number]
            if session and old.kind == "core" and content is not None and old.content not in content:
                memories[self.next(who)] = replace(old, beneath=True, superseded_by=number)
            values = {"content": content, "tags": None if tags is None else tuple(dict.fromkeys(tags))}
            self.set(who, [number], **{name: value for name, value in values.items() if value is not None})

    discard = operation("discard", lambda a, ns: operations.discard(a, ns, ME), EDITABLE, discarded=True)
    protect_as_person = operation(
        "protect_as_person",
        lambda a, ns: operations.protect(a, ns, PERSON),
        (DISCARDED, NOTICE, BENEATH),
        constitutional=True,
    )
    unprotect = operation(
        "unprotect", lambda a, ns: operations.unprotect(a, ns, PERSON, reason="a test"), (), constitutional=False
    )

    @rule(who=WHO, picks=PICKS)
    def restore(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        if self.attempt(who, self.first_problem(who, numbers), lambda a: operations.restore(a, numbers, PERSON)):
            self.set(who, numbers, discarded=False)
            self.set(who, [n for n in numbers if not self.model[who][n].beneath], superseded_by=None)

    @rule(who=WHO, picks=PICKS)
    def demote(self, who: str, picks: list[int]) -> None:
        numbers = self.pick(who, picks)
        checks = (DISCARDED, NOTICE, EDITABLE[2], NEITHER_CORE_NOR_BENEATH)
        problem = self.first_problem(who, numbers, *checks)
        if self.attempt(who, problem, lambda agent: operations.demote(agent, numbers, ME, reason="a test")):
            self.set(who, numbers, beneath=True)

    @rule(who=WHO, picks=PICKS)
    def protect_as_agent(self, who: str, picks: list[int]) -> None:
        numbers, memories = self.pick(who, picks), self.model[who]
        problem = self.first_problem(who, numbers, DISCARDED, NOTICE, BENEATH, NOT_CORE)
        new = sum(memories[n].tokens for n in numbers if n in memories and not memories[n].constitutional)
        held = sum(m.tokens for m in memories.values() if m.constitutional)
        if problem is None and new and held + new > 200:
            problem = errors.ProtectionFull
        if self.attempt(who, problem, lambda agent: operations.protect(agent, numbers, ME, session=SESSION)):
            self.set(who, numbers, constitutional=True)

    @rule(who=WHO, picks=st.lists(PICK, min_size=2, max_size=3), content=TEXT)
    def consolidate(self, who: str, picks: list[int], content: str) -> None:
        numbers, memories = self.pick(who, picks), self.model[who]
        first = memories.get(numbers[0])
        private = (errors.Private, lambda m: m.place[0] == "credentials")
        mixed = (errors.MixedScope, lambda m: first is None or m.scope != first.scope)
        problem = self.first_problem(who, numbers, *EDITABLE, NOT_CORE, private, mixed)
        sources = [memories[n] for n in numbers if n in memories]
        if len(numbers) < 2 or (problem is None and len({m.place[0] for m in sources}) > 1):
            problem = errors.Invalid  # too few, or a category is required
        verb = lambda agent: operations.consolidate(agent, numbers, content, ME, session=SESSION)  # noqa: E731
        if self.attempt(who, problem, verb):
            tags = tuple(dict.fromkeys(tag for m in sources for tag in m.tags))
            number = self.next(who)
            first, last = min(m.origin for m in sources), max(m.latest or m.origin for m in sources)
            memories[number] = Model(
                content, tags, "core", sources[0].place, first, latest=last if last > first else None
            )
            self.set(who, numbers, beneath=True, superseded_by=number)

    @rule(who=WHO, pick=PICK)
    def promote(self, who: str, pick: int) -> None:
        [number] = self.pick(who, [pick])
        problem = self.first_problem(who, [number], DISCARDED, NOTICE)
        if self.attempt(who, problem, lambda agent: operations.promote(agent, number, ME)):
            superseded_by = None if self.model[who][number].beneath else self.model[who][number].superseded_by
            self.set(who, [number], kind="core", beneath=False, superseded_by=superseded_by)

    @rule(who=WHO, keep=st.integers(0, 3))
    def trim(self, who: str, keep: int) -> None:
        runs = sorted(((m.origin, n) for n, m in self.model[who].items() if self.can_be_trimmed(m)), reverse=True)
        self.attempt(who, None, lambda agent: operations.trim(agent, keep, SYSTEM))
        self.set(who, [number for _, number in runs[keep:]], discarded=True)

    def can_be_trimmed(self, m: Model) -> bool:
        is_run = (m.kind, m.source, m.discarded, m.constitutional) == ("journal", "run", False, False)
        return is_run and m.place[0] not in UNREFINED

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
            if not (m.discarded or m.beneath) and m.source != "system":
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
    def edit_an_old_version(self, who: str, pick: int) -> None:
        [number] = self.pick(who, [pick])
        if number in self.model[who]:
            stale = {number: self.versions[who][number] - 1}
            self.attempt(who, errors.Stale, lambda agent: operations.discard(agent, [number], ME, expect=stale))

    @invariant()
    def the_database_equals_the_model(self) -> None:
        for who, agent in self.agents.items():
            assert stored(agent) == self.model[who]

    @invariant()
    def the_counters_equal_the_model(self) -> None:
        for who, agent in self.agents.items():
            row, memories = steps.fresh(agent), self.model[who].values()
            core, beneath = ([m for m in memories if m.layer == layer] for layer in ("core", "beneath"))
            tokens = sum(m.tokens for m in core)
            repeated = tokens - sum({(m.content, m.place): m.tokens for m in core}.values())
            self.high_water[who] = max(self.high_water[who], tokens - repeated)
            assert (row.core_count, row.core_tokens) == (len(core), tokens)
            assert (row.beneath_count, row.beneath_tokens) == (len(beneath), sum(m.tokens for m in beneath))
            assert row.journal_count == sum(m.kind == "journal" and not m.discarded for m in memories)
            assert row.constitutional_count == sum(m.constitutional for m in memories)
            assert row.constitutional_tokens == sum(m.tokens for m in memories if m.constitutional)
            assert (row.duplicate_tokens, row.high_water_tokens) == (repeated, self.high_water[who])

    @invariant()
    def each_entry_leaves_a_sound_trail(self) -> None:
        self.grown(*self.agents.values())

    @invariant()
    def versions_never_decrease(self) -> None:
        for who, agent in self.agents.items():
            now = dict(Memory.objects.filter(agent=agent).values_list("number", "version"))
            assert all(now[number] >= version for number, version in self.versions[who].items())
            self.versions[who] = now


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
            memory.beneath_at is not None, memory.discarded_at is not None, memory.superseded_by, memory.origin_latest,
        )  # fmt: skip
    return found


@pytest.mark.django_db
def test_after_random_operations_the_database_equals_the_model() -> None:
    walk(Store, 12, steps=20)
