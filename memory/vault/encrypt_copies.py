"""What somebody wrote to a file and was put aside (`Disk.out_of_the_way`), of a memory that is private by now: it is
kept, and sealed like the memory, for it says what that said."""

from __future__ import annotations

import re
from copy import copy
from pathlib import PurePosixPath

from django.utils import timezone

from memory.errors import FileFault
from memory.models import Memory
from memory.policy import paths
from memory.vault import rendering
from memory.vault.disk import ASIDE
from memory.vault.known import Known

FOUND = re.compile(r"-found-\d+(\.[^.]*)?\Z")
_NUMBER = re.compile(r"(\d{6,})-")


def seal_what_was_found(known: Known) -> None:
    """All there is of it. Raises FileFault for the first that cannot be, after all others are."""
    faults: list[FileFault] = []
    for path in list(known.disk.files(faults)):
        if path.parts[0] == ASIDE and FOUND.search(path.name):
            try:
                memory = _of(known, path)
                if memory is not None and known.is_in_clear(memory, path):
                    seal(known, memory, path)
            except FileFault as fault:
                known.disk.drop_staged()
                faults.append(fault)
    if faults:
        raise faults[0]


def seal(known: Known, memory: Memory, path: PurePosixPath) -> PurePosixPath:
    """Where it is then: called by the memory's number, and opened by `memory_rules show`. Raises FileFault."""
    data = known.disk.read(path)
    if data is None:
        raise FileFault(f"{known.disk.path}: a file is gone", "is gone")
    try:
        said = data.decode()
    except UnicodeDecodeError:
        said = data.decode("latin-1")  # each byte as it is
    kept = copy(memory)
    kept.sealed = known.silo.seal(memory.number, said, ())
    folder = paths.folder(memory.category, memory.project, known.rules)
    target = known.disk.free_aside(folder / paths.file_name(memory.number))
    known.disk.stage(target, rendering.rendered(kept, None, known.version, timezone.now()), expected=None)
    if known.disk.publish():
        raise FileFault(f"{known.disk.path}: somebody is writing to a file", "somebody is writing to a file")
    known.disk.remove(path)
    return target


def _of(known: Known, path: PurePosixPath) -> Memory | None:
    """The memory of which a file says that it is, or is called."""
    number = rendering.number_in((known.disk.read(path) or b"").decode(errors="replace"))
    named = _NUMBER.match(path.name)
    if number is None and named is not None:
        number = int(named[1])
    mine = Memory.objects.filter(agent_id=known.agent.pk, number=number or 0, redacted_at__isnull=True)
    return mine.first()
