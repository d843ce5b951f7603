"""The log that `gc` processes: the agent's memory file, or the run entries in its journal.

First the entries are counted. Then the model gets the log, and the log is trimmed. Entries that were added in the
meantime are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from audit.trail import Actor
from memory.errors import FileFault
from memory.models import Agent
from memory.policy import switches, tokens
from memory.run_log import log_file, runs
from memory.run_log.log_file import HEADER, FileState, Trimmed
from memory.silo.silo import Silo
from memory.writing import edits, operations

BYTES_PER_TOKEN = 16  # at most: four characters of four bytes


class Text(NamedTuple):
    """The part of a log that the model gets. `size` is the number of its bytes. `left_out` says how many of the oldest
    entries are not sent."""

    pieces: Callable[[], Iterable[bytes]]
    size: int
    left_out: int = 0


def log_of(agent: Agent, actor: Actor) -> Log:
    """The log of an agent. Raises SiloKeyMissing. Raises FileFault if the memory file cannot be read."""
    return FileLog(agent, actor) if agent.memory_path else Journal(agent, actor)


class FileLog:
    """A log in the agent's memory file."""

    is_file = True
    seq: int | None = None  # only a journal has a number

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor, self.place = agent, actor, runs.place_of(agent)
        self._state = log_file.state_of(self.place) or FileState(0, 0, "")
        self.is_empty, self.entries = self._state.size == 0, self._state.entries
        self._trail_entry: int | None = None  # the entry that announced the trim

    def text(self, context_tokens: int | None) -> Text:
        """The text that the model gets. With `context_tokens`, the text has only the newest entries that fit, but at
        least one entry."""
        start, left_out = 0, 0
        if context_tokens is not None and self.entries:
            start, left_out = self._newest(context_tokens)
        return Text(lambda: log_file.read(self.place, self._state, start), self._state.size - start, left_out)

    def _newest(self, context_tokens: int) -> tuple[int, int]:
        """The byte position of the oldest entry that still fits, and the number of entries before it. Text before the
        first entry is sent only if everything fits."""
        window = max(0, self._state.size - context_tokens * BYTES_PER_TOKEN)
        texts = _entries_in(log_file.read(self.place, self._state, window), is_whole=window == 0)
        fitting, all_fit = newest(texts, context_tokens)
        if all_fit and window == 0:
            return 0, 0
        kept = min(max(1, fitting), self.entries)
        return log_file.start_of_last(self.place, self._state, kept), self.entries - kept

    def trim(self, keep: int) -> tuple[int, int]:
        """Keep the newest `keep` entries, and all entries that were added after the entries were counted. Returns
        (removed, kept). Raises FileFault, MemoryDisabled."""
        try:
            done = log_file.trim_entries(self.place, keep, since=self._state, before_replace=self._announce)
        except FileFault:
            if self._trail_entry is not None:
                operations.record_file_trim(self.agent, {"failed_after_entry": self._trail_entry}, self.actor)
            raise
        return done.removed, done.kept

    def _announce(self, planned: Trimmed) -> None:
        """Record the trim in the trail before the file is replaced. So the file never changes without an entry, even
        after a crash. If memory is off, or the agent was claimed, this raises an error. Then the file does not change.
        """
        with edits.locked(self.agent) as row:
            edits.require_same_owner(row, self.agent)
            switches.require_on(row)
            self._trail_entry = operations.record_file_trim(row, _summary(planned), self.actor)


def _summary(planned: Trimmed) -> dict[str, Any]:
    summary: dict[str, Any] = {"removed": planned.removed, "kept": planned.kept}
    for name, state in (("before", planned.before), ("after", planned.after)):
        if state is not None:
            summary[name] = {"entries": state.entries, "bytes": state.size, "sha256": state.digest}
    return summary


def _entries_in(pieces: Iterable[bytes], *, is_whole: bool) -> Iterator[str]:
    """The entries of a whole file, or of the last part of a file.

    For a whole file, the first result is the text before the first entry, if there is such a text. For the last part of
    a file, the text before the first heading is left out, because it may be an incomplete entry.
    """
    parts = _split(pieces, b"\n" if is_whole else b"")
    before = next(parts)
    if is_whole and before.strip():
        yield before.decode("utf-8", "replace")
    for part in parts:
        yield (HEADER + part).decode("utf-8", "replace")


def _split(pieces: Iterable[bytes], rest: bytes) -> Iterator[bytes]:
    for piece in pieces:
        *parts, rest = (rest + piece).split(HEADER)
        yield from parts
    yield rest


class Journal:
    """A log in the agent's journal: its run entries. `seq` is the number of the agent's newest audit entry. This number
    was read before the run entries."""

    is_file = False

    def __init__(self, agent: Agent, actor: Actor) -> None:
        self.agent, self.actor = agent, actor
        self._rows = list(operations.runs(agent).order_by("origin", "number"))
        self.is_empty, self.entries = not self._rows, len(self._rows)
        self.seq: int | None = agent.audit_seq
        self.numbers = [row.number for row in self._rows]

    def text(self, context_tokens: int | None) -> Text:
        silo = Silo.for_agent(self.agent)
        entries = [runs.entry(row.origin, runs.harmless(silo.open(row).content)) for row in self._rows]
        kept = len(entries) if context_tokens is None else max(1, newest(entries, context_tokens)[0])
        content = "".join(entries[-kept:]).encode()
        return Text(lambda: [content], len(content), len(entries) - kept)

    def trim(self, keep: int) -> tuple[int, int]:
        with edits.locked(self.agent) as row:
            edits.require_same_owner(row, self.agent)
            done = operations.trim(row, keep, self.actor, upto=max(self.numbers))
        return len(done.memories), operations.runs(done.agent).count()


Log = FileLog | Journal


def newest(texts: Iterable[str], limit: int) -> tuple[int, bool]:
    """How many of the newest texts fit into `limit` tokens, and whether all texts fit. `texts` begins with the oldest
    text."""
    weights, total, all_fit = deque[int](), 0, True
    for text in texts:
        weights.append(max(1, tokens.count(text)))
        total += weights[-1]
        while total > limit:
            total -= weights.popleft()
            all_fit = False
    return len(weights), all_fit
