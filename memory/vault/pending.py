"""Many memories' files, some at a time: what cannot be written keeps no other waiting, and stays owed.

It is found again by the rows of its files, which say another version than its memory: nothing else has to be noted but
that there is something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.db.models import Exists, OuterRef, Q

from memory.errors import FileFault
from memory.models import Memory, Source, VaultFile
from memory.vault import encrypt_copies, index_pages
from memory.vault.files import AT_ONCE, Files


def bring(files: Files, numbers: Iterable[int]) -> None:
    """Each to what the silo says; `files.fault` is the first that could not be."""
    for batch in _batched(numbers):
        try:
            _brought(files, batch)
        except FileFault:
            files.drop()
            for number in batch:
                _bring_one(files, number)


def _brought(files: Files, numbers: Sequence[int]) -> None:
    files.take(numbers)
    files.finish()


def _bring_one(files: Files, number: int) -> None:
    try:
        _brought(files, [number])
    except FileFault as fault:
        files.owe(fault)
        files.drop()


def rebuild(files: Files) -> None:
    """The indexes, from what is known of the files by now."""
    try:
        encrypt_copies.seal_what_was_found(files)
    except FileFault as fault:
        files.owe(fault)
    try:
        index_pages.rebuild(files.disk, files.agent, files.rules, files.closed)
    except FileFault as fault:
        files.owe(fault)
        files.drop()


def numbers(files: Files) -> Iterator[int]:
    """Memories whose files do not say what they say, as far as is known: what somebody wrote to is among them."""
    filed = VaultFile.objects.filter(agent_id=files.agent.pk, number=OuterRef("number"))
    as_it_is = filed.filter(version=OuterRef("version")).exclude(rules_version="")
    owing = Memory.objects.filter(~Exists(as_it_is), Q(discarded_at__isnull=True) | Exists(filed))
    mine = owing.filter(agent_id=files.agent.pk, redacted_at__isnull=True).exclude(source=Source.SYSTEM)
    yield from mine.order_by("number").values_list("number", flat=True).iterator(chunk_size=2_000)


def _batched(numbers: Iterable[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for number in numbers:
        batch.append(number)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
