"""axe: a log an agent (docs/migration-sources.md, "axe")."""

from __future__ import annotations

import re

from memory.formats import axe
from memory.moving.outline import Outline
from memory.moving.system import LARGEST_EXPORT, Form, System, Way

_ENTRY = re.compile(rb"^## [^\r\n]+\r?\n\*\*Task:\*\* ", re.MULTILINE)


def _seen(head: bytes) -> Outline:
    return frozenset({"entry"} if _ENTRY.search(head) else ())


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
