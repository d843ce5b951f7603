"""Requests to read, and grants: their state, purpose, scope and clock; to be ended by the tenant's people, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from django.contrib.admin import register
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import localize
from unfold.decorators import display

from audit.consent import LAPSES, Scope
from audit.models import AccessRequest, AccessState
from config.wording import several
from memory.access.roles import Action
from memory.admin.base.actions import AdminAction, Result
from memory.admin.base.page import OfAgent, OfTenant, Scoped, actor_of, who_decides
from memory.admin.plain_pages import reading
from memory.consent import grants
from memory.mail import wording
from memory.models import Agent


def state_now(row: AccessRequest) -> str:
    """What the clock has made of it; the row is written when somebody next asks."""
    now = timezone.now()
    if row.state == AccessState.ACTIVE and row.until and row.until <= now:
        return AccessState.EXPIRED
    if row.state == AccessState.REQUESTED and row.asked_at + LAPSES <= now:
        return AccessState.LAPSED
    return row.state


class Revoke(AdminAction):
    name, label, needs, is_destructive = "revoke", "Revoke", Action.SEE, True

    def is_offered(self, row: AccessRequest) -> bool:
        return state_now(row) == AccessState.ACTIVE

    def may(self, page: Any, request: HttpRequest, row: AccessRequest) -> bool:
        """One's own; or any of a tenant whose agents one steers."""
        is_own = row.person_id == request.user.pk and super().may(page, request, row)
        return is_own or page.may(request, Action.STEER, row)

    def preview(self, rows: Sequence[AccessRequest]) -> Iterable[str]:
        running = sum(map(self.is_offered, rows))
        yield f"{several(running, 'grant')} will end now. Reading under {'it' if running == 1 else 'them'} ends too."
        if rest := len(rows) - running:
            yield f"{rest:,} of those chosen {'is' if rest == 1 else 'are'} not in force and will not change."

    def run(self, page: Any, rows: Sequence[AccessRequest], by: Any, given: dict[str, Any]) -> Iterator[Result]:
        agents = Agent.objects.select_related("tenant").in_bulk([row.agent_id for row in rows])
        return super().run(page, rows, by, {"agents": agents})

    def do(self, row: AccessRequest, by: Any, given: dict[str, Any]) -> str:
        grants.revoke(given["agents"][row.agent_id], row.number, actor_of(by))
        return "the grant is ended."


@register(AccessRequest)
class AccessPage(Scoped):
    tenant = "tenant_id"
    row_actions = (Revoke(),)
    list_display = ("number", "agent_label", "person", "now", "covers", "asked_at", "until")
    list_filter = ("state", OfTenant, OfAgent)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {
        "": ["number", "agent_label", "person", "purpose", "covers", "minutes"],
        "State": ["now", "asked_at", "deciding", "decided_at", "until", "ended_at"],
    }

    @display(description="decided")
    def deciding(self, row: AccessRequest) -> str:
        """By whom, and until when; for who runs the agent, also how."""
        if state_now(row) != AccessState.REQUESTED:
            return row.decided_by or "by nobody"
        path = f"access-requests/{row.number}/approve, or /deny,"
        return (
            f"not yet. Until {localize(row.asked_at + LAPSES)} it waits for "
            f"{who_decides(Agent.objects.get(pk=row.agent_id), path)}. After that it is a no."
        )

    def named(self, row: AccessRequest) -> str:
        return f"access request {row.number} to {row.agent_label}"

    def related_pages(self, request: HttpRequest, row: AccessRequest) -> list[tuple[str, str]]:
        is_own = row.person_id == request.user.pk and state_now(row) == AccessState.ACTIVE
        return [("Read", reading.address(row.agent_label, row.number))] if is_own else []

    @display(
        description="state",
        ordering="state",
        label={"waiting": "info", "in force": "success", "denied": "danger", "revoked": "warning"},
    )
    def now(self, row: AccessRequest) -> str:
        state = state_now(row)
        return {"active": "in force", "requested": "waiting"}.get(state, state)

    @display(description="could be read")
    def covers(self, row: AccessRequest) -> str:
        return wording.scope(Scope.from_json(row.scope))

    @display(description="for")
    def minutes(self, row: AccessRequest) -> str:
        return f"{row.seconds // 60} minutes"
