"""Verifying a trail: the chain of MACs, and the digests of the snapshots it stands on. Opens nothing."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from django.db import DatabaseError, DataError, models
from django.db.models import Min

from audit import guards, trail
from audit.bulk import streamed
from audit.models import AuditEntry, Change, Operation
from audit.redactions import Redacted
from audit.trail import changes_digest, entry_mac
from config.keyring import Key, keyring

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. `seq` is 0 where no one entry is at fault."""

    agent: str
    seq: int
    problem: str


ILL_FORMED = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, RecursionError, DatabaseError)
NOT_OF_THE_FORM = "a row is not of the form that is written"


class ill_formed:  # noqa: N801  it reads as a statement
    """Values no edit writes, as SQL can put them into a row, end this block alone: the list is then not empty.

    SQLite keeps any type in any column, and PostgreSQL has dates that Python has not. (Not a generator's context
    manager: it is entered twice for an entry, and that takes four times as long.)
    """

    def __enter__(self) -> list[bool]:
        self._found: list[bool] = []
        return self._found

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, ILL_FORMED) or (isinstance(error, DatabaseError) and not _is_about_a_value(error)):
            return False
        self._found.append(True)
        return True


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


def chain_since(agent_id: int, label: str, seq: int, head: tuple[int, bytes]) -> Iterator[Problem]:
    """What is wrong with an agent's chain from this entry on, up to the one its row names as its last."""
    walk = _Walk(agent_id, label, since=seq)
    with ill_formed() as found:
        yield from walk.problems()
        if (walk.expected - 1, walk.previous) != head:
            yield Problem(label, walk.expected, "truncated, or added to: its end is not what the agent's row names")
    if found:
        yield Problem(label, walk.expected, NOT_OF_THE_FORM)


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


_SOON = 100  # entries among which one that was moved on, to make room, is looked for


def _redacted(agent_id: int) -> Redacted:
    """What the entries of an agent's redactions name; an ill-formed one names nothing, and is told of by the walk."""
    redacted = Redacted()
    entries = AuditEntry.objects.filter(agent_id=agent_id, operation=Operation.REDACTED).order_by("seq")
    for pk in entries.values_list("pk", flat=True):  # each asked for by itself: no other's trouble hides it
        with ill_formed():
            redacted.add(*entries.values_list("seq", "detail").get(pk=pk))
    return redacted


def _mac_of(agent_id: int, seq: int) -> bytes:
    """The MAC of an entry as it stands; empty before the first."""
    found = AuditEntry.objects.filter(agent_id=agent_id, seq=seq).values_list("mac", flat=True).first() if seq else b""
    return binary(found) if found is not None else b""


