"""Requests to an agent's side: to read its memories, to change its settings, and to remove content permanently.

The audit trail determines their content and their state. Each step is an entry, which `memory.consent.requests` writes.
A request counts only if the chain of MACs is intact from the request's entry to the last entry. So a row inserted by
SQL grants nothing, and a deleted row does not undo a revocation.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum, TextField, Window
from django.db.models.functions import Cast, Length, RowNumber
from django.utils import timezone

from audit import guards, verify
from audit.ill_formed import binary, ill_formed, typed
from audit.models import CONSENT, STEPS, AccessRequest, AuditEntry, Operation, State

LAPSES = timedelta(hours=72)  # after which an undecided request lapses
_LAST_DATE = datetime.max.replace(tzinfo=UTC)
SHORTEST, LONGEST, USUAL = timedelta(minutes=15), timedelta(hours=4), timedelta(hours=1)
LEAST_PURPOSE, MOST_PURPOSE = 20, 1_000  # characters
MOST_NUMBERS = 1_000
KINDS = ("silo", "memories", "session", "entries")

PROPOSABLE = ("model", "steward", "is_steward_only", "memory_path", "vault_path")
PROPOSAL = Operation.CHANGE_PROPOSED
REMOVALS = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
OPEN = (State.REQUESTED, State.OPEN)
_REMOVING = (*REMOVALS, Operation.REDACTED, Operation.ERASED, Operation.REQUEST_DECLINED)
_MOST_READ = 200  # entries of an agent, for a page about many agents
_MOST_CHARACTERS = 1_000_000  # of their details; that of a redaction has the digests of all that was removed
_COUNTED = (Operation.ACCESS_REQUESTED, PROPOSAL, *REMOVALS, *STEPS, Operation.CLAIMED)

_BY_SERVICE = (State.LAPSED, State.REPLACED)  # nobody decided
_WHOLE = 0  # what an erasure removes, in place of the number of a memory


@dataclass(frozen=True, slots=True)
class Person:
    """A person who can sign in. `address` is their mail address."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What a request covers. The `kind` is one of these: `silo` covers everything, `memories` covers the memories with
    these `numbers`, `session` covers the entries of one session up to entry `last`, and `entries` covers the entries
    from `first` to `last`."""

    kind: str
    numbers: tuple[int, ...] = ()
    session: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Scope:
        """The scope in this JSON object. Raises the errors that `ill_formed` catches."""
        numbers = tuple(typed(int, each) for each in value.get("numbers", ()))
        places = {name: typed(int, each) for name, each in value.items() if name not in ("kind", "numbers")}
        if value["kind"] not in KINDS:
            raise ValueError
        return cls(value["kind"], numbers, **places)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if name == "numbers" else value for name, value in asdict(self).items() if value}

    def covers_memories(self, numbers: Iterable[int]) -> bool:
        """Whether these memories may be read in their current state."""
        return self.kind == "silo" or (self.kind == "memories" and set(numbers) <= set(self.numbers))

    def covers_change(self, seq: int, session: int | None, number: int) -> bool:
        """Whether the change of memory `number` by entry `seq` of this session may be read."""
        is_in_time = self.first <= seq <= self.last
        by_entry = {"session": session == self.session and is_in_time, "entries": is_in_time}
        return by_entry.get(self.kind, self.covers_memories([number]))


@dataclass(frozen=True, slots=True)
class Request:
    """A request to read, to change settings (a proposal) or to remove content, as read from the trail.

    `number` is the number of the request's entry. An approved request to read is a grant. `asker` made the request.
    `asked_by` names the person for whom the asker of a removal acts. `settled_by` is the entry that decided it.
    """

    number: int
    operation: str
    asker_kind: str
    asker: str
    asked_at: datetime
    mac: str = field(repr=False)  # of the entry
    person_id: int = 0
    reason: str = ""
    scope: Scope = Scope("")
    seconds: int = 0
    proposed: dict[str, Any] = field(default_factory=dict)
    asked_by: str = ""
    memories: tuple[int, ...] = ()  # empty for an erasure
    excluded: tuple[int, ...] = ()  # related memories that a redaction keeps
    version: int = 0  # the entry of the only version to redact; 0: all versions
    left: tuple[int, ...] = ()  # those of the memories that are not redacted yet
    state: State = State.OPEN
    decided_at: datetime | None = None
    decided_by: str = ""
    settled_by: int = 0
    until: datetime | None = None
    ended_at: datetime | None = None

    @property
    def decide_until(self) -> datetime:
        return lapses_at(self.asked_at)

    @property
    def is_removal(self) -> bool:
        return self.operation in REMOVALS

    @property
    def is_erasure(self) -> bool:
        return self.operation == Operation.ERASURE_REQUESTED

    @property
    def removes(self) -> str:
        return "silo" if self.is_erasure else "memories"

    def at(self, now: datetime) -> Request:
        """The request in its state at this moment. A request to remove content never lapses, because the law may
        require a decision."""
        return self if self.is_removal else replace(self, state=state_at(self, now))


def lapses_at(asked_at: datetime) -> datetime:
    """Until when somebody can decide. (SQL can store the last date that Python has.)"""
    return min(asked_at, _LAST_DATE - LAPSES) + LAPSES


def state_at(request: Request | AccessRequest, now: datetime) -> State:
    """The state at this moment. After the time limit, a request lapses or a grant expires, even if no entry says so."""
    if request.state in OPEN and now - request.asked_at >= LAPSES:
        return State.LAPSED
    if request.state == State.ACTIVE and (request.until is None or now >= request.until):
        return State.EXPIRED
    return State(request.state)


def open_now() -> Q:
    """A condition for requests to read that can still be decided."""
    return Q(state=State.REQUESTED, asked_at__gt=timezone.now() - LAPSES)


def open_and_active(rows: QuerySet[AccessRequest]) -> tuple[int, int]:
    """How many of these requests to read are open, and how many are active grants."""
    is_active = Q(state=State.ACTIVE, until__gt=timezone.now())
    found = rows.aggregate(opened=Count("pk", filter=open_now()), active=Count("pk", filter=is_active))
    return found["opened"], found["active"]


def requests(agent_id: int, since: int = 1, *, with_access: bool = True) -> dict[int, Request]:
    """The requests in an agent's trail, in order, beginning with entry `since`. The keys are their numbers. Without
    `with_access`, requests to read are left out. There can be thousands."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since).order_by("seq")
    entries = entries.defer("sealed")  # there can be 200 kB of prompts in each
    return _built(entries if with_access else entries.exclude(operation__startswith="access"))


