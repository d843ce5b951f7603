"""Memories as the log of runs that axe keeps (seed 001; docs/migration-sources.md, "axe")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from memory.formats.export import Export, NotHeld
from memory.models import Agent
from memory.reading import Read
from memory.runs import entry, harmless

_NONE = "(none)"  # as axe says it
_OF_A_RUN = re.compile(r"\*\*Task:\*\* [^\n\r]*\n\*\*Result:\*\*")


def _written(_: Agent, memories: Iterable[Read], noted: NotHeld) -> Iterator[bytes]:
    for read in memories:
        memory, text = read.memory, read.opened.content
        for what, is_lost in (
            ("what a line says of a run has a backslash before it, for it would begin another", harmless(text) != text),
            ("its tags are not held", bool(read.opened.tags)),
            ("its category and project are not held", (memory.category, memory.project) != ("behavioral", "")),
            ("it is of the core, and a log has but runs", memory.kind == "core"),
            ("it was constitutional", memory.constitutional),
        ):
            if is_lost:
                noted.note(what)
        told = harmless(text)
        body = told if _OF_A_RUN.match(told) else f"**Task:** {_NONE}\n**Result:** {told}"
        yield entry(memory.origin, body).encode()


EXPORT = Export(
    name="axe",
    media_type="text/markdown; charset=utf-8",
    ending=".md",
    what="a log of runs as axe keeps it: an entry for each memory, with its date to the second",
    not_held=("kind", "category", "project", "tags", "constitutional", "parts of a second"),
    write=_written,
)
