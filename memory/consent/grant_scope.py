"""What a grant covers, as figures: the lists that a person chooses from. Nothing is opened here."""

from __future__ import annotations

from django.db.models import QuerySet

from audit.consent import Scope
from audit.models import AuditEntry, Change
from memory.models import Agent, Memory

OF_MEMORIES = ("silo", "memories")  # kinds of scope under which memories are read as they stand


def memories(agent: Agent, scope: Scope) -> QuerySet[Memory]:
    """The memories that may be read as they stand, in order of number, without what they say."""
    rows = Memory.objects.of(agent).defer("sealed", "digest").order_by("number")
    if scope.kind == "memories":
        return rows.numbered(scope.numbers)
    return rows if scope.kind == "silo" else rows.none()


def entries(agent: Agent, scope: Scope) -> QuerySet[AuditEntry]:
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
