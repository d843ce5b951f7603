"""What is still found after a year of refinement, with policies that lose details, and with honest merges.

    python -m tests.bench survival --data FOLDER

The folder has `locomo/N.memories.jsonl` and `locomo/N.questions.json`, and may have `plans/N.jsonl`: honest merges
of ledger N (docs/internals/benchmarks.md). None of these are part of the project.
"""

import json
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory.models import Agent, Layer, Memory
from memory.policy.validation import Draft
from memory.recording.retrieval import retrieve
from memory.silo.silo import Silo
from memory.time_machine import rollback
from memory.time_machine.selection import What
from memory.writing import operations
from refinement import loop
from refinement.llm.base import Reply, Request, tool_calls
from refinement.models import RefinementSession
from tests.bench import places, survival_dates
from tests.bench import survival_year as year
from tests.bench.agents import created, fresh
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.survival_policies import BUILT_IN, POLICIES, Applying, lossy, scripted

SEEDS = (1, 2, 3)
KEPT, ANSWERED = 0.97, 0.75  # of the answers without refinement; of all questions
ROOMS = (150, 300, 600)  # tokens of results for a question about merged ledgers
JUDGED = {"lossy", "archive"}
UNLIMITED: dict[str, Any] = {"target_tokens": 1_000, "max_changes": 10_000, "max_failed_calls": 1_000}
PLANTED, CORRECT = 100, 0.95
UNDO_SECONDS = 8
WHEN, LEDGER = 0.93, 1.5  # of the questions; tokens of the ledger, divided by those of its contents
LARGEST, EDITS, PROMPT_TOKENS = "41", 12, 110_000  # a ledger; edits in one `apply`; in all requests of its session


def run(*, quick: bool) -> Iterator[Figure]:
    found = places.ledgers()
    if not found:
        raise SystemExit("survival: no ledgers. Name the folder that has locomo/*.memories.jsonl with --data.")
    logging.disable(logging.INFO)
    yield from years(found, SEEDS[:1] if quick else SEEDS)
    plans = [(path, plan) for path in found if (plan := path.parents[1] / "plans" / f"{_number(path)}.jsonl").exists()]
    if plans:
        yield from honest_merges(plans)
    else:
        print("survival: no plans/N.jsonl beside the ledgers: honest merges are skipped.")
    yield from corrections(found[0])
    yield from undo(found)
    yield from prompts(found)


def _number(path: Path) -> str:
    return path.name.split(".")[0]


# --- a year


def years(ledgers: Sequence[Path], seeds: Sequence[int]) -> Iterator[Figure]:
    asked = {seed: list(year.all_questions(ledgers, seed)) for seed in seeds}
    count = sum(map(len, asked.values()))
    whole = sum(year.answered(year.live(f"whole{seed}", ledgers, seed, ""), asked[seed]) for seed in seeds)
    yield Figure("year, not refined: answered", whole / count)
    for policy in (*POLICIES, *BUILT_IN):
        agents = {seed: year.live(f"{policy}{seed}", ledgers, seed, policy) for seed in seeds}
        answers = sum(year.answered(agents[seed], asked[seed]) for seed in seeds)
        goal = policy in JUDGED
        yield at_least(f"year, {policy}: answered, of those not refined", answers / whole, "", KEPT if goal else None)
        yield at_least(f"year, {policy}: answered", answers / count, "", ANSWERED if policy == "lossy" else None)
        core = max(agent.core_tokens for agent in agents.values())
        yield at_most(f"year, {policy}: core tokens at the end", core, "", 8_000 if goal else None)


# --- honest merges


class Planned:
    """A model that makes the merges of a plan, ten in a reply."""

    def __init__(self, plan: Path) -> None:
        self._left = list(map(json.loads, plan.read_text("utf-8").splitlines()))

    def complete(self, request: Request) -> Reply:
        now, self._left = self._left[:10], self._left[10:]
        wanted = [(None, "consolidate_memories", merge) for merge in now]
        done = [(None, "complete_refinement", {"summary": "Merged."})]
        return Reply("", tool_calls(wanted or done, request), stop="tool_calls", calls=0)


def honest_merges(plans: Sequence[tuple[Path, Path]]) -> Iterator[Figure]:
    before = after = refused = 0
    dated: list[bool | None] = []
    for path, plan in plans:
        stored = year.memories(path)
        asked = year.questions(path, stored)
        agent = created(f"plan{_number(path)}", model="openai/scripted", **UNLIMITED)
        operations.remember(agent, [Draft(each.content, origin=each.origin) for each in stored], year.ME)
        now = max(each.origin for each in stored)
        before += sum(year.answered(fresh(agent), asked, room, now) for room in ROOMS)
        with scripted(Planned(plan)):
            session = loop.refine(fresh(agent), trigger="manual")
        assert session.outcome == "completed", session.reason
        refused += session.failed_calls
        after += sum(year.answered(fresh(agent), asked, room, now) for room in ROOMS)
        dated += survival_dates.date_questions(fresh(agent), path, stored, now)
    yield at_least(f"honest merges: answered after / before ({after}/{before})", after / before, "", KEPT)
    yield at_most("honest merges: refused", refused, "", 0)
    found = [is_near for is_near in dated if is_near is not None]
    what = f'"when" questions, {len(found)} of {len(dated)} whose evidence is found: a date within 21 days'
    yield at_least(what, sum(found) / len(found), "", WHEN)


# --- corrections

