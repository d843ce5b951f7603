"""State equals replay: an agent's audit entries, applied from empty, give exactly its memories and its counters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Max

from audit import trail
from audit.bulk import streamed
from audit.consent import columns, standings
from audit.models import AccessRequest, AuditEntry, Change, Operation
from audit.moment import at_one_moment
from audit.verify import (
    NOT_OF_THE_FORM,
    Problem,
    binary,
    binary_or_none,
    chain,
    first_unreadable,
    ill_formed,
    told,
    whole,
)
from memory.models import Agent, AgentKey, Memory
from memory.writing.counters import recount
from memory.writing.edits import snapshot

History = tuple[int, Iterator[tuple[Any, ...]]]  # a memory's number and its changes (`_OF_A_CHANGE`), in order


def problems_of(agent_id: int) -> Iterator[Problem]:
    """All that is wrong with the agent of this row, as it stands at one moment: others may go on writing."""
    with at_one_moment():
        yield from _problems_of(agent_id)


def _problems_of(agent_id: int) -> Iterator[Problem]:
    """SQL may have left the row in a form that cannot be read."""
    with ill_formed() as found:
        agent = Agent.objects.select_related("tenant").filter(pk=agent_id).first()
    if found:
        yield Problem(_label(agent_id), 0, f"the agent: {NOT_OF_THE_FORM}")
    elif agent is None:
        yield Problem(_label(agent_id), 0, "the agent's tenant is missing")
    else:
        yield from problems(agent)


def problems(agent: Agent) -> Iterator[Problem]:
    """All that is wrong with an agent's trail and memories: the chain, each memory's history, the counters."""
    yield from chain(agent.pk, agent.label)
    for check in (_tail, _names, _states, _counters, _high_water, _keys, _data_key, _access):
        yield from told(agent.label, check(agent))


def _label(agent_id: int) -> str:
    """What its row calls an agent, where that can be read."""
    with ill_formed():
        for names in Agent.objects.filter(pk=agent_id).values_list("tenant__slug", "slug"):
            return "/".join(names)
    return f"agent {agent_id}"


def _tail(agent: Agent) -> Iterator[Problem]:
    """The agent's row names its last entry: a tail that was cut, or added to by SQL, does not fit it."""
    last = AuditEntry.objects.filter(agent_id=agent.pk).order_by("-seq").values_list("seq", "mac", "at").first()
    seq, mac, at = (whole(last[0]), binary(last[1]), last[2]) if last else (0, b"", None)
    if seq < whole(agent.audit_seq):
        yield Problem(agent.label, seq + 1, f"truncated: entries up to {agent.audit_seq} were written")
    elif seq > agent.audit_seq:
        told = f"inserted: the agent's row names {agent.audit_seq} as its last entry"
        yield Problem(agent.label, agent.audit_seq + 1, told)
    elif (seq, mac, at) != (agent.audit_seq, binary(agent.audit_mac), agent.audit_at):
        yield Problem(agent.label, seq, f"altered: not the entry the agent's row names as its last, {agent.audit_seq}")


