"""The admin's menu: what whoever is signed in may see."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from memory.access.roles import Action, manages
from memory.admin.base.scope import ids_seen_by

_SEEN = [
    ("Agents", "smart_toy", "memory_agent"),
    ("Memories", "notes", "memory_memory"),
    ("Sessions", "cleaning_services", "refinement_refinementsession"),
    ("Audit trail", "history", "audit_auditentry"),
    ("Access", "visibility", "audit_accessrequest"),
]


_OF_ROLE = {
    Action.CONFIGURE: [
        ("Agents' keys", "key", "memory_agentkey"),
        ("Tenants' keys", "vpn_key", "memory_tenantkey"),
    ],
    Action.STAFF: [
        ("People", "group", "memory_membership"),
        ("Invitations", "mail", "memory_invitation"),
    ],
}
_OF_SUPERUSERS = [("Everybody", "groups", "memory_person"), ("Tenants", "domain", "memory_tenant")]


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    items = [_item("Overview", "dashboard", reverse("admin:index"))]
    if ids_seen_by(request):
        items += _lists(_SEEN)
    for action, lists in _OF_ROLE.items():
        items += _lists(lists) if ids_seen_by(request, action) else []
    items += _lists(_OF_SUPERUSERS) if manages(request.user) else []  # type: ignore[arg-type]
    return [{"items": items}]


def _lists(named: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [_item(title, icon, reverse(f"admin:{name}_changelist")) for title, icon, name in named]


def _item(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
