"""What is in a vault's folder, as a person sees it."""

from __future__ import annotations

from pathlib import Path

from memory.errors import MemoryFault
from memory.models import Agent
from memory.silo.silo import Silo
from memory.vault import comparing, rendering


def tree(vault: Path) -> list[str]:
    """Every file, but the lock."""
    found = (path for path in vault.rglob("*") if path.is_file() and path.name != ".palimpsest")
    return sorted(str(path.relative_to(vault)) for path in found)


def memories(vault: Path) -> list[str]:
    """Those that are no index."""
    return [path for path in tree(vault) if Path(path).name != "index.md"]


def the_one(vault: Path) -> Path:
    there = memories(vault)
    assert len(there) == 1
    return vault / there[0]


def differ(agent: Agent) -> list[tuple[str, int]]:
    return [(each.kind, each.number) for each in comparing.whole(agent).differences]


def in_clear(agent: Agent, data: bytes) -> bytes:
    """What a file says, with what its sealed block says."""
    said = rendering.read_file(data)
    if said is None or not said.sealed:
        return data
    try:
        return data + Silo.for_agent(agent).open_sealed(said.number, said.sealed).content.encode()
    except MemoryFault:
        return data
