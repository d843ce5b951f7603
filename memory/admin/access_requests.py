"""The admin page of access requests and grants. People can revoke grants on this page."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from audit.consent import Scope, lapses_at, state_at
from audit.models import READS, AccessRequest, ActorKind, AuditEntry, Operation, State
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin.base import links
from memory.admin.base.actions import AdminAction, Result
from memory.admin.base.filters import AgentFilter, PeriodFilter, TenantFilter
from memory.admin.base.page import Part, ScopedAdmin, column
from memory.admin.base.permissions import actor_of
from memory.admin.base.texts import who_decides
from memory.admin.plain_pages import reading
from memory.consent import requests
from memory.errors import NotFound
from memory.mail import wording
from memory.models import Agent

_STATES = {"waiting": "info", "active": "success", "denied": "danger", "revoked": "warning"}


def state_now(row: AccessRequest) -> str:
    """The current state of a request. The state in the database can be outdated, because only the next access updates
    it."""
    return state_at(row, timezone.now())


class Revoke(AdminAction):
    name, label, needs, is_destructive = "revoke", "Revoke", Action.SEE, True

    def is_offered(self, row: AccessRequest) -> bool:
        return state_now(row) == State.ACTIVE

    def may(self, page: Any, request: HttpRequest, row: AccessRequest) -> bool:
        """Whether the person may revoke this grant. The grant must be their own, or they must have the permission STEER
        in the agent's tenant."""
        is_own = row.person_id == request.user.pk and super().may(page, request, row)
        return is_own or page.may(request, Action.STEER, row)

    def preview(self, rows: Sequence[AccessRequest]) -> Iterable[str]:
        running = sum(map(self.is_offered, rows))
        yield f"Ends {several(running, 'grant')} now. After that, nobody can use {'it' if running == 1 else 'them'}."
        if rest := len(rows) - running:
            yield f"Skips {several(rest, 'request')} without an active grant."

    def run(self, page: Any, rows: Sequence[AccessRequest], by: Any, values: dict[str, Any]) -> Iterator[Result]:
        agents = Agent.objects.select_related("tenant").in_bulk([row.agent_id for row in rows])
        return super().run(page, rows, by, {"agents": agents})

    def do(self, row: AccessRequest, by: Any, values: dict[str, Any]) -> str:
        agent = values["agents"][row.agent_id]
        if agent.tenant_id != row.tenant_id:  # SQL changed the row
            raise NotFound("The grant does not exist.")
        requests.revoke(agent, row.number, actor_of(by))
        return "grant revoked."


@register(AccessRequest)
class AccessPage(ScopedAdmin):
    tenant = "tenant_id"
    row_actions = (Revoke(),)
    list_display = ("number", "owner", "person", "current_state", "covers", "asked_at", "ends")
    list_filter = ("state", PeriodFilter, TenantFilter, AgentFilter)
    time, numbered_by = "asked_at", "number"
    search_fields = ("agent_label", "person")
    search_help_text = "an agent, a person, or the number of a request"
    exported = (
        *("number", "agent_label", "person", "purpose", "state", "seconds", "scope"),
        *("asked_at", "decided_at", "decided_by", "until", "ended_at"),
    )
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["agent", "purpose", "covers", "memories"]}

    def parts(self, request: HttpRequest, row: AccessRequest) -> list[Part]:
        """The state in words, the steps so far, and the reader's link to read."""
        state = state_now(row)
        is_reader = row.person_id == request.user.pk and state == State.ACTIVE
        reads = {"agent": row.agent_label, "operation": Operation.CONTENT_READ, "q": row.person}
        context = {
            "row": row,
            "state": state,
            "who": who_decides(Agent.objects.get(pk=row.agent_id)) if state == State.REQUESTED else "",
            "decide_until": lapses_at(row.asked_at),
            "decided_by": f"the agent’s {'steward' if row.decided_by == ActorKind.STEWARD else 'runtime'}",
            "duration": wording.duration(row.seconds),
            "entry": links.link(row.agent_id, "entry", row.number, f"entry {row.number}"),
            "read": _read(row),
            "reads_url": reverse("admin:audit_auditentry_changelist", query=reads),
            "reading_url": reading.grant_url(row.agent_label, row.number) if is_reader else "",
        }
        content = render_to_string("admin/parts/access.html", context)
        return [Part("state", "State", content, live=state == State.REQUESTED)]

    def describe(self, row: AccessRequest) -> str:
        return f"access request {row.number} to {row.agent_label}"

    def related_pages(self, request: HttpRequest, row: AccessRequest) -> list[tuple[str, str]]:
        return links.to_person(request, row.person)

    @display(description="state", ordering="state", label=_STATES)
    def current_state(self, row: AccessRequest) -> str:
        return "waiting" if state_now(row) == State.REQUESTED else state_now(row)

    @display(description="until", ordering="until")
    def ends(self, row: AccessRequest) -> SafeString | str | None:
        """When the access ends or has ended. For a request that waits: until when somebody can decide."""
        state = state_now(row)
        if state == State.REQUESTED:
            return format_html("<span>decide by {}</span>", moment(lapses_at(row.asked_at)))
        ended = format_html("<span>ended {}</span>", moment(row.ended_at))
        return ended if state == State.REVOKED else moment(row.until)

    owner = column("agent_label", "agent", ordering="agent_label")

    @display(description="agent")
    def agent(self, row: AccessRequest) -> str:
        return links.agent_link(row.agent_id, row.agent_label)

    @display(description="scope")
    def covers(self, row: AccessRequest) -> str:
        return wording.scope(Scope.from_json(row.scope))

    @display(description="memories", empty_value="")
    def memories(self, row: AccessRequest) -> SafeString | None:
        numbers = Scope.from_json(row.scope).numbers
        return links.memories(row.agent_id, numbers) if numbers else None


def _read(row: AccessRequest) -> str:
    """How many memories the person has read under the grant, and in how many reads. "" if there is no read."""
    entries = AuditEntry.objects.filter(READS, agent_id=row.agent_id, seq__gt=row.number, detail__request=row.number)
    details = list(entries.values_list("detail", flat=True))
    read = {number for detail in details for number in detail.get("memories", ())}
    return f"{several(len(read), 'memory', 'memories')}, in {several(len(details), 'read')}" if details else ""
