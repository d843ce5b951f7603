"""Tenants, for superusers: made, named and bounded. None is ended here: agents' trails outlive agents, and name it."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin import register
from django.db import transaction
from django.db.models import Count
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.decorators import action, display

from config import queue
from memory.access import tenants
from memory.admin.base.help_texts import LIMITS, WORK
from memory.admin.base.page import AdminForm, OfService, column, form_page
from memory.models import Tenant
from refinement import allowance

LARGEST = 2**31 - 1


def whole(help_text: str = "", *, least: int = 0, most: int = LARGEST, **options: Any) -> forms.IntegerField:
    """A whole number, which may be left empty."""
    given = {"required": False} | options
    return forms.IntegerField(min_value=least, max_value=most, help_text=help_text, **given)


class LimitsForm(AdminForm):
    """Bounds of one refinement session. `otherwise` says what an empty one means, given the service's own default."""

    otherwise: ClassVar[str] = "{}"
    max_changes = whole()
    max_steps = whole()
    max_searches = whole()
    max_failed_calls = whole()
    max_seconds = whole()
    max_model_tokens = whole(most=2**53)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, (what, usual) in LIMITS.items():
            self.fields[name].help_text = f"{what}; empty: {self.otherwise.format(usual)}"


class TenantForm(LimitsForm):
    title = "Settings of {row.slug}"
    field_order = ("name", *WORK)
    name = forms.CharField(max_length=200, required=False, help_text="as people call it")
    sessions_at_once = whole()
    month_tokens = whole(most=2**53)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        month_tokens = f"{settings.MONTH_TOKENS:,}" if settings.MONTH_TOKENS else "any number"
        for name, (what, otherwise) in WORK.items():
            usual = otherwise.format(f"{settings.TENANT_SESSIONS:,}", month_tokens)
            self.fields[name].help_text = f"{what}; empty: {usual}"


class NewTenantForm(AdminForm):
    title, button = "Add a tenant", "Add it"
    lead = ("Then invite its first owner, who sets up its people.",)
    slug = forms.CharField(max_length=64, help_text="lower-case letters, digits, '-' and '_'; it stays as it is")
    name = forms.CharField(max_length=200, required=False, help_text="as people call it")


@register(Tenant)
class TenantPage(OfService):
    list_display = ("slug", "name", "agent_count", "people_count", "created_at")
    search_fields = ("slug", "name")
    ordering = ("slug",)
    sections: ClassVar[Any] = {
        "": ["slug", "name", "created_at"],
        "What workers do for it": [*WORK, "spent"],
        "Limits of a session, where an agent has none of its own": list(LIMITS),
    }
    introduction = "A tenant is not ended here: the trails of its agents name it, and outlive them."
    actions_list = ("add_tenant",)
    actions_detail = ("set_up",)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        agents, people = Count("agents", distinct=True), Count("memberships", distinct=True)
        return rows.annotate(agents_there=agents, people_there=people)

    def related_pages(self, request: HttpRequest, row: Tenant) -> list[tuple[str, str]]:
        return [
            ("Invite people", f"{reverse('admin:memory_membership_invite')}?tenant={row.pk}"),
            ("Add an agent", f"{reverse('admin:memory_agent_add_agent')}?tenant={row.pk}"),
        ]

    agent_count = column("agents_there", "agents")
    people_count = column("people_there", "people")

    @display(description="model tokens used this month")
    def spent(self, tenant: Any) -> str:
        return f"{allowance.spent(tenant.pk):,}, in sessions that have ended"

    @action(description="Add a tenant", url_path="new", permissions=["view"])
    def add_tenant(self, request: HttpRequest) -> HttpResponse:
        def save(given: dict[str, Any]) -> HttpResponse:
            made = tenants.create(**given)
            messages.success(request, f"{made.slug} is there. Next: invite its first owner, and add its first agent.")
            return redirect(self.address_of(made))

        return form_page(self, request, NewTenantForm, save)

    @action(description="Settings", url_path="settings")
    def set_up(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant: Tenant = self.row_or_404(request, object_id)

        def save(given: dict[str, Any]) -> str:
            with transaction.atomic():
                tenants.change(tenant, **given)
                queue.put(queue.SWEEP)  # what waited for a limit waits no longer
            return f"{tenant.slug} is changed."

        now = model_to_dict(tenant, ["name", *WORK, *LIMITS])
        return form_page(self, request, TenantForm, save, row=tenant, initial=now)
