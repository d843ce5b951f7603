"""Tenants, for superusers: made, named and bounded. None is ended here: agents' trails outlive agents, and name it."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.admin import register
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import display

from config import queue
from memory.access import tenants
from memory.access.roles import manages
from memory.admin.base.forms_pages import Sheet, SheetForm, button, done, offered, row_or_404
from memory.admin.base.help_texts import LIMITS, WORK
from memory.admin.base.page import OfService
from memory.models import Tenant
from refinement import allowance

LARGEST = 2**31 - 1


def limit(largest: int = LARGEST) -> forms.IntegerField:
    return forms.IntegerField(min_value=0, max_value=largest, required=False)


class LimitsForm(SheetForm):
    """Bounds of one refinement session. `otherwise` says what an empty one means, given the service's own default."""

    otherwise: ClassVar[str] = "{}"
    max_changes = limit()
    max_steps = limit()
    max_searches = limit()
    max_failed_calls = limit()
    max_seconds = limit()
    max_model_tokens = limit(2**53)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (what, usual) in LIMITS.items():
            self.fields[name].help_text = f"{what}; empty: {self.otherwise.format(usual)}"


class TenantForm(LimitsForm):
    field_order = ("slug", "name", *WORK)
    name = forms.CharField(max_length=200, required=False, help_text="as people call it")
    sessions_at_once = limit()
    month_tokens = limit(2**53)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, told in told_of_work().items():
            self.fields[name].help_text = told


def told_of_work() -> dict[str, str]:
    """Of each field, what it bounds and what holds where it is empty."""
    usual = (f"{settings.TENANT_SESSIONS:,}", f"{settings.MONTH_TOKENS:,}" if settings.MONTH_TOKENS else "any number")
    return {name: f"{what}; empty: {otherwise.format(*usual)}" for name, (what, otherwise) in WORK.items()}


class NewTenantForm(SheetForm):
    slug = forms.CharField(max_length=64, help_text="lower-case letters, digits, '-' and '_'; it stays as it is")
    name = forms.CharField(max_length=200, required=False, help_text="as people call it")


@register(Tenant)
class TenantPage(OfService):
    list_display = ("slug", "name", "agent_count", "people_count", "created_at")
    search_fields = ("slug", "name")
    ordering = ("slug",)
    fieldsets: ClassVar[Any] = [
        (
            None,
            {
                "fields": ["slug", "name", "created_at"],
                "description": "A tenant is not ended here: the trails of its agents name it, and outlive them.",
            },
        ),
        ("What workers do for it", {"fields": [*WORK, "spent"]}),
        ("Limits of a session, where an agent has none of its own", {"fields": list(LIMITS)}),
    ]
    actions_list = ("add_tenant",)
    actions_detail = ("set_up",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        rows = super().get_queryset(request)
        agents, people = Count("agents", distinct=True), Count("memberships", distinct=True)
        counted: QuerySet[Tenant] = rows.annotate(agents_there=agents, people_there=people)
        return counted

    def beside(self, request: HttpRequest, row: Tenant) -> dict[str, Any]:
        ways = [
            ("Invite people", f"{reverse('admin:memory_membership_invite')}?tenant={row.pk}"),
            ("Add an agent", f"{reverse('admin:memory_agent_add_agent')}?tenant={row.pk}"),
        ]
        return super().beside(request, row) | {"ways": ways}

    @display(description="agents")
    def agent_count(self, tenant: Any) -> int:
        return int(tenant.agents_there)

    @display(description="people")
    def people_count(self, tenant: Any) -> int:
        return int(tenant.people_there)

    @display(description="model tokens used this month")
    def spent(self, tenant: Any) -> str:
        return f"{allowance.spent(tenant.pk):,}, in sessions that have ended"

    @button("Add a tenant", "new")
    def add_tenant(self, request: HttpRequest) -> HttpResponse:
        if not manages(request.user):  # type: ignore[arg-type]
            raise Http404
        sheet = Sheet(
            title="Add a tenant",
            button="Add it",
            back=reverse("admin:memory_tenant_changelist"),
            said=["Then invite its first owner, who sets up its people."],
        )

        def do(given: dict[str, Any]) -> HttpResponse:
            made = tenants.create(**given)
            told = f"{made.slug} is there. Next: invite its first owner, and add its first agent."
            return done(request, told, reverse("admin:memory_tenant_change", args=[made.pk]))

        return offered(self, request, sheet, do, NewTenantForm)

    @button("Settings", "settings")
    def set_up(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant: Tenant = row_or_404(self, request, object_id)
        back = reverse("admin:memory_tenant_change", args=[tenant.pk])
        sheet = Sheet(title=f"Settings of {tenant.slug}", button="Save", back=back)

        def do(given: dict[str, Any]) -> HttpResponse:
            with transaction.atomic():
                tenants.change(tenant, **given)
                queue.put(queue.SWEEP)  # what waited for a limit waits no longer
            return done(request, f"{tenant.slug} is changed.", back)

        now = {name: getattr(tenant, name) for name in ("name", *WORK, *LIMITS)}
        return offered(self, request, sheet, do, TenantForm, initial=now)
