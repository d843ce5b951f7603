"""The Mechanic's Exception: a person asks to read; the agent's side consents, for a purpose, a scope and a time.

Each step is an entry of the agent's trail, and a row repeats them for lists (`audit.consent`). The agent's side alone
decides: its runtime, unless the agent is its steward's alone, or its steward; never whoever asks. There is no way
round it, and no setting that makes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from audit import consent
from audit.consent import MOST_NUMBERS, Person, Scope, Standing, columns, same_address, standings
from audit.models import ASKS, READS, AccessRequest, AccessState, ActorKind, AuditEntry, Change, Operation
from audit.trail import Actor
from memory import errors
from memory.consent import notices, steps
from memory.consent.steps import SYSTEM, clock
from memory.mail import letters
from memory.models import Agent, Memory
from memory.policy.validation import checked_words
from memory.writing import edits

OF_MEMORIES = ("silo", "memories")  # kinds of scope under which memories are read as they stand


def ask(agent: Agent, person: Person, *, purpose: str, scope: Scope, seconds: int = consent.USUAL.seconds) -> Standing:
    """Ask to read. `purpose` is kept for ever, and told to the agent's side.

    The agent's steward, where it has one, is mailed a link. Raises Invalid, UnknownMemory, Repeated, UnknownEntry,
    AlreadyAsked, ConsentNeeded, TooManyAsked, MailNotSent, Erased.
    """
    told = checked_words(purpose, "purpose")
    least, most = consent.LEAST_PURPOSE, consent.MOST_PURPOSE
    if not least <= len(told) <= most:
        raise errors.Invalid("purpose", f"must have {least} to {most:,} characters")
    shortest, longest = consent.SHORTEST.seconds, consent.LONGEST.seconds
    if not shortest <= seconds <= longest:
        raise errors.Invalid("seconds", f"must be from {shortest} to {longest} (15 minutes to 4 hours)")
    with edits.locked(agent) as row:
        edits.require_key(row)
        close_stale(row)
        _require_scope(row, scope)
        if row.is_steward_only and same_address(row.steward, person.address):
            raise errors.ConsentNeeded("Its steward alone consents for this agent, and nobody decides for themselves.")
        mine = AccessRequest.objects.filter(agent_id=row.pk, person_id=person.id, state=AccessState.REQUESTED)
        if mine.exists():
            raise errors.AlreadyAsked("A request of yours to this agent is open: wait until it is decided.")
        actor = Actor.person(person.address)
        steps.require_room(row, actor)
        letters.require_sent(row)
        asked: dict[str, Any] = {"person_id": person.id, "person": person.address, "purpose": told}
        asked |= {"scope": scope.to_json(), "seconds": seconds}
        made = _step(row, Operation.ACCESS_REQUESTED, actor, asked)
        steps.ask_steward(row, made.number)
        return made


def _require_scope(agent: Agent, scope: Scope) -> None:
    """Raise what keeps this from being a scope of this agent."""
    if scope.kind == "memories":
        if not 0 < len(scope.numbers) <= MOST_NUMBERS:
            raise errors.Invalid("numbers", f"must name 1 to {MOST_NUMBERS:,} memories")
        edits.fetch(agent, scope.numbers)
    elif scope.kind == "session":
        if not AuditEntry.objects.filter(agent_id=agent.pk, session=scope.session).exists():
            raise errors.UnknownEntry(f"There is no session {scope.session} in the trail.")
    elif scope.kind == "entries":
        if not 0 < scope.first <= scope.last <= agent.audit_seq:
            raise errors.Invalid("entries", f"must be a first and a last entry from 1 to {agent.audit_seq}")
    elif scope.kind != "silo":
        raise errors.Invalid("scope", "must be one of: silo, memories, session, entries")


def approve(agent: Agent, number: int, actor: Actor) -> Standing:
    """Grant what was asked, on the agent's side. Raises ConsentNeeded, NotOpen, Erased."""
    return _decide(agent, number, actor, Operation.ACCESS_GRANTED)


def deny(agent: Agent, number: int, actor: Actor) -> Standing:
    """Refuse it. Raises ConsentNeeded, NotOpen, Erased."""
    return _decide(agent, number, actor, Operation.ACCESS_DENIED)


def _decide(agent: Agent, number: int, actor: Actor, operation: Operation) -> Standing:
    with edits.locked(agent) as row:
        edits.require_key(row)
        close_stale(row)
        standing = _require_state(row, number, AccessState.REQUESTED)
        steps.require_side(row, actor, is_stewards_alone=row.is_steward_only)
        if actor.kind == ActorKind.STEWARD and same_address(actor.label, standing.person):
            raise errors.ConsentNeeded("Nobody decides about their own request.")
        if operation == Operation.ACCESS_GRANTED and steps.is_altered(row, number):  # nothing could be read by it
            raise errors.NotOpen("The agent's trail is not as it was written since this was asked.")
        return _step(row, operation, actor, {"request": number})


def revoke(agent: Agent, number: int, actor: Actor, *, why: str = "") -> Standing:
    """End a grant now. The agent's side may, who holds it, and the people of its tenant. Raises NotOpen."""
    with over_stays_over(agent), edits.locked(agent) as row:
        close_stale(row)
        _require_state(row, number, AccessState.ACTIVE)
        return _step(row, Operation.ACCESS_REVOKED, actor, {"request": number} | ({"why": why} if why else {}))