class _Walk:
    """Along one chain: the number the next entry should have, and the MAC it should follow."""

    def __init__(self, agent_id: int, label: str, until: int | None = None, since: int = 1) -> None:
        self.expected, self.previous, self.label = since, _mac_of(agent_id, since - 1), label
        self._has_sought = False
        self._keys = keyring().audit
        self._redacted = Redacted()
        self._since = since
        self._which = {"agent_id": agent_id} | ({} if until is None else {"seq__lt": until})
        self._which |= {"seq__gte": since} if since > 1 else {}

    def problems(self) -> Iterator[Problem]:
        self._redacted = _redacted(self._which["agent_id"])
        entries = AuditEntry.objects.filter(**self._which).order_by("seq").values()
        changes = Change.objects.filter(**self._which).order_by("seq", "number").values_list(*_OF_A_CHANGE)
        with streamed(entries) as entry_rows, streamed(changes) as change_rows:
            yield from self._side_by_side(entry_rows, self._by_entry(change_rows))

    def _by_entry(self, rows: Iterator[ChangeRow]) -> Iterator[_Changes]:
        for seq, group in itertools.groupby(rows, key=itemgetter(0)):
            yield _Changes.of(whole(seq), group, self._redacted)

    def _side_by_side(self, entries: Iterator[Row], changes: Iterator[_Changes]) -> Iterator[Problem]:
        waiting = next(changes, None)
        for entry in entries:
            seq = whole(entry["seq"])
            if seq > self.expected:
                yield Problem(self.label, self.expected, f"missing: entries {self.expected} to {seq - 1}")
            elif seq < self.expected:
                yield Problem(self.label, seq, "duplicated: another entry has this number")
            self.expected = seq
            own: _Changes | None = None
            while waiting is not None and waiting.seq <= seq:
                if waiting.seq < seq:
                    yield self._without_entry(waiting.seq)
                else:
                    own = waiting
                waiting = next(changes, None)
            yield from self._entry(entry, own or _Changes(seq))
        while waiting is not None:
            yield self._without_entry(waiting.seq)
            waiting = next(changes, None)
        if self.expected == self._since:
            yield Problem(self.label, 0, "the trail is empty")

    def _entry(self, entry: Row, own: _Changes) -> Iterator[Problem]:
        previous, self.previous, self.expected = self.previous, b"", entry["seq"] + 1
        with ill_formed() as found:
            self.previous = binary(entry["mac"])
            for problem in _entry_problems(entry, previous, own, self._keys, self._redacted):
                yield Problem(self.label, entry["seq"], self._told(problem, entry, previous, own))
        if found or own.is_ill_formed:
            yield Problem(self.label, entry["seq"], NOT_OF_THE_FORM)

    def _told(self, problem: str, entry: Row, previous: bytes, own: _Changes) -> str:
        """That an entry stands in another's place, where that other or its own place can be found."""
        if problem == ALTERED and not self._has_sought:
            self._has_sought = True  # once, for the first: it goes through the whole trail
            with ill_formed():
                problem = self._is_another(entry, own) or self._is_before(entry, previous) or problem
        return problem

    def _is_another(self, entry: Row, own: _Changes) -> str | None:
        entries = AuditEntry.objects.filter(agent_id=self._which["agent_id"]).order_by("seq")
        with streamed(entries.values_list("seq", "mac")) as rows:
            for seq, mac in itertools.chain([(0, b"")], rows):
                for was in (seq, seq + 1):  # the one before it may have been moved up into its place
                    if was != entry["seq"] and follows(entry | {"seq": was}, binary(mac), own.digest, self._keys):
                        is_copy = entries.filter(seq=was, mac=entry["mac"]).exists()
                        return f"{'duplicated' if is_copy else 'reordered'}: this is entry {was}"
        return None

    def _is_before(self, entry: Row, previous: bytes) -> str | None:
        """That one of the entries that come soon after it was written in its place."""
        agent_id, seq = self._which["agent_id"], entry["seq"]
        for other in AuditEntry.objects.filter(agent_id=agent_id, seq__gt=seq).order_by("seq").values()[:_SOON]:
            own: Any = Change.objects.filter(agent_id=agent_id, seq=other["seq"]).order_by("number").values()
            if follows({**other, "seq": seq}, previous, changes_digest(own), self._keys):
                return f"inserted: what was written in its place is entry {other['seq']} now"
        return None

    def _without_entry(self, seq: int) -> Problem:
        return Problem(self.label, seq, "missing: changes stand in the trail without their entry")


_OF_A_CHANGE = ("seq", "number", "before", "before_digest", "after", "after_digest")
ChangeRow = tuple[Any, Any, Any, Any, Any, Any]


