"""Verifies a trail: the chain of MACs and the digests of snapshots. It decrypts nothing."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from django.db import models
from django.db.models import Min, QuerySet

from audit import guards, trail
from audit.bulk import streamed
from audit.ill_formed import ILL_FORMED_ROW, binary, binary_or_none, ill_formed, typed
from audit.models import AuditEntry, Change, Operation
from audit.redactions import Redacted
from audit.trail import changes_digest, entry_mac
from config import PROGRAM
from config.keyring import Key, keyring

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference between the stored trail and the trail as it was written. `seq` is 0 if the problem belongs to no
    single entry."""

    agent: str
    seq: int
    problem: str


def tolerant(label: str, check: Iterator[Problem]) -> Iterator[Problem]:
    """The problems that a check finds. An ill-formed value is also a problem. It ends this check, but no other
    check."""
    with ill_formed() as found:
        yield from check
    if found:
        yield Problem(label, 0, ILL_FORMED_ROW)


def trails() -> Iterator[tuple[int, str]]:
    """The pair (agent id, label) of every agent with an entry or a change. If the agent has no entry, the label is
    empty."""
    entries = AuditEntry.objects.order_by("agent_id").values_list("agent_id").annotate(Min("agent_label"))
    labels = {agent_id: label if isinstance(label, str) else "" for agent_id, label in entries}
    for agent_id in Change.objects.order_by("agent_id").values_list("agent_id", flat=True).distinct():
        labels.setdefault(agent_id, "")
    yield from labels.items()


def missing_guards() -> list[Problem]:
    advice = f"is missing or altered: run '{PROGRAM} migrate'"
    found = [f"trigger {name} {advice}" for name in guards.missing()]
    found += [f"{name}: the service did not make this, so remove it" for name in guards.unexpected()]
    return [Problem("", 0, problem) for problem in found]


def chain(agent_id: int, label: str) -> Iterator[Problem]:
    """The problems of an agent's chain. The check needs a constant amount of RAM. The check ends at a row that cannot
    be read.

    Rows are read in batches. So the error of such a row may be raised before all earlier entries are checked. A second
    walk checks the earlier entries that were not checked yet.
    """
    walk = _Walk(agent_id, label)
    with ill_formed() as found:
        yield from walk.problems()
    if found:
        where = {"agent_id": agent_id, "seq__gte": walk.expected}
        places = (first_unreadable(model, "seq", **where) for model in (AuditEntry, Change))
        unreadable = min((seq for seq in places if seq is not None), default=walk.expected)
        with ill_formed():  # check the entries before that row
            yield from (each for each in _Walk(agent_id, label, unreadable).problems() if each.seq >= walk.expected)
        yield Problem(label, unreadable, ILL_FORMED_ROW)


def intact(agent_id: int, keep: Callable[[Any], bool], since: int, until: int, head: object = None) -> list[Any]:
    """The rows that `keep` chooses among the entries (dictionaries) and changes (tuples) from entry `since` on, before
    `until`. They are the very rows in which this check finds no problem, so that SQL cannot show other rows to a second
    query. A single entry comes after its changes. Empty if there is a problem. `head` is the number and MAC of the last
    entry, from the agent's row."""
    return _kept(_Walk(agent_id, "", until, since, keep), head)


def intact_entries(
    agent_id: int, keep: Callable[[Row], bool], since: int, until: int, head: object = None
) -> list[Any]:
    """Like `intact`, but for entries only. Their changes are not read, because there can be millions: the MAC of an
    entry covers a digest of them. If an older entry does not have it, the changes are read."""
    walk = _Walk(agent_id, "", until, since, keep, reads_changes=False)
    found = _kept(walk, head)
    if walk.lacks_digests:
        return intact(agent_id, lambda row: isinstance(row, dict) and keep(row), since, until, head)
    return found


def _kept(walk: _Walk, head: object) -> list[Any]:
    with ill_formed():
        if not any(walk.problems()) and head in (None, (walk.expected - 1, walk.previous)):
            return walk.kept
    return []


def intact_changes(
    agent_id: int, first: int, last: int | None = None, *, keep: Callable[[Any], bool] = bool
) -> list[Any]:
    """The changes that `keep` chooses in an entry, or in the entries from `first` to `last`, without those of altered
    entries."""
    last = last or first
    for _ in range(2):  # a redaction may just be committed
        if rows := intact(agent_id, lambda row: not isinstance(row, dict) and keep(row), first, last + 1):
            return rows
    if first == last:
        return []
    return [change for seq in range(first, last + 1) for change in intact_changes(agent_id, seq, keep=keep)]


