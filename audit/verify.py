"""Verifying a trail: the chain of MACs, and the digests of the snapshots it stands on. Opens nothing."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, DataError, models
from django.db.models import Min

from audit import guards
from audit.models import AuditEntry, Change
from audit.rowset import streamed
from audit.trail import changes_digest, entry_mac
from config.keyring import keyring

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. `seq` is 0 where no one entry is at fault."""

    agent: str
    seq: int
    problem: str


ILL_FORMED = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, RecursionError, DatabaseError)
NOT_OF_THE_FORM = "a row is not of the form that is written"


@contextmanager
def ill_formed() -> Iterator[list[bool]]:
    """Values no edit writes, as SQL can put them into a row, end this block alone: the list is then not empty.

    SQLite keeps any type in any column, and PostgreSQL has dates that Python has not.
    """
    found: list[bool] = []
    try:
        yield found
    except ILL_FORMED as error:
        if isinstance(error, DatabaseError) and not _is_about_a_value(error):
            raise
        found.append(True)


def _is_about_a_value(error: DatabaseError) -> bool:
    """Rather than about the database: psycopg's for dates beyond Python's, sqlite3's for text that is not UTF-8."""
    return isinstance(error, DataError) or "decode to UTF-8" in str(error)


def told(label: str, check: Iterator[Problem]) -> Iterator[Problem]:
    """The problems a check finds; that it came upon an ill-formed value is one of them, and no other check's end."""
    with ill_formed() as found:
        yield from check
    if found:
        yield Problem(label, 0, NOT_OF_THE_FORM)


def trails() -> Iterator[tuple[int, str]]:
    """(agent id, label) of every agent that has an entry, or a change; no label where there is no entry."""
    entries = AuditEntry.objects.order_by("agent_id").values_list("agent_id").annotate(Min("agent_label"))
    labels = {agent_id: label if isinstance(label, str) else "" for agent_id, label in entries}
    for agent_id in Change.objects.order_by("agent_id").values_list("agent_id", flat=True).distinct():
        labels.setdefault(agent_id, "")
    yield from labels.items()


def missing_guards() -> list[Problem]:
    advice = "is missing or altered: run 'manage.py migrate'"
    return [Problem("", 0, f"trigger {name} {advice}") for name in guards.missing()]


def chain(agent_id: int, label: str) -> Iterator[Problem]:
    """What is wrong with an agent's chain, entry by entry; memory use does not grow with its length.

    It ends at a row that cannot be read. Rows come many at a time, so the walk is told of one before it gets there.
    """
    walk = _Walk(agent_id, label)
    with ill_formed() as found:
        yield from walk.problems()
    if found:
        unreadable = _first_unreadable(agent_id, walk.expected)
        with ill_formed():  # which it is, where the number itself is none
            yield from (each for each in _Walk(agent_id, label, unreadable).problems() if each.seq >= walk.expected)
        yield Problem(label, unreadable, NOT_OF_THE_FORM)


def _first_unreadable(agent_id: int, start: int) -> int:
    """The number of the first entry, from `start`, of whose rows one cannot be read."""
    found = [first_unreadable(model, "seq", agent_id=agent_id, seq__gte=start) for model in (AuditEntry, Change)]
    return min((seq for seq in found if seq is not None), default=start)


def first_unreadable(model: type[models.Model], number: str, **where: Any) -> int | None:
    """The least `number` of the rows that cannot be read, each asked for by itself."""
    rows = model._default_manager.filter(**where).order_by(number).values_list("pk", number)
    for pk, at in rows.iterator():
        with ill_formed() as found:
            model._default_manager.filter(pk=pk).values().get()
        if found:
            return whole(at)
    return None