@dataclass(slots=True)
class _Changes:
    """An entry's changes, looked at one by one: how many, their digest, and what is wrong with their bodies."""

    seq: int
    many: int = 0
    digest: bytes = changes_digest([])
    problems: dict[str, None] = field(default_factory=dict)
    is_ill_formed: bool = False

    @classmethod
    def of(cls, seq: int, rows: Iterator[ChangeRow], redacted: Redacted) -> _Changes:
        changes = cls(seq)
        with ill_formed() as found:
            changes.digest = changes_digest(changes._each(rows, redacted))
        changes.is_ill_formed = bool(found)
        return changes

    def _each(self, rows: Iterator[ChangeRow], redacted: Redacted) -> Iterator[Row]:
        for seq, number, before, before_digest, after, after_digest in rows:
            self.many += 1
            digests = binary_or_none(before_digest), binary_or_none(after_digest)
            for snapshot, digest in ((before, digests[0]), (after, digests[1])):
                problem = _snapshot_problem(binary_or_none(snapshot), digest, number, seq, redacted)
                if problem:
                    self.problems[problem] = None
            yield {"number": number, "before_digest": digests[0], "after_digest": digests[1]}


def _entry_problems(
    entry: Row, previous: bytes, own: _Changes, keys: Sequence[Key], redacted: Redacted
) -> Iterator[str]:
    if all(key.id != entry["key_id"] for key in keys):
        is_renamed = any(follows(entry | {"key_id": key.id}, previous, own.digest, keys) for key in keys)
        yield ALTERED if is_renamed else f"made under audit key {entry['key_id']!s:.8}, which is not in the keyring"
        return
    if own.is_ill_formed:
        return
    if own.many != whole(entry["changes"]) and not follows(entry | {"changes": own.many}, previous, own.digest, keys):
        kind = "missing" if own.many < entry["changes"] else "inserted"
        yield f"{kind}: holds {own.many} changes where {entry['changes']} were written"
    if not follows(entry, previous, own.digest, keys):
        yield ALTERED
    yield from own.problems
    note, digest = binary_or_none(entry["sealed"]), binary_or_none(entry["sealed_digest"])
    if note is None:
        if digest is not None and entry["seq"] not in redacted.notes:
            yield _gone(digest)
    elif entry["seq"] in redacted.notes:
        yield PUT_BACK
    elif hashlib.sha256(note).digest() != digest:
        yield EXCHANGED


ALTERED = "altered: not as it was written, or not after the entry it was written after"
WIPED = "wiped: a sealed body is gone, and its digest is there"
EXCHANGED = "altered: a sealed body is not the one that was written"
PUT_BACK = "inserted: a sealed body that was redacted is there again"


def _snapshot_problem(
    snapshot: bytes | None, digest: bytes | None, number: int, seq: int, redacted: Redacted
) -> str | None:
    """What is wrong with a snapshot, beside its digest and what was redacted."""
    if snapshot is None:
        return None if digest is None else _gone(digest)
    is_covered = bool(redacted.bodies) and redacted.covers(number, seq)
    if is_covered and trail.has_body(snapshot):
        return PUT_BACK
    if trail.snapshot_digest(snapshot) == digest:
        return None
    if trail.has_body(snapshot) or digest is None:
        return EXCHANGED
    if is_covered:
        return None if redacted.accounts_for(number, snapshot, digest) else EXCHANGED
    return WIPED


def _gone(digest: bytes) -> str:
    """What a digest without its body tells of. An empty one, or one of zeros, is what the MAC makes of none."""
    return WIPED if any(digest) else EXCHANGED


def follows(entry: Row, previous: bytes, changes: bytes, keys: Sequence[Key]) -> bool:
    """Whether an entry's MAC is that of its fields and its changes' digest after the entry of MAC `previous`."""
    mac, key_id = binary(entry["mac"]), entry["key_id"]
    for key in keys:
        if key.id == key_id and hmac.compare_digest(entry_mac(key.secret, previous, entry, changes), mac):
            return True
    return False


def whole(value: Any) -> int:
    """A whole number; TypeError for anything else SQLite may keep where one was written."""
    if not isinstance(value, int):
        raise TypeError
    return value


def binary(value: Any) -> bytes:
    """Bytes; TypeError for anything else. (`bytes` would make a billion zeros of the number.)"""
    if isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    raise TypeError


def binary_or_none(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else binary(value)
