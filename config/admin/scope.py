"""What every page of the admin shares: rows of other tenants do not exist, and no column holds what a memory says.

Django's own admin scopes lists alone. Here a row is reached through `tenants` (memory/roles.py) by whatever address,
filter or form; nothing is added, changed or removed but where a page says so; and a query may ask only for what the
page offers, for `?digest=` would answer whether a memory says a certain thing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from unfold.admin import ModelAdmin

from memory.models import Agent, Tenant
from memory.roles import Action, manages, tenants

MOST = 200  # choices that a filter offers


def ids_seen_by(request: HttpRequest, action: Action = Action.SEE) -> list[int]:
    """The tenants in which whoever asks may do this. Asked of the database once a request and action."""
    known: dict[Action, list[int]] = request.__dict__.setdefault("_tenants", {})
    if action not in known:
        known[action] = list(tenants(request.user, action).values_list("pk", flat=True))  # type: ignore[arg-type]
    return known[action]


def seen_by(request: HttpRequest, action: Action = Action.SEE) -> QuerySet[Tenant]:
    """The same, as rows."""
    return Tenant.objects.filter(pk__in=ids_seen_by(request, action))


class Scoped(ModelAdmin):  # type: ignore[misc]  # Unfold comes without types
    """A page over rows that belong to tenants, to look at. `tenant` is the way from a row to its tenant's id."""

    tenant: ClassVar[str]
    action: ClassVar[Action] = Action.SEE  # that opens the page
    actions = None
    list_per_page = 50
    show_full_result_count = False
    show_facets = False
    list_fullwidth = True
    list_filter_sheet = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.filter(**{f"{self.tenant}__in": ids_seen_by(request, self.action)})

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if any("\0" in value for _, values in request.GET.lists() for value in values):  # which PostgreSQL refuses
            return HttpResponseRedirect(request.path)
        return super().changelist_view(request, extra_context)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        own = bool(ids_seen_by(request, self.action))
        return own if obj is None else own and self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  Django's signatures, here and below
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002
        filters = self.list_filter if request is None else self.get_list_filter(request)
        offered = {each if isinstance(each, str) else each.parameter_name for each in filters}
        return lookup.removesuffix("__exact") in offered

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:  # noqa: ARG002
        return [name for _, options in self.fieldsets or [] for name in options["fields"]]


class OfService(Scoped):
    """A page over what belongs to no tenant: for superusers alone."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = ModelAdmin.get_queryset(self, request)
        return rows if manages(request.user) else rows.none()  # type: ignore[arg-type]

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return manages(request.user)  # type: ignore[arg-type]


class OfTenant(SimpleListFilter):
    """Rows of one of the tenants whoever asks may see."""

    title = parameter_name = "tenant"
    lookup = "agent__tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:  # noqa: ARG002
        return list(seen_by(request).order_by("slug").values_list("slug", "slug")[:MOST])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(**{f"{self.lookup}__in": seen_by(request).filter(slug=self.value()).values("pk")})


class OwnTenant(OfTenant):
    """Of agents themselves."""

    lookup = "tenant"


class TenantOfRecord(OfTenant):
    """Of rows of the record, which carry ids."""

    lookup = "tenant_id"


class OfAgent(SimpleListFilter):
    """Rows of one agent, `tenant/agent`."""

    title = parameter_name = "agent"
    lookup = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:  # noqa: ARG002
        agents = Agent.objects.filter(tenant__in=ids_seen_by(request)).order_by("tenant__slug", "slug")
        labels = [f"{tenant}/{slug}" for tenant, slug in agents.values_list("tenant__slug", "slug")[:MOST]]
        if self.value() and self.value() not in labels:
            labels.append(str(self.value()))
        return [(label, label) for label in labels]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        tenant, _, slug = str(self.value()).partition("/")
        own = seen_by(request).filter(slug=tenant).values("pk")
        agents = list(Agent.objects.filter(tenant__in=own, slug=slug).values_list("pk", flat=True))
        return queryset.filter(**{f"{self.lookup}__in": agents})


class AgentOfRecord(OfAgent):
    """Of rows of the record, which carry ids."""

    lookup = "agent_id"
