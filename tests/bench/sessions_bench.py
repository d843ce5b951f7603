"""A whole session of 300 memories, against a scripted model over real HTTP: calls, prompt tokens, own time.

The memories are 150 pairs that tell the same thing and then one thing each; the model merges a few pairs a reply,
within the session's default limits, and stops at the floor. Prompt tokens are the heuristic's (characters / 4) over
the tools and messages of every request, in the order in which a provider reads them. "The same as before" is how much
of a request's prompt is, byte for byte, the beginning of the request before it: what a provider's prompt cache serves.
"""

import json
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from django.conf import settings

from memory.policy.validation import Draft
from memory.writing import operations
from refinement import loop
from tests.bench import texts
from tests.bench.agents import ME, created, fresh
from tests.bench.figures import Figure
from tests.model_server import Action, Call, ModelServer, Received, Turn

A_REPLY = 10  # merges
MOST = 60  # tokens one merge may save


def run(*, quick: bool) -> Iterator[Figure]:
    for pairs in (100,) if quick else (100, 150):
        yield from session(pairs)


def session(pairs: int) -> Iterator[Figure]:
    agent = created(f"ada{pairs}", model="openai/scripted")
    told = facts(pairs)
    operations.remember(agent, [Draft(text) for pair in told for text in pair[:2]], ME)
    agent = fresh(agent)
    with ModelServer(merging({(2 * n + 1, 2 * n + 2): pair[2] for n, pair in enumerate(told)})) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        started = time.perf_counter()
        done = loop.refine(agent, trigger="manual")
        seconds = time.perf_counter() - started
    assert done.outcome == "completed", (done.outcome, done.reason)
    prompts = [prompt(received) for received in server.requests]
    kept = [shared(before, after) for before, after in pairwise(prompts)]
    total = sum(map(len, prompts)) / 4
    unseen = total - sum(kept) / 4
    saved = done.tokens_before - done.tokens_after
    whole = [same / len(before) for same, before in zip(kept, prompts, strict=False)]
    name = f"{2 * pairs:,} memories"

    def figure(what: str, value: float, unit: str = "") -> Figure:
        return Figure(f"{name}: {what}", value, unit)

    yield figure("core tokens before", done.tokens_before)
    yield figure("core tokens saved", saved)
    yield figure("merges", done.merged / 2)
    yield figure("model calls", len(prompts))
    yield figure("prompt tokens", round(total))
    yield figure("prompt tokens a token saved", total / saved)
    yield figure("… of those no cache has seen before", unseen / saved)
    yield figure("of a request's prompt, the same as before", 100 * sum(kept) / sum(map(len, prompts[1:])), "%")
    least = 100 * min(whole)
    what = f"{name}: of the request before, kept as it was, at least"
    yield Figure(what, least, "%", target="100 %", met=least > 99.9)
    yield figure("whole session", seconds, "s")
    own = seconds - done.model_milliseconds / 1e3
    yield figure("of that the service's own", own, "s")
    yield figure("… a tool call, all told", own / (done.merged / 2 + 1) * 1e3, "ms")


def facts(pairs: int) -> list[tuple[str, str, str]]:
    """Two memories and what they are together: no merge loses a specific."""
    chance = random.Random(f"session {pairs}")
    made = []
    for _ in range(pairs):
        same, one, other = (texts.sentence(chance) for _ in range(3))
        made.append((f"{same} {one}", f"{same} {other}", f"{same} {one} {other}"))
    return made


def merging(plan: dict[tuple[int, int], str]) -> Any:
    """A model that merges the pairs in order, so many a reply, and then completes."""
    left = list(plan.items())

    def act(turn: Turn) -> Action:
        answers = [json.loads(result.text) for result in turn.results]
        assert all(answer["ok"] for answer in answers), answers
        room = answers[-1]["left"] if answers else {"changes": 2 * A_REPLY, "tokens_to_cut": MOST * A_REPLY}
        enough = room["changes"] >= 2 * A_REPLY and room["tokens_to_cut"] >= MOST * A_REPLY
        now, left[:A_REPLY] = left[:A_REPLY] if enough else [], []
        calls = [Call("consolidate_memories", {"ids_to_merge": list(ids), "new_content": text}) for ids, text in now]
        return calls or Call("complete_refinement", {"summary": "Merged what told the same."})

    return act


def prompt(received: Received) -> str:
    """What the model reads: its tools, then the messages."""
    return json.dumps([received.body["tools"], *received.body["messages"]], ensure_ascii=False)[:-1]


def shared(before: str, after: str) -> int:
    alike = zip(before, after, strict=False)
    return next((place for place, (one, other) in enumerate(alike) if one != other), len(before))
