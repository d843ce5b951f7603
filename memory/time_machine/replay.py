"""Verify an agent. A replay of the agent's audit entries from the start must give the agent's current memories and
counters."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import DateTimeField, DurationField, Max, QuerySet

from audit import trail
from audit.bulk import streamed
from audit.consent import columns, requests
from audit.ill_formed import ILL_FORMED_ROW, binary, binary_or_none, ill_formed, typed
from audit.models import AccessRequest, AuditEntry, Change, Operation
from audit.verify import Problem, chain, first_unreadable, tolerant
from audit.waiting import consistent_reads
from config import PROGRAM
from config.keyring import keyring
from config.unreadable import NO_NUMBER, NO_TEXT, is_unreadable
from memory.access import authority
from memory.models import Agent, AgentKey, Memory
from memory.silo.keys import wrapping_key_id
from memory.writing.counters import recount
from memory.writing.edits import snapshot

History = tuple[int, Iterator[tuple[Any, ...]]]  # the number of a memory, and its changes (`_OF_A_CHANGE`) in order


def problems_of(agent_id: int) -> Iterator[Problem]:
    """Yield the problems of an agent. All reads see the same state, even while other processes write."""
    with consistent_reads():
        yield from _problems_of(agent_id)


def _problems_of(agent_id: int) -> Iterator[Problem]:
    """Yield the problems of an agent. If the agent's row cannot be read, this is also yielded as a problem."""
    with ill_formed() as found:
        agent = Agent.objects.select_related("tenant").filter(pk=agent_id).first()
    if found:
        yield Problem(_label(agent_id), 0, f"the agent: {ILL_FORMED_ROW}")
    elif agent is None:
        yield Problem(_label(agent_id), 0, "the agent's tenant is missing")
    else:
        yield from problems(agent)


def problems(agent: Agent) -> Iterator[Problem]:
    """Yield the problems that are found in the agent's chain, entries, memories, counters, keys and access requests."""
    yield from chain(agent.pk, agent.label)
    of_row = (_signature, _tail, _names, _dates, _types)
    for check in (*of_row, _states, _counters, _high_water, _keys, _data_key, _access):
        yield from tolerant(agent.label, check(agent))


def _label(agent_id: int) -> str:
    """Return the agent's label. If the label cannot be read, return a text with the number of the agent's row."""
    with ill_formed():
        for names in Agent.objects.filter(pk=agent_id).values_list("tenant__slug", "slug"):
            return "/".join(names)
    return f"agent {agent_id}"


def _signature(agent: Agent) -> Iterator[Problem]:
    """Check that the service wrote the values that decide who can read the silo."""
    if not authority.is_signed(agent):
        yield Problem(agent.label, 0, "altered: the settings in the agent's row are not as the service wrote them")
    elif agent.audit_seq and agent.authority_key_id != keyring().audit[0].id:
        advice = f"run '{PROGRAM} rotate_audit_key'"
        yield Problem(agent.label, 0, f"the agent's row is signed with an older audit key: {advice}")


def _tail(agent: Agent) -> Iterator[Problem]:
    """Compare the last entry in the trail with the last entry that the agent's row records. This check finds entries
    that were removed from the end of the trail, and entries that were inserted there."""
    last = AuditEntry.objects.filter(agent_id=agent.pk).order_by("-seq").values_list("seq", "mac", "at").first()
    seq, mac, at = (typed(int, last[0]), binary(last[1]), last[2]) if last else (0, b"", None)
    if seq < typed(int, agent.audit_seq):
        yield Problem(agent.label, seq + 1, f"truncated: the last entry must be {agent.audit_seq}")
    elif seq > agent.audit_seq:
        problem = f"inserted: the last entry must be {agent.audit_seq}, as in the agent's row"
        yield Problem(agent.label, agent.audit_seq + 1, problem)
    elif (seq, mac, at) != (agent.audit_seq, binary(agent.audit_mac), agent.audit_at):
        yield Problem(agent.label, seq, "altered: this entry differs from the last entry in the agent's row")


