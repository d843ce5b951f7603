"""Filters of lists. They offer only tenants and agents that the person may see."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from memory.admin.base.permissions import visible_tenant_ids, visible_tenants
from memory.models import Agent

MONTHS = 12  # that the filter of times offers
MAX_CHOICES = 200  # choices per filter
MENUS = ("agent", "time")  # the most used filters; a form above the list offers them too


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


class PeriodFilter(SimpleListFilter):
    """Filters by the page's time: the last hours or days, or one month. All in UTC."""

    title, parameter_name = "time", "time"
    LAST: ClassVar[dict[str, int]] = {"last 24 hours": 1, "last 7 days": 7, "last 30 days": 30}  # days

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        self.field = model_admin.time
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        first = timezone.now().replace(day=1)
        months = [first := (first if back == 0 else first - timedelta(days=1)).replace(day=1) for back in range(MONTHS)]
        choices = [(name, name) for name in self.LAST] + [(f"{each:%Y-%m}", f"{each:%B %Y}") for each in months]
        if (month := _month(self.value())) and (self.value(), f"{month[0]:%B %Y}") not in choices:
            choices.append((str(self.value()), f"{month[0]:%B %Y}"))
        return choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() in self.LAST:
            since = timezone.now() - timedelta(days=self.LAST[str(self.value())])
            return queryset.filter(**{f"{self.field}__gte": since})
        if month := _month(self.value()):
            return queryset.filter(**{f"{self.field}__gte": month[0], f"{self.field}__lt": month[1]})
        return queryset


def _month(text: str | None) -> tuple[datetime, datetime] | None:
    """The first moment of a month such as "2026-10", and of the next month. None for another text."""
    try:
        first = datetime.strptime(text or "", "%Y-%m").replace(tzinfo=UTC)
        return first, (first + timedelta(days=31)).replace(day=1)
    except (ValueError, OverflowError):
        return None


class SessionFilter(SimpleListFilter):
    """Filters entries by the number of their session. Pages link to it."""

    title = parameter_name = "session"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [(self.value(), f"session {self.value()}")] if is_number(self.value()) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(session=int(self.value() or 0)) if is_number(self.value()) else queryset


def is_number(text: str | None) -> bool:
    """Whether the text is a number that a database can compare."""
    return bool(text) and str(text).isascii() and str(text).isdecimal() and len(str(text)) < 16
