"""What a vault's file shows of a memory that is not private: no secret, for whoever opens the folder reads it.

The silo keeps what was said; it is sealed there (seed 004, `sensitive_data_masking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.models import Memory
from memory.policy import paths, settings_document
from memory.silo.silo import Opened

MASKING = "capture_settings", "sensitive_data_masking"


def shown(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Opened:
    """What its file says, and is called by."""
    if not settings_document.is_on(rules, *MASKING):
        return opened
    from memory.masking.scanner import masked_together  # its detectors bring requests with them

    if paths.is_private(memory.category, rules):  # its content is sealed there, too; its tags may name the file
        return Opened(opened.content, tuple(masked_together(opened.tags)[0]))
    content, *tags = masked_together([opened.content, *opened.tags])[0]
    return Opened(content, tuple(tags))
