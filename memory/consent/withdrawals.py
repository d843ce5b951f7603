"""What ends the requests and grants of a person: a new password or second factor, and the end of an account or role."""

from django.db.models import QuerySet

from audit import consent
from audit.models import ASKS, AuditEntry, Operation, State
from memory import errors
from memory.access import authority, heads
from memory.consent import requests
from memory.consent.requests import SYSTEM
from memory.models import Agent
from memory.writing import edits


def check_ahead(person_id: int) -> None:
    """Check the long trails of the agents that the person asked to read. This can take seconds, so it comes before the
    transaction. Raises AuthorityBroken."""
    for agent in Agent.objects.select_related("tenant").filter(pk__in=_asked(person_id).values("agent_id")):
        if heads.is_behind(agent):
            authority.require_ahead(agent)


def withdraw_all(person_id: int, why: str, *, tenant_id: int | None = None) -> None:
    """End all requests and grants of a person, or only those for agents of this tenant. Raises AuthorityBroken."""
    asked = _asked(person_id) if tenant_id is None else _asked(person_id).filter(tenant_id=tenant_id)
    labels = dict(asked.values_list("agent_id", "agent_label"))
    agents = Agent.objects.select_related("tenant").in_bulk(labels)
    ends = {State.REQUESTED: State.LAPSED, State.ACTIVE: State.REVOKED}
    if hidden := labels.keys() - agents.keys():  # by SQL
        raise errors.AuthorityBroken(labels[min(hidden)])
    for _, agent in sorted(agents.items()):
        with edits.locked(agent) as row:
            requests.close_expired(row)
            for request in consent.requests(row.pk).values():
                if request.person_id == person_id and request.state in ends:
                    requests.end(row, request, ends[request.state], SYSTEM, why)


def _asked(person_id: int) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(ASKS, operation=Operation.ACCESS_REQUESTED, detail__person_id=person_id)
