"""Files as they were when memories were taken from them (seed 004, "Migration Execution"; the setting
`migration_backup_originals`): sealed, for they lie about in no other folder in clear.

The files themselves are never changed. All copies go with the redaction of any memory, and with the silo's erasure;
of a file of which something was redacted none is kept any more (`migrating`).
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from memory.errors import NotFound
from memory.models import Agent, Moved, Original, OriginalPart
from memory.silo.silo import Silo

PART = 2**20  # bytes of a file that are sealed together


def keep(agent: Agent, entry: int, files: Mapping[str, tuple[bytes, datetime]]) -> dict[str, Original]:
    """Bytes and time of each path. In the transaction of the migration that begins with this entry."""
    silo, kept = Silo.for_agent(agent), {}
    for nth, (path, (data, modified_at)) in enumerate(sorted(files.items())):
        kept[path] = Original.objects.create(
            agent_id=agent.pk,
            entry=entry,
            nth=nth,
            sealed_path=silo.seal_data(_field(nth), entry, path.encode()),
            size=len(data),
            modified_at=modified_at,
        )
        parts = [data[start : start + PART] for start in range(0, len(data), PART)]
        OriginalPart.objects.bulk_create(
            OriginalPart(
                agent_id=agent.pk,
                entry=entry,
                nth=nth,
                place=place,
                sealed=silo.seal_data(_field(nth, place), entry, zlib.compress(part)),
            )
            for place, part in enumerate(parts)
        )
    return kept


def _field(nth: int, place: int | None = None) -> str:
    """What is sealed where: no part opens in another's place."""
    return f"original:{nth}" + ("" if place is None else f":{place}")


def of(agent: Agent, entry: int | None = None) -> Iterator[tuple[Original, str]]:
    """Those of one migration, or all, each with its path. For the agent's side alone. Raises NotFound, SealBroken."""
    rows = Original.objects.filter(agent_id=agent.pk).order_by("entry", "nth")
    found = list(rows if entry is None else rows.filter(entry=entry))
    if entry is not None and not found:
        raise NotFound(f"Nothing is kept of a migration that begins with entry {entry}.")
    silo = Silo.for_agent(agent)
    for row in found:
        path = silo.open_data(_field(row.nth), row.entry, bytes(row.sealed_path))
        yield row, path.decode()


def content(agent: Agent, original: Original) -> Iterator[bytes]:
    """Its bytes, a megabyte at a time. Raises SealBroken."""
    silo = Silo.for_agent(agent)
    parts = OriginalPart.objects.filter(agent_id=agent.pk, entry=original.entry, nth=original.nth)
    for part in parts.order_by("place").iterator(chunk_size=1):
        yield zlib.decompress(silo.open_data(_field(part.nth, part.place), part.entry, bytes(part.sealed)))


def count(agent: Agent) -> int:
    return Original.objects.filter(agent_id=agent.pk).count()


def forget(agent: Agent, numbers: Iterable[int]) -> None:
    """Before a redaction of these memories. All copies of files go: what is removed may stand in any of them, as one
    that repeats it or as it was before, and nobody reads through them. By no digest can a guess be tried on what was
    said."""
    for copies in (OriginalPart, Original):
        copies.objects.filter(agent_id=agent.pk).delete()
    moved = Moved.objects.filter(agent_id=agent.pk)
    said = [
        bytes(digest) for digest in moved.filter(number__among=list(numbers)).values_list("content_digest", flat=True)
    ]
    rows = list(moved.filter(content_digest__among=sorted({*said} - {b""})))
    for row in rows:
        row.content_digest = b""
        if bytes(row.key_digest) != bytes(row.place_digest):  # of a part's key, too, which may be made of what it says
            row.key_digest = secrets.token_bytes(32)
    Moved.objects.bulk_update(rows, ["key_digest", "content_digest"], batch_size=500)
    moved.update(entry=None, nth=None)


def forget_all(agent: Agent) -> None:
    """Before an erasure."""
    for rows in (Moved, OriginalPart, Original):
        rows.objects.filter(agent_id=agent.pk).delete()
