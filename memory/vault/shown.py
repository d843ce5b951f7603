"""What a vault's file shows of a memory that is not private: no secret, for whoever opens the folder reads it.

The silo keeps what was said; it is sealed there (seed 004, `sensitive_data_masking`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from memory.errors import Invalid
from memory.models import Memory
from memory.rules import document, places
from memory.silo.silo import Opened

MASKING = "capture_settings", "sensitive_data_masking"


def shown(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Opened:
    """What its file says, and is called by."""
    if not document.is_on(rules, *MASKING):
        return opened
    from memory.rules.masking import masked_together  # its detectors bring requests with them

    if places.is_private(memory.category, rules):  # its content is sealed there, too; its tags may name the file
        return Opened(opened.content, tuple(masked_together(opened.tags)[0]))
    content, *tags = masked_together([opened.content, *opened.tags])[0]
    return Opened(content, tuple(tags))


def put_back(text: str, before: Sequence[str]) -> str:
    """Secrets where a text that somebody changed has what stands for them; `before` is what it said, unmasked. Raises
    Invalid where it is not certain which one stands there: of several some are gone, or are there once more."""
    from memory.rules.masking import PLACE, taken_out

    secrets: dict[str, list[str]] = defaultdict(list)
    for place, secret in taken_out(before):
        secrets[place].append(secret)
    for place, count in Counter(PLACE.findall(text)).items():
        known = secrets[place]
        if len(set(known)) == 1:
            secrets[place] = known[:1] * count
        elif len(known) != count:
            raise Invalid("file", f"has {place} not as often as the memory: leave each, or change the memory itself")
    next_of = {place: iter(known) for place, known in secrets.items()}
    return PLACE.sub(lambda found: next(next_of[found[0]]), text)
