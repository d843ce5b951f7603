"""What the agents of a fleet remember, and the model that refines them: slowly, each edit once, whoever began before.

The model goes by the ledger alone: what an earlier session has merged, rewritten, deleted or protected it leaves. So
the edits an agent ends up with are the same however often its sessions were killed: `EDITS`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.model_server import Action, Call, Say, Slow, Turn
from tests.privacy.marker import MARKER

MERGED = [(f"The {thing} stands in the hall", f"The {thing} is old") for thing in ("chair", "desk", "lamp")]
LOOSE, DELETED, PROTECTED = "The table is very very low", "The kettle whistled once", "The door is never locked"
SAME = "The clock is slow"

Edit = tuple[str, tuple[int, ...]]  # an operation, and the numbers of the memories it touched that were there before
EDITS: Counter[Edit] = Counter(
    [
        *(("consolidated", (first, first + 1)) for first in (1, 3, 5)),
        *(("revised", (7,)), ("discarded", (8,)), ("protected", (9,)), ("deduplicated", (11, 12))),
    ]
)
REMEMBERED = 12


def texts(name: str) -> list[str]:
    """What an agent remembers, in the order of its numbers."""
    said = [*(text for pair in MERGED for text in pair), LOOSE, DELETED, PROTECTED, SAME, SAME, SAME]
    return [f"{MARKER} {name}: {text}." for text in said]


def left_to_do(ledger: Sequence[dict[str, Any]]) -> list[list[Call]]:
    """The calls of each reply, but for those whose work is done."""
    ids = {row["content"].partition(": ")[2].rstrip("."): row["id"] for row in ledger if ":" in row["content"]}
    said = {row["id"]: row["content"] for row in ledger}
    merges = [[ids[text] for text in pair] for pair in MERGED if all(text in ids for text in pair)]
    calls = [_merge(numbers, said) for numbers in merges]
    if LOOSE in ids:
        tight = said[ids[LOOSE]].replace("very very", "very")
        calls.append(Call("update_memory", {"id": ids[LOOSE], "content": tight}))
    if DELETED in ids:
        calls.append(Call("delete_memory", {"id": ids[DELETED]}))
    if not any(row["constitutional"] for row in ledger):
        calls.append(Call("protect_memory", {"id": ids[PROTECTED]}))
    return [calls[place : place + 2] for place in range(0, len(calls), 2)]


def _merge(numbers: list[int], said: dict[int, str]) -> Call:
    merged = " ".join(said[number] for number in numbers)
    return Call("consolidate_memories", {"ids_to_merge": numbers, "new_content": merged})


class SlowModel:
    """Every reply takes a random time of `shortest` to `longest` seconds. An agent's model is named for it."""

    def __init__(self, seed: int = 1, shortest: float = 0.1, longest: float = 0.6) -> None:
        self._dice = random.Random(seed)
        self._between = shortest, longest
        self.asked = threading.Event()
        self.calls: list[tuple[str, float, float]] = []  # whose, and from when to when (time.time())
        self.ended = 0  # sessions it has asked to end
        self.refused: list[str] = []  # tools whose calls were
        self._done: dict[str, str] = {}  # calls that were, by their ids: whose, and what

    def __call__(self, turn: Turn) -> Action:
        if not turn.tools:  # a probe
            return Say("Yes.")
        seconds, now = self._dice.uniform(*self._between), time.time()
        replies = [*left_to_do(turn.ledger()), [Call("complete_refinement", {"summary": "Tidied."})]]
        place = sum(said.role == "assistant" for said in turn.messages)
        self._note(turn)
        self.ended += place + 1 == len(replies)
        self.calls.append((turn.model, now, now + seconds))
        self.asked.set()
        return Slow(seconds, then=replies[place])

    def _note(self, turn: Turn) -> None:
        """What became of the calls of the reply before."""
        calls = {call.id: call for said in turn.messages for call in said.calls}
        for result in turn.results:
            call = calls[result.call_id]
            if '"ok":true' in result.text:
                self._done[result.call_id] = f"{turn.model}: {call.name} {call.args.get('ids_to_merge')}"
            else:
                self.refused.append(call.name)

    def done_twice(self) -> list[str]:
        """Edits that two sessions were told they had made: the first of them was lost."""
        return [what for what, times in Counter(self._done.values()).items() if times > 1]
