"""Search in the API compared with a plain search: after any writes, revisions, discards, imports and rollbacks it finds
exactly the same memories; and no text is an error."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from memory.agents import lifecycle
from memory.models import Agent
from memory.search import cache
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from tests.api.calling import Caller
from tests.conftest import OPERATOR
from tests.property.walk import Walk, walk

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ("alpha", "beta", "gamma", "delta")  # no stemmer changes them, and none is a stop word
TAGS = ("red", "blue")
KINDS = ("core", "journal")
PROJECTS = ("", "site", "shop")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(tuple)
some_tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
days = st.integers(0, 4)


@dataclass
class Plain:
    """A memory, as the plain search has it."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    kind: str
    project: str
    day: int
    is_active: bool = True

    def holds(self, phrase: tuple[str, ...]) -> bool:
        return any(self.words[n : n + len(phrase)] == phrase for n in range(len(self.words)))


@dataclass
class Search:
    """A search in its parts, each of which may be missing."""

    words: tuple[str, ...]
    phrase: tuple[str, ...]
    without: tuple[str, ...]
    tag: str
    without_tag: str
    listed: tuple[str, ...]  # tags in a field of their own
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
        body: dict[str, Any] = {"q": " ".join(parts), "limit": 100}
        fields = {"kind": self.kind, "project": self.project, "tags": list(self.listed)}
        fields |= {name: moment(day) for name, day in (("since", self.since), ("until", self.until)) if day is not None}
        return body | {name: value for name, value in fields.items() if value}

    def finds(self, memory: Plain) -> bool:
        has_words = not (self.words or self.phrase) or bool(set(self.words) & set(memory.words)) or bool(self.phrase)
        return (
            memory.is_active
            and has_words
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
searches = st.builds(
    Search,
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


class Memories(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.block._from_testcase = True  # keeps the index from search to search, as in production
        self.held: dict[int, Plain] = {}
        self.before: list[tuple[int, dict[int, Plain]]] = []

    @initialize()
    def begin(self) -> None:
        cache.forget()
        self.agent = self.create()
        self.runtime = Caller(lifecycle.issue_key(self.agent, OPERATOR))

    @rule(words=texts, tags=some_tags, kind=st.sampled_from(KINDS), project=st.sampled_from(PROJECTS), day=days)
    def remember(self, words: tuple[str, ...], tags: tuple[str, ...], kind: str, project: str, day: int) -> None:
        body = {"content": " ".join(words), "tags": list(tags), "kind": kind, "project": project, "origin": moment(day)}
        made = self.runtime.post("memories", body)
        assert made.status == 201
        self.held[made.json["id"]] = Plain(words, tags, kind, project, day)

    @rule(lines=st.lists(st.tuples(texts, some_tags, days), min_size=1, max_size=4))
    def import_lines(self, lines: list[tuple[tuple[str, ...], tuple[str, ...], int]]) -> None:
        raw = [{"content": " ".join(words), "tags": list(tags), "origin": moment(day)} for words, tags, day in lines]
        sent = "\n".join(map(json.dumps, raw)).encode()
        assert self.runtime.post("import", raw=sent, kind="application/x-ndjson").status == 201
        for words, tags, day in lines:
            self.held[max(self.held, default=0) + 1] = Plain(words, tags, "core", "", day)

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0), words=texts | st.none(), tags=some_tags | st.none())
    def revise(self, place: int, words: tuple[str, ...] | None, tags: tuple[str, ...] | None) -> None:
        number, memory = self.one(place)
        body: dict[str, Any] = {} if words is None else {"content": " ".join(words)}
        body |= {} if tags is None else {"tags": list(tags)}
        answer = self.runtime.patch(f"memories/{number}", body)
        assert answer.status == (422 if not body else 200 if memory.is_active else 409)
        if answer.status == 200:
            memory.words, memory.tags = words or memory.words, memory.tags if tags is None else tags

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0))
    def discard(self, place: int) -> None:
        number, memory = self.one(place)
        assert self.runtime.delete(f"memories/{number}").status == (204 if memory.is_active else 409)
        memory.is_active = False

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0))
    def restore(self, place: int) -> None:
        number, memory = self.one(place)
        assert self.runtime.post(f"memories/{number}/restore").status == 200
        memory.is_active = True

    @rule()
    def keep_the_state(self) -> None:
        kept = {number: Plain(**vars(memory)) for number, memory in self.held.items()}
        self.before.append((self.row().audit_seq, kept))

    @precondition(lambda self: self.before)
    @rule()
    def go_back(self) -> None:
        seq, kept = self.before.pop()
        if self.row().audit_seq == seq:
            return
        if not any(vars(kept[n]) != vars(m) if n in kept else m.is_active for n, m in self.held.items()):
            return  # there is nothing to undo
        rollback.roll_back(self.agent, What("since_entry", seq), OPERATOR)
        for number, memory in self.held.items():
            if number in kept:
                self.held[number] = kept[number]
            else:
                memory.is_active = False

    @rule(search=searches)
    def search(self, search: Search) -> None:
        found = self.runtime.post("memories/search", search.body)
        numbers = [hit["id"] for hit in found.json["results"]]
        assert found.status == 200
        assert len(numbers) == len(set(numbers))
        expected = {number for number, memory in self.held.items() if search.finds(memory)}
        if not expected and search.phrase:  # its words, if nothing holds the phrase
            words = replace(search, words=search.words + search.phrase, phrase=())
            expected = {number for number, memory in self.held.items() if words.finds(memory)}
        assert set(numbers) == expected
        for hit in found.json["results"]:
            memory = self.held[hit["id"]]
            assert (hit["content"], tuple(hit["tags"])) == (" ".join(memory.words), memory.tags)

    def one(self, place: int) -> tuple[int, Plain]:
        return list(self.held.items())[place % len(self.held)]


@pytest.mark.usefixtures("db")
def test_a_search_finds_what_a_plain_search_finds(settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    walk(Memories, 14, steps=25)


anything = st.text(st.characters(codec="utf-8"), max_size=100)


@given(queries=st.lists(anything, min_size=1, max_size=5), contents=st.lists(anything, max_size=3))
def test_no_text_is_an_error(ada: Agent, settings: Any, queries: list[str], contents: list[str]) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    runtime = Caller(lifecycle.issue_key(ada, OPERATOR))
    for content in contents:
        assert runtime.post("memories", {"content": content, "tags": [content[:64]]}).status in (201, 422)
    for query in queries:
        assert runtime.post("memories/search", {"q": query}).status == (422 if "\0" in query else 200)