def withdraw_all(person_id: int, why: str, *, tenant_id: int | None = None) -> None:
    """End every request and grant of a person who may have become another: a new password, address or device. Or
    those to one tenant's agents, of somebody who has no part in it any more."""
    asked = AuditEntry.objects.filter(ASKS, operation=Operation.ACCESS_REQUESTED, detail__person_id=person_id)
    agents = Agent.objects.select_related("tenant").filter(pk__in=asked.values("agent_id"))
    for agent in agents if tenant_id is None else agents.filter(tenant_id=tenant_id):
        with edits.locked(agent) as row:
            close_stale(row)
            for standing in standings(row.pk).values():
                ending = _ENDS.get(standing.state) if standing.person_id == person_id else None
                if ending is not None:
                    _step(row, ending, SYSTEM, {"request": standing.number, "why": why})


_ENDS = {AccessState.REQUESTED: Operation.ACCESS_LAPSED, AccessState.ACTIVE: Operation.ACCESS_REVOKED}


def close_stale(agent: Agent) -> None:
    """Write down what the clock has ended. The caller holds the agent's row locked."""
    now = clock(agent)
    ending = {AccessState.LAPSED: Operation.ACCESS_LAPSED, AccessState.EXPIRED: Operation.ACCESS_EXPIRED}
    for standing in standings(agent.pk).values():
        if standing.at(now) != standing.state:
            _step(agent, ending[standing.at(now)], SYSTEM, {"request": standing.number})


def at_present(agent: Agent, standing: Standing) -> AccessState:
    """Its state just now, for somebody who is told of it: what was called over stays over."""
    state = standing.at(clock(agent))
    if standing.state == AccessState.ACTIVE != state:
        _note_ends(agent)
    return state


@contextmanager
def over_stays_over(agent: Agent) -> Iterator[None]:
    """Around what is refused of a grant that is over: which grants the clock has ended is written down after the
    refusal, that took its own transaction with it. So no clock that is set back makes them readable again."""
    try:
        yield
    except (errors.NotGranted, errors.NotOpen):
        if not agent.is_locked:  # else whoever locked it is in such a block, too
            _note_ends(agent)
        raise


def _note_ends(agent: Agent) -> None:
    now, active = clock(agent), AccessState.ACTIVE
    if any(each.state == active != each.at(now) for each in standings(agent.pk).values()):
        with edits.locked(agent) as row:
            close_stale(row)


def in_force(agent: Agent, number: int, person: Person) -> Standing:
    """The grant by which this person reads just now, as the trail proves it. The caller holds the agent's row locked,
    in `over_stays_over`.

    Raises NotGranted, whatever is wrong; Erased.
    """
    edits.require_key(agent)
    refused = errors.NotGranted("No grant of yours is in force here.")
    standing = standings(agent.pk, number).get(number)
    if standing is None or (standing.person_id, standing.person) != (person.id, person.address):
        raise refused
    if standing.at(clock(agent)) != AccessState.ACTIVE or timezone.now() < (standing.decided_at or standing.asked_at):
        raise refused  # over; or granted by a clock that was ahead, which would make it longer
    if steps.is_altered(agent, number):
        raise errors.NotGranted("The agent's trail is not as it was written since this was asked: nothing is read.")
    return standing


def find(agent: Agent, number: int) -> Standing:
    """The request of this number, whatever became of it. Raises NotFound."""
    standing = standings(agent.pk, number).get(number)
    if standing is None:
        raise errors.NotFound("There is no such access request.")
    return standing


def reads(agent: Agent, *, after: int, limit: int) -> list[AuditEntry]:
    """The next entries, by number, of people's reads."""
    rows = AuditEntry.objects.filter(READS, agent_id=agent.pk, seq__gt=after)
    return list(rows.order_by("seq")[:limit])


def readable_memories(agent: Agent, scope: Scope) -> QuerySet[Memory]:
    """The memories that may be read as they stand, in order of number, without what they say."""
    rows = Memory.objects.of(agent).defer("sealed", "digest").order_by("number")
    if scope.kind == "memories":
        return rows.numbered(scope.numbers)
    return rows if scope.kind == "silo" else rows.none()


def readable_entries(agent: Agent, scope: Scope) -> QuerySet[AuditEntry]:
    """The entries of which something may be read, in order, without what is sealed in them."""
    rows = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest").order_by("seq")
    if scope.kind == "session":
        return rows.filter(session=scope.session)
    if scope.kind == "entries":
        return rows.filter(seq__range=(scope.first, scope.last))
    if scope.kind == "memories":
        touched = Change.objects.filter(agent_id=agent.pk, number__among=list(scope.numbers))
        return rows.filter(seq__in=touched.values("seq"))
    return rows


def _require_state(agent: Agent, number: int, state: AccessState) -> Standing:
    """The request of this number, if it is in this state. Raises NotOpen."""
    standing = standings(agent.pk, number).get(number)
    if standing is None or standing.state != state:
        what = "grant in force" if state == AccessState.ACTIVE else "open request"
        raise errors.NotOpen(f"There is no {what} {number}.")
    return standing


def _step(agent: Agent, operation: Operation, actor: Actor, detail: dict[str, Any]) -> Standing:
    """Write an entry, and what it makes of the request's row."""
    with edits.begin(agent, operation, actor, is_notice=True) as edit:
        edit.detail = detail
        if operation in (Operation.ACCESS_REVOKED, Operation.ACCESS_EXPIRED):
            notices.close(edit, standings(agent.pk, detail["request"])[detail["request"]])
        edit.finish(always=True)
    number = detail.get("request", edit.seq)
    standing = standings(agent.pk, number)[number]
    AccessRequest.objects.update_or_create(
        agent_id=agent.pk, number=number, defaults=columns(standing, agent.tenant_id, agent.label)
    )
    return standing
