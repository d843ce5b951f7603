"""What a person may see and do on the admin pages, by tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet
from django.http import HttpRequest

from audit.trail import Actor
from memory.access.roles import Action, request_rights, tenant_ids
from memory.models import Tenant

if TYPE_CHECKING:
    from memory.admin.base.page import ScopedAdmin


def actor_of(person: Any) -> Actor:
    """The person as an actor for the audit trail."""
    return Actor.person(person.email)


def visible_tenant_ids(request: HttpRequest, action: Action = Action.SEE) -> list[int]:
    """Ids of the tenants in which the person may carry out `action`. The ids are cached for the request."""
    known: dict[Action, list[int]] | None = request.__dict__.get("_tenants")
    if known is None:
        known = request.__dict__["_tenants"] = tenant_ids(request.user)  # type: ignore[arg-type]
        if request.method == "POST" and hasattr(request, "has_own_context"):  # `config.at_once.persons_limited`
            request_rights.set((request.user, known))  # type: ignore[arg-type]
    return known[action]


def clear_tenant_cache(request: HttpRequest) -> None:
    """Clear the cache of `visible_tenant_ids`, because an action may have changed the person's own roles."""
    request.__dict__.pop("_tenants", None)


def visible_tenants(request: HttpRequest, action: Action = Action.SEE) -> QuerySet[Tenant]:
    """The tenants in which the person may carry out `action`."""
    return Tenant.objects.filter(pk__in=visible_tenant_ids(request, action))


def permission(needs: Action) -> Callable[..., bool]:
    """Make a permission method for Unfold. With a row's id, it checks whether the person may carry out the action
    `needs` on this row. Without an id, it checks whether the person may carry it out in at least one tenant."""

    def has_permission(page: ScopedAdmin, request: HttpRequest, object_id: str | None = None) -> bool:
        return page.may(request, needs, page.row_or_404(request, object_id) if object_id else None)

    return has_permission
