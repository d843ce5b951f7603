"""Access requests and grants. A person asks to read for a purpose, with a scope and a duration.

Only the agent's side decides: the steward, or the runtime if `is_steward_only` is not set. Nobody decides about their
own request. No setting switches these rules off.

Each step is an entry of the agent's audit trail (`audit.consent`). Each request also has a database row. The row
is only a copy of the state, for lists.
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

OF_MEMORIES = ("silo", "memories")  # kinds of scope that include the present content of memories


def ask(agent: Agent, person: Person, *, purpose: str, scope: Scope, seconds: int = consent.USUAL.seconds) -> Standing:
    """File an access request. `purpose` is stored permanently and shown to the agent's side. `seconds` is the duration.

    If the agent has a steward, the steward receives a link by mail. Raises Invalid, UnknownMemory, DuplicateNumbers,
    UnknownEntry, AlreadyRequested, ConsentRequired, TooManyRequests, MailNotSent, Erased.
    """
    purpose = checked_words(purpose, "purpose")
    least, most = consent.LEAST_PURPOSE, consent.MOST_PURPOSE
    if not least <= len(purpose) <= most:
        raise errors.Invalid("purpose", f"must have {least} to {most:,} characters")
    shortest, longest = consent.SHORTEST.seconds, consent.LONGEST.seconds
    if not shortest <= seconds <= longest:
        raise errors.Invalid("seconds", f"must be from {shortest} to {longest} (15 minutes to 4 hours)")
    with edits.locked(agent) as row:
        edits.require_key(row)
        close_expired(row)
        _require_scope(row, scope)
        if row.is_steward_only and same_address(row.steward, person.address):
            raise errors.ConsentRequired(
                "Only the agent's steward can consent. You are the steward, so nobody can decide about your request."
            )
        open_requests = AccessRequest.objects.filter(agent_id=row.pk, person_id=person.id, state=AccessState.REQUESTED)
        if open_requests.exists():
            raise errors.AlreadyRequested("You already have an open request to this agent. Wait for the decision.")
        actor = Actor.person(person.address)
        steps.require_room(row, actor)
        letters.require_mail(row)
        detail: dict[str, Any] = {"person_id": person.id, "person": person.address, "purpose": purpose}
        detail |= {"scope": scope.to_json(), "seconds": seconds}
        standing = _step(row, Operation.ACCESS_REQUESTED, actor, detail)
        steps.ask_steward(row, standing.number)
        return standing


def _require_scope(agent: Agent, scope: Scope) -> None:
    """Raise an error if the scope is not valid for this agent."""
    if scope.kind == "memories":
        if not 0 < len(scope.numbers) <= MOST_NUMBERS:
            raise errors.Invalid("numbers", f"must have 1 to {MOST_NUMBERS:,} memory numbers")
        edits.fetch(agent, scope.numbers)
    elif scope.kind == "session":
        if not AuditEntry.objects.filter(agent_id=agent.pk, session=scope.session).exists():
            raise errors.UnknownEntry(f"The audit trail has no session {scope.session}.")
    elif scope.kind == "entries":
        if not 0 < scope.first <= scope.last <= agent.audit_seq:
            raise errors.Invalid("entries", f"must be a range of entries between 1 and {agent.audit_seq}")
    elif scope.kind != "silo":
        raise errors.Invalid("scope", "must be one of: silo, memories, session, entries")


def approve(agent: Agent, number: int, actor: Actor) -> Standing:
    """Approve the request in the name of the agent's side. Raises ConsentRequired, NotOpen, Erased."""
    return _decide(agent, number, actor, Operation.ACCESS_GRANTED)


def deny(agent: Agent, number: int, actor: Actor) -> Standing:
    """Deny the request in the name of the agent's side. Raises ConsentRequired, NotOpen, Erased."""
    return _decide(agent, number, actor, Operation.ACCESS_DENIED)


def _decide(agent: Agent, number: int, actor: Actor, operation: Operation) -> Standing:
    with edits.locked(agent) as row:
        edits.require_key(row)
        close_expired(row)
        standing = _require_state(row, number, AccessState.REQUESTED)
        steps.require_side(row, actor, is_steward_only=row.is_steward_only)
        if actor.kind == ActorKind.STEWARD and same_address(actor.label, standing.person):
            raise errors.ConsentRequired("You cannot decide about your own request.")
        if operation == Operation.ACCESS_GRANTED and steps.is_altered(
            row, number
        ):  # nothing could be read under the grant
            raise errors.NotOpen("The agent's audit trail was altered after this request.")
        return _step(row, operation, actor, {"request": number})


def revoke(agent: Agent, number: int, actor: Actor, *, why: str = "") -> Standing:
    """End a grant now. The caller checks the permission. Raises NotOpen."""
    with record_expiry(agent), edits.locked(agent) as row:
        close_expired(row)
        _require_state(row, number, AccessState.ACTIVE)
        return _step(row, Operation.ACCESS_REVOKED, actor, {"request": number} | ({"why": why} if why else {}))


