"""Keys of agents and tenants, for who configures them: seen by their names, ended, shown once when they are made."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib.admin import register
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.formats import localize
from django.utils.text import Truncator
from unfold.decorators import display

from audit.trail import Actor
from memory.access import tenants
from memory.access.roles import Action
from memory.admin.base.forms_pages import Sheet, SheetForm, button, done, offered, row_or_404, shown_once
from memory.admin.base.page import Scoped
from memory.admin.base.scope import OfAgent, OfTenant, OwnTenant, seen_by
from memory.agents import lifecycle
from memory.models import AgentKey, ApiKey, Tenant, TenantKey

LABEL = 100  # characters


class LabelForm(SheetForm):
    label = forms.CharField(max_length=LABEL, required=False, help_text="to tell it from others")


class NewTenantKeyForm(LabelForm):
    field_order = ("tenant", "label")
    tenant: forms.ModelChoiceField[Tenant] = forms.ModelChoiceField(Tenant.objects.none())

    def __init__(self, *args: Any, tenants: QuerySet[Tenant], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants.order_by("slug")  # type: ignore[attr-defined]


class KeyPage(Scoped):
    action = Action.CONFIGURE
    list_display = ("prefix", "owner", "label", "created_at", "last_used_at", "state")
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [
        (None, {"fields": ["prefix", "owner", "label", "state", "created_at", "last_used_at", "revoked_at"]})
    ]
    actions_detail = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("mac").select_related(*self.list_select_related)

    @display(description="state", label={"revoked": "warning"})
    def state(self, key: ApiKey) -> str | None:
        return "revoked" if key.revoked_at else None

    @display(description="of")
    def owner(self, key: Any) -> str:
        return str(key.agent.label if isinstance(key, AgentKey) else key.tenant.slug)

    def end(self, request: HttpRequest, key: Any) -> None:
        raise NotImplementedError

    @button("Revoke", "revoke")
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = row_or_404(self, request, object_id)
        label = f", {Truncator(key.label).chars(40)}" if key.label else ""
        sheet = Sheet(
            title=f"Revoke the key {key.prefix}… of {self.owner(key)}",
            button="Revoke",
            back=reverse(f"admin:memory_{self.opts.model_name}_changelist"),
            said=[
                f"Whoever uses it ({key.prefix}…{label}) is refused from that moment. That is not taken back.",
                f"It was last used at {localize(key.last_used_at)}." if key.last_used_at else _UNUSED,
            ],
            is_grave=True,
        )

        def do(_: dict[str, Any]) -> HttpResponse:
            self.end(request, key)
            return done(request, f"The key {key.prefix}… is revoked.", sheet.back)

        return offered(self, request, sheet, do)


_UNUSED = "It was never used."


@register(AgentKey)
class AgentKeyPage(KeyPage):
    tenant = "agent__tenant"
    list_select_related = ("agent__tenant",)
    list_filter = (OfTenant, OfAgent)

    def end(self, request: HttpRequest, key: Any) -> None:
        lifecycle.revoke_key(key.agent, key.prefix, Actor.person(request.user.email))  # type: ignore[union-attr]


@register(TenantKey)
class TenantKeyPage(KeyPage):
    tenant = "tenant"
    list_select_related = ("tenant",)
    list_filter = (OwnTenant,)
    actions_list = ("add_key",)

    def end(self, request: HttpRequest, key: Any) -> None:
        tenants.revoke_key(key.tenant.slug, key.prefix)

    @button("New key", "new")
    def add_key(self, request: HttpRequest) -> HttpResponse:
        sheet = Sheet(
            title="A new key of a tenant",
            button="Make the key",
            back=reverse("admin:memory_tenantkey_changelist"),
            said=["For programs that set up a tenant's agents and watch them. It opens no silo."],
        )

        def do(given: dict[str, Any]) -> HttpResponse:
            key = tenants.issue_key(given["tenant"].slug, label=given["label"])
            said = ["A program sends it with every request: Authorization: Bearer KEY"]
            return shown_once(request, title="The tenant's key", secret=key, said=said, back=sheet.back)

        return offered(self, request, sheet, do, NewTenantKeyForm, tenants=seen_by(request, Action.CONFIGURE))
