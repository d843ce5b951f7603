"""The page of the audit trail: who did what, when, to how many memories. It shows no content."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.models import ActorKind, AuditEntry, Operation
from config.templatetags.moments import moment
from memory.access.roles import Action
from memory.admin.base import changes, links
from memory.admin.base.actions import LinkAction
from memory.admin.base.filters import AgentFilter, PeriodFilter, SessionFilter, TenantFilter
from memory.admin.base.page import Part, ScopedAdmin, Status, column
from memory.admin.base.texts import ask_access_url, time_machine_url
from memory.models import Agent
from memory.time_machine.selection import Undone


class Undo(LinkAction):
    """A link to the Time Machine, with a preview of what is undone from this entry on."""

    kind: ClassVar[str]
    needs = Action.STEER

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent and row.changes)

    def address(self, rows: Sequence[AuditEntry]) -> str:
        return time_machine_url(rows[0].agent_id, self.kind, rows[0].seq)


class UndoEntry(Undo):
    name, label, kind = "roll_back_entry", "Undo only this entry", "entry"

    def is_offered(self, row: Any) -> bool:
        return super().is_offered(row) and row.operation != Operation.REDACTED


class UndoRest(Undo):
    name, label, kind = "roll_back_rest", "Undo from here to the end of the session", "session_from"

    def is_offered(self, row: Any) -> bool:
        return super().is_offered(row) and bool(row.session)


class UndoLater(Undo):
    name, label, kind = "roll_back_before", "Undo this entry and everything later", "from_entry"
    is_destructive = True

    def is_offered(self, row: Any) -> bool:
        return bool(row.has_agent)


@register(AuditEntry)
class EntryPage(ScopedAdmin):
    tenant = "tenant_id"
    deferred = ("sealed", "sealed_digest")
    row_actions = (UndoEntry(), UndoRest(), UndoLater())
    main_actions, menu = (), "Undo"
    list_display = ("number", "owner", "operation_text", "actor", "session", "changes", "at")
    list_filter = (PeriodFilter, TenantFilter, AgentFilter, SessionFilter, "operation", "actor_kind")
    time, numbered_by = "at", "seq"
    search_fields = ("agent_label", "actor_label")
    search_help_text = "an agent, an actor, or the number of an entry"
    exported = ("seq", "agent_label", "operation", "actor_kind", "actor_label", "session", "changes", "at", "detail")
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["undone", "details"], "Proof": ["key_id", "mac_hex"]}
    folded = ("Proof",)

    def describe(self, row: AuditEntry) -> str:
        return f"entry {row.seq} of {row.agent_label}"

    def status(self, request: HttpRequest, row: Any) -> Status:
        session = links.link(row.agent_id, "session", row.session, f"session {row.session}")
        by = format_html("the {} in {}", row.actor_kind, session) if session else self.actor(row)
        return Status(
            self.operation_text(row), "faint", format_html("{}, by {}, {}.", self.agent(row), by, moment(row.at))
        )

    def parts(self, request: HttpRequest, row: Any) -> list[Part]:
        if not row.changes:
            return []
        after = request.GET.get("changes_after", "")
        found = changes.of_entry(row.agent_id, row.seq, int(after) if after.isdecimal() and len(after) < 16 else 0)
        return [Part("changes", f"Changed memories: {row.changes:,}", changes.table(found))]

    def get_queryset(self, request: HttpRequest) -> Any:
        """Add to each entry whether its agent still exists. The trail of an erased agent is kept."""
        agents = Agent.objects.filter(pk=OuterRef("agent_id"))
        return super().get_queryset(request).annotate(has_agent=Exists(agents))

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        url = ask_access_url(row.agent_id, kind="entries", first=row.seq, last=row.seq)
        is_offered = row.has_agent and row.changes and self.may(request, Action.ASK, row)
        found = [("Ask to read it", url)] if is_offered else []
        if row.operation == Operation.ROLLED_BACK and row.has_agent and self.may(request, Action.STEER, row):
            found.append(("Time Machine", time_machine_url(row.agent_id)))
        return found + links.to_person(request, row.actor_label) if row.actor_kind == ActorKind.PERSON else found

    def neighbours(self, row: Any) -> list[tuple[str, str]]:
        near = AuditEntry.objects.filter(agent_id=row.agent_id, seq__in=(row.seq - 1, row.seq + 1)).order_by("seq")
        return [
            (
                f"{'‹ ' if seq < row.seq else ''}Entry {seq}{' ›' if seq > row.seq else ''}",
                links.url(row.agent_id, "entry", seq),
            )
            for seq in near.values_list("seq", flat=True)
        ]

    number = column("seq", "entry", ordering="seq")
    owner = column("agent_label", "agent", ordering="agent_label")

    @display(description="what", ordering="operation")
    def operation_text(self, entry: AuditEntry) -> str:
        text, changed = entry.operation.replace("_", " "), entry.detail.get("changed")
        if not isinstance(changed, dict):
            return text
        names = ["resumed" if (name, value) == ("paused", False) else name for name, value in changed.items()]
        return f"{text}: {', '.join(names).replace('_', ' ')}"

    @display(description="actor")
    def actor(self, entry: AuditEntry) -> str:
        return f"{entry.actor_kind} {entry.actor_label}".strip()

    def agent(self, entry: Any) -> str:
        return (
            links.agent_link(entry.agent_id, entry.agent_label) if entry.has_agent else f"{entry.agent_label} (erased)"
        )

    @display(description="rolled back")
    def undone(self, entry: Any) -> SafeString | None:
        if not (entry.has_agent and entry.changes):
            return None
        by = Undone.of(Agent.objects.get(pk=entry.agent_id)).by(entry.seq)
        return links.link(entry.agent_id, "entry", by, f"by entry {by}")

    @display(description="details")
    def details(self, entry: AuditEntry) -> SafeString | None:
        """The detail in words. The request of a decision or a read is a link."""
        lines = [(name.replace("_", " "), _shown(entry.agent_id, name, value)) for name, value in entry.detail.items()]
        return format_html_join("", "<div>{}: {}</div>", lines) if lines else None

    @display(description="MAC")
    def mac_hex(self, entry: AuditEntry) -> str:
        return bytes(entry.mac).hex()


def _shown(agent_id: int, name: str, value: Any) -> str | None:
    """A value of an entry's detail. Numbers of requests and memories are links."""
    if name in ("request", "proposal") and isinstance(value, int):
        return links.link(agent_id, "entry", value)
    if name == "memories" and isinstance(value, list) and all(isinstance(each, int) for each in value):
        return links.memories(agent_id, value)
    return in_words(value)


def in_words(value: Any) -> str:
    """A value of an entry's detail, for people. Ranges of entries are lists of two numbers."""
    if isinstance(value, dict):
        return "; ".join(f"{name.replace('_', ' ')} {in_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        pairs = [each for each in value if isinstance(each, list) and len(each) == 2]
        if value and len(pairs) == len(value):
            return ", ".join(in_words(first) if first == last else f"{first} to {last}" for first, last in pairs)
        return ", ".join(map(in_words, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "none" if value in (None, "") else str(value)
