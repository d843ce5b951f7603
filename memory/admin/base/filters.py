"""Filters of lists. They offer only tenants and agents that the person may see."""

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from memory.admin.base.permissions import visible_tenant_ids, visible_tenants
from memory.models import Agent

MAX_CHOICES = 200  # choices per filter


class TenantFilter(SimpleListFilter):
    """A filter by tenant. It offers the tenants that the person may see."""

    title = parameter_name = "tenant"

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        self.lookup = f"{model_admin.tenant}__in"
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return list(visible_tenants(request).order_by("slug").values_list("slug", "slug")[:MAX_CHOICES])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(**{self.lookup: visible_tenants(request).filter(slug=self.value()).values("pk")})


class AgentFilter(SimpleListFilter):
    """Filters by agent, as `tenant/agent`."""

    title = parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        agents = Agent.objects.filter(tenant__in=visible_tenant_ids(request)).order_by("tenant__slug", "slug")
        labels = [f"{tenant}/{slug}" for tenant, slug in agents.values_list("tenant__slug", "slug")[:MAX_CHOICES]]
        if self.value() and self.value() not in labels:
            labels.append(str(self.value()))
        return [(label, label) for label in labels]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        tenant, _, slug = str(self.value()).partition("/")
        agents = Agent.objects.filter(tenant__in=visible_tenants(request).filter(slug=tenant), slug=slug)
        return queryset.filter(agent_id__in=list(agents.values_list("pk", flat=True)))