def withdraw_all(person_id: int, why: str, *, tenant_id: int | None = None) -> None:
    """End all requests and grants of a person. If `tenant_id` is given, end only those for agents of this tenant.

    It is called when a person's password or second factor changes, and when a person is deactivated or leaves a tenant.
    """
    requested = AuditEntry.objects.filter(ASKS, operation=Operation.ACCESS_REQUESTED, detail__person_id=person_id)
    agents = Agent.objects.select_related("tenant").filter(pk__in=requested.values("agent_id"))
    for agent in agents if tenant_id is None else agents.filter(tenant_id=tenant_id):
        with edits.locked(agent) as row:
            close_expired(row)
            for standing in standings(row.pk).values():
                ending = _ENDS.get(standing.state) if standing.person_id == person_id else None
                if ending is not None:
                    _step(row, ending, SYSTEM, {"request": standing.number, "why": why})


_ENDS = {AccessState.REQUESTED: Operation.ACCESS_LAPSED, AccessState.ACTIVE: Operation.ACCESS_REVOKED}


def close_expired(agent: Agent) -> None:
    """Write audit entries for requests and grants whose time is over. The caller must have locked the agent's row."""
    now = clock(agent)
    ending = {AccessState.LAPSED: Operation.ACCESS_LAPSED, AccessState.EXPIRED: Operation.ACCESS_EXPIRED}
    for standing in standings(agent.pk).values():
        if standing.at(now) != standing.state:
            _step(agent, ending[standing.at(now)], SYSTEM, {"request": standing.number})


def current_state(agent: Agent, standing: Standing) -> AccessState:
    """The present state of a request. If the grant has expired, the trail records this. So the grant stays expired even
    if the clock is set back."""
    state = standing.at(clock(agent))
    if standing.state == AccessState.ACTIVE != state:
        _record_expired(agent)
    return state


@contextmanager
def record_expiry(agent: Agent) -> Iterator[None]:
    """If the `with` block raises NotGranted or NotOpen, record all expired grants in the audit trail.

    The error rolls back the transaction of the block. So the audit entries about expired grants are written after the
    block. Because of these entries, an expired grant stays expired even if the clock is set back.
    """
    try:
        yield
    except (errors.NotGranted, errors.NotOpen):
        if not agent.is_locked:  # otherwise an outer block records it
            _record_expired(agent)
        raise


def _record_expired(agent: Agent) -> None:
    now, active = clock(agent), AccessState.ACTIVE
    if any(each.state == active != each.at(now) for each in standings(agent.pk).values()):
        with edits.locked(agent) as row:
            close_expired(row)


def in_force(agent: Agent, number: int, person: Person) -> Standing:
    """The person's active grant, checked against the audit trail.

    The caller must have entered `record_expiry`, and then locked the agent's row.

    Raises Erased, or NotGranted for every other problem.
    """
    edits.require_key(agent)
    refused = errors.NotGranted("You have no active grant with this number.")
    standing = standings(agent.pk, number).get(number)
    if standing is None or (standing.person_id, standing.person) != (person.id, person.address):
        raise refused
    if standing.at(clock(agent)) != AccessState.ACTIVE or timezone.now() < (standing.decided_at or standing.asked_at):
        raise refused  # it has expired, or it would last too long because the clock was ahead at the approval
    if steps.is_altered(agent, number):
        raise errors.NotGranted("The agent's audit trail was altered after this request, so nothing can be read.")
    return standing


def find(agent: Agent, number: int) -> Standing:
    """The request with this number, in any state. Raises NotFound."""
    standing = standings(agent.pk, number).get(number)
    if standing is None:
        raise errors.NotFound("No such access request.")
    return standing


def reads(agent: Agent, *, after: int, limit: int) -> list[AuditEntry]:
    """Up to `limit` entries that record reads, starting after entry `after`. The oldest is first."""
    rows = AuditEntry.objects.filter(READS, agent_id=agent.pk, seq__gt=after)
    return list(rows.order_by("seq")[:limit])


def readable_memories(agent: Agent, scope: Scope) -> QuerySet[Memory]:
    """Metadata of the memories whose present content the scope covers. They are ordered by number."""
    rows = Memory.objects.of(agent).defer("sealed", "digest").order_by("number")
    if scope.kind == "memories":
        return rows.numbered(scope.numbers)
    return rows if scope.kind == "silo" else rows.none()


def readable_entries(agent: Agent, scope: Scope) -> QuerySet[AuditEntry]:
    """Metadata of the entries whose changes the scope covers. They are ordered by number."""
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
    """The request with this number. Raises NotOpen if it does not exist or has another state."""
    standing = standings(agent.pk, number).get(number)
    if standing is None or standing.state != state:
        what = "active grant" if state == AccessState.ACTIVE else "open request"
        raise errors.NotOpen(f"There is no {what} {number}.")
    return standing


def _step(agent: Agent, operation: Operation, actor: Actor, detail: dict[str, Any]) -> Standing:
    """Append an entry and update the request's row."""
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
