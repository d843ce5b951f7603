"""Code for all export formats. It reads the memories, and counts the values that a format cannot store."""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime
from typing import Any

from audit.bulk import streamed
from config.wording import several
from memory.models import Agent, Memory
from memory.silo.silo import Read, Silo

AT_ONCE = 1_000  # number of the agent's memories that are held at a time
OWN_KEY = "palimpsest"  # the metadata key for fields that another system's format does not have

Losses = Counter[str]  # what a format cannot store → number of memories


def counted(what: Counter[str]) -> Iterator[str]:
    """Return a readable line for each note, with the number of memories that have this note. The most frequent note
    comes first."""
    return (f"{several(count, 'memory', 'memories')}: {each}" for each, count in what.most_common())


Writer = Callable[[Agent, Iterable[Read], Losses], Iterator[bytes]]


def memories(agent: Agent, *, with_beneath: bool = False, with_discarded: bool = False) -> Generator[Read, None, None]:
    """Yield the memories of the silo in the order of their numbers. Redacted memories are left out. Only the agent's
    side may call this function. The function also works while memory is off."""
    silo = Silo.for_agent(agent)
    wanted = Memory.objects.of(agent).filter(redacted_at__isnull=True).order_by("number")
    if not with_discarded:
        wanted = wanted.kept() if with_beneath else wanted.active()
    with streamed(wanted, AT_ONCE) as rows:
        for memory in rows:
            yield Read(memory, silo.open(memory))


def record(read: Read, *, with_discarded: bool = False) -> dict[str, Any]:
    """Return the fields of a memory in an export."""
    left_out = {"version"} if with_discarded else {"version", "discarded_at", "superseded_by"}
    left_out |= set() if read.memory.store else {"path"}
    return ({"is_instruction": True} if read.memory.is_instruction else {}) | {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in read.to_dict().items()
        if name not in left_out
    }


def sources(agent: Agent) -> dict[int, list[int]]:
    """Map each memory to the memories that it superseded."""
    found: defaultdict[Any, list[int]] = defaultdict(list)
    rows = Memory.objects.of(agent).filter(superseded_by__isnull=False, redacted_at__isnull=True)
    for number, successor in rows.order_by("number").values_list("number", "superseded_by"):
        found[successor].append(number)
    return found


def own_fields(read: Read) -> dict[str, Any]:
    """Return the fields of a memory, except the text and the number of tokens. A later import can read these fields."""
    return {name: value for name, value in record(read).items() if name not in ("content", "tokens")}
