"""An agent's log as `gc` takes it (seed 001): its memory file, or the run entries of its journal.

Each is looked at once, read for the model, and trimmed later: what came in between is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from audit.trail import Actor
from memory import memory_file, runs, store, tokens
from memory.errors import FileFault
from memory.memory_file import Seen, Trimmed
from memory.models import Agent
from memory.silo.silo import Silo

BYTES_A_TOKEN = 16  # at most: of four characters


@dataclass(frozen=True, slots=True)
class Text:
    """What is sent of a log: its bytes, how many, and how many of the oldest entries are left out."""

    pieces: Callable[[], Iterable[bytes]]
    size: int
    left_out: int = 0


class Log(Protocol):
    @property
    def is_file(self) -> bool: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def entries(self) -> int: ...

    def text(self, context_tokens: int | None) -> Text:
        """What to send. With `context_tokens` the newest entries that fit, one at least."""

    def trim(self, keep: int) -> tuple[int, int]:
        """Keep the newest entries and all that came since; how many were removed and how many kept."""


def log_of(agent: Agent, actor: Actor) -> Log:
    """Raises FileFault, where the memory file cannot be read; SiloKeyMissing."""
    return FileLog(agent, actor) if agent.memory_path else Journal(agent, actor)


class FileLog:
    is_file = True

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor, self.path = agent, actor, runs.file_of(agent)
        self._seen = memory_file.look(self.path)
        self._noted: int | None = None  # the entry of its trim

    @property
    def is_empty(self) -> bool:
        return self._seen is None or self._seen.size == 0

    @property
    def entries(self) -> int:
        return 0 if self._seen is None else self._seen.entries

    def text(self, context_tokens: int | None) -> Text:
        seen = self._seen or Seen(0, 0, "")
        start, left_out = 0, 0
        if context_tokens is not None:
            start, left_out = self._newest(seen, context_tokens)
        return Text(lambda: memory_file.pieces(self.path, seen, start), seen.size - start, left_out)

    def _newest(self, seen: Seen, context_tokens: int) -> tuple[int, int]:
        """Where the newest entries begin that fit, and how many are before them."""
        window = max(0, seen.size - context_tokens * BYTES_A_TOKEN)
        tail = memory_file.pieces(self.path, seen, window)
        weights = [tokens.count(entry) for entry in _entries_in(tail, is_whole=window == 0)]
        fitting = max(1, _fitting(weights, context_tokens))
        if fitting >= seen.entries:
            return 0, 0
        return memory_file.start_of_last(self.path, seen, fitting), seen.entries - fitting

    def trim(self, keep: int) -> tuple[int, int]:
        try:
            done = memory_file.trim(self.path, keep, since=self._seen, agreed=self._note)
        except FileFault:
            if self._noted is not None:
                store.file_trimmed(self.agent, {"failed_after_entry": self._noted}, self.actor)
            raise
        return done.removed, done.kept

    def _note(self, planned: Trimmed) -> None:
        """The trail has it before the file is put in its place: a crash leaves no change that it does not know of."""
        self._noted = store.file_trimmed(self.agent, _told(planned), self.actor)


def _told(planned: Trimmed) -> dict[str, Any]:
    told: dict[str, Any] = {"removed": planned.removed, "kept": planned.kept}
    for name, seen in (("before", planned.before), ("after", planned.after)):
        if seen is not None:
            told[name] = {"entries": seen.entries, "bytes": seen.size, "sha256": seen.digest}
    return told


def _entries_in(tail: Iterable[bytes], *, is_whole: bool) -> Iterator[str]:
    """The entries that begin in the end of a file, or in all of it, one at a time."""
    held, is_entry = b"\n" if is_whole else b"", False
    for piece in tail:
        *ended, held = (held + piece).split(memory_file.HEADER)
        for text in ended:
            if is_entry:
                yield text.decode("utf-8", "replace")
            is_entry = True
    if is_entry:
        yield held.decode("utf-8", "replace")


class Journal:
    is_file = False

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor = agent, actor
        self._rows = list(store.runs(agent).order_by("origin", "number"))
        self.numbers = [row.number for row in self._rows]

    @property
    def is_empty(self) -> bool:
        return not self._rows

    @property
    def entries(self) -> int:
        return len(self._rows)

    def text(self, context_tokens: int | None) -> Text:
        silo = Silo.for_agent(self.agent)
        written = [runs.entry(row.origin, silo.open(row).content) for row in self._rows]
        sent = written
        if context_tokens is not None:
            sent = written[-max(1, _fitting([tokens.count(text) for text in written], context_tokens)) :]
        whole = "".join(sent).encode()
        return Text(lambda: [whole], len(whole), len(written) - len(sent))

    def trim(self, keep: int) -> tuple[int, int]:
        done = store.trim(self.agent, keep, self.actor, upto=max(self.numbers))
        return len(done.memories), store.runs(done.agent).count()


def _fitting(weights: list[int], context_tokens: int) -> int:
    """How many of the last fit."""
    return sum(together <= context_tokens for together in accumulate(reversed(weights)))
