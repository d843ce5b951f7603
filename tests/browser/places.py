"""The pages there are, for those who open each of them: a name, and where it is in a house that is lived in."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Model
from django.urls import reverse

from audit.models import AccessRequest, AuditEntry
from config.admin import asking, time_machine
from memory.models import Memory
from refinement.models import RefinementSession
from tests.browser.furnishing import Home


def _list(name: str) -> Callable[[Home], str]:
    return lambda _: reverse(f"admin:{name}_changelist")


def _row(name: str, row: Callable[[Home], Model | None]) -> Callable[[Home], str]:
    def address(home: Home) -> str:
        found = row(home)
        assert found is not None
        return reverse(f"admin:{name}_change", args=[found.pk])

    return address


PLACES: dict[str, Callable[[Home], str]] = {
    "overview": lambda _: reverse("admin:index"),
    "agents": _list("memory_agent"),
    "agent": _row("memory_agent", lambda home: home.ada),
    "time-machine": lambda home: time_machine.address(home.ada),
    "time-machine-preview": lambda home: time_machine.address(home.ada, "session", 1),
    "ask-for-access": lambda home: f"{asking.address(home.ada)}?kind=session&session=1",
    "memories": _list("memory_memory"),
    "memory": _row("memory_memory", lambda home: Memory.objects.filter(agent=home.ada, constitutional=True).first()),
    "sessions": _list("refinement_refinementsession"),
    "session": _row(
        "refinement_refinementsession", lambda home: RefinementSession.objects.filter(agent=home.ada).first()
    ),
    "audit-entries": _list("audit_auditentry"),
    "audit-entry": _row("audit_auditentry", lambda home: AuditEntry.objects.filter(agent_id=home.ada.pk).last()),
    "access-requests": _list("audit_accessrequest"),
    "access-request": _row("audit_accessrequest", lambda _: AccessRequest.objects.filter(state="active").first()),
}
