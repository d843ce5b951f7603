"""Requests to an agent's side: to read its memories, to change its settings, and to remove content permanently.

Only the agent's side decides: the steward, or the runtime if `is_steward_only` is not set. Nobody decides about their
own request. No setting switches these rules off. If the agent has a steward, the steward receives a link by mail.

Each step is an entry of the agent's audit trail (`audit.consent`). A request to read also has a row: a copy for lists.
`memory.consent.approval` carries out what the agent's side approves.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.dispatch import Signal
from django.utils import timezone

from audit import consent
from audit.consent import OPEN, PROPOSABLE, PROPOSAL, REMOVALS, Person, Request, Scope, columns, same_address
from audit.models import ASKS, CONSENT, AccessRequest, ActorKind, AuditEntry, Operation, State
from audit.trail import Actor
from memory import errors
from memory.access import authority
from memory.access.roles import locked_account
from memory.agents import lifecycle
from memory.consent import notices, versions
from memory.mail import letters, outbox
from memory.models import Agent, LetterKind
from memory.policy.validation import checked_words
from memory.run_log import runs
from memory.vault import base
from memory.writing import edits

SYSTEM = Actor.system("consent")
# Sent in the transaction of a removal, before it. Its receivers handle other places that may have the content, such as
# an open session. Arguments: `agent`, whose row is locked, and `why`: redaction or erasure.
removing = Signal()
DAY = timedelta(hours=24)
MAX_REASON = 500  # characters
MOST_REMOVALS = 100  # open requests to remove content, because a claim ends them all: 300 took two seconds
MAX_MEMORIES = 1_000  # memories per request to remove content
_NOT_THEIR_OWN = "You cannot decide about your own request."
_OTHER_KIND = {
    Operation.REDACTION_REQUESTED.value: "a redaction. Use the command 'redact'.",
    Operation.ERASURE_REQUESTED.value: "an erasure. Use the command 'erase_agent'.",
}


def ask_to_read(
    agent: Agent, person: Person, *, purpose: str, scope: Scope, seconds: int = consent.USUAL.seconds
) -> Request:
    """Request to read. `purpose` is stored permanently and shown to the agent's side. `seconds` is the duration.

    Raises Invalid, UnknownMemory, DuplicateNumbers, UnknownEntry, AlreadyRequested, ConsentRequired, TooManyRequests,
    MailNotSent, Erased."""
    purpose = checked_words(purpose, "purpose")
    least, most = consent.LEAST_PURPOSE, consent.MOST_PURPOSE
    if not least <= len(purpose) <= most:
        raise errors.Invalid("purpose", f"must have {least} to {most:,} characters")
    shortest, longest = consent.SHORTEST.seconds, consent.LONGEST.seconds
    if not shortest <= seconds <= longest:
        raise errors.Invalid("seconds", f"must be from {shortest} to {longest} (15 minutes to 4 hours)")
    authority.require_ahead(agent)
    with locked_account(person.id), edits.locked(agent) as row:
        edits.require_key(row)
        _require_scope(row, scope)
        if scope.kind == "session":  # it may go on after the steward has read what it changed
            scope = replace(scope, last=row.audit_seq)
        if any(each.person_id == person.id for each in waiting(row, Operation.ACCESS_REQUESTED)):
            raise errors.AlreadyRequested("You already have an open request to this agent. Wait for the decision.")
        detail = {"person_id": person.id, "person": person.address, "purpose": purpose}
        detail |= {"scope": scope.to_json(), "seconds": seconds}
        return _file(row, Operation.ACCESS_REQUESTED, Actor.person(person.address), detail)


def _require_scope(agent: Agent, scope: Scope) -> None:
    """Raise an error if the scope is not valid for this agent."""
    if scope.kind == "memories":
        if not 0 < len(scope.numbers) <= consent.MOST_NUMBERS:
            raise errors.Invalid("numbers", f"must have 1 to {consent.MOST_NUMBERS:,} memory numbers")
        edits.fetch(agent, scope.numbers)
    elif scope.kind == "session":
        if not AuditEntry.objects.filter(agent_id=agent.pk, session=scope.session).exists():
            raise errors.UnknownEntry(f"The audit trail has no session {scope.session}.")
    elif scope.kind == "entries":
        if not 0 < scope.first <= scope.last <= agent.audit_seq:
            raise errors.Invalid("entries", f"must be a range of entries between 1 and {agent.audit_seq}")
    elif scope.kind != "silo":
        raise errors.Invalid("scope", "must be one of: silo, memories, session, entries")


def propose(agent: Agent, actor: Actor, **settings: Any) -> Request:
    """Propose new values for settings in `PROPOSABLE`, which decide who can read. It replaces the open proposal. The
    caller checks that the model exists.

    Raises AgentConsentRequired, Invalid, ConsentRequired, TooManyRequests, MailNotSent, Erased.
    """
    if actor.kind not in (ActorKind.PERSON, ActorKind.OPERATOR):
        raise errors.AgentConsentRequired("The agent's side cannot propose changes. It changes these settings itself.")
    try:
        consent.checked_proposal(settings)
    except (TypeError, ValueError):
        what = f"must set some of {', '.join(PROPOSABLE)}: `is_steward_only` to true or false, the others to a text"
        raise errors.Invalid("proposal", what) from None
    with edits.locked(agent) as row:
        edits.require_key(row)
        if settings.get("memory_path", row.memory_path) != row.memory_path:
            settings["memory_path"] = runs.path_in_tenant(row.tenant.slug, settings["memory_path"])
            runs.require_new(settings["memory_path"], actor.kind)
        if settings.get("vault_path", row.vault_path) != row.vault_path:
            settings["vault_path"] = _vault(row, settings["vault_path"], actor)
        proposed = {name: value for name, value in sorted(settings.items()) if getattr(row, name) != value}
        lifecycle.check(row, **proposed)
        if not proposed:
            raise errors.Invalid("proposal", f"changes nothing. Set a new value for one of: {', '.join(PROPOSABLE)}")
        return _file(row, PROPOSAL, actor, {"proposed": proposed})


def _vault(row: Agent, path: str, actor: Actor) -> str:
    """Resolve the path of a vault: in any root for operators, in their tenant's folder for others. Raises Invalid."""
    allowed = base.roots()
    if actor.kind != ActorKind.OPERATOR:
        allowed = tuple(root / row.tenant.slug for root in allowed)
        if path.startswith("~"):
            raise errors.Invalid("vault_path", "must not begin with ~")
    return base.resolve_path(path, allowed[0], allowed)


