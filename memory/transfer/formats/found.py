"""What readers of other systems' files return: memories, and what they leave out, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO

from memory.policy.validation import MAX_TAGS

HERE = "."  # as a project: the project of the folder or of the call. No project id can be "."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that looks like a memory but is not stored."""

    key: str
    why: str  # for people, after the key: "is empty"


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A memory as another system has it, ready to be stored.

    `key` is the path of the file, and after `#` the part of the file. `id`, `part` and `by_words` say how a later run
    recognizes it: by its id within the file, by its part of a long text (the first part is ""), or by its words.
    """

    key: str
    content: str  # 1 to 10,000 characters
    category: str
    project: str = ""  # an id, HERE, or none
    tags: tuple[str, ...] = ()
    date: datetime | None = None  # UTC; None if the source has none
    kind: str = "core"
    transformed: tuple[str, ...] = ()  # each short enough for a tag
    id: str = ""
    part: str = ""
    by_words: bool = False

    def bounded(self) -> Found:
        """With as many tags as a memory may have."""
        if (more := len(self.tags) - MAX_TAGS) <= 0:
            return self
        return replace(self, tags=self.tags[:MAX_TAGS], transformed=(*self.transformed, f"not kept: {more:,} tags"))


Part = Found | LeftOut
# Reads a file from its beginning. The file must be seekable. The path is the beginning of each key.
Reader = Callable[[IO[bytes], str], Iterator[Part]]
