"""The audit trail without content: who did what, when, to how many memories."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.decorators import display

from audit.models import AuditEntry, Operation
from memory.access.roles import Action
from memory.admin.base.actions import Deed
from memory.admin.base.links import ask_access_address, one_of, time_machine_address
from memory.admin.base.page import Scoped
from memory.admin.base.scope import AgentOfRecord, TenantOfRecord, ids_seen_by
from memory.models import Agent


class _RollBack(Deed):
    """Leads to the Time Machine, which says in numbers what it would mean."""

    needs, is_grave = Action.STEER, True
    kind: ClassVar[str]

    def at(self, row: AuditEntry) -> int:
        return row.seq

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        row = one_of(self._rows(page, request, chosen), request)
        return row and HttpResponseRedirect(time_machine_address(_agent(row), self.kind, self.at(row)))


class RollBackEntry(_RollBack):
    name, label, kind = "roll_back_entry", "Roll back this entry", "entry"

    def offered(self, row: AuditEntry) -> bool:
        return row.changes > 0 and row.operation != Operation.REDACTED and _is_there(row)


class RollBackBefore(_RollBack):
    name, label, kind = "roll_back_before", "Roll back to before this entry", "since_entry"

    def offered(self, row: AuditEntry) -> bool:
        return _is_there(row)

    def at(self, row: AuditEntry) -> int:
        return row.seq - 1


def _agent(row: AuditEntry) -> Agent:
    return Agent.objects.select_related("tenant").get(pk=row.agent_id)


def _is_there(row: AuditEntry) -> bool:
    return Agent.objects.filter(pk=row.agent_id).exists()


@register(AuditEntry)
class EntryPage(Scoped):
    tenant = "tenant_id"
    deeds = (RollBackEntry(), RollBackBefore())
    list_display = ("seq", "agent_label", "done", "who", "session", "changes", "at")
    list_filter = ("operation", "actor_kind", TenantOfRecord, AgentOfRecord)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["seq", "agent_label", "done", "who", "at", "session", "changes", "detail"]}),
        ("Proof", {"fields": ["key_id", "code"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        return super().get_queryset(request).defer("sealed", "sealed_digest")

    def named(self, row: AuditEntry) -> str:
        return f"entry {row.seq} of {row.agent_label}"

    def beside(self, request: HttpRequest, row: AuditEntry) -> dict[str, Any]:
        ways = []
        if row.tenant_id in ids_seen_by(request, Action.ASK) and row.changes and _is_there(row):
            asked = f"?kind=entries&first={row.seq}&last={row.seq}"
            ways.append(("Ask to read it", ask_access_address(_agent(row)) + asked))
        return super().beside(request, row) | {"ways": ways}

    @display(description="what", ordering="operation")
    def done(self, entry: AuditEntry) -> str:
        return entry.operation.replace("_", " ")

    @display(description="actor")
    def who(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    @display(description="MAC")
    def code(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()
