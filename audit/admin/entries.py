"""The audit trail without content: who did what, when, to how many memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from unfold.decorators import display

from audit.models import AuditEntry, Operation
from memory.access.roles import Action
from memory.admin.base.actions import LinkAction
from memory.admin.base.page import OfAgent, OfTenant, Scoped, ask_access_address, time_machine_address
from memory.models import Agent


class RollBackEntry(LinkAction):
    """Leads to the Time Machine, which says in numbers what a rollback would mean."""

    name, label, needs, is_destructive = "roll_back_entry", "Roll back this entry", Action.STEER, True

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent and row.changes) and row.operation != Operation.REDACTED

    def address(self, rows: Sequence[AuditEntry]) -> str:
        return time_machine_address(rows[0].agent_id, "entry", rows[0].seq)


class RollBackBefore(LinkAction):
    """The same, for this entry and all later ones."""

    name, label, needs, is_destructive = "roll_back_before", "Roll back to before this entry", Action.STEER, True

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent)

    def address(self, rows: Sequence[AuditEntry]) -> str:
        return time_machine_address(rows[0].agent_id, "since_entry", rows[0].seq - 1)


@register(AuditEntry)
class EntryPage(Scoped):
    tenant = "tenant_id"
    deferred = ("sealed", "sealed_digest")
    row_actions = (RollBackEntry(), RollBackBefore())
    list_display = ("seq", "agent_label", "done", "who", "session", "changes", "at")
    list_filter = ("operation", "actor_kind", OfTenant, OfAgent)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["seq", "agent_label", "done", "who", "at", "session", "changes", "detail"],
        "Proof": ["key_id", "code"],
    }

    def named(self, row: AuditEntry) -> str:
        return f"entry {row.seq} of {row.agent_label}"

    def get_queryset(self, request: HttpRequest) -> Any:
        """With whether the agent is still there, which its trail outlives."""
        agents = Agent.objects.filter(pk=OuterRef("agent_id"))
        return super().get_queryset(request).annotate(has_agent=Exists(agents))

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        asked = ask_access_address(row.agent_id, kind="entries", first=row.seq, last=row.seq)
        is_offered = row.has_agent and row.changes and self.may(request, Action.ASK, row)
        return [("Ask to read it", asked)] if is_offered else []

    @display(description="what", ordering="operation")
    def done(self, entry: AuditEntry) -> str:
        return entry.operation.replace("_", " ")

    @display(description="actor")
    def who(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    @display(description="MAC")
    def code(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()