def _names(agent: Agent) -> Iterator[Problem]:
    """Entries copy the tenant and the label, which never change: an agent handed to another tenant has others."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk)
    others = entries.exclude(tenant_id=agent.tenant_id, agent_label=agent.label).order_by("seq")
    for seq in others.values_list("seq", flat=True)[:1]:
        yield Problem(agent.label, whole(seq), "written for another tenant, or under another name, than the agent has")


def _states(agent: Agent) -> Iterator[Problem]:
    with ill_formed() as found:
        yield from _each_state(agent)
    if found:
        number = first_unreadable(Memory, "number", agent_id=agent.pk)
        yield Problem(agent.label, 0, f"memory {number}: {NOT_OF_THE_FORM}" if number is not None else NOT_OF_THE_FORM)


def _each_state(agent: Agent) -> Iterator[Problem]:
    memories = Memory.objects.of(agent).order_by("number")
    changes = Change.objects.filter(agent_id=agent.pk).order_by("number", "seq").values_list(*_OF_A_CHANGE)
    with streamed(memories) as rows, streamed(changes) as change_rows:
        yield from _side_by_side(agent, rows, groupby(change_rows, key=itemgetter(0)))


_OF_A_CHANGE = ("number", "seq", "before_digest", "after_digest")


def _side_by_side(agent: Agent, rows: Iterator[Memory], histories: Iterator[History]) -> Iterator[Problem]:
    """Walk rows and histories in order of number; only one memory is held at a time."""
    row = next(rows, None)
    for number, history in histories:
        while row is not None and row.number < whole(number):
            yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
            row = next(rows, None)
        seq, left = 0, None  # the last change, and the digest it left the memory with
        for _, seq, before, after in history:
            if binary_or_none(before) != left:
                yield Problem(agent.label, seq, f"memory {number} is not as the entry before left it")
            left = binary_or_none(after)
        if row is None or row.number != number:
            yield Problem(agent.label, seq, f"memory {number} is missing")
            continue
        if row.version != seq or not _is_left(agent, row, left):
            yield Problem(agent.label, seq, f"memory {number} is not as this entry left it")
        row = next(rows, None)
    while row is not None:
        yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
        row = next(rows, None)


def _is_left(agent: Agent, row: Memory, digest: bytes | None) -> bool:
    """Whether a row is what its last change left: by the digest or, where a redaction took the bodies, as it stands."""
    row.sealed, row.digest = binary(row.sealed), binary(row.digest)
    state = snapshot(row)
    if trail.has_body(state):
        return trail.snapshot_digest(state) == digest
    left = Change.objects.filter(agent_id=agent.pk, number=row.number, seq=row.version).values_list("after", flat=True)
    return [binary_or_none(after) for after in left] == [state]


def _counters(agent: Agent) -> Iterator[Problem]:
    for name, value in recount(agent).items():
        kept = whole(getattr(agent, name))
        if kept != value:
            yield Problem(agent.label, 0, f"the counter {name} is {kept}, and the memories give {value}")


def _high_water(agent: Agent) -> Iterator[Problem]:
    """What core memory weighs, and the most it ever weighed, is written down with each entry."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk)
    highest = whole(entries.aggregate(highest=Max("distinct_tokens", default=0))["highest"])
    if whole(agent.high_water_tokens) != highest:
        kept = agent.high_water_tokens
        yield Problem(agent.label, 0, f"the high-water mark is {kept}, and the trail gives {highest}")


def _keys(agent: Agent) -> Iterator[Problem]:
    """The agent's keys are those the trail says were issued, and those that ended have: one put in by SQL, or brought
    back to life, would open the silo for its maker."""
    operations = (Operation.KEY_ISSUED, Operation.KEY_REVOKED)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation__in=operations).order_by("seq")
    in_trail: dict[str, tuple[int, bool, Any]] = {}  # prefix → entry, whether it was handed out, when it ended
    for seq, operation, at, detail in entries.values_list("seq", "operation", "at", "detail"):
        issued, handed_out, _ = in_trail.get(detail["prefix"], (whole(seq), bool(detail.get("handed_out")), None))
        in_trail[detail["prefix"]] = issued, handed_out, at if operation == Operation.KEY_REVOKED else None
    keys = AgentKey.objects.filter(agent_id=agent.pk).order_by("prefix")
    there = {prefix: told for prefix, *told in keys.values_list("prefix", "is_handed_out", "revoked_at")}
    for prefix in sorted(there.keys() | in_trail.keys()):
        if prefix not in in_trail:
            yield Problem(agent.label, 0, f"inserted: the agent key {prefix} is not in the trail")
        elif prefix not in there:
            yield Problem(agent.label, in_trail[prefix][0], f"missing: the agent key {prefix}, issued by this entry")
        elif tuple(there[prefix]) != in_trail[prefix][1:]:
            yield Problem(
                agent.label, in_trail[prefix][0], f"altered: the agent key {prefix} is not as the trail has it"
            )


def _data_key(agent: Agent) -> Iterator[Problem]:
    """An erased silo's data key is not to come back out of a backup, nor another's to go without a word."""
    erased = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.ERASED).order_by("-seq")
    by = next(iter(erased.values_list("seq", flat=True)[:1]), None)
    if by is not None and agent.wrapped_key:
        yield Problem(agent.label, whole(by), "inserted: the data key, which this entry destroyed, is there again")
    if by is None and not agent.wrapped_key:
        yield Problem(agent.label, 0, "missing: the data key is gone, and no entry destroyed it")


def _access(agent: Agent) -> Iterator[Problem]:
    """The rows of access requests repeat the trail."""
    in_trail = {
        number: columns(standing, agent.tenant_id, agent.label) for number, standing in standings(agent.pk).items()
    }
    rows: dict[int, dict[str, Any]] = {
        row["number"]: {**row} for row in AccessRequest.objects.filter(agent_id=agent.pk).values()
    }
    for number in sorted(in_trail.keys() | rows.keys()):
        if number not in rows:
            yield Problem(agent.label, number, "missing: the access request that this entry made")
        elif number not in in_trail:
            yield Problem(agent.label, 0, f"inserted: the access request {whole(number)} is not in the trail")
        elif any(rows[number][name] != value for name, value in in_trail[number].items()):
            yield Problem(agent.label, number, "altered: the access request is not as the trail has it")
