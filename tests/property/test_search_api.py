"""Search over the API against plain text: whatever was written, rewritten, discarded, brought back, imported or rolled
back in between, exactly the memories are found that a reader of all of them would find; and no text is an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from memory.agents import lifecycle
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from tests import steps
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import problems

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ("alpha", "beta", "gamma", "delta")  # which no stemmer changes, and none of which is left out
TAGS = ("red", "blue")
KINDS = ("core", "journal")
PROJECTS = ("", "site", "shop")
said = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(tuple)
some_tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
days = st.integers(0, 4)


@dataclass
class Plain:
    """A memory as a reader holds it."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    kind: str
    project: str
    day: int
    there: bool = True

    def holds(self, phrase: tuple[str, ...]) -> bool:
        return any(self.words[n : n + len(phrase)] == phrase for n in range(len(self.words)))


@dataclass
class Asked:
    """A query in its parts, each of which may be missing."""

    words: tuple[str, ...]
    phrase: tuple[str, ...]
    without: tuple[str, ...]
    tag: str
    without_tag: str
    listed: tuple[str, ...]  # tags given beside the query
    kind: str
    project: str
    since: int | None
    until: int | None

    @property
    def body(self) -> dict[str, Any]:
        parts = [*self.words]
        parts += [f'"{" ".join(self.phrase)}"'] if self.phrase else []
        parts += [f'-"{" ".join(self.without)}"'] if len(self.without) > 1 else [f"-{word}" for word in self.without]
        parts += [f"tag:{self.tag}"] if self.tag else []
        parts += [f"-tag:{self.without_tag}"] if self.without_tag else []
        given: dict[str, Any] = {"q": " ".join(parts), "limit": 100}
        given |= {"kind": self.kind} if self.kind else {}
        given |= {"project": self.project} if self.project else {}
        given |= {"tags": list(self.listed)} if self.listed else {}
        given |= {"since": moment(self.since)} if self.since is not None else {}
        return given | ({"until": moment(self.until)} if self.until is not None else {})

    def answers(self, memory: Plain) -> bool:
        """Whether a reader would say that this memory is meant."""
        wanted = not (self.words or self.phrase) or bool(set(self.words) & set(memory.words)) or bool(self.phrase)
        return (
            memory.there
            and wanted
            and (not self.phrase or memory.holds(self.phrase))
            and not (self.without and memory.holds(self.without))
            and set(self.listed) | ({self.tag} - {""}) <= set(memory.tags)
            and (not self.without_tag or self.without_tag not in memory.tags)
            and self.kind in ("", memory.kind)
            and self.project in ("", memory.project)
            and (self.since is None or self.since <= memory.day)
            and (self.until is None or memory.day <= self.until)
        )


def moment(day: int) -> str:
    return (BEGINNING + timedelta(days=day)).isoformat()


few = st.lists(st.sampled_from(WORDS), max_size=2).map(tuple)
questions = st.builds(
    Asked,
    words=few,
    phrase=few,
    without=few,
    tag=st.sampled_from(("", *TAGS)),
    without_tag=st.sampled_from(("", "", *TAGS)),
    listed=some_tags,
    kind=st.sampled_from(("", "", *KINDS)),
    project=st.sampled_from(PROJECTS),
    since=st.none() | days,
    until=st.none() | days,
)