def waiting_removals(agents: QuerySet[Any], most: int) -> dict[tuple[int, str], list[Request]]:
    """The open requests to remove content, by the ids and labels of the first `most` agents with such requests. For
    lists only: of each agent, this reads the newest 200 entries about removals, with a million characters at most, and
    does not verify them."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id__in=agents.order_by().values("pk"), operation__in=_REMOVING)
    # An entry settles one request. So an agent has open ones if more than half of its entries are requests.
    unsettled = Count("pk", filter=Q(operation__in=REMOVALS)) * 2 - Count("pk")
    counted = entries.order_by().values("agent_id").annotate(unsettled=unsettled)
    waiting = counted.filter(unsettled__gt=0).values("agent_id")
    entries = entries.filter(agent_id__in=list(agents.filter(pk__in=waiting).values_list("pk", flat=True)[:most]))
    newest_first: Any = {"partition_by": F("agent_id"), "order_by": F("seq").desc()}
    size = Window(Sum(Length(Cast("detail", TextField()))), **newest_first)
    placed = entries.annotate(place=Window(RowNumber(), **newest_first), size=size)
    newest = placed.filter(place__lte=_MOST_READ, size__lte=_MOST_CHARACTERS)
    by_agent = defaultdict(list)
    for entry in newest.defer("sealed").order_by("seq"):
        by_agent[entry.agent_id, entry.agent_label].append(entry)
    opened = {agent: [each for each in _built(rows).values() if each.state in OPEN] for agent, rows in by_agent.items()}
    return {agent: waiting for agent, waiting in opened.items() if waiting}


def is_altered(agent: Any, *shown: Request) -> bool:
    """Whether the trail from the first of these requests on, up to the agent's last entry, was altered or gives other
    requests. Both come from the same rows, so that SQL cannot show other rows to a second query. The agent's row must
    be proven. It must also be locked, unless the requests are only shown."""
    head = agent.audit_seq, bytes(agent.audit_mac)
    is_counted = lambda row: row["operation"] in _COUNTED  # noqa: E731
    rows = verify.intact_entries(agent.pk, is_counted, shown[0].number, head[0] + 1, head)
    found = _built(AuditEntry.from_db("default", list(row), list(row.values())) for row in rows)
    # The guards come after the reads, because the locks of the reads keep the tables as they are.
    return any(found.get(each.number) != each for each in shown) or bool(guards.unexpected())


def _built(entries: Iterable[AuditEntry]) -> dict[int, Request]:
    found: dict[int, Request] = {}
    removed: dict[int, datetime] = {}
    for entry in entries:
        with ill_formed():  # such an entry is ignored here, and verify_audit reports it
            if entry.operation == Operation.CLAIMED:
                found.clear()  # SQL may have hidden a request from the claim, which ends all
                continue
            if entry.operation not in STEPS:
                found[entry.seq] = _request(entry)
                continue
            number = entry.detail.get("request", entry.detail.get("proposal", 0))
            if number in found:
                found[number] = after(found[number], entry)
            redacted = () if "version" in entry.detail else entry.detail.get("redacted", ())
            gone = [_WHOLE] if entry.operation == Operation.ERASED else map(int, redacted)
            removed |= dict.fromkeys(gone, entry.at)
    return {number: _without(each, removed) if each.is_removal else each for number, each in found.items()}


def _request(entry: AuditEntry) -> Request:
    detail = entry.detail
    values: dict[str, Any] = {"asker": entry.actor_label, "asked_at": entry.at, "mac": binary(entry.mac).hex()}
    if entry.operation == PROPOSAL:
        values |= {"proposed": checked_proposal(detail["proposed"])}
    elif entry.operation in REMOVALS:
        values |= {name: tuple(typed(int, each) for each in detail.get(name, ())) for name in ("memories", "excluded")}
        values |= {"reason": detail["reason"], "asked_by": typed(str, detail["asked_by"])}
        values |= {"version": typed(int, detail.get("version", 0))}
    else:
        values |= {"asker": typed(str, detail["person"]), "reason": detail["purpose"], "state": State.REQUESTED}
        values |= {name: typed(int, detail[name]) for name in ("person_id", "seconds")}
        values |= {"scope": Scope.from_json(detail["scope"])}
    typed(str, values.get("reason", ""))
    return Request(entry.seq, entry.operation, entry.actor_kind, **values)


def checked_proposal(proposed: dict[str, Any]) -> dict[str, Any]:
    """The same values, if they are of settings in `PROPOSABLE`. Raises ValueError or TypeError otherwise."""
    if not proposed or set(proposed) - set(PROPOSABLE):
        raise ValueError
    for name, value in proposed.items():
        typed(bool if name == "is_steward_only" else str, value)
    return proposed


def after(before: Request, entry: AuditEntry) -> Request:
    """The request with its state after this entry. The request does not change if the entry does not fit the old
    state."""
    needed, state = STEPS[Operation(entry.operation)]
    if before.state != needed:
        return before
    if state in (State.EXPIRED, State.REVOKED):
        return replace(before, state=state, ended_at=entry.at)
    if entry.operation == Operation.CHANGE_DECLINED:
        state = State(entry.detail.get("why", state))
    by = "" if state in _BY_SERVICE else entry.actor_kind
    until = entry.at + timedelta(seconds=before.seconds) if state == State.ACTIVE else None
    return replace(before, state=state, decided_at=entry.at, decided_by=by, settled_by=entry.seq, until=until)


def _without(request: Request, removed: dict[int, datetime]) -> Request:
    """A request to remove content, without what other requests removed. If nothing is left, it is settled."""
    if request.state != State.OPEN:
        return request
    parts = request.memories or (_WHOLE,)
    left = tuple(number for number in request.memories if number not in removed)
    if not removed.keys() >= set(parts):
        return replace(request, left=left)
    return replace(request, state=State.SETTLED, decided_at=max(removed[number] for number in parts))


_COPIED = ("number", "person_id", "seconds", "state", "asked_at", "decided_at", "decided_by", "until", "ended_at")


def columns(request: Request, tenant_id: int, label: str) -> dict[str, Any]:
    """The values of the row (AccessRequest) of a request to read."""
    copied = {name: getattr(request, name) for name in _COPIED}
    copied |= {"person": request.asker, "purpose": request.reason, "scope": request.scope.to_json()}
    return copied | {"tenant_id": tenant_id, "agent_label": label}


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
