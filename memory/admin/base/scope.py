"""Who is signed in, whose rows they may see, and the filters that narrow lists to some of those."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from audit.trail import Actor
from memory.access.roles import Action, tenant_ids
from memory.models import Agent, Tenant

MOST = 200  # choices that a filter offers


def actor_of(person: Any) -> Actor:
    """Whoever is signed in, as the trail names them."""
    return Actor.person(person.email)


def ids_seen_by(request: HttpRequest, action: Action = Action.SEE) -> list[int]:
    """The tenants in which whoever asks may do this. Asked of the database once a request."""
    known: dict[Action, list[int]] | None = request.__dict__.get("_tenants")
    if known is None:
        known = request.__dict__["_tenants"] = tenant_ids(request.user)  # type: ignore[arg-type]
    return known[action]


def forget_tenants(request: HttpRequest) -> None:
    """Ask the database again, because an action may have changed the person's own part."""
    request.__dict__.pop("_tenants", None)


def seen_by(request: HttpRequest, action: Action = Action.SEE) -> QuerySet[Tenant]:
    """The same, as rows."""
    return Tenant.objects.filter(pk__in=ids_seen_by(request, action))


class OfTenant(SimpleListFilter):
    """Rows of one of the tenants that whoever asks may see."""

    title = parameter_name = "tenant"

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        self.lookup = f"{model_admin.tenant}__in"
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return list(seen_by(request).order_by("slug").values_list("slug", "slug")[:MOST])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(**{self.lookup: seen_by(request).filter(slug=self.value()).values("pk")})


class OfAgent(SimpleListFilter):
    """Rows of one agent, `tenant/agent`."""

    title = parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        agents = Agent.objects.filter(tenant__in=ids_seen_by(request)).order_by("tenant__slug", "slug")
        labels = [f"{tenant}/{slug}" for tenant, slug in agents.values_list("tenant__slug", "slug")[:MOST]]
        if self.value() and self.value() not in labels:
            labels.append(str(self.value()))
        return [(label, label) for label in labels]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        tenant, _, slug = str(self.value()).partition("/")
        agents = Agent.objects.filter(tenant__in=seen_by(request).filter(slug=tenant), slug=slug)
        return queryset.filter(agent_id__in=list(agents.values_list("pk", flat=True)))
