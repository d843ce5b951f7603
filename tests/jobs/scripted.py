"""The memories of a fleet's agents, and their slow model.

The model looks only at the ledger, and leaves what an earlier session merged, rewrote, deleted or protected. So each
agent gets the same edits (`EDITS`), no matter how often its sessions are killed.
"""

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

Edit = tuple[str, tuple[int, ...]]  # an operation, and the numbers of the first memories that it changed
EDITS: Counter[Edit] = Counter(
    [
        *(("consolidated", (first, first + 1)) for first in (1, 3, 5)),
        *(("revised", (7,)), ("discarded", (8,)), ("protected", (9,)), ("deduplicated", (11, 12))),
    ]
)
REMEMBERED = 12


def texts(name: str) -> list[str]:
    """An agent's memories, in the order of their numbers."""
    contents = [*(text for pair in MERGED for text in pair), LOOSE, DELETED, PROTECTED, SAME, SAME, SAME]
    return [f"{MARKER} {name}: {text}." for text in contents]


def remaining_calls(ledger: Sequence[dict[str, Any]]) -> list[list[Call]]:
    """The calls of each reply, without those that an earlier session made."""
    ids = {row["content"].partition(": ")[2].rstrip("."): row["id"] for row in ledger if ":" in row["content"]}
    contents = {row["id"]: row["content"] for row in ledger}
    calls = []
    for pair in MERGED:
        if all(text in ids for text in pair):
            numbers = [ids[text] for text in pair]
            merged = " ".join(contents[number] for number in numbers)
            calls.append(Call("consolidate_memories", {"ids_to_merge": numbers, "new_content": merged}))
    if LOOSE in ids:
        tight = contents[ids[LOOSE]].replace("very very", "very")
        calls.append(Call("update_memory", {"id": ids[LOOSE], "content": tight}))
    if DELETED in ids:
        calls.append(Call("delete_memory", {"id": ids[DELETED]}))
    if not any(row.get("constitutional") for row in ledger):
        calls.append(Call("protect_memory", {"id": ids[PROTECTED]}))
    return [calls[place : place + 2] for place in range(0, len(calls), 2)]


class SlowModel:
    """Each reply takes a random time between `shortest` and `longest` seconds. An agent's model has its name."""

    def __init__(self, seed: int = 1, shortest: float = 0.1, longest: float = 0.6) -> None:
        self._random = random.Random(seed)
        self._limits = shortest, longest
        self.called = threading.Event()
        self.calls: list[tuple[str, float, float]] = []  # the agent, the start and the end (time.time())
        self.ended = 0  # the sessions that the model completed
        self.refused: list[str] = []  # the tools whose calls were refused
        self._accepted: dict[str, str] = {}  # accepted calls by their ids: the agent and the edit

    def __call__(self, turn: Turn) -> Action:
        if not turn.tools:  # a probe
            return Say("Yes.")
        seconds, now = self._random.uniform(*self._limits), time.time()
        replies = [*remaining_calls(turn.ledger()), [Call("complete_refinement", {"summary": "Tidied."})]]
        place = sum(message.role == "assistant" for message in turn.messages)
        self._record_results(turn)
        self.ended += place + 1 == len(replies)
        self.calls.append((turn.model, now, now + seconds))
        self.called.set()
        return Slow(seconds, then=replies[place])

    def _record_results(self, turn: Turn) -> None:
        calls = {call.id: call for message in turn.messages for call in message.calls}
        for result in turn.results:
            call = calls[result.call_id]
            if '"ok":true' in result.text:
                self._accepted[result.call_id] = f"{turn.model}: {call.name} {call.args.get('ids_to_merge')}"
            else:
                self.refused.append(call.name)

    def accepted_twice(self) -> list[str]:
        """Edits that were accepted in two sessions: the first of them was lost."""
        return [edit for edit, times in Counter(self._accepted.values()).items() if times > 1]
