"""Every page: its name, and its address with the example data."""

from collections.abc import Callable
from typing import Any

from django.urls import reverse

from audit.consent import REMOVALS
from audit.models import AccessRequest, AuditEntry, Change, Operation
from memory.accounts import invitations
from memory.admin.base.texts import ask_access_url, time_machine_url
from memory.admin.plain_pages import reading
from memory.consent import links, requests
from memory.models import Memory, Role
from refinement.models import RefinementSession
from tests.browser.example_data import Home

Address = Callable[[Home], str]


def _page(name: str) -> Address:
    return lambda _: reverse(f"admin:{name}")


def _row(name: str, row: Callable[[Home], Any]) -> Address:
    return lambda home: reverse(f"admin:{name}", args=[row(home).pk])


def _reading(home: Home) -> str:
    grant = AccessRequest.objects.get(state="active", person_id=home.owner.pk)
    return reading.grant_url(grant.agent_label, grant.number)


def _consent(home: Home) -> str:
    request = AccessRequest.objects.get(agent_id=home.ada.pk, state="requested")
    return reverse("consent", args=[links.make(home.ada, request.number)])


def _removal(home: Home) -> str:
    [request] = requests.waiting(home.ada, *REMOVALS)
    return reverse("consent", args=[links.make(home.ada, request.number)])


def _joining(home: Home) -> str:
    token = invitations.invite(home.ada.tenant, "priya@quayside.test", Role.ADMIN, home.owner)
    return reverse("join", args=[token])


def _last_session(home: Home) -> RefinementSession:
    return RefinementSession.objects.filter(agent=home.ada).latest("number")


def _merge(home: Home) -> AuditEntry:
    merges = AuditEntry.objects.filter(agent_id=home.ada.pk, operation=Operation.CONSOLIDATED)
    return merges.order_by("-changes", "-seq")[0]  # the largest one


def _merged(home: Home) -> Any:
    made = Change.objects.get(agent_id=home.ada.pk, seq=_merge(home).seq, before_digest=None)
    return Memory.objects.get(agent=home.ada, number=made.number)


FOR_OWNERS: dict[str, Address] = {
    "overview": _page("index"),
    "agents": _page("memory_agent_changelist"),
    "agent": _row("memory_agent_change", lambda home: home.ada),
    "time-machine": lambda home: time_machine_url(home.ada.pk),
    "time-machine-preview": lambda home: time_machine_url(home.ada.pk, "session", _last_session(home).number),
    "ask-for-access": lambda home: f"{ask_access_url(home.ada.pk)}?kind=session&session=1",
    "memories": _page("memory_memory_changelist"),
    "memory": _row("memory_memory_change", _merged),
    "sessions": _page("refinement_refinementsession_changelist"),
    "session": _row("refinement_refinementsession_change", _last_session),
    "audit-entries": _page("audit_auditentry_changelist"),
    "audit-entry": _row("audit_auditentry_change", _merge),
    "access-requests": _page("audit_accessrequest_changelist"),
    "access-request": _row("audit_accessrequest_change", lambda _: AccessRequest.objects.get(state="active")),
    "reading": _reading,
    "agent-new": _page("memory_agent_add_agent"),
    "agent-settings": _row("memory_agent_change_settings", lambda home: home.ada),
    "agent-proposal": _row("memory_agent_propose", lambda home: home.ada),
    "agents-keys": _page("memory_agentkey_changelist"),
    "tenants-keys": _page("memory_tenantkey_changelist"),
    "people": _page("memory_membership_changelist"),
    "invitations": _page("memory_invitation_changelist"),
    "invite": _page("memory_membership_invite"),
    "tenant-webhook": _row("memory_tenant_change_webhook", lambda home: home.ada.tenant),
    "account": _page("account"),
    "account-password": _page("account_password"),
    "account-second-factor": _page("account_factor"),
}

BY_LINK: dict[str, Address] = {"consent": _consent, "removal": _removal, "joining": _joining}  # nobody is signed in

FOR_SUPERUSERS: dict[str, Address] = {
    "everybody": _page("memory_person_changelist"),
    "person": _row("memory_person_change", lambda home: home.owner),
    "tenants": _page("memory_tenant_changelist"),
    "tenant": _row("memory_tenant_change", lambda home: home.ada.tenant),
    "tenant-new": _page("memory_tenant_add_tenant"),
}
