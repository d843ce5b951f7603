"""Consent to read what an agent remembers: what was asked, what became of it, what it covers.

Worked out from the agent's trail: each step is an entry there, which `memory.consent.grants` writes. A grant counts
with the chain of MACs unbroken from the entry that asked to the last alone, so that no row put in by SQL opens
anything, and none taken out revives what was revoked.
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

LAPSES = timedelta(hours=72)  # a request that nobody decided about
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
    """Somebody who may sign in. `address` is that of their mail."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What a request is about. `kind`: silo (all of it), memories (`numbers`), session (its entries), entries
    (`first` to `last`)."""

    kind: str
    numbers: tuple[int, ...] = ()
    session: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, told: dict[str, Any]) -> Scope:
        """As JSON keeps it; `numbers` is the one that is a list."""
        numbers = tuple(map(typed.number, told.get("numbers", ())))
        places = {name: typed.number(value) for name, value in told.items() if name not in ("kind", "numbers")}
        if told["kind"] not in KINDS:
            raise ValueError
        return cls(told["kind"], numbers, **places)

    def told(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {name: list(value) if name == "numbers" else value for name, value in asdict(self).items() if value}

    def covers_memories(self, numbers: Iterable[int]) -> bool:
        """Whether these memories may be read as they stand."""
        return self.kind == "silo" or (self.kind == "memories" and set(numbers) <= set(self.numbers))

    def covers_entry(self, entry: AuditEntry) -> bool:
        """Whether what this entry did may be read; of `memories`, as far as it did it to them."""
        return {
            "silo": True,
            "memories": True,
            "session": entry.session == self.session,
            "entries": self.first <= entry.seq <= self.last,
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Standing:
    """A request as the trail has it. `number` is that of the entry that asked."""

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
        """Its state at this moment: a clock ends it without an entry."""
        if self.state == AccessState.REQUESTED and now >= self.decide_until:
            return AccessState.LAPSED
        if self.state == AccessState.ACTIVE and (self.until is None or now >= self.until):
            return AccessState.EXPIRED
        return self.state


def standings(agent_id: int, since: int = 1) -> dict[int, Standing]:
    """Every request of an agent's trail from an entry on, by number, in order."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since)
    entries = entries.filter(operation__in=[Operation.ACCESS_REQUESTED, *_BECOMES]).order_by("seq")
    found: dict[int, Standing] = {}
    for entry in entries:
        with ill_formed():  # as SQL can write it: it counts for nothing, and verifying tells of it
            if entry.operation == Operation.ACCESS_REQUESTED:
                found[entry.seq] = _asked(entry)
            elif (before := found.get(entry.detail["request"])) is not None:
                found[before.number] = _after(before, entry)
    return found


def _asked(entry: AuditEntry) -> Standing:
    told = entry.detail
    return Standing(
        number=entry.seq,
        person_id=typed.number(told["person_id"]),
        person=typed.text(told["person"]),
        purpose=typed.text(told["purpose"]),
        scope=Scope.of(told["scope"]),
        seconds=typed.number(told["seconds"]),
        asked_at=entry.at,
    )


def _after(before: Standing, entry: AuditEntry) -> Standing:
    """What an entry makes of a request; nothing where the one does not follow from the other."""
    state = _BECOMES[Operation(entry.operation)]
    if before.state != _FROM[state]:
        return before
    if state in (AccessState.EXPIRED, AccessState.REVOKED):
        return replace(before, state=state, ended_at=entry.at)
    until = entry.at + timedelta(seconds=before.seconds) if state == AccessState.ACTIVE else None
    decided_by = "" if state == AccessState.LAPSED else entry.actor_kind
    return replace(before, state=state, decided_at=entry.at, decided_by=decided_by, until=until)


def columns(standing: Standing, tenant_id: int, label: str) -> dict[str, Any]:
    """A request as its row has it."""
    labels = {"tenant_id": tenant_id, "agent_label": label}
    return asdict(standing) | {"scope": standing.scope.told()} | labels


def same_address(one: str, other: str) -> bool:
    """Whether mail to both may reach the same person: letter case, compatibility forms, a tag after `+` and, at
    Google, dots make no difference."""
    return bool(one) and _normalized(one) == _normalized(other)


def same_domain(one: str, other: str) -> bool:
    return _normalized(one).rpartition("@")[2] == _normalized(other).rpartition("@")[2]


def _normalized(address: str) -> str:
    local, _, domain = unicodedata.normalize("NFKC", address).strip().casefold().rpartition("@")
    local = local.strip('"').replace("\\", "").partition("+")[0]
    domain = ".".join(map(_spelled_out, domain.split(".")))
    with suppress(UnicodeError):
        domain = domain.encode("idna").decode()
    domain = _SAME.get(domain.rstrip("."), domain.rstrip("."))
    if domain in _WITHOUT_DOTS:
        local = local.replace(".", "")
    return f"{local}@{domain}"


# Domains of which mail to one reaches the other. As good as such a list can be: the steward's page shows the address.
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


def _spelled_out(label: str) -> str:
    """A part of a domain as people write it, not as machines do."""
    if label.startswith("xn--"):
        with suppress(UnicodeError):
            return label[4:].encode("ascii").decode("punycode").casefold()
    return label
