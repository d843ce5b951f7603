"""Policies for the survival bench, and the scripted model that follows one of them through the Knife's tools.

Each of these policies loses what memories say: this is its purpose.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import tiktoken
from django.utils import timezone

from memory.models import Agent
from memory.policy.tokens import count
from refinement import ledger, loop
from refinement.llm.base import Reply, Request, tool_calls
from refinement.llm.openai import OpenAI
from refinement.models import RefinementSession

Call = tuple[str, dict[str, Any]]
Entries = Sequence[ledger.Entry]
Policy = Callable[[Entries, random.Random], Iterator[tuple[int, list[Call]]]]  # the tokens that these calls save

YOUNG = timedelta(days=14)
A_REPLY = 40  # calls; the next reply sees what they did
MOST_REPLIES = 20


def lossy(entries: Entries, chance: random.Random) -> Iterator[tuple[int, list[Call]]]:
    """Merge five neighbours in time, and keep the first half of each."""
    for group in _groups([entry for entry in entries if entry.memory.tokens < 120], 5, chance):
        yield _merge(group, "; ".join(_first(entry.opened.content, 0.5) for entry in group) + ".")


def gist(entries: Entries, chance: random.Random) -> Iterator[tuple[int, list[Call]]]:
    """Merge eight neighbours in time, and keep the first four words of each."""
    for group in _groups([entry for entry in entries if entry.memory.tokens < 60], 8, chance):
        yield _merge(group, ", ".join(_first(entry.opened.content, 0, 4) for entry in group) + ".")


def shorten(entries: Entries, chance: random.Random) -> Iterator[tuple[int, list[Call]]]:
    """Keep the first 60 % of the longest memories."""
    for entry in sorted(entries, key=lambda entry: -entry.memory.tokens):
        text = _first(entry.opened.content, 0.6, 4)
        yield entry.memory.tokens - count(text), [("update_memory", {"id": entry.memory.number, "content": text})]


def nuke(entries: Entries, chance: random.Random) -> Iterator[tuple[int, list[Call]]]:
    """Delete the oldest memories. If the Knife refuses, demote them."""
    for entry in entries:
        number = {"id": entry.memory.number}
        yield entry.memory.tokens, [("delete_memory", number), ("demote_memory", number)]


POLICIES: dict[str, Policy] = {each.__name__: each for each in (lossy, gist, shorten, nuke)}
BUILT_IN = ("archive", "dedupe")  # these models are programs of the service


@dataclass
class Scripted:
    """A model that follows a policy until the core has the session's target. `least` is the number of tokens that it
    saves in any case, also from young memories. The model reads the agent's memories itself, so it does not depend on
    the form of the ledger."""

    policy: Policy
    agent: Agent
    chance: random.Random
    least: int = 0
    a_reply: int = A_REPLY
    tried: set[int] = field(default_factory=set)

    def complete(self, request: Request) -> Reply:
        wanted = self._in_form(list(self._calls())) or [("complete_refinement", {"summary": "Done."})]
        calls = tool_calls(((None, name, arguments) for name, arguments in wanted), request)
        return Reply("", calls, stop="tool_calls", calls=0)

    def _in_form(self, calls: list[Call]) -> list[Call]:
        return calls

    def _calls(self) -> Iterator[Call]:
        row = RefinementSession.objects.filter(agent=self.agent).latest("number")
        excess = max(row.tokens_after - row.target_tokens, self.least - (row.tokens_before - row.tokens_after))
        if row.steps > MOST_REPLIES or row.failed_calls > row.max_failed_calls - A_REPLY // 2:
            return
        old = timezone.now() - (timedelta(0) if self.least else YOUNG)
        entries = [
            entry
            for entry in ledger.read(self.agent, list(map(int, row.shown)))
            if entry.memory.number not in self.tried and entry.memory.origin < old and not entry.memory.constitutional
        ]
        for place, (saved, calls) in enumerate(self.policy(entries, self.chance)):
            if excess <= 0 or place >= self.a_reply:
                return
            excess -= saved
            for _, arguments in calls:
                self.tried |= set(arguments.get("ids_to_merge", ())) | {arguments.get("id", 0)}
            yield from calls


@dataclass
class Applying(Scripted):
    """Makes its calls in one `apply` a reply. Counts the tokens (o200k) of its requests, as Chat Completions sends
    them."""

    requests: list[int] = field(default_factory=list)

    def complete(self, request: Request) -> Reply:
        body = OpenAI("", "http://127.0.0.1").body(request)
        self.requests.append(len(tiktoken.get_encoding("o200k_base").encode_ordinary(ledger.one_line(body))))
        return super().complete(request)

    def _in_form(self, calls: list[Call]) -> list[Call]:
        edits = [{"tool": name, "arguments": arguments} for name, arguments in calls]
        return [("apply", {"edits": edits})] if edits else []


def scripted(model: Any) -> AbstractContextManager[Any]:
    """While this is open, sessions of the service call this model."""
    return patch.object(loop, "open_model", lambda *_: (model, "scripted"))


def _groups(entries: Entries, size: int, chance: random.Random) -> Iterator[Entries]:
    """Groups of neighbours, in random order."""
    groups = [entries[place : place + size] for place in range(0, len(entries) - size + 1, size)]
    chance.shuffle(groups)
    return iter(groups)


def _merge(group: Entries, text: str) -> tuple[int, list[Call]]:
    ids = [entry.memory.number for entry in group]
    saved = sum(entry.memory.tokens for entry in group) - count(text)
    return saved, [("consolidate_memories", {"ids_to_merge": ids, "new_content": text})]


def _first(text: str, share: float, least: int = 3) -> str:
    words = text.split()
    return " ".join(words[: max(least, round(len(words) * share))]).rstrip(".,;")
