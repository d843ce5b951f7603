"""The systems whose files are read, in the order in which they take a file for theirs."""

from __future__ import annotations

from memory.transfer.system import System
from memory.transfer.systems import (
    agents_md,
    axe,
    claude,
    cline,
    copilot,
    cursor,
    framework,
    letta,
    mem0,
    memory_store,
    memory_tool,
    own,
    plain,
    windsurf,
)

_ALL = (
    cursor,
    copilot,
    claude,
    agents_md,
    windsurf,
    cline,
    framework,
    memory_tool,
    axe,
    mem0,
    letta,
    memory_store,
    own,
    plain,
)
SYSTEMS: dict[str, System] = {each.SYSTEM.name: each.SYSTEM for each in _ALL}