def ask_redaction(
    agent: Agent,
    numbers: Sequence[int],
    actor: Actor,
    *,
    reason: str,
    asked_by: str = "",
    excluded: Sequence[int] = (),
    version: int = 0,
) -> Request:
    """Request the permanent deletion of the content of these memories and of their lineage, except the excluded
    ones. Or only of the version of one memory that entry `version` made. `reason` is stored permanently.

    Raises Invalid, UnknownMemory, DuplicateNumbers, Redacted, ConsentRequired, MailNotSent, TooManyRequests, Erased.
    """
    if not 0 < len(numbers) <= MAX_MEMORIES:
        many = f"has more than {MAX_MEMORIES:,} memory numbers. Send several requests."
        raise errors.Invalid("id", many if numbers else "must have at least one memory number")
    with edits.locked(agent) as row:
        if redacted := versions.gone(row, edits.fetch(row, numbers)):
            raise errors.Redacted(sorted(redacted))
        edits.fetch(row, excluded)
        more: dict[str, Any] = {"memories": sorted(numbers)} | ({"excluded": sorted(excluded)} if excluded else {})
        more |= {"version": version} if version else {}
        return _ask_removal(row, REMOVALS[0], actor, reason, asked_by, **more)


def ask_erasure(agent: Agent, actor: Actor, *, reason: str, asked_by: str = "") -> Request:
    """Request the destruction of the agent's data key.

    Raises Invalid, ConsentRequired, MailNotSent, TooManyRequests, Erased."""
    with edits.locked(agent) as row:
        return _ask_removal(row, REMOVALS[1], actor, reason, asked_by)


def _ask_removal(row: Agent, operation: str, actor: Actor, reason: str, asked_by: str, **more: Any) -> Request:
    if actor.kind != ActorKind.OPERATOR and len(waiting(row, *REMOVALS)) >= MOST_REMOVALS:
        problem = f"cannot be made while {MOST_REMOVALS} others are open. Decide about one, or withdraw it, first"
        raise errors.Invalid("request", problem)
    reason = _one_line(reason, "reason")
    asked_by = _one_line(asked_by, "asked_by") if asked_by else actor.label
    edits.require_key(row)
    return _file(row, operation, actor, {"reason": reason, "asked_by": asked_by} | more)


def _one_line(text: str, name: str) -> str:
    text = checked_words(text, name)
    if len(text) > MAX_REASON:
        raise errors.Invalid(name, f"is longer than {MAX_REASON} characters")
    return text


