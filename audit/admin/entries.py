"""The audit trail without content: who did what, when, to how many memories."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin import register
from django.http import HttpRequest
from unfold.decorators import display

from audit.models import AuditEntry, Operation
from memory.access.roles import Action
from memory.admin.base.links import ask_access_address, time_machine_address
from memory.admin.base.page import Scoped
from memory.admin.base.scope import OfAgent, OfTenant
from memory.models import Agent


@register(AuditEntry)
class EntryPage(Scoped):
    tenant = "tenant_id"
    deferred = ("sealed", "sealed_digest")
    list_display = ("seq", "agent_label", "done", "who", "session", "changes", "at")
    list_filter = ("operation", "actor_kind", OfTenant, OfAgent)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["seq", "agent_label", "done", "who", "at", "session", "changes", "detail"]}),
        ("Proof", {"fields": ["key_id", "code"]}),
    ]

    def named(self, row: AuditEntry) -> str:
        return f"entry {row.seq} of {row.agent_label}"

    def related_pages(self, request: HttpRequest, row: AuditEntry) -> list[tuple[str, str]]:
        """To the Time Machine, which says in numbers what a rollback would mean, and to ask for access."""
        found: list[tuple[str, str]] = []
        if not Agent.objects.filter(pk=row.agent_id).exists():
            return found
        if self.may(request, Action.STEER, row):
            before = time_machine_address(row.agent_id, "since_entry", row.seq - 1)
            found.append(("Roll back to before this entry", before))
            if row.changes and row.operation != Operation.REDACTED:
                found.append(("Roll back this entry", time_machine_address(row.agent_id, "entry", row.seq)))
        if row.changes and self.may(request, Action.ASK, row):
            asked = f"?kind=entries&first={row.seq}&last={row.seq}"
            found.append(("Ask to read it", ask_access_address(row.agent_id) + asked))
        return found

    @display(description="what", ordering="operation")
    def done(self, entry: AuditEntry) -> str:
        return entry.operation.replace("_", " ")

    @display(description="actor")
    def who(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    @display(description="MAC")
    def code(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()
