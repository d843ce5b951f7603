"""Grants: what a person may read, and for how long. The audit trail is checked for each use."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.models import QuerySet
from django.utils import timezone

from audit.consent import Person, Request, Scope, is_altered
from audit.models import READS, AuditEntry, Change, State
from config.keyring import is_proven, macs
from memory import errors
from memory.access.roles import Action, may
from memory.consent import requests
from memory.models import Agent, Memory
from memory.models import Person as Account
from memory.models.memories import MemoryQuerySet
from memory.writing import edits

OF_MEMORIES = ("silo", "memories")  # kinds of scope that include the present content of memories


@contextmanager
def in_force(agent: Agent, number: int, person: Person) -> Iterator[tuple[Agent, Request]]:
    """Lock the agent's row. Yields it, and the person's active grant, checked against the audit trail.

    If the grant has expired, the trail records this. Raises Erased, or NotGranted for every other problem.
    """
    requests.expire(agent)
    with edits.locked(agent) as row:
        edits.require_key(row)
        grant, refused = requests.get(row, number), errors.NotGranted("You have no active grant with this number.")
        if grant is None or (grant.person_id, grant.asker) != (person.id, person.address):
            raise refused
        account = Account.objects.filter(pk=person.id).first()
        if account is None or account.joined_at > grant.asked_at or not may(account, Action.ASK, row.tenant):
            raise refused  # SQL gave the number to another person, or the person has just lost the right
        require_active(row, grant)
        # If SQL has stored changes of the next entries, those cannot be written, so the grant could not be revoked.
        if is_altered(row, grant) or Change.objects.filter(agent_id=row.pk, seq__gt=row.audit_seq).exists():
            raise errors.NotGranted("The agent's audit trail was altered after this request, so nothing can be read.")
        yield row, grant


def require_active(agent: Agent, grant: Request) -> None:
    """Raise NotGranted unless the grant is active now. It has expired, or it would last too long because the clock was
    ahead at the approval."""
    is_active = grant.at(requests.clock(agent)).state == State.ACTIVE
    if not is_active or timezone.now() < (grant.decided_at or grant.asked_at):
        raise errors.NotGranted("You have no active grant with this number.")


def reads(agent: Agent, *, after: int, limit: int) -> list[AuditEntry]:
    """Up to `limit` entries that record reads, starting after entry `after`. The oldest is first."""
    rows = AuditEntry.objects.filter(READS, agent_id=agent.pk, seq__gt=after)
    return list(rows.order_by("seq")[:limit])


def readable_memories(agent: Agent, scope: Scope) -> MemoryQuerySet:
    """Metadata of the memories whose present content the scope covers. They are ordered by number."""
    rows = Memory.objects.of(agent).defer("sealed", "digest").order_by("number")
    if scope.kind == "memories":
        return rows.numbered(scope.numbers)
    return rows if scope.kind == "silo" else rows.none()


def readable_entries(agent: Agent, scope: Scope) -> QuerySet[AuditEntry]:
    """Metadata of the entries whose changes the scope covers. They are ordered by number."""
    rows = AuditEntry.objects.filter(agent_id=agent.pk, changes__gt=0).defer("sealed", "sealed_digest").order_by("seq")
    if scope.kind == "session":
        return rows.filter(session=scope.session, seq__lte=scope.last)
    if scope.kind == "entries":
        return rows.filter(seq__range=(scope.first, scope.last))
    if scope.kind == "memories":
        touched = Change.objects.filter(agent_id=agent.pk, number__among=list(scope.numbers))
        return rows.filter(seq__in=touched.values("seq"))
    return rows


# --- tokens for commands that read in the name of a grant's person
#
# A token is derived from the grant and the keyring's pepper, and is not stored. It is valid while the grant is active.


_TOKEN = re.compile(r"palg_([1-9][0-9]{0,17})_([1-9][0-9]{0,17})_([0-9a-f]{64})")


def make_token(agent: Agent, number: int, person: Person) -> str:
    """The token of an active grant. Raises NotGranted, Erased."""
    with in_force(agent, number, person) as (row, _):
        return f"palg_{row.pk}_{number}_{macs(_text(row.pk, number, person))[0].hex()}"


def prove_token(agent: Agent, token: str) -> tuple[Request, Person]:
    """The active grant of a token, and the grant's person. The account must still have this address, and may ask to
    read in the agent's tenant. Raises Erased, or KeyRejected for every other problem."""
    rejected = errors.KeyRejected("The token does not belong to an active grant for this agent.")
    parts = _TOKEN.fullmatch(token)
    agent_id, number, mac = (int(parts[1]), int(parts[2]), parts[3]) if parts else (0, 0, "")
    request = requests.get(agent, number) if agent_id == agent.pk else None
    person = Person(request.person_id, request.asker) if request else Person(0, "")
    if not is_proven(bytes.fromhex(mac), _text(agent.pk, number, person)) or request is None:
        raise rejected
    account = Account.objects.filter(pk=person.id, email=person.address).first()
    if account is None or not may(account, Action.ASK, agent.tenant):
        raise rejected
    try:
        with in_force(agent, number, person) as (_, grant):
            return grant, person
    except errors.NotGranted:
        raise rejected from None


def _text(agent_id: int, number: int, person: Person) -> str:
    return f"grant-token/{agent_id}/{number}/{person.id}/{person.address}"
