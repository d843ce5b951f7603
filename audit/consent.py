"""Requests to read an agent's memories. The audit trail determines their scope and their state.

Each step is an entry, which `memory.consent.grants` writes. A grant counts only if the chain of MACs is intact from the
request's entry to the last entry. So a row inserted by SQL grants nothing, and a deleted row does not undo a
revocation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from audit import typed
from audit.models import CONSENT, AccessState, AuditEntry, Operation
from audit.verify import ill_formed

LAPSES = timedelta(hours=72)  # after which an undecided request lapses
SHORTEST, LONGEST, USUAL = timedelta(minutes=15), timedelta(hours=4), timedelta(hours=1)
LEAST_PURPOSE, MOST_PURPOSE = 20, 1_000  # characters
MOST_NUMBERS = 1_000
KINDS = ("silo", "memories", "session", "entries")

_BECOMES = {
    Operation.ACCESS_GRANTED: AccessState.ACTIVE,
    Operation.ACCESS_DENIED: AccessState.DENIED,
    Operation.ACCESS_LAPSED: AccessState.LAPSED,
    Operation.ACCESS_EXPIRED: AccessState.EXPIRED,
    Operation.ACCESS_REVOKED: AccessState.REVOKED,
}
_FROM = {
    AccessState.ACTIVE: AccessState.REQUESTED,
    AccessState.DENIED: AccessState.REQUESTED,
    AccessState.LAPSED: AccessState.REQUESTED,
    AccessState.EXPIRED: AccessState.ACTIVE,
    AccessState.REVOKED: AccessState.ACTIVE,
}


@dataclass(frozen=True, slots=True)
class Person:
    """A person who can sign in. `address` is their mail address."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What a request covers. The `kind` is one of these: `silo` covers everything, `memories` covers the memories with
    these `numbers`, `session` covers the entries of one session, and `entries` covers the entries from `first` to
    `last`."""

    kind: str
    numbers: tuple[int, ...] = ()
    session: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scope:
        """The scope in this JSON object. Raises the errors that `ill_formed` catches."""
        numbers = tuple(map(typed.number, value.get("numbers", ())))
        places = {name: typed.number(each) for name, each in value.items() if name not in ("kind", "numbers")}
        if value["kind"] not in KINDS:
            raise ValueError
        return cls(value["kind"], numbers, **places)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if name == "numbers" else value for name, value in asdict(self).items() if value}

    def covers_memories(self, numbers: Iterable[int]) -> bool:
        """Whether these memories may be read in their current state."""
        return self.kind == "silo" or (self.kind == "memories" and set(numbers) <= set(self.numbers))

    def covers_entry(self, entry: AuditEntry) -> bool:
        """Whether this entry's changes may be read. If the kind is `memories`, only changes of the memories in
        `numbers` may be read."""
        return {
            "silo": True,
            "memories": True,
            "session": entry.session == self.session,
            "entries": self.first <= entry.seq <= self.last,
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Standing:
    """A request, as read from the trail. `number` is the number of the request's entry."""

    number: int
    person_id: int
    person: str
    purpose: str
    scope: Scope
    seconds: int
    asked_at: datetime
    state: AccessState = AccessState.REQUESTED
    decided_at: datetime | None = None
    decided_by: str = ""
    until: datetime | None = None
    ended_at: datetime | None = None

    @property
    def decide_until(self) -> datetime:
        return self.asked_at + LAPSES

    def at(self, now: datetime) -> AccessState:
        """The state at this moment. After the time limit, a request lapses or a grant expires, even if no entry says
        so."""
        if self.state == AccessState.REQUESTED and now >= self.decide_until:
            return AccessState.LAPSED
        if self.state == AccessState.ACTIVE and (self.until is None or now >= self.until):
            return AccessState.EXPIRED
        return self.state


def standings(agent_id: int, since: int = 1) -> dict[int, Standing]:
    """The requests in an agent's trail, in order, beginning with entry `since`. The keys are their numbers."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since)
    entries = entries.filter(operation__in=[Operation.ACCESS_REQUESTED, *_BECOMES]).order_by("seq")
    found: dict[int, Standing] = {}
    for entry in entries:
        with ill_formed():  # such an entry is ignored here, and verify_audit reports it
            if entry.operation == Operation.ACCESS_REQUESTED:
                found[entry.seq] = _request(entry)
            elif (before := found.get(entry.detail["request"])) is not None:
                found[before.number] = _after(before, entry)
    return found


def _request(entry: AuditEntry) -> Standing:
    detail = entry.detail
    return Standing(
        number=entry.seq,
        person_id=typed.number(detail["person_id"]),
        person=typed.text(detail["person"]),
        purpose=typed.text(detail["purpose"]),
        scope=Scope.from_json(detail["scope"]),
        seconds=typed.number(detail["seconds"]),
        asked_at=entry.at,
    )


def _after(before: Standing, entry: AuditEntry) -> Standing:
    """The request, with the new state that this entry gives to it. An entry that does not fit the old state changes
    nothing."""
    state = _BECOMES[Operation(entry.operation)]
    if before.state != _FROM[state]:
        return before
    if state in (AccessState.EXPIRED, AccessState.REVOKED):
        return replace(before, state=state, ended_at=entry.at)
    until = entry.at + timedelta(seconds=before.seconds) if state == AccessState.ACTIVE else None
    decided_by = "" if state == AccessState.LAPSED else entry.actor_kind
    return replace(before, state=state, decided_at=entry.at, decided_by=decided_by, until=until)


def columns(standing: Standing, tenant_id: int, label: str) -> dict[str, Any]:
    """The values of the request's row (AccessRequest)."""
    labels = {"tenant_id": tenant_id, "agent_label": label}
    return asdict(standing) | {"scope": standing.scope.to_json()} | labels


def same_address(one: str, other: str) -> bool:
    """Whether two mail addresses may belong to the same person.

    The comparison ignores letter case, Unicode compatibility forms and a tag after `+`. At some mail providers, it also
    ignores dots.
    """
    return bool(one) and _normalized(one) == _normalized(other)


def same_domain(one: str, other: str) -> bool:
    return _normalized(one).rpartition("@")[2] == _normalized(other).rpartition("@")[2]


def _normalized(address: str) -> str:
    local, _, domain = unicodedata.normalize("NFKC", address).strip().casefold().rpartition("@")
    local = local.strip('"').replace("\\", "").partition("+")[0]
    domain = ".".join(map(_decoded, domain.split(".")))
    with suppress(UnicodeError):
        domain = domain.encode("idna").decode()
    domain = _SAME.get(domain.rstrip("."), domain.rstrip("."))
    if domain in _WITHOUT_DOTS:
        local = local.replace(".", "")
    return f"{local}@{domain}"


# Domains that deliver to the same mailbox. The list is incomplete, so the steward's page also shows the address.
_SAME = {
    "googlemail.com": "gmail.com",
    "protonmail.com": "proton.me",
    "pm.me": "proton.me",
    "me.com": "icloud.com",
    "mac.com": "icloud.com",
    "ya.ru": "yandex.ru",
    "yandex.com": "yandex.ru",
}
_WITHOUT_DOTS = ("gmail.com", "proton.me")


def _decoded(label: str) -> str:
    """A label of a domain, decoded from Punycode."""
    if label.startswith("xn--"):
        with suppress(UnicodeError):
            return label[4:].encode("ascii").decode("punycode").casefold()
    return label