def _names(agent: Agent) -> Iterator[Problem]:
    """Check that every entry has the agent's tenant and label. An agent's tenant and label never change."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk)
    others = entries.exclude(tenant_id=agent.tenant_id, agent_label=agent.label).order_by("seq")
    for seq in others.values_list("seq", flat=True)[:1]:
        yield Problem(agent.label, typed(int, seq), "the tenant or the agent's name in this entry is wrong")


def _dates(agent: Agent) -> Iterator[Problem]:
    """Check that every date and time span can be read (see `config.unreadable`). For a date that every memory has,
    `_states` does."""
    tables: dict[str, QuerySet[Any]] = {
        "memory": Memory.objects.of(agent),
        "key": AgentKey.objects.filter(agent_id=agent.pk),
        "request": AccessRequest.objects.filter(agent_id=agent.pk),
        "agent": Agent.objects.filter(pk=agent.pk),
    }
    for name, rows in tables.items():
        fields = [field for field in rows.model._meta.fields if isinstance(field, DateTimeField | DurationField)]
        for field in fields if name == "agent" else [field for field in fields if field.null]:
            values = rows.exclude(**{field.name: None}).values_list(field.name, flat=True).iterator()
            if any(value is None or is_unreadable(value) for value in values):  # SQLite's '' is read as None
                yield Problem(agent.label, 0, f"{name}: {field.name} of a row is not a date or time span")


def _types(agent: Agent) -> Iterator[Problem]:
    """Check that every value in the agent's row has a type that requests can use."""
    for field in agent._meta.concrete_fields:
        value = getattr(agent, field.attname)
        try:
            field.to_python(value)
            is_right = value not in (NO_TEXT, NO_NUMBER)
        except ValidationError:
            is_right = False
        if not is_right:
            yield Problem(agent.label, 0, f"{field.name} in the agent's row has a wrong type or form")


def _states(agent: Agent) -> Iterator[Problem]:
    with ill_formed() as found:
        yield from _each_state(agent)
    if found:
        number = first_unreadable(Memory, "number", agent_id=agent.pk)
        yield Problem(agent.label, 0, f"memory {number}: {ILL_FORMED_ROW}" if number is not None else ILL_FORMED_ROW)


def _each_state(agent: Agent) -> Iterator[Problem]:
    memories = Memory.objects.of(agent).order_by("number")
    changes = Change.objects.filter(agent_id=agent.pk).order_by("number", "seq").values_list(*_OF_A_CHANGE)
    with streamed(memories) as rows, streamed(changes) as change_rows:
        yield from _side_by_side(agent, rows, groupby(change_rows, key=itemgetter(0)))


_OF_A_CHANGE = ("number", "seq", "before_digest", "after_digest")


def _side_by_side(agent: Agent, rows: Iterator[Memory], histories: Iterator[History]) -> Iterator[Problem]:
    """Compare the row of each memory with its history. The memories are sorted by number, and only one is loaded at a
    time."""
    row = next(rows, None)
    for number, history in histories:
        while row is not None and row.number < typed(int, number):
            yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
            row = next(rows, None)
        seq, left = 0, None  # the last change, and the digest of the memory after that change
        for _, seq, before, after in history:
            if binary_or_none(before) != left:
                yield Problem(agent.label, seq, f"memory {number} was changed between the previous entry and this one")
            left = binary_or_none(after)
        if row is None or row.number != number:
            yield Problem(agent.label, seq, f"memory {number} is missing")
            continue
        if row.version != seq or not _is_left(agent, row, left):
            yield Problem(agent.label, seq, f"memory {number} differs from its state after this entry")
        row = next(rows, None)
    while row is not None:
        yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
        row = next(rows, None)


def _is_left(agent: Agent, row: Memory, digest: bytes | None) -> bool:
    """Return whether a row still has the state after its last change. The digests of the two states are compared. For a
    redacted memory, the snapshots are compared instead."""
    row.sealed, row.digest = binary(row.sealed), binary(row.digest)
    state = snapshot(row)
    if trail.has_body(state):
        return trail.snapshot_digest(state) == digest
    left = Change.objects.filter(agent_id=agent.pk, number=row.number, seq=row.version).values_list("after", flat=True)
    return [binary_or_none(after) for after in left] == [state]


