"""Keys of agents and tenants, for who configures them: seen by their prefix, revoked, shown once when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib.admin import register
from django.http import HttpRequest, HttpResponse
from django.utils.formats import localize
from django.utils.text import Truncator
from unfold.decorators import action, display

from memory.access import tenants
from memory.access.roles import Action
from memory.admin.base.actions import LISTED, AdminAction
from memory.admin.base.page import (
    AdminForm,
    OfAgent,
    OfTenant,
    OfTenantForm,
    Scoped,
    actor_of,
    form_page,
    seen_by,
    shown_once,
)
from memory.agents import lifecycle
from memory.models import AgentKey, ApiKey, TenantKey


class LabelForm(AdminForm):
    label = forms.CharField(max_length=100, required=False, help_text="to tell it from others")


class NewTenantKeyForm(LabelForm, OfTenantForm):
    title, button = "A new key of a tenant", "Make the key"
    lead = ("For programs that set up a tenant's agents and watch them. It opens no silo.",)
    field_order = ("tenant", "label")


class Revoke(AdminAction):
    name, label, needs, is_destructive = "revoke_key", "Revoke", Action.CONFIGURE, True

    def is_offered(self, row: ApiKey) -> bool:
        return row.revoked_at is None

    def preview(self, rows: Sequence[ApiKey]) -> Iterable[str]:
        yield "Whoever uses it is refused from that moment. That is not taken back."
        for row in rows[:LISTED]:
            used = f"was last used at {localize(row.last_used_at)}" if row.last_used_at else "was never used"
            yield f"{row}{f', {Truncator(row.label).chars(40)},' if row.label else ''} {used}."

    def do(self, row: Any, by: Any, given: dict[str, Any]) -> str:
        if isinstance(row, AgentKey):
            lifecycle.revoke_key(row.agent, row.prefix, actor_of(by))
        else:
            tenants.revoke_key(row.tenant.slug, row.prefix)
        return "it is revoked."


class KeyPage(Scoped):
    needs = Action.CONFIGURE
    deferred = ("mac",)
    row_actions = (Revoke(),)
    list_display = ("prefix", "owner", "label", "created_at", "last_used_at", "state")
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["prefix", "owner", "label", "state", "created_at", "last_used_at", "revoked_at"]}

    def named(self, row: Any) -> str:
        return f"key {row} of {self.owner(row)}"

    @display(description="state", label={"revoked": "warning"})
    def state(self, key: ApiKey) -> str | None:
        return "revoked" if key.revoked_at else None

    @display(description="of")
    def owner(self, key: Any) -> str:
        return str(key.agent if isinstance(key, AgentKey) else key.tenant)


@register(AgentKey)
class AgentKeyPage(KeyPage):
    tenant = "agent__tenant_id"
    list_select_related = ("agent__tenant",)
    list_filter = (OfTenant, OfAgent)


@register(TenantKey)
class TenantKeyPage(KeyPage):
    tenant = "tenant_id"
    list_select_related = ("tenant",)
    list_filter = (OfTenant,)
    actions_list = ("add_key",)

    @action(description="New key", url_path="new", permissions=["view"])
    def add_key(self, request: HttpRequest) -> HttpResponse:
        def save(given: dict[str, Any]) -> HttpResponse:
            key = tenants.issue_key(given["tenant"].slug, label=given["label"])
            lines = ["A program sends it with every request: Authorization: Bearer KEY"]
            return shown_once(request, title="The tenant's key", secret=key, lines=lines, back=self.list_address)

        return form_page(self, request, NewTenantKeyForm, save, tenants=seen_by(request, Action.CONFIGURE))
