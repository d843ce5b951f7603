"""State equals replay: an agent's audit entries, applied from empty, give exactly its memories and its counters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from audit.models import AuditEntry, Change, Operation
from audit.rowset import streamed
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
from memory.counters import Group, recount, repeats_weight
from memory.models import Agent, AgentKey, Kind, Memory
from memory.snapshot import restore, snapshot

History = tuple[int, Iterator[dict[str, Any]]]  # a memory's number and its changes, in order


def problems_of(agent_id: int) -> Iterator[Problem]:
    """All that is wrong with the agent of this row, which SQL may have left in a form that cannot be read."""
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
    for check in (_tail, _names, _states, _counters, _high_water, _keys):
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
    elif (seq, mac, at) != (agent.audit_seq, binary(agent.audit_mac), agent.audit_at):
        yield Problem(agent.label, seq, f"not the entry the agent's row names as its last, {agent.audit_seq}")


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
    memories = Memory.objects.filter(agent_id=agent.pk).order_by("number")
    changes = Change.objects.filter(agent_id=agent.pk).order_by("number", "seq").values()
    with streamed(memories) as rows, streamed(changes) as change_rows:
        yield from _side_by_side(agent, rows, groupby(change_rows, key=lambda change: change["number"]))


def _side_by_side(agent: Agent, rows: Iterator[Memory], histories: Iterator[History]) -> Iterator[Problem]:
    """Walk rows and histories in order of number; only one memory is held at a time."""
    row = next(rows, None)
    for number, history in histories:
        while row is not None and row.number < whole(number):
            yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
            row = next(rows, None)
        last: dict[str, Any] | None = None
        for change in history:
            if not _follows(last, change):
                yield Problem(agent.label, change["seq"], f"memory {number} is not as the entry before left it")
            last = change
        if row is None or row.number != number:
            yield Problem(agent.label, last["seq"] if last else 0, f"memory {number} is missing")
            continue
        if last is not None and (row.version != last["seq"] or binary_or_none(last["after"]) != _state(row)):
            yield Problem(agent.label, last["seq"], f"memory {number} is not as this entry left it")
        row = next(rows, None)
    while row is not None:
        yield Problem(agent.label, 0, f"memory {row.number} is not in the trail")
        row = next(rows, None)


def _state(row: Memory) -> bytes:
    row.sealed, row.digest = binary(row.sealed), binary(row.digest)
    return snapshot(row)


def _follows(last: dict[str, Any] | None, change: dict[str, Any]) -> bool:
    before = binary_or_none(change["before_digest"])
    return before is None if last is None else before == binary_or_none(last["after_digest"])


def _counters(agent: Agent) -> Iterator[Problem]:
    actual = recount(agent) | {"duplicate_tokens": repeats_weight(agent)}
    for name, value in actual.items():
        kept = whole(getattr(agent, name))
        if kept != value:
            yield Problem(agent.label, 0, f"the counter {name} is {kept}, and the memories give {value}")


def _high_water(agent: Agent) -> Iterator[Problem]:
    """The largest mass of distinct core memories after any entry, from the snapshots and the tokens they name."""
    mass, highest = _DistinctMass(), 0
    changes = Change.objects.filter(agent_id=agent.pk).order_by("seq").values_list("seq", "before", "after")
    with streamed(changes) as rows:
        for _, entry in groupby(rows, key=lambda change: change[0]):
            for _, before, after in entry:
                mass.count(binary_or_none(before), -1)
                mass.count(binary_or_none(after), +1)
            highest = max(highest, mass.tokens)
    if whole(agent.high_water_tokens) != highest:
        kept = agent.high_water_tokens
        yield Problem(agent.label, 0, f"the high-water mark is {kept}, and the trail gives {highest}")


def _keys(agent: Agent) -> Iterator[Problem]:
    """The agent's keys are those the trail says were issued: one put in by SQL would open the silo for its maker."""
    issued = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.KEY_ISSUED).order_by("seq")
    in_trail = {detail["prefix"]: whole(seq) for seq, detail in issued.values_list("seq", "detail")}
    there = set(AgentKey.objects.filter(agent_id=agent.pk).values_list("prefix", flat=True))
    for prefix in sorted(there - set(in_trail)):
        yield Problem(agent.label, 0, f"inserted: the agent key {prefix} is not in the trail")
    for prefix in sorted(set(in_trail) - there):
        yield Problem(agent.label, in_trail[prefix], f"missing: the agent key {prefix}, issued by this entry")


class _DistinctMass:
    """What active core memories weigh when of each group of exact repeats the largest alone counts.

    Holds, of each group there is, a hash and how many memories of which size: some 240 bytes.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._sizes: dict[bytes, tuple[tuple[int, int], ...]] = {}

    def count(self, taken: bytes | None, sign: int) -> None:
        state = restore(taken) if taken is not None else {}
        if state.get("kind") != Kind.CORE or state["discarded_at"] is not None:
            return
        group = Group(state["digest"], state["category"], state["scope"], state["project"])
        key = hashlib.blake2b(repr(group).encode(), digest_size=16).digest()
        before = self._sizes.pop(key, ())
        many = dict(before)
        many[state["tokens"]] = many.get(state["tokens"], 0) + sign
        after = tuple(each for each in many.items() if each[1])
        if after:
            self._sizes[key] = after
        self.tokens += max(after, default=(0, 0))[0] - max(before, default=(0, 0))[0]