def _file(row: Agent, operation: str, actor: Actor, detail: dict[str, Any]) -> Request:
    """File a request. If the agent has a steward, queue a mail to the steward. The mail has a link to the request."""
    is_removal, steward_only = operation in REMOVALS, _is_steward_only(row)
    if steward_only and is_by(row.steward, actor.label, detail.get("asked_by", "")):
        raise errors.ConsentRequired("Only the steward can decide, but they are the requester. So nobody can decide.")
    if steward_only or not is_removal:
        letters.require_mail(row)
    # An operator who runs commands has no limit, and neither has an agent without a steward, who gets the mail.
    if not is_removal or actor.kind == ActorKind.PERSON or (actor.kind == ActorKind.AGENT and row.steward):
        require_room(row, actor)
    close_expired(row)
    for replaced in waiting(row, PROPOSAL) if operation == PROPOSAL else ():
        end(row, replaced, State.REPLACED, SYSTEM, State.REPLACED.value)
    number = write(row, operation, actor, detail)
    if row.steward and not letters.are_printed():
        outbox.add(row, LetterKind.LINK, number)
    return find(row, number)


def require_room(agent: Agent, actor: Actor) -> None:
    """Raise TooManyRequests if the actor or the agent has reached the limit of requests in 24 hours.

    All requests count, also those that are decided or withdrawn. ASKS_PER_PERSON is the limit of an actor, for all
    agents together. ASKS_PER_AGENT is the limit of an agent. The caller must have locked the agent's row. An actor who
    asks several agents at the same moment can slightly exceed ASKS_PER_PERSON.
    """
    entries = AuditEntry.objects.filter(ASKS, at__gt=clock(agent) - DAY).order_by("-at").values_list("at", flat=True)
    by_actor = entries.filter(actor_kind=actor.kind, actor_label=actor.label)
    of_agent = entries.filter(CONSENT, agent_id=agent.pk)
    limits = (by_actor, "You", settings.ASKS_PER_PERSON), (of_agent, "This agent's side", settings.ASKS_PER_AGENT)
    # another request is possible one day after the entry at place `most`, counted from the newest entry
    full = [(at + DAY, who, most) for times, who, most in limits for at in times[most - 1 : most]]
    if full:
        until, who, most = max(full)
        raise errors.TooManyRequests(who, most, until)


# --- the requests of an agent


def clock(agent: Agent) -> datetime:
    """The present time, or the time of the agent's last entry if this is later. So a request stays expired even if the
    clock is set back."""
    now = timezone.now()
    return max(now, agent.audit_at or now)


def get(agent: Agent, number: int) -> Request | None:
    """The request with this number, in the state that the trail records."""
    return consent.requests(agent.pk, number).get(number)


def find(agent: Agent, number: int, *operations: str) -> Request:
    """The same. If `operations` are given, the request must be one of these. Raises NotFound."""
    request = get(agent, number)
    if request is None or (operations and request.operation not in operations):
        raise errors.NotFound("No such proposal." if PROPOSAL in operations else "No such request.")
    return request


def present(agent: Agent, *operations: str, since: int = 1) -> list[Request]:
    """The requests in their present state, oldest first. Only these operations count."""
    now, with_access = clock(agent), Operation.ACCESS_REQUESTED in operations
    found = consent.requests(agent.pk, since, with_access=with_access)
    return [each.at(now) for each in found.values() if each.operation in operations]


def waiting(agent: Agent, *operations: str) -> list[Request]:
    """The open requests, oldest first. Only these operations count."""
    return [each for each in present(agent, *operations) if each.state in OPEN]


def open_proposal(agent: Agent) -> Request | None:
    return next(iter(waiting(agent, PROPOSAL)), None)


def require_open(agent: Agent, number: int, operation: str = "") -> Request:
    """The open request with this number. If `operation` is given, the request must ask for this kind of removal.

    Raises NotOpen, or RequestNotFound for a removal.
    """
    request = get(agent, number)
    if request is None or (operation and not request.is_removal):
        raise (errors.RequestNotFound if operation else errors.NotOpen)(f"There is no open request {number}.")
    if request.at(clock(agent)).state not in OPEN:
        raise _fault(request)(f"There is no open {_noun(request)} {number}.")
    if operation and request.operation != operation:
        raise errors.RequestNotFound(f"Request {number} asks for {_OTHER_KIND[request.operation]}")
    return request


def _fault(request: Request) -> type[errors.MemoryFault]:
    return errors.RequestNotFound if request.is_removal else errors.NotOpen


def _noun(request: Request) -> str:
    return "proposal" if request.operation == PROPOSAL else "request"


# --- decisions


def require_decidable(agent: Agent, number: int, actor: Actor, operation: str = "", *, denies: bool = False) -> Request:
    """The open request with this number. The actor must be allowed to decide about it for the agent's side. Of their
    own requests, stewards can only decline a proposal. If there is a steward, a runtime cannot decide about its own.
    The caller must have locked the agent's row. Raises ConsentRequired, and the errors of `require_open`."""
    request = require_open(agent, number, operation)
    require_side(agent, actor)
    is_own = actor.kind == ActorKind.STEWARD and is_by(actor.label, request.asker, request.asked_by)
    is_own |= actor.kind == request.asker_kind == ActorKind.AGENT and bool(agent.steward)
    if is_own and not (denies and request.operation == PROPOSAL):
        raise errors.ConsentRequired(_NOT_THEIR_OWN)
    require_intact(agent, request)
    return request