FACTS = (  # the old memory, the new memory, what a merge of both says, the question
    (
        "{} lives in {}.",
        "{} has moved and lives in {} now.",
        "{0} lives in {2}, before that in {1}.",
        "Where does {} live?",
    ),
    (
        "{} works as an accountant for a company that is named {}, in the old office by the river.",
        "{} works for {}.",
        "{0} works for {2}; until the spring it was {1}.",
        "For which company does {} work?",
    ),
    ("{} drinks {} tea.", "{} drinks {} tea.", "{0} drinks {2} tea, not {1} tea.", "Which tea does {} drink?"),
    (
        "The door code of the house of {} is {}.",
        "{} has changed the door code of the house. The code is {}.",
        "The door code of the house of {0} is {2} (it was {1}).",
        "What is the door code of {}?",
    ),
)
WAYS = ("update", "merge", "merge with others", "demote")


def corrections(ledger: Path) -> Iterator[Figure]:
    """A hundred facts are corrected in a session, each in one of four ways. The result that has the present value must
    come before any that has only the old one."""
    chance = random.Random("corrections")
    agent = created("corrected", model="openai/scripted", **UNLIMITED)
    operations.remember(agent, [Draft(each.content) for each in year.memories(ledger)], year.ME)
    others = list(Memory.objects.of(agent).order_by("number").values_list("number", flat=True))
    silo, calls, asked = Silo.for_agent(agent), [], []
    for place in range(PLANTED):
        who, old, new = (_name(chance) for _ in range(3))
        texts, way = FACTS[place % len(FACTS)], WAYS[place // len(FACTS) % len(WAYS)]
        values, numbers = (who, old, new), []
        drafts = [Draft(texts[0].format(who, old), origin=_days_ago(60))]
        drafts += [] if way == "update" else [Draft(texts[1].format(who, new), origin=_days_ago(3))]
        numbers = [memory.number for memory in operations.remember(fresh(agent), drafts, year.ME).memories]
        asked.append((texts[3].format(who), old, new))
        if way == "update":
            calls.append(("update_memory", {"id": numbers[0], "content": texts[1].format(who, new)}))
        elif way == "demote":
            calls.append(("demote_memory", {"id": numbers[0]}))
        else:
            more = [others.pop() for _ in range(3)] if way == "merge with others" else []
            rows = Memory.objects.of(agent).filter(number__in=more)
            text = " ".join([*(silo.open(row).content for row in rows), texts[2].format(*values)])
            calls.append(("consolidate_memories", {"ids_to_merge": numbers + more, "new_content": text}))
    with scripted(_Script(calls)):
        session = loop.refine(fresh(agent), trigger="manual")
    assert (session.outcome, session.failed_calls) == ("completed", 0), session.reason
    first = sum(_is_present_first(fresh(agent), *each) for each in asked)
    yield at_least(f"corrections: the present fact comes first, of {PLANTED}", first / PLANTED, "", CORRECT)


class _Script:
    """A model that makes these calls, and completes."""

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self._calls = [*calls, ("complete_refinement", {"summary": "Corrected."})]

    def complete(self, request: Request) -> Reply:
        now, self._calls = self._calls[:20], self._calls[20:]
        return Reply("", tool_calls([(None, *call) for call in now], request), stop="tool_calls", calls=0)


def _is_present_first(agent: Agent, question: str, old: str, new: str) -> bool:
    for read in retrieve(agent, question, max_tokens=year.ROOM).reads:
        if new in read.opened.content:
            return True
        if old in read.opened.content:
            return False
    return False


def _name(chance: random.Random) -> str:
    return "".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(4)).capitalize()


def _days_ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


# --- undo


def undo(ledgers: Sequence[Path]) -> Iterator[Figure]:
    """Every week's session changes something, and all are undone, the newest first."""
    agent = year.live("undone", ledgers, 1, "lossy", least=100, target_tokens=1_000)
    silo, rows = Silo.for_agent(agent), Memory.objects.of(agent).filter(source="agent")
    changed = [row.number for row in RefinementSession.objects.filter(agent=agent).order_by("-number") if row.changes]
    started = time.perf_counter()
    for number in changed:
        rollback.roll_back(fresh(agent), What("session", number), year.ME)
    seconds = time.perf_counter() - started
    stored = sorted(each.content for week in year.weeks(ledgers, 1) for each in week)
    kept = sorted(silo.open(row).content for row in rows.kept() if row.layer == Layer.CORE)
    beneath = fresh(agent).beneath_count
    name = f"undo of {len(changed)} sessions"
    is_exact = stored == kept and not beneath
    yield Figure(f"{name}: exact", float(is_exact), target="1", met=is_exact)
    yield at_most(name, seconds, "s", UNDO_SECONDS)


# --- prompts


def prompts(ledgers: Sequence[Path]) -> Iterator[Figure]:
    """The prompt tokens of a session that merges a whole ledger to the target of 5,000, if the provider caches
    nothing."""
    path = next(path for path in ledgers if _number(path) == LARGEST)
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(path.parents[1] / "tiktoken"))
    agent = created("applying", model="openai/scripted")
    operations.remember(agent, [Draft(each.content, origin=each.origin) for each in year.memories(path)], year.ME)
    yield at_most(
        f"ledger {LARGEST}: size, divided by its content", survival_dates.ledger_size(fresh(agent)), "", LEDGER
    )
    before, model = fresh(agent).core_tokens, Applying(lossy, agent, random.Random(1), a_reply=EDITS)
    with scripted(model):
        session = loop.refine(fresh(agent), trigger="manual")
    after = fresh(agent).core_tokens
    assert (session.outcome, after <= session.target_tokens) == ("completed", True), session.reason
    what = f"ledger {LARGEST}, {before:,} to {after:,} core tokens, {len(model.requests)} requests: prompt tokens"
    yield at_most(what, sum(model.requests), "", PROMPT_TOKENS)
