"""What a small real model does with a session: `make test-model`.

Whatever it does, each run ends in a defined outcome with its reason, nothing is lost, and a rollback restores every
text. A useful merge saves tokens and keeps most words of each source.
"""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.test import override_settings

from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.time_machine import lineage, replay, rollback
from memory.time_machine.selection import What
from memory.writing import operations
from refinement import loop
from refinement.models import Outcome, RefinementSession
from tests.bench import llama
from tests.bench.agents import created, fresh
from tests.bench.figures import Figure, at_least
from tests.bench.survival_year import ME, content_words

RUNS, MEMORIES, LEDGER = 3, 40, settings.BASE_DIR / "refinement" / "demo" / "ledger.jsonl"
USEFUL = 0.6  # of the words of each source
LIMITS: dict[str, Any] = {"context_tokens": llama.CONTEXT, "budget_tokens": 1_200, "target_tokens": 1_000}


def run(*, quick: bool) -> Iterator[Figure]:
    llama.build()
    rows = [json.loads(line) for line in LEDGER.read_text("utf-8").splitlines()[:MEMORIES]]
    with llama.serving() as address, override_settings(OPENAI_BASE_URL=address):
        runs = [_session(f"run{number}", rows) for number in range(1 if quick else RUNS)]
    yield at_least("runs with a defined outcome, nothing lost", sum(map(_is_sound, runs)) / len(runs), "", 1)
    yield at_least("runs with a useful merge", sum(map(_is_useful, runs)) / len(runs), "", 2 / 3)


def _session(slug: str, rows: list[dict[str, Any]]) -> RefinementSession:
    agent = created(slug, model="openai/qwen2.5-coder-1.5b-instruct", **LIMITS)
    operations.remember(
        agent, [Draft(row["content"], origin=datetime.fromisoformat(row["created_at"])) for row in rows], ME
    )
    _say(f"{slug}: {fresh(agent).core_tokens:,} tokens")
    session = loop.refine(fresh(agent), trigger="manual", report=_say)
    _say(f"{session.outcome} {session.reason} {session.problem}".strip())
    return session


def _say(line: str) -> None:
    print(f"   {line}", file=sys.stderr, flush=True)


def _is_sound(session: RefinementSession) -> bool:
    """Whether the session has ended with a reason, the trail is whole, and a rollback restores all texts."""
    agent = fresh(session.agent)
    is_explained = session.outcome in (Outcome.COMPLETED, Outcome.DECLINED) or bool(session.reason)
    assert not list(replay.problems_of(agent.pk))
    stored = {row["content"] for row in map(json.loads, LEDGER.read_text("utf-8").splitlines()[:MEMORIES])}
    if session.changes or session.protected or session.promoted:
        rollback.roll_back(agent, What("session", session.number), ME)
    silo, core = Silo.for_agent(agent), Memory.objects.of(agent).active().core().filter(source="agent")
    return is_explained and stored == {silo.open(row).content for row in core}


def _is_useful(session: RefinementSession) -> bool:
    agent = session.agent
    silo, made = Silo.for_agent(agent), Memory.objects.of(agent).filter(number__gt=MEMORIES, source="agent")
    return any(_keeps(silo, agent, row) for row in made if row.redacted_at is None)


def _keeps(silo: Silo, agent: Agent, merged: Memory) -> bool:
    sources = list(Memory.objects.of(agent).numbered(lineage.sources(agent, [merged.number])))
    words = content_words(silo.open(merged).content)
    kept = (content_words(silo.open(source).content) for source in sources)
    is_shorter = merged.tokens < sum(source.tokens for source in sources)
    return len(sources) > 1 and is_shorter and all(len(words & each) >= USEFUL * len(each) for each in kept)
