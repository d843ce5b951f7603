"""An agent's log as `gc` takes it (seed 001): its memory file, or the run entries of its journal.

Each is looked at once, read for the model, and trimmed later: what came in between is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from audit.trail import Actor
from memory.errors import FileFault
from memory.models import Agent
from memory.policy import tokens
from memory.run_log import log_file, runs
from memory.run_log.log_file import Seen, Trimmed
from memory.silo.silo import Silo
from memory.writing import operations

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
    def seq(self) -> int | None:
        """The trail's last entry when memories were read; None where they were not."""

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
    is_file, seq = True, None

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor, self.place = agent, actor, runs.place_of(agent)
        self._seen = log_file.look(self.place)
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
        if context_tokens is not None and seen.entries:
            start, left_out = self._newest(seen, context_tokens)
        return Text(lambda: log_file.pieces(self.place, seen, start), seen.size - start, left_out)

    def _newest(self, seen: Seen, context_tokens: int) -> tuple[int, int]:
        """Where the newest entries begin that fit, and how many are before them. What stands before the first entry is
        sent where all fits."""
        window = max(0, seen.size - context_tokens * BYTES_A_TOKEN)
        fitting = Fitting(context_tokens)
        for text in _texts_in(log_file.pieces(self.place, seen, window), is_whole=window == 0):
            fitting.take(text)
        if fitting.all_fit and window == 0:
            return 0, 0
        kept = min(max(1, fitting.entries), seen.entries)
        return log_file.start_of_last(self.place, seen, kept), seen.entries - kept

    def trim(self, keep: int) -> tuple[int, int]:
        try:
            done = log_file.trim_entries(self.place, keep, since=self._seen, agreed=self._note)
        except FileFault:
            if self._noted is not None:
                operations.file_trimmed(self.agent, {"failed_after_entry": self._noted}, self.actor)
            raise
        return done.removed, done.kept

    def _note(self, planned: Trimmed) -> None:
        """The trail has it before the file is put in its place: a crash leaves no change that it does not know of."""
        self._noted = operations.file_trimmed(self.agent, _told(planned), self.actor)


def _told(planned: Trimmed) -> dict[str, Any]:
    told: dict[str, Any] = {"removed": planned.removed, "kept": planned.kept}
    for name, seen in (("before", planned.before), ("after", planned.after)):
        if seen is not None:
            told[name] = {"entries": seen.entries, "bytes": seen.size, "sha256": seen.digest}
    return told


def _texts_in(tail: Iterable[bytes], *, is_whole: bool) -> Iterator[str]:
    """The end of a file, or all of it, one entry at a time; first what stands before them, where it is all."""
    begun: list[bytes] = []
    held, is_begun = b"\n" if is_whole else b"", is_whole
    for piece in tail:
        *ended, rest = (held + piece).split(log_file.HEADER)
        for text in ended:
            if is_begun and (begun or text.strip()):
                yield b"".join((*begun, text)).decode("utf-8", "replace")
            begun, is_begun = [log_file.HEADER], True
        begun.append(rest[: 1 - len(log_file.HEADER)])  # less what may be half a header
        held = rest[1 - len(log_file.HEADER) :]
    if is_begun:
        yield b"".join((*begun, held)).decode("utf-8", "replace")


class Journal:
    is_file = False

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor = agent, actor
        self._rows = list(operations.runs(agent).order_by("origin", "number"))
        self.seq = agent.audit_seq  # where the trail stood
        self.numbers = [row.number for row in self._rows]

    @property
    def is_empty(self) -> bool:
        return not self._rows

    @property
    def entries(self) -> int:
        return len(self._rows)

    def text(self, context_tokens: int | None) -> Text:
        silo = Silo.for_agent(self.agent)
        written = [runs.entry(row.origin, runs.harmless(silo.open(row).content)) for row in self._rows]
        sent = written
        if context_tokens is not None:
            fitting = Fitting(context_tokens)
            for text in written:
                fitting.take(text)
            sent = written[-max(1, fitting.entries) :]
        whole = "".join(sent).encode()
        return Text(lambda: [whole], len(whole), len(written) - len(sent))

    def trim(self, keep: int) -> tuple[int, int]:
        done = operations.trim(self.agent, keep, self.actor, upto=max(self.numbers))
        return len(done.memories), operations.runs(done.agent).count()


class Fitting:
    """How many of the newest texts fit into so many tokens, told one after the other."""

    def __init__(self, room: int) -> None:
        self._room, self._weights, self._together = room, deque[int](), 0
        self.all_fit = True

    def take(self, text: str) -> None:
        weight = max(1, tokens.count(text))
        self._weights.append(weight)
        self._together += weight
        while self._together > self._room:
            self._together -= self._weights.popleft()
            self.all_fit = False

    @property
    def entries(self) -> int:
        return len(self._weights)