def first_unreadable(model: type[models.Model], number: str, **where: Any) -> int | None:
    """The lowest value of the column `number` in the rows that cannot be read. This reads each row with its own
    query."""
    rows = model._default_manager.filter(**where).order_by(number).values_list("pk", number)
    for pk, at in rows.iterator():
        with ill_formed() as found:
            model._default_manager.filter(pk=pk).values().get()
        if found:
            return typed(int, at)
    return None


_SOON = 100  # number of following entries in which a renumbered entry is searched


def _redacted(agent_id: int, since: int) -> Redacted:
    """The bodies and notes in the lists of the agent's redactions, from entry `since` on. This function ignores
    ill-formed entries. The walk reports them."""
    redacted = Redacted()
    entries = AuditEntry.objects.filter(agent_id=agent_id, operation=Operation.REDACTED, seq__gte=since)
    for seq, detail in _details(entries.order_by("seq")):
        with ill_formed():
            redacted.add(seq, detail)
    return redacted


def _details(entries: QuerySet[AuditEntry]) -> list[tuple[int, Any]]:
    """The number and the detail of each entry, without those that cannot be read."""
    with ill_formed():
        return list(entries.values_list("seq", "detail"))
    found = []
    for pk in entries.values_list("pk", flat=True):  # one query each, so that a bad row affects only itself
        with ill_formed():
            found.append(entries.values_list("seq", "detail").get(pk=pk))
    return found


def _mac_of(agent_id: int, seq: int) -> bytes:
    """The MAC of an entry. It is empty if `seq` is 0."""
    found = AuditEntry.objects.filter(agent_id=agent_id, seq=seq).values_list("mac", flat=True).first() if seq else b""
    return binary(found) if found is not None else b""


class _Walk:
    """A check of one chain, entry by entry. `expected` is the number of the next entry. `previous` is the MAC of the
    entry before it."""

    lacks_digests = False  # an entry has no digest of its changes, which were not read

    def __init__(
        self,
        agent_id: int,
        label: str,
        until: int | None = None,
        since: int = 1,
        keep: Any = None,
        *,
        reads_changes: bool = True,
    ) -> None:
        self.expected, self.previous, self.label = since, _mac_of(agent_id, since - 1), label
        self._has_searched = keep is not None  # only `verify_audit` shows from where an altered entry comes
        self._reads_changes = reads_changes
        self._keys = keyring().audit
        self._redacted = Redacted()
        self._since, self._keep, self.kept = since, keep, list[Any]()
        self._which = {"agent_id": agent_id} | ({} if until is None else {"seq__lt": until})
        self._which |= {"seq__gte": since} if since > 1 else {}

    def problems(self) -> Iterator[Problem]:
        self._redacted = _redacted(self._which["agent_id"], self._since)
        entries = AuditEntry.objects.filter(**self._which).order_by("seq").values()
        changes = Change.objects.filter(**self._which).order_by("seq", "number").values_list(*_OF_A_CHANGE, named=True)
        changes = changes if self._reads_changes else changes.none()
        with streamed(entries) as entry_rows, streamed(changes) as change_rows:
            yield from self._side_by_side(map(self._read, entry_rows), self._by_entry(map(self._read, change_rows)))

    def _read(self, row: T) -> T:
        if self._keep and self._keep(row):
            self.kept.append(row)
        return row

    def _by_entry(self, rows: Iterator[ChangeRow]) -> Iterator[_Changes]:
        for seq, group in itertools.groupby(rows, key=itemgetter(0)):
            yield _Changes.of(typed(int, seq), group, self._redacted)

    def _side_by_side(self, entries: Iterator[Row], changes: Iterator[_Changes]) -> Iterator[Problem]:
        waiting = next(changes, None)
        for entry in entries:
            seq = typed(int, entry["seq"])
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
            yield from self._entry(entry, own or self._not_read(entry))
        while waiting is not None:
            yield self._without_entry(waiting.seq)
            waiting = next(changes, None)
        if self.expected == self._since:
            yield Problem(self.label, 0, "the trail is empty")

    def _not_read(self, entry: Row) -> _Changes:
        """The changes of an entry that has none, or whose changes are not read."""
        if self._reads_changes:
            return _Changes(entry["seq"])
        self.lacks_digests |= entry["changes_digest"] is None
        return _Changes(entry["seq"], entry["changes"], binary_or_none(entry["changes_digest"]) or b"")

    def _entry(self, entry: Row, own: _Changes) -> Iterator[Problem]:
        previous, self.previous, self.expected = self.previous, b"", entry["seq"] + 1
        with ill_formed() as found:
            self.previous = binary(entry["mac"])
            for problem in _entry_problems(entry, previous, own, self._keys, self._redacted):
                yield Problem(self.label, entry["seq"], self._located(problem, entry, previous, own))
        if found or own.is_ill_formed:
            yield Problem(self.label, entry["seq"], ILL_FORMED_ROW)

    def _located(self, problem: str, entry: Row, previous: bytes, own: _Changes) -> str:
        """For an altered entry, search for the place that it comes from. If the place is found, return a problem that
        names it. In all other cases, return `problem`."""
        if problem == ALTERED and not self._has_searched:
            self._has_searched = True  # only once, because it reads the whole trail
            with ill_formed():
                problem = self._is_another(entry, own) or self._is_before(entry, previous) or problem
        return problem

    def _is_another(self, entry: Row, own: _Changes) -> str | None:
        entries = AuditEntry.objects.filter(agent_id=self._which["agent_id"]).order_by("seq")
        with streamed(entries.values_list("seq", "mac")) as rows:
            for seq, mac in itertools.chain([(0, b"")], rows):
                for place in (seq, seq + 1):  # the entry before it may have been renumbered, too
                    if place != entry["seq"] and follows(entry | {"seq": place}, binary(mac), own.digest, self._keys):
                        is_copy = entries.filter(seq=place, mac=entry["mac"]).exists()
                        return f"{'duplicated' if is_copy else 'reordered'}: this is entry {place}"
        return None

    def _is_before(self, entry: Row, previous: bytes) -> str | None:
        """If a later entry originally had the number of this entry, this entry was inserted. In this case, return a
        problem that says so."""
        agent_id, seq = self._which["agent_id"], entry["seq"]
        for other in AuditEntry.objects.filter(agent_id=agent_id, seq__gt=seq).order_by("seq").values()[:_SOON]:
            own: Any = Change.objects.filter(agent_id=agent_id, seq=other["seq"]).order_by("number").values()
            if follows({**other, "seq": seq}, previous, changes_digest(own), self._keys):
                return f"inserted: the original entry is now entry {other['seq']}"
        return None

    def _without_entry(self, seq: int) -> Problem:
        return Problem(self.label, seq, "missing: the trail has changes without their entry")


