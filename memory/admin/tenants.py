"""The page of tenants, for superusers. Tenants cannot be deleted, because the audit trails of agents refer to them."""

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
from memory.admin.base.forms import AdminForm, form_page
from memory.admin.base.help_texts import LABELS, LIMITS, USUAL, WORK
from memory.admin.base.page import SuperuserAdmin, column
from memory.models import Tenant
from refinement import allowance

MAX_INTEGER = 2**31 - 1


def whole_number(help_text: str = "", *, least: int = 0, most: int = MAX_INTEGER, **options: Any) -> forms.IntegerField:
    """A field for a whole number. It is optional unless `options` contains `required=True`."""
    options.setdefault("required", False)
    return forms.IntegerField(min_value=least, max_value=most, help_text=help_text, **options)


class LimitsForm(AdminForm):
    """A form for the limits of refinement sessions. `default_text` describes the default.

    In this text, `{}` stands for the service's default.
    """

    default_text: ClassVar[str] = "{}"

    def __init__(self, *args: Any, **options: Any) -> None:
        limits = self.limits().items()
        most = {name: 2**53 if name.endswith("_tokens") else MAX_INTEGER for name, _ in limits}
        fields = {name: whole_number(text, most=most[name], label=LABELS.get(name)) for name, text in limits}
        self.base_fields = self.base_fields | fields  # type: ignore[misc]  # Django copies them
        super().__init__(*args, **options)

    def limits(self) -> dict[str, str]:
        """The limits, and the help text of each."""
        return {name: f"{what}; default: {self.default_text.format(USUAL[name])}" for name, what in LIMITS.items()}


class TenantForm(LimitsForm):
    title = "Settings of {row.slug}"
    field_order = ("name", *WORK)
    name = forms.CharField(max_length=200, required=False, help_text="display name")

    def limits(self) -> dict[str, str]:
        sessions, month = f"{settings.TENANT_SESSIONS:,}", settings.MONTH_TOKENS
        usual = {"sessions_at_once": f"{sessions} (setting TENANT_SESSIONS)"}
        usual["month_tokens"] = f"{f'{month:,}' if month else 'no limit'} (setting MONTH_TOKENS)"
        return {name: f"{what}; default: {usual[name]}" for name, what in WORK.items()} | super().limits()


class NewTenantForm(AdminForm):
    title, button = "Add a tenant", "Add the tenant"
    lead = ("After that, invite the tenant's first owner. The owner can invite other people.",)
    slug = forms.CharField(max_length=64, help_text="lower-case letters, digits, '-' and '_'; cannot be changed later")
    name = forms.CharField(max_length=200, required=False, help_text="display name")


@register(Tenant)
class TenantPage(SuperuserAdmin):
    list_display = ("slug", "name", "agent_count", "people_count", "created_at")
    search_fields = ("slug", "name")
    ordering = ("slug",)
    sections: ClassVar[Any] = {
        "": ["slug", "name", "created_at"],
        "Limits for workers": [*WORK, "spent"],
        "Session limits for agents that have no limits of their own": list(LIMITS),
    }
    introduction = "You cannot delete a tenant here, because the audit trails of its agents refer to the tenant."
    actions_list = ("add_tenant",)
    actions_detail = ("change_settings",)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        agents, people = Count("agents", distinct=True), Count("memberships", distinct=True)
        return rows.annotate(agents_total=agents, people_total=people)

    def related_pages(self, request: HttpRequest, row: Tenant) -> list[tuple[str, str]]:
        return [
            ("Invite people", f"{reverse('admin:memory_membership_invite')}?tenant={row.pk}"),
            ("Add an agent", f"{reverse('admin:memory_agent_add_agent')}?tenant={row.pk}"),
        ]

    agent_count = column("agents_total", "agents")
    people_count = column("people_total", "people")

    @display(description="model tokens used this month")
    def spent(self, tenant: Any) -> str:
        return f"{allowance.spent(tenant.pk):,} (only sessions that have ended)"

    @action(description="Add a tenant", url_path="new", permissions=["view"])
    def add_tenant(self, request: HttpRequest) -> HttpResponse:
        def save(values: dict[str, Any]) -> HttpResponse:
            made = tenants.create(**values)
            messages.success(request, f"Tenant {made.slug} added. Invite its first owner and add its first agent.")
            return redirect(self.row_url(made))

        return form_page(self, request, NewTenantForm, save)

    @action(description="Settings", url_path="settings")
    def change_settings(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant: Tenant = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> str:
            with transaction.atomic():
                tenants.change(tenant, **values)
                queue.put(queue.SWEEP)  # a raised limit may let waiting sessions start
            return f"Settings of {tenant.slug} saved."

        now = model_to_dict(tenant, ["name", *WORK, *LIMITS])
        return form_page(self, request, TenantForm, save, row=tenant, initial=now)
