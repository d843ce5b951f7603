"""The pages there are, for those who open each of them: a name, and where it is in a house that is lived in."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Model
from django.urls import reverse

from audit.models import AccessRequest, AuditEntry
from memory.accounts import invitations
from memory.admin.base.page import ask_access_url, time_machine_url
from memory.admin.plain_pages import reading
from memory.consent import links, removal_requests
from memory.models import Memory, Role
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


def _form(name: str, row: Callable[[Home], Model]) -> Callable[[Home], str]:
    return lambda home: reverse(f"admin:{name}", args=[row(home).pk])


def _reading(home: Home) -> str:
    grant = AccessRequest.objects.filter(state="active", person_id=home.owner.pk).get()
    return reading.grant_url(grant.agent_label, grant.number)


def _consent(home: Home) -> str:
    """By a link as it is mailed."""
    asked = AccessRequest.objects.filter(agent_id=home.ada.pk, state="requested").get()
    return reverse("consent", args=[links.make(home.ada, asked.number)])


def _removal(home: Home) -> str:
    [asked] = removal_requests.waiting(home.ada)
    return reverse("consent", args=[links.make(home.ada, asked.number)])


def _joining(home: Home) -> str:
    token = invitations.invite(home.ada.tenant, "priya@quayside.test", Role.ADMIN, home.owner)
    return reverse("join", args=[token])


PLACES: dict[str, Callable[[Home], str]] = {
    "overview": lambda _: reverse("admin:index"),
    "agents": _list("memory_agent"),
    "agent": _row("memory_agent", lambda home: home.ada),
    "time-machine": lambda home: time_machine_url(home.ada.pk),
    "time-machine-preview": lambda home: time_machine_url(home.ada.pk, "session", 1),
    "ask-for-access": lambda home: f"{ask_access_url(home.ada.pk)}?kind=session&session=1",
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
    "reading": _reading,
    "agent-new": lambda _: reverse("admin:memory_agent_add_agent"),
    "agent-settings": _form("memory_agent_change_settings", lambda home: home.ada),
    "agent-proposal": _form("memory_agent_propose", lambda home: home.ada),
    "agents-keys": _list("memory_agentkey"),
    "tenants-keys": _list("memory_tenantkey"),
    "people": _list("memory_membership"),
    "invitations": _list("memory_invitation"),
    "invite": lambda _: reverse("admin:memory_membership_invite"),
    "account": lambda _: reverse("admin:account"),
    "account-password": lambda _: reverse("admin:account_password"),
    "account-second-factor": lambda _: reverse("admin:account_factor"),
}

# For whoever has a link, and is not signed in.
BY_LINK: dict[str, Callable[[Home], str]] = {"consent": _consent, "removal": _removal, "joining": _joining}

# For superusers.
OF_SERVICE: dict[str, Callable[[Home], str]] = {
    "everybody": _list("memory_person"),
    "person": _row("memory_person", lambda home: home.owner),
    "tenants": _list("memory_tenant"),
    "tenant": _row("memory_tenant", lambda home: home.ada.tenant),
    "tenant-new": lambda _: reverse("admin:memory_tenant_add_tenant"),
}