def _counters(agent: Agent) -> Iterator[Problem]:
    for name, value in recount(agent).items():
        kept = typed(int, getattr(agent, name))
        if kept != value:
            yield Problem(agent.label, 0, f"the counter {name} is {kept}, but the memories give {value}")


def _high_water(agent: Agent) -> Iterator[Problem]:
    """Check that the agent's high-water mark is the highest `distinct_tokens` in the agent's audit entries."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk)
    highest = typed(int, entries.aggregate(highest=Max("distinct_tokens", default=0))["highest"])
    if typed(int, agent.high_water_tokens) != highest:
        kept = agent.high_water_tokens
        yield Problem(agent.label, 0, f"the high-water mark is {kept}, but the trail gives {highest}")


def _keys(agent: Agent) -> Iterator[Problem]:
    """Check that the rows of the agent's keys agree with the trail. The trail has an entry for each key that was issued
    or revoked.

    With a key that was inserted or reactivated by SQL, an attacker could read the silo.
    """
    operations = (Operation.KEY_ISSUED, Operation.KEY_REVOKED)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation__in=operations).order_by("seq")
    in_trail: dict[str, tuple[int, Any]] = {}  # prefix → issuing entry, when revoked
    for seq, operation, at, detail in entries.values_list("seq", "operation", "at", "detail"):
        for prefix in detail["prefix"].split():  # a claim ends several keys
            issued, _ = in_trail.get(prefix, (typed(int, seq), None))
            in_trail[prefix] = issued, at if operation == Operation.KEY_REVOKED else None
    live = typed(str, agent.live_keys).split()
    rows = {key.prefix: key for key in AgentKey.objects.filter(agent_id=agent.pk)}
    for prefix in sorted(rows.keys() | in_trail.keys()):
        if prefix not in in_trail:
            yield Problem(agent.label, 0, f"inserted: the agent key {prefix} is not in the trail")
        elif prefix not in rows:
            yield Problem(agent.label, in_trail[prefix][0], f"missing: the agent key {prefix} of this entry")
        elif (revoked_at := rows[prefix].revoked_at) != in_trail[prefix][1] or (
            (revoked_at is None) != (rows[prefix].fingerprint in live)
        ):
            yield Problem(agent.label, in_trail[prefix][0], f"altered: the agent key {prefix} differs from the trail")


def _data_key(agent: Agent) -> Iterator[Problem]:
    """Check that an erased silo has no data key, and that every other silo has a data key."""
    erased = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.ERASED).order_by("-seq")
    by = next(iter(erased.values_list("seq", flat=True)[:1]), None)
    if by is not None and agent.wrapped_key:
        yield Problem(agent.label, typed(int, by), "inserted: the data key exists again, but this entry destroyed it")
    if by is None and not agent.wrapped_key:
        yield Problem(agent.label, 0, "missing: the data key does not exist, but no entry destroyed it")
    elif by is None and wrapping_key_id(bytes(agent.wrapped_key)) in {key.id for key in keyring().silo[1:]}:
        yield Problem(agent.label, 0, "the data key is wrapped by an older silo key: run 'manage.py rotate_silo_keys'")


def _access(agent: Agent) -> Iterator[Problem]:
    """Check that the rows of access requests agree with the trail."""
    asked = (each for each in requests(agent.pk).values() if each.operation == Operation.ACCESS_REQUESTED)
    in_trail = {each.number: columns(each, agent.tenant_id, agent.label) for each in asked}
    rows: dict[int, Any] = {row["number"]: row for row in AccessRequest.objects.filter(agent_id=agent.pk).values()}
    for number in sorted(in_trail.keys() | rows.keys()):
        if number not in rows:
            yield Problem(agent.label, number, "missing: the access request that this entry created")
        elif number not in in_trail:
            yield Problem(agent.label, 0, f"inserted: the access request {typed(int, number)} is not in the trail")
        elif any(rows[number][name] != value for name, value in in_trail[number].items()):
            yield Problem(agent.label, number, "altered: the access request differs from the trail")
