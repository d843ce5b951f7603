"""A simulated year of an agent that talks with the people of all LoCoMo ledgers, and refines itself every week."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import time_machine

from audit.trail import Actor
from memory.models import Agent
from memory.policy.tokens import count
from memory.policy.validation import Draft
from memory.recording.retrieval import retrieve
from memory.search.words import split, stemmer, stop_words
from memory.writing import operations
from refinement import loop
from tests.bench.agents import created, fresh
from tests.bench.survival_policies import BUILT_IN, POLICIES, Scripted, scripted

WEEKS, TOKENS_A_WEEK, ASKED_A_WEEK = 52, 450, 5
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)
END = BEGINNING + timedelta(weeks=WEEKS)
ROOM = 300  # tokens of results for one question
ME = Actor.agent("bench")

_stem, _common = stemmer("english"), stop_words("english")


def content_words(text: object) -> set[str]:
    return {_stem(word) for word in split(str(text)) if word not in _common}


@dataclass(frozen=True, slots=True)
class LedgerMemory:
    """A memory of a ledger. `ledger` is the number of the conversation."""

    ledger: str
    content: str
    evidence: frozenset[str]
    origin: datetime


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    words: frozenset[str]  # of the answer


def memories(path: Path) -> list[LedgerMemory]:
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    name = path.name.split(".")[0]
    dated = ((row, datetime.fromisoformat(row["created_at"])) for row in rows)
    return [LedgerMemory(name, row["content"], frozenset(row["evidence"]), origin) for row, origin in dated]


def questions(path: Path, stored: Iterable[LedgerMemory]) -> list[Question]:
    """The questions of a ledger that can be answered: the memories with the evidence together have all content words
    of the answer."""
    own = [each for each in stored if each.ledger == path.name.split(".")[0]]
    found = []
    for row in json.loads(path.with_name(path.name.replace("memories.jsonl", "questions.json")).read_text("utf-8")):
        words, evidence = content_words(row["answer"]), set(row["evidence"])
        known = set().union(*(content_words(each.content) for each in own if each.evidence & evidence))
        if words and words <= known:
            found.append(Question(row["question"], frozenset(words)))
    return found


def weeks(ledgers: Sequence[Path], seed: int) -> list[list[LedgerMemory]]:
    """The memories of each week. The seed mixes the conversations. Each conversation stays in order."""
    chance, left = random.Random(seed), [memories(path) for path in ledgers]
    found: list[list[LedgerMemory]] = [[]]
    room = TOKENS_A_WEEK
    while any(left):
        one = chance.choices(left, list(map(len, left)))[0].pop(0)
        if room <= 0:
            if len(found) == WEEKS:
                break
            found, room = [*found, []], room + TOKENS_A_WEEK
        found[-1].append(one)
        room -= count(one.content)
    return found


def live(slug: str, ledgers: Sequence[Path], seed: int, policy: str, *, least: int = 0, **settings: Any) -> Agent:
    """The agent after its year. Without a policy, nothing is refined."""
    with time_machine.travel(BEGINNING):
        agent = created(slug, model=f"builtin/{policy}" if policy in BUILT_IN else "openai/scripted", **settings)
    chance, asked = random.Random(f"{policy} {seed}"), random.Random(seed)
    stored: list[LedgerMemory] = []
    for week, new in enumerate(weeks(ledgers, seed)):
        with time_machine.travel(BEGINNING + timedelta(weeks=week)):
            operations.remember(fresh(agent), [Draft(each.content) for each in new], ME)
            stored += new
            for each in asked.sample(stored, ASKED_A_WEEK):
                retrieve(fresh(agent), each.content, max_tokens=ROOM)
        with time_machine.travel(BEGINNING + timedelta(weeks=week, days=6)):
            if policy in POLICIES:
                with scripted(Scripted(POLICIES[policy], agent, chance, least)):
                    loop.refine(fresh(agent), trigger="manual")
            elif policy:
                loop.refine(fresh(agent), trigger="manual")
    return fresh(agent)


def answered(agent: Agent, asked: Iterable[Question], room: int = ROOM, now: datetime = END) -> int:
    """How many of the questions `/retrieve` answers: the block has all content words of the answer."""
    return sum(each.words <= content_words(block(agent, each.text, room, now)) for each in asked)


def block(agent: Agent, query: str, room: int, now: datetime) -> str:
    return retrieve(agent, query, max_tokens=room, now=now).block


def all_questions(ledgers: Sequence[Path], seed: int) -> Iterator[Question]:
    stored = [each for week in weeks(ledgers, seed) for each in week]
    for path in ledgers:
        yield from questions(path, stored)
