"""The pages of agent keys and tenant keys. They show only the prefix of a key. A new tenant key is shown once."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib.admin import register
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.decorators import action, display

from config.templatetags.moments import moment
from memory.access import tenants
from memory.access.roles import Action, locked_for
from memory.admin.base.actions import MAX_LISTED, AdminAction
from memory.admin.base.filters import AgentFilter, TenantFilter
from memory.admin.base.forms import AdminForm, TenantChoiceForm, form_page, secret_page
from memory.admin.base.page import ScopedAdmin
from memory.admin.base.permissions import actor_of, visible_tenants
from memory.agents import lifecycle
from memory.models import AgentKey, ApiKey, Tenant, TenantKey


class LabelForm(AdminForm):
    label = forms.CharField(max_length=100, required=False, help_text="a name for the key")


class NewTenantKeyForm(LabelForm, TenantChoiceForm):
    title, button = "New tenant key", "Create the key"
    lead = ("The key is for programs that set up and monitor a tenant's agents. It gives no access to memories.",)
    field_order = ("tenant", "label")


class Revoke(AdminAction):
    name, label, needs, is_destructive = "revoke_key", "Revoke", Action.CONFIGURE, True

    def is_offered(self, row: ApiKey) -> bool:
        return row.revoked_at is None

    def preview(self, rows: Sequence[ApiKey]) -> Iterable[str]:
        yield "Requests with a revoked key fail at once. You cannot undo a revocation."
        if isinstance(rows[0], AgentKey):
            yield "Only the agent's side can end the last key of an agent. You can suspend the agent's keys instead."
        for row in rows[:MAX_LISTED]:
            label = f", {Truncator(row.label).chars(40)}," if row.label else ""
            used = moment(row.last_used_at)
            yield format_html("{}{} was last used at {}." if used else "{}{} was never used.", row, label, used)

    def do(self, row: Any, by: Any, values: dict[str, Any]) -> str:
        if isinstance(row, AgentKey):
            lifecycle.revoke_key(row.agent, row.prefix, actor_of(by))
        else:
            tenants.revoke_key(row.tenant.slug, row.prefix)
        return "key revoked."


class KeyPage(ScopedAdmin):
    needs = Action.CONFIGURE
    deferred = ("mac",)
    row_actions = (Revoke(),)
    list_display = ("prefix", "owner", "label", "created_at", "last_used", "state")
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["prefix", "owner", "label", "state", "created_at", "last_used", "revoked_at"]}

    def describe(self, row: Any) -> str:
        return f"key {row} of {self.owner(row)}"

    @display(description="state", label={"revoked": "warning"})
    def state(self, key: ApiKey) -> str:
        return "revoked" if key.revoked_at else "active"

    @display(description="last used at", ordering="last_used_at")
    def last_used(self, key: ApiKey) -> SafeString | str:
        return moment(key.last_used_at) or "never"

    @display(description="owner")
    def owner(self, key: Any) -> str:
        return str(key.agent if isinstance(key, AgentKey) else key.tenant)


@register(AgentKey)
class AgentKeyPage(KeyPage):
    tenant = "agent__tenant_id"
    list_select_related = ("agent__tenant",)
    list_filter = (TenantFilter, AgentFilter)


@register(TenantKey)
class TenantKeyPage(KeyPage):
    tenant = "tenant_id"
    list_select_related = ("tenant",)
    list_filter = (TenantFilter,)
    actions_list = ("add_key",)

    @action(description="New key", url_path="new", permissions=["view"])
    def add_key(self, request: HttpRequest) -> HttpResponse:
        def save(values: dict[str, Any]) -> HttpResponse:
            tenant: Tenant = values["tenant"]
            with locked_for(Action.CONFIGURE, tenant.pk, request.user):  # type: ignore[arg-type]  # signed in
                key = tenants.issue_key(tenant.slug, pk=tenant.pk, label=values["label"])
            lines = ["Send the key with every request, in the header Authorization: Bearer KEY"]
            return secret_page(request, title="Tenant key", secret=key, lines=lines, back=self.list_url)

        return form_page(self, request, NewTenantKeyForm, save, tenants=visible_tenants(request, Action.CONFIGURE))
