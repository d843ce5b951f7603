"""The admin's menu: the lists that the person may open."""

from __future__ import annotations

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
        if admin.site.get_model_admin(model).has_module_permission(request):
            link = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
            items.append({"title": title, "icon": icon, "link": link})
    return [{"items": items}]
