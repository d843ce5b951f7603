"""axe: a log an agent (docs/migration-sources.md, "axe")."""

from __future__ import annotations

import re

from memory.transfer.formats import axe
from memory.transfer.outline import Outline
from memory.transfer.system import LARGEST_EXPORT, Form, System, Way

_ENTRY = re.compile(rb"^## [^\r\n]+\r?\n\*\*Task:\*\* ", re.MULTILINE)
_HEADING = re.compile(rb"^#{1,6} ", re.MULTILINE)
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)


def _seen(head: bytes) -> Outline:
    """A page that shows what a log looks like is none: it has other headings, or shows it in a fence."""
    first, fence = _ENTRY.search(head), _FENCE.search(head)
    if first is None or (fence is not None and fence.start() < first.start()):
        return frozenset()
    is_log = 2 * len(_ENTRY.findall(head)) >= len(_HEADING.findall(head))
    return frozenset({"entry"} if is_log else ())


SYSTEM = System(
    "axe",
    "axe",
    "legacy_memory_systems",
    "logs of runs as axe keeps them, wherever they lie",
    form=Form(
        endings=(".md",),
        holds=(b"**Task:**",),
        fits=bool,
        way=Way(axe.parts, LARGEST_EXPORT),
        seen=_seen,
        unknown="is no log of axe",
    ),
)
