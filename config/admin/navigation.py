"""The admin's menu: what whoever is signed in may see."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from config.admin.scope import ids_seen_by

_SEEN = [
    ("Agents", "smart_toy", "memory_agent"),
    ("Memories", "notes", "memory_memory"),
    ("Sessions", "cleaning_services", "refinement_refinementsession"),
    ("Audit trail", "history", "audit_auditentry"),
    ("Access", "visibility", "audit_accessrequest"),
]


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    items = [_item("Overview", "dashboard", reverse("admin:index"))]
    if ids_seen_by(request):
        items += [_item(title, icon, reverse(f"admin:{name}_changelist")) for title, icon, name in _SEEN]
    return [{"items": items}]


def _item(title: str, icon: str, link: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link}