_OF_A_CHANGE = ("seq", "number", "before", "before_digest", "after", "after_digest")
ChangeRow = tuple[Any, Any, Any, Any, Any, Any]


@dataclass(slots=True)
class _Changes:
    """The changes of an entry: their count, their digest, and the problems of their bodies."""

    seq: int
    count: int = 0
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
            self.count += 1
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
        yield ALTERED if is_renamed else f"signed with audit key {entry['key_id']!s:.8}, which is not in the keyring"
        return
    if own.is_ill_formed:
        return
    written = typed(int, entry["changes"])
    if own.count != written and not follows(entry | {"changes": own.count}, previous, own.digest, keys):
        kind = "missing" if own.count < written else "inserted"
        yield f"{kind}: it has {own.count} changes, but {written} were written"
    if not follows(entry, previous, own.digest, keys):
        yield ALTERED
    yield from own.problems
    note, digest = binary_or_none(entry["sealed"]), binary_or_none(entry["sealed_digest"])
    if note is None:
        if digest is not None and entry["seq"] not in redacted.notes:
            yield _missing_body(digest)
    elif entry["seq"] in redacted.notes:
        yield RETURNED
    elif hashlib.sha256(note).digest() != digest:
        yield EXCHANGED


ALTERED = "altered: it is not as it was written, or does not follow the right entry"
WIPED = "wiped: a sealed body is missing, but its digest is there"
EXCHANGED = "altered: a sealed body is not the one that was written"
RETURNED = "inserted: a redacted body exists again"


def _snapshot_problem(
    snapshot: bytes | None, digest: bytes | None, number: int, seq: int, redacted: Redacted
) -> str | None:
    """The problem of a snapshot, or None. `digest` is the stored digest. `redacted` contains the agent's redactions."""
    if snapshot is None:
        return None if digest is None else _missing_body(digest)
    is_covered = bool(redacted.bodies) and redacted.covers(number, seq, snapshot)
    if is_covered and trail.has_body(snapshot):
        return RETURNED
    if trail.snapshot_digest(snapshot) == digest:
        return None
    if trail.has_body(snapshot) or digest is None:
        return EXCHANGED
    if is_covered:
        return None if redacted.accounts_for(number, snapshot, digest) else EXCHANGED
    return WIPED


def _missing_body(digest: bytes) -> str:
    """Return the problem of a digest whose body is missing. If the digest is empty or has only zeros, the entry's MAC
    is the same as without a digest."""
    return WIPED if any(digest) else EXCHANGED


def follows(entry: Row, previous: bytes, changes: bytes, keys: Sequence[Key]) -> bool:
    """Whether the entry's MAC is right for the entry's fields, the digest of its changes, and the previous MAC."""
    mac, key_id = binary(entry["mac"]), entry["key_id"]
    for key in keys:
        if key.id == key_id and hmac.compare_digest(entry_mac(key.secret, previous, entry, changes), mac):
            return True
    return False