class _Walk:
    """Along one chain: the number the next entry should have, and the MAC it should follow."""

    def __init__(self, agent_id: int, label: str, until: int | None = None) -> None:
        self.expected, self.previous, self.label = 1, b"", label
        self._has_sought = False
        self._which = {"agent_id": agent_id} | ({} if until is None else {"seq__lt": until})

    def problems(self) -> Iterator[Problem]:
        entries = AuditEntry.objects.filter(**self._which).order_by("seq").values()
        changes = Change.objects.filter(**self._which).order_by("seq", "number").values()
        with streamed(entries) as entry_rows, streamed(changes) as change_rows:
            yield from self._side_by_side(entry_rows, _by_entry(change_rows))

    def _side_by_side(self, entries: Iterator[Row], changes: Iterator[tuple[int, list[Row]]]) -> Iterator[Problem]:
        waiting = next(changes, None)
        for entry in entries:
            seq = whole(entry["seq"])
            if seq > self.expected:
                yield Problem(self.label, seq, f"missing: entries {self.expected} to {seq - 1}")
            elif seq < self.expected:
                yield Problem(self.label, seq, "duplicated: another entry has this number")
            self.expected = seq
            own: list[Row] = []
            while waiting is not None and waiting[0] <= seq:
                if waiting[0] < seq:
                    yield self._without_entry(waiting[0])
                else:
                    own = waiting[1]
                waiting = next(changes, None)
            yield from self._entry(entry, own)
        while waiting is not None:
            yield self._without_entry(waiting[0])
            waiting = next(changes, None)
        if self.expected == 1:
            yield Problem(self.label, 0, "the trail is empty")

    def _entry(self, entry: Row, own: list[Row]) -> Iterator[Problem]:
        previous, self.previous, self.expected = self.previous, b"", entry["seq"] + 1
        with ill_formed() as found:
            for problem in _entry_problems(entry, previous, own):
                yield Problem(self.label, entry["seq"], self._told(problem, entry, own))
            self.previous = binary(entry["mac"])
        if found:
            yield Problem(self.label, entry["seq"], NOT_OF_THE_FORM)

    def _told(self, problem: str, entry: Row, own: list[Row]) -> str:
        """That an entry stands in another's place, where one can be found that it was written to follow."""
        if problem != ALTERED or self._has_sought:
            return problem
        self._has_sought = True  # once, for the first: it goes through the whole trail
        before = AuditEntry.objects.filter(agent_id=self._which["agent_id"]).order_by("seq").values_list("seq", "mac")
        with streamed(before) as rows:
            for seq, mac in itertools.chain([(0, b"")], rows):
                for was in (seq, seq + 1):  # the one before it may have been moved up into its place
                    if was != entry["seq"] and follows({**entry, "seq": was}, binary(mac), own):
                        return f"reordered: this is entry {was}"
        return problem

    def _without_entry(self, seq: int) -> Problem:
        return Problem(self.label, seq, "missing: changes stand in the trail without their entry")


def _by_entry(rows: Iterator[Row]) -> Iterator[tuple[int, list[Row]]]:
    for seq, group in itertools.groupby(rows, key=lambda row: row["seq"]):
        yield whole(seq), list(group)


def _entry_problems(entry: Row, previous: bytes, changes: list[Row]) -> Iterator[str]:
    key = next((key for key in keyring().audit if key.id == entry["key_id"]), None)
    if key is None:
        yield f"made under audit key {entry['key_id']!s:.8}, which is not in the keyring"
        return
    if len(changes) != whole(entry["changes"]):
        kind = "missing" if len(changes) < entry["changes"] else "inserted"
        yield f"{kind}: holds {len(changes)} changes where {entry['changes']} were written"
    if not follows(entry, previous, changes):
        yield ALTERED
    for column, digest in _digested(entry, changes):
        if column is None and digest is not None:
            yield "wiped: a sealed body is gone, and its digest is there"
        elif (None if column is None else hashlib.sha256(column).digest()) != digest:
            yield "altered: a sealed body is not the one that was written"


ALTERED = "altered: not as it was written, or not after the entry it was written after"


def follows(entry: Row, previous: bytes, changes: list[Row]) -> bool:
    """Whether an entry's MAC is that of its fields and changes after the entry of MAC `previous`."""
    secrets = [key.secret for key in keyring().audit if key.id == entry["key_id"]]
    fields = dict(entry) | {"sealed_digest": binary_or_none(entry["sealed_digest"])}
    digests = changes_digest(_as_bytes(change) for change in changes)
    return any(
        hmac.compare_digest(entry_mac(secret, previous, fields, digests), binary(entry["mac"])) for secret in secrets
    )


def _digested(entry: Row, changes: list[Row]) -> Iterator[tuple[bytes | None, bytes | None]]:
    yield binary_or_none(entry["sealed"]), binary_or_none(entry["sealed_digest"])
    for change in changes:
        yield binary_or_none(change["before"]), binary_or_none(change["before_digest"])
        yield binary_or_none(change["after"]), binary_or_none(change["after_digest"])


def _as_bytes(change: Row) -> dict[str, Any]:
    return dict(change) | {name: binary_or_none(change[name]) for name in ("before_digest", "after_digest")}


def whole(value: Any) -> int:
    """A whole number; TypeError for anything else SQLite may keep where one was written."""
    if not isinstance(value, int):
        raise TypeError
    return value


def binary(value: Any) -> bytes:
    """Bytes; TypeError for anything else. (`bytes` would make a billion zeros of the number.)"""
    if not isinstance(value, bytes | memoryview):
        raise TypeError
    return bytes(value)


def binary_or_none(value: Any) -> bytes | None:
    return None if value is None else binary(value)
