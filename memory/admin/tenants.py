"""The page of tenants. Superusers see all, and owners see their own. Owners set only the webhook.

Tenants cannot be deleted, because the audit trails of agents refer to them.
"""

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin import register
from django.db import transaction
from django.db.models import Count
from django.forms.models import model_to_dict
from django.forms.utils import pretty_name
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.decorators import action, display

from config import queue
from config.wording import several
from memory.access import tenants
from memory.access.roles import Action, locked_for, manages
from memory.admin.base.forms import AdminForm, form_page, secret_page
from memory.admin.base.help_texts import LIMITS, USUAL, WORK
from memory.admin.base.page import ScopedAdmin, column
from memory.admin.base.permissions import permission
from memory.models import Tenant
from refinement import allowance
from refinement.notices import webhooks

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
        labels = {name: pretty_name(name.removeprefix("max_")) for name, _ in limits}
        labels["max_steps"] = "Replies of the model"
        fields = {name: whole_number(text, most=most[name], label=labels[name]) for name, text in limits}
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


class WebhookForm(AdminForm):
    title = "Webhook of {row.slug}"
    lead = (
        "The service sends a POST to this address when a session fails, and when an agent is over its budget for 24 "
        "hours. The message has names, numbers and codes, and no content of memories.",
    )
    url = forms.CharField(label="Address", max_length=500, required=False, help_text="https://…; empty: off")
    new_secret = forms.BooleanField(
        required=False, help_text="The secret of the signatures is replaced at once. The next page shows the new one."
    )


@register(Tenant)
class TenantPage(ScopedAdmin):
    tenant, needs = "pk", Action.STAFF
    list_display = ("slug", "name", "agent_count", "people_count", "created_at")
    search_fields = ("slug", "name")
    ordering = ("slug",)
    sections: ClassVar[Any] = {
        "": ["slug", "name", "created_at"],
        "Limits for workers": [*WORK, "spent"],
        "Session limits for agents that have no limits of their own": list(LIMITS),
        "Webhook": ["webhook_address", "webhook_state"],
    }
    introduction = "You cannot delete a tenant here, because the audit trails of its agents refer to the tenant."
    actions_list = ("add_tenant",)
    actions_detail = ("change_settings", "change_webhook")
    has_manage_permission = permission(Action.TENANTS)
    has_staff_permission = permission(Action.STAFF)

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        """Superusers also open the list while it is empty, to add the first tenant."""
        return manages(request.user) or super().may(request, action, row)  # type: ignore[arg-type]  # as in the base

    def get_queryset(self, request: HttpRequest) -> Any:
        agents, people = Count("agents", distinct=True), Count("memberships", distinct=True)
        return super().get_queryset(request).annotate(agents_total=agents, people_total=people)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            found.webhook = webhooks.of(found)
        return found

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

    @display(description="address")
    def webhook_address(self, tenant: Any) -> str:
        return tenant.webhook.url or "none: the webhook is off"

    @display(description="last attempt")
    def webhook_state(self, tenant: Any) -> str | None:
        pending = several(tenant.webhook.deliveries.count(), "message waits", "messages wait")
        return f"{tenant.webhook.problem} {pending}." if tenant.webhook.problem else None

    @action(description="Add a tenant", url_path="new", permissions=["manage"])
    def add_tenant(self, request: HttpRequest) -> HttpResponse:
        def save(values: dict[str, Any]) -> HttpResponse:
            with transaction.atomic():
                made = tenants.create(**values)
                with locked_for(Action.TENANTS, made.pk, request.user):  # type: ignore[arg-type]  # signed in
                    pass  # the person may still do this
            messages.success(request, f"Tenant {made.slug} added. Invite its first owner and add its first agent.")
            return redirect(self.row_url(made))

        return form_page(self, request, NewTenantForm, save)

    @action(description="Settings", url_path="settings", permissions=["manage"])
    def change_settings(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant: Tenant = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> str:
            with transaction.atomic():
                tenants.change(tenant, **values)
                queue.put(queue.SWEEP)  # a raised limit may let waiting sessions start
            return f"Settings of {tenant.slug} saved."

        now = model_to_dict(tenant, ["name", *WORK, *LIMITS])
        return form_page(self, request, TenantForm, save, row=tenant, initial=now)

    @action(description="Webhook", url_path="webhook", permissions=["staff"])
    def change_webhook(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant: Any = self.row_or_404(request, object_id)
        lines = ["Verify each message with this secret, as the specification Standard Webhooks says."]

        def save(values: dict[str, Any]) -> HttpResponse | str:
            with locked_for(Action.STAFF, tenant.pk, request.user):  # type: ignore[arg-type]  # signed in
                secret = webhooks.configure(tenant, **values)
            if secret:
                title = f"Secret of the webhook of {tenant.slug}"
                return secret_page(request, title=title, secret=secret, lines=lines, back=self.row_url(tenant))
            return f"Webhook of {tenant.slug} saved."

        return form_page(self, request, WebhookForm, save, row=tenant, initial={"url": tenant.webhook.url})