class Silo(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.block._from_testcase = True  # so that the index is kept from search to search, as in production
        self.held: dict[int, Plain] = {}
        self.before: list[tuple[int, dict[int, Plain]]] = []

    def check_at_end(self) -> None:
        assert problems(self.ada) == []

    @initialize()
    def begin(self) -> None:
        from memory.search import cache

        cache.forget()
        self.ada, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
        self.runtime = Caller(key)

    @rule(words=said, tags=some_tags, kind=st.sampled_from(KINDS), project=st.sampled_from(PROJECTS), day=days)
    def remember(self, words: tuple[str, ...], tags: tuple[str, ...], kind: str, project: str, day: int) -> None:
        body = {"content": " ".join(words), "tags": list(tags), "kind": kind, "project": project, "origin": moment(day)}
        made = self.runtime.post("memories", body)
        assert made.status == 201
        self.held[made.json["id"]] = Plain(words, tags, kind, project, day)

    @rule(lines=st.lists(st.tuples(said, some_tags, days), min_size=1, max_size=4))
    def bring_in(self, lines: list[tuple[tuple[str, ...], tuple[str, ...], int]]) -> None:
        raw = [{"content": " ".join(words), "tags": list(tags), "origin": moment(day)} for words, tags, day in lines]
        sent = "\n".join(map(json.dumps, raw)).encode()
        assert self.runtime.post("import", raw=sent, kind="application/x-ndjson").status == 201
        for words, tags, day in lines:
            self.held[max(self.held, default=0) + 1] = Plain(words, tags, "core", "", day)

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0), words=said | st.none(), tags=some_tags | st.none())
    def revise(self, place: int, words: tuple[str, ...] | None, tags: tuple[str, ...] | None) -> None:
        number, memory = self.one(place)
        body: dict[str, Any] = {} if words is None else {"content": " ".join(words)}
        body |= {} if tags is None else {"tags": list(tags)}
        answer = self.runtime.patch(f"memories/{number}", body)
        assert answer.status == (422 if not body else 200 if memory.there else 409)
        if answer.status == 200:
            memory.words, memory.tags = words or memory.words, memory.tags if tags is None else tags

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0))
    def discard(self, place: int) -> None:
        number, memory = self.one(place)
        assert self.runtime.delete(f"memories/{number}").status == (204 if memory.there else 409)
        memory.there = False

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0))
    def restore(self, place: int) -> None:
        number, memory = self.one(place)
        assert self.runtime.post(f"memories/{number}/restore").status == 200
        memory.there = True

    @rule()
    def note_the_time(self) -> None:
        kept = {number: Plain(**vars(memory)) for number, memory in self.held.items()}
        self.before.append((steps.fresh(self.ada).audit_seq, kept))

    @precondition(lambda self: self.before)
    @rule()
    def go_back(self) -> None:
        seq, kept = self.before.pop()
        if steps.fresh(self.ada).audit_seq == seq:
            return
        if not any(vars(kept[n]) != vars(m) if n in kept else m.there for n, m in self.held.items()):
            return  # there is nothing left of it to undo
        rollback.roll_back(self.ada, What.since_entry(seq), OPERATOR)
        for number, memory in self.held.items():
            if number in kept:
                self.held[number] = kept[number]
            else:
                memory.there = False

    @rule(asked=questions)
    def search(self, asked: Asked) -> None:
        found = self.runtime.post("memories/search", asked.body)
        numbers = [hit["id"] for hit in found.json["results"]]
        assert found.status == 200
        assert len(numbers) == len(set(numbers))
        assert set(numbers) == {number for number, memory in self.held.items() if asked.answers(memory)}
        for hit in found.json["results"]:
            memory = self.held[hit["id"]]
            assert (hit["content"], tuple(hit["tags"])) == (" ".join(memory.words), memory.tags)

    def one(self, place: int) -> tuple[int, Plain]:
        return list(self.held.items())[place % len(self.held)]


@pytest.mark.usefixtures("db")
def test_what_is_found_is_what_a_reader_would_find(settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    run_state_machine_as_test(Silo, settings=walks(20, steps=25))


anything = st.text(st.characters(codec="utf-8"), max_size=100)


@given(queries=st.lists(anything, min_size=1, max_size=5), contents=st.lists(anything, max_size=3))
def test_no_text_that_can_be_typed_is_an_error(
    ada: Agent, settings: Any, queries: list[str], contents: list[str]
) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    runtime = Caller(lifecycle.issue_key(ada, OPERATOR))
    for content in contents:
        assert runtime.post("memories", {"content": content, "tags": [content[:64]]}).status in (201, 422)
    for query in queries:
        assert runtime.post("memories/search", {"q": query}).status == (422 if "\0" in query else 200)
