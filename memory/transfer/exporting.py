"""What all export formats share: the memories they are made of, and what they had no place for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime
from typing import Any

from audit.bulk import streamed
from config.wording import several
from memory.models import Agent, Memory
from memory.silo.silo import Read, Silo

AT_ONCE = 1_000  # memories held
OURS = "palimpsest"  # under which another system's format carries what it has no field for


NotHeld = Counter[str]  # what a format had no place for: of how many memories


def counted(what: Counter[str]) -> Iterator[str]:
    """For people, the most frequent first."""
    for each, count in what.most_common():
        yield f"{several(count, 'memory', 'memories')}: {each}"


Writer = Callable[[Agent, Iterable[Read], NotHeld], Iterator[bytes]]


def memories(agent: Agent, *, with_discarded: bool = False) -> Generator[Read, None, None]:
    """The silo's memories in order of number; redacted ones say nothing, and are left out. For the agent's side alone;
    while memory is switched off, too."""
    silo = Silo.for_agent(agent)
    wanted = Memory.objects.of(agent).filter(redacted_at__isnull=True).order_by("number")
    if not with_discarded:
        wanted = wanted.active()
    with streamed(wanted, AT_ONCE) as rows:
        for memory in rows:
            yield Read(memory, silo.open(memory))


def record(read: Read, *, with_discarded: bool = False) -> dict[str, Any]:
    """A memory as an export has it."""
    left_out = {"version"} if with_discarded else {"version", "discarded_at", "superseded_by"}
    return {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in read.to_dict().items()
        if name not in left_out
    }


def own_fields(read: Read) -> dict[str, Any]:
    """All of a memory but its words: whoever comes back finds it again."""
    fields = record(read)
    return {name: value for name, value in fields.items() if name not in ("content", "tokens")}
