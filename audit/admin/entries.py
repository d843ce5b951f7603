"""The page of the audit trail: who did what, when, to how many memories. It shows no content."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from unfold.decorators import display

from audit.models import AuditEntry, Operation
from memory.access.roles import Action
from memory.admin.base.actions import LinkAction
from memory.admin.base.filters import AgentFilter, TenantFilter
from memory.admin.base.page import ScopedAdmin
from memory.admin.base.texts import ask_access_url, time_machine_url
from memory.models import Agent


class RollBackEntry(LinkAction):
    """A link to the Time Machine, with a preview of the rollback of this entry."""

    name, label, needs, is_destructive = "roll_back_entry", "Roll back this entry", Action.STEER, True

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent and row.changes) and row.operation != Operation.REDACTED

    def address(self, rows: Sequence[AuditEntry]) -> str:
        return time_machine_url(rows[0].agent_id, "entry", rows[0].seq)


class RollBackBefore(LinkAction):
    """A link to the Time Machine, with a preview of the rollback of this entry and all later entries."""

    name, label, needs, is_destructive = "roll_back_before", "Roll back to before this entry", Action.STEER, True

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent)

    def address(self, rows: Sequence[AuditEntry]) -> str:
        return time_machine_url(rows[0].agent_id, "since_entry", rows[0].seq - 1)


@register(AuditEntry)
class EntryPage(ScopedAdmin):
    tenant = "tenant_id"
    deferred = ("sealed", "sealed_digest")
    row_actions = (RollBackEntry(), RollBackBefore())
    list_display = ("seq", "agent_label", "operation_text", "actor", "session", "changes", "at")
    list_filter = ("operation", "actor_kind", TenantFilter, AgentFilter)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["seq", "agent_label", "operation_text", "actor", "at", "session", "changes", "detail"],
        "Proof": ["key_id", "mac_hex"],
    }

    def describe(self, row: AuditEntry) -> str:
        return f"entry {row.seq} of {row.agent_label}"

    def get_queryset(self, request: HttpRequest) -> Any:
        """Add to each entry whether its agent still exists. The trail of an erased agent is kept."""
        agents = Agent.objects.filter(pk=OuterRef("agent_id"))
        return super().get_queryset(request).annotate(has_agent=Exists(agents))

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        url = ask_access_url(row.agent_id, kind="entries", first=row.seq, last=row.seq)
        is_offered = row.has_agent and row.changes and self.may(request, Action.ASK, row)
        return [("Ask to read it", url)] if is_offered else []

    @display(description="what", ordering="operation")
    def operation_text(self, entry: AuditEntry) -> str:
        return entry.operation.replace("_", " ")

    @display(description="actor")
    def actor(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    @display(description="MAC")
    def mac_hex(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()
