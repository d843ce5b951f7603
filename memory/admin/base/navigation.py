"""The admin's menu: the lists that the person may open."""

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from audit.models import AccessRequest, AuditEntry
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Tenant, TenantKey
from refinement.models import RefinementSession

MENU: dict[type[Model], tuple[str, str]] = {  # title and icon
    Agent: ("Agents", "smart_toy"),
    Memory: ("Memories", "notes"),
    RefinementSession: ("Sessions", "cleaning_services"),
    AuditEntry: ("Audit trail", "history"),
    AccessRequest: ("Access requests", "visibility"),
    AgentKey: ("Agent keys", "key"),
    TenantKey: ("Tenant keys", "vpn_key"),
    Membership: ("Members", "group"),
    Invitation: ("Invitations", "mail"),
    Person: ("All people", "groups"),
    Tenant: ("Tenants", "domain"),
}


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    items = [{"title": "Overview", "icon": "dashboard", "link": reverse("admin:index")}]
    for model, (title, icon) in MENU.items():
        page: Any = admin.site.get_model_admin(model)
        if page.has_module_permission(request):
            items.append({"title": title, "icon": icon, "link": page.list_url})
    return [{"items": items}]
