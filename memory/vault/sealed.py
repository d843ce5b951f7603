"""The sealed block in the file of a private memory."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import PurePosixPath
from typing import Any

from django.utils import timezone

from memory.errors import Invalid
from memory.models import Agent, Memory
from memory.policy import paths, switches
from memory.silo.silo import Opened, Silo
from memory.vault import rendering
from memory.vault.disk import ASIDE, LARGEST, Disk
from memory.writing import edits


def open_file(agent: Agent, data: bytes) -> Opened:
    """What the sealed block of a file says, for the agent itself. Raises Invalid, SealBroken, Erased, MemoryDisabled,
    CategoryDisabled."""
    edits.require_key(agent)
    switches.require_on(agent)
    said = rendering.read_again(data)
    if said is None:
        raise Invalid("file", "is not the file of a memory")
    if said.sealed is None:
        raise Invalid("file", "is not sealed: read it as it is")
    switches.require_readable(agent, edits.fetch(agent, [said.number]))
    return Silo.for_agent(agent).open_sealed(said.number, said.sealed)


def seal_copy(
    disk: Disk, silo: Silo, memory: Memory, path: PurePosixPath, version: str, rules: Mapping[str, Any]
) -> PurePosixPath:
    """Put a sealed file in the place of a copy in .discarded/. Returns its path: that of the copy as it is, if somebody
    is writing to it or if it is too large. Raises FileFault."""
    data = disk.read(path) or b""
    if len(data) >= LARGEST or disk.is_written(path):
        return path
    kept = copy(memory)
    try:
        kept.sealed = silo.seal(memory.number, data.decode(), ())
    except UnicodeDecodeError:
        kept.sealed = silo.seal(memory.number, data.decode("latin-1"), ())  # each byte as it is
    folder = paths.folder(memory.category, memory.project, rules)
    is_in_place = path.parent == PurePosixPath(ASIDE, folder)
    target = path if is_in_place else disk.free_aside(folder / paths.file_name(memory.number))
    shown = rendering.rendered(kept, None, version, timezone.now())
    disk.stage(target, shown, expected=data if is_in_place else None)
    if target in disk.publish():
        return path
    if not is_in_place and disk.read(path) == data:
        disk.remove(path)
    return target