def require_side(agent: Agent, actor: Actor) -> None:
    """Raise ConsentRequired unless the actor is the agent's steward, or its runtime. The runtime is refused if
    `is_steward_only` is set and the agent has a steward."""
    is_runtime = actor.kind == ActorKind.AGENT and not _is_steward_only(agent)
    is_steward = actor.kind == ActorKind.STEWARD and same_address(actor.label, agent.steward)
    if not (is_runtime or is_steward):
        side = "only its steward decides" if _is_steward_only(agent) else "its runtime or its steward decides"
        raise errors.ConsentRequired(f"For this agent, {side}.")


def _is_steward_only(agent: Agent) -> bool:
    return bool(agent.is_steward_only and agent.steward)


def is_by(address: str, asker: str, asked_by: str = "") -> bool:
    """Whether the person with this address made a request, or is named as the person for whom it was made."""
    return any(same_address(each, address) for each in letters.requesters(asker, asked_by))


def require_intact(agent: Agent, *shown: Request) -> None:
    """Raise NotOpen or RequestNotFound if an open one of these requests `is_altered`."""
    opened = [each for each in shown if each.state in OPEN]
    if opened and consent.is_altered(agent, *opened):
        raise _fault(opened[0])(f"The agent's audit trail was altered after this {_noun(opened[0])}.")


def deny(agent: Agent, number: int, actor: Actor) -> Request:
    """Deny a request in the name of the agent's side, or withdraw the actor's own proposal or request to remove.

    Raises ConsentRequired, NotOpen, RequestNotFound, Erased.
    """
    with edits.locked(agent) as row:
        request = require_open(row, number)
        if not request.is_removal:
            edits.require_key(row)
        if request.operation == Operation.ACCESS_REQUESTED or not is_own(request, actor):
            require_decidable(row, number, actor, denies=True)
        end(row, request, State.DENIED, actor)
        return find(row, number)


def is_own(request: Request, actor: Actor) -> bool:
    return (actor.kind, actor.label) == (request.asker_kind, request.asker)


def revoke(agent: Agent, number: int, actor: Actor, *, why: str = "") -> Request:
    """End a grant now. The caller checks the permission. Raises NotOpen."""
    expire(agent)
    with edits.locked(agent) as row:
        close_expired(row)
        request = get(row, number)
        if request is None or request.state != State.ACTIVE:
            raise errors.NotOpen(f"There is no active grant {number}.")
        end(row, request, State.REVOKED, actor, why)
        return find(row, number)


def expire(agent: Agent) -> None:
    """Record the grants whose time is over. So they stay expired even if the clock is set back."""
    now = clock(agent)
    if any(each.state == State.ACTIVE != each.at(now).state for each in consent.requests(agent.pk).values()):
        with edits.locked(agent) as row:
            close_expired(row)


def close_expired(agent: Agent) -> None:
    """Write audit entries for requests and grants whose time is over. The caller must have locked the agent's row."""
    now = clock(agent)
    for request in consent.requests(agent.pk).values():
        state = request.at(now).state
        if state != request.state:
            end(agent, request, state, SYSTEM, state.value if request.operation == PROPOSAL else "")


def end(agent: Agent, request: Request, state: State, actor: Actor, why: str = "") -> None:
    """Write the entry with which a request or a grant ends in this state."""
    operation = Operation.REQUEST_DECLINED if request.is_removal else Operation.CHANGE_DECLINED
    if request.operation == Operation.ACCESS_REQUESTED:
        operation = Operation(f"access_{state}")
    name = "proposal" if request.operation == PROPOSAL else "request"
    write(agent, operation, actor, {name: request.number} | ({"why": why} if why else {}), request)


def write(agent: Agent, operation: str, actor: Actor, detail: dict[str, Any], before: Request | None = None) -> int:
    """Append an entry, and copy the state of a request to read into its row. Returns the request's number. If the
    request's state `before` is given, the trail is not read for it again."""
    with edits.begin(agent, operation, actor, is_notice=True) as edit:
        edit.detail = detail
        if before is not None and operation in (Operation.ACCESS_REVOKED, Operation.ACCESS_EXPIRED):
            notices.close(edit, before)
        edit.finish(always=True)
    number: int = detail.get("request", detail.get("proposal", edit.seq))
    if operation.startswith("access"):
        entry = AuditEntry.objects.get(agent_id=agent.pk, seq=edit.seq)
        values = columns(consent.after(before, entry) if before else find(agent, number), agent.tenant_id, agent.label)
        AccessRequest.objects.update_or_create(agent_id=agent.pk, number=number, defaults=values)
    return number
