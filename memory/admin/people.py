"""The pages of members, invitations and people. Owners see the members of their tenants.

Superusers see all people. Only `manage.py create_superuser` creates superusers.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.admin import register
from django.core.mail import send_mail
from django.db.models import Count, Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.decorators import action, display

from config import PROGRAM
from memory.access.roles import Action
from memory.accounts import invitations, memberships, people
from memory.admin.base.actions import MAX_LISTED, AdminAction
from memory.admin.base.filters import TenantFilter
from memory.admin.base.forms import AdminForm, TenantChoiceForm, form_page, secret_page
from memory.admin.base.page import ScopedAdmin, SuperuserAdmin, column
from memory.admin.base.permissions import visible_tenants
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant

INVITATIONS = "admin:memory_invitation_changelist"


class InviteForm(TenantChoiceForm):
    title, button = "Invite somebody", "Create the link"
    lead = (
        "The link works once, within 72 hours, and gives the role. A new person sets a password and a second factor.",
        "This link replaces an earlier link for the same address and tenant.",
    )
    field_order = ("address", "tenant", "role")
    address = forms.CharField(max_length=invitations.MAX_ADDRESS, help_text="email address of the person")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.AUDITOR)


class RoleForm(AdminForm):
    title, button = "Role of {row.person} in {row.tenant}", "Change the role"
    lead = ("An owner manages members. An admin configures and refines agents. An auditor sees only metadata.",)
    role = forms.ChoiceField(choices=Role.choices)


@action(description="Invite somebody", url_path="invite", permissions=["view"])
def _invite(admin: ScopedAdmin, request: HttpRequest) -> HttpResponse:
    """Invite a person by email. The page shows the link once. If mail is configured, the link is also mailed."""

    def save(values: dict[str, Any]) -> HttpResponse:
        address, tenant = values["address"], values["tenant"]
        lines = ["Give the link only to this person. If another person uses it first, that person gets the role."]
        if invitations.is_open(tenant, address):
            lines.append("This link replaces the earlier link. The earlier link no longer works.")
        token = invitations.invite(tenant, address, values["role"], request.user)  # type: ignore[arg-type]
        link = f"{settings.PUBLIC_URL}{reverse('join', args=[token])}"
        lines.append(_mailed(invitations.normalized(address), tenant, link))
        return secret_page(request, title="Invitation link", secret=link, lines=lines, back=reverse(INVITATIONS))

    initial = {"tenant": request.GET.get("tenant")}
    return form_page(admin, request, InviteForm, save, tenants=visible_tenants(request, Action.STAFF), initial=initial)


def _mailed(address: str, tenant: Tenant, link: str) -> str:
    """Mail the link, and return a message about the result.

    The mail is sent at once, because a queue would store the link.
    """
    if settings.EMAIL_BACKEND.endswith(".console.EmailBackend"):
        return "Mail is not configured: send the link yourself."
    body = (
        f"You are invited to join {tenant.slug} on Palimpsest. Use this link within 72 hours:\n\n{link}\n\n"
        "The link works once. If you did not expect this invitation, you can ignore this mail.\n"
    )
    try:
        send_mail(f"Invitation to {tenant.slug}", body, None, [address])
    except OSError:  # includes errors of the mail server
        return "The link could not be mailed: send it yourself."
    return "The link was also mailed to this person."


class Remove(AdminAction):
    name, label, needs, is_destructive = "remove", "Remove", Action.STAFF, True

    def preview(self, rows: Sequence[Membership]) -> Iterable[str]:
        for row in rows[:MAX_LISTED]:
            yield f"{row.person} ({row.role} of {row.tenant}) loses access to this tenant."
        yield people.ending_summary(*(Q(person_id=row.person_id, tenant_id=row.tenant_id) for row in rows))
        if any(row.role == Role.OWNER for row in rows):
            yield "Only a superuser can remove the last owner. After that, only superusers manage the members."

    def do(self, row: Membership, by: Any, values: dict[str, Any]) -> str:
        memberships.remove(row, by)
        return f"removed from {row.tenant}."


@register(Membership)
class MembershipPage(ScopedAdmin):
    """The page of members. Owners see only memberships in their own tenants, and superusers see all memberships."""

    tenant = "tenant_id"
    needs = Action.STAFF
    row_actions = (Remove(),)
    list_display = ("address", "name", "of", "role", "can_sign_in")
    list_select_related = ("person", "tenant")
    list_filter = ("role", TenantFilter)
    search_fields = ("person__email", "person__name")
    search_help_text = "an email address or a name"
    ordering = ("tenant__slug", "person__email")
    sections: ClassVar[Any] = {"": ["address", "name", "of", "role", "can_sign_in"]}
    actions_list = ("invite",)
    actions_detail = ("change_role",)
    invite = _invite

    address = column("person.email", "address", ordering="person__email")
    name = column("person.name", "name")
    of = column("tenant.slug", "tenant", ordering="tenant__slug")
    can_sign_in = column("person.is_active", "can sign in", boolean=True)

    @action(description="Change the role", url_path="role")
    def change_role(self, request: HttpRequest, object_id: str) -> HttpResponse:
        membership: Membership = self.row_or_404(request, object_id)

        def save(values: dict[str, Any]) -> str:
            memberships.change_role(membership, by=request.user, **values)  # type: ignore[arg-type]
            return f"{membership.person} is now {values['role']} of {membership.tenant}."

        return form_page(self, request, RoleForm, save, row=membership, initial={"role": membership.role})


class Deactivate(AdminAction):
    name, label, needs, is_destructive = "deactivate", "Deactivate", Action.TENANTS, True
    is_active = True

    def is_offered(self, row: Person) -> bool:
        return row.is_active == self.is_active

    def preview(self, rows: Sequence[Person]) -> Iterable[str]:
        yield "Signs these people out everywhere. They cannot sign in until a superuser reactivates them."
        yield people.ending_summary(Q(person_id__in=[row.pk for row in rows]))
        owners = Membership.objects.filter(role=Role.OWNER, person__is_active=True)
        others = owners.exclude(person__in=rows).values("tenant")
        if left := sorted(set(owners.exclude(tenant__in=others).values_list("tenant__slug", flat=True))):
            yield f"After this, these tenants have no owner who can sign in: {', '.join(left)}."

    def do(self, row: Person, by: Any, values: dict[str, Any]) -> str:
        people.set_active(row, by, is_active=not self.is_active)
        return "deactivated." if self.is_active else "can sign in again."


class Reactivate(Deactivate):
    name, label, is_destructive, is_active = "reactivate", "Reactivate", False, False

    def preview(self, rows: Sequence[Person]) -> Iterable[str]:
        yield "These people can sign in again, with the roles that they still have. Grants that have ended stay ended."


@register(Person)
class PersonPage(SuperuserAdmin):
    deferred = ("password",)
    row_actions = (Deactivate(), Reactivate())
    list_display = ("email", "name", "is_active", "is_superuser", "has_second_factor", "tenants", "last_login")
    list_filter = ("is_active", "is_superuser")
    search_fields = ("email", "name")
    search_help_text = "an email address or a name"
    ordering = ("email",)
    sections: ClassVar[Any] = {
        "": ["email", "name", "is_active", "is_superuser", "has_second_factor", "roles"],
        "When": ["joined_at", "last_login"],
    }
    introduction = f"Only {PROGRAM} create_superuser creates superusers."
    actions_list = ("invite",)
    invite = _invite

    def get_queryset(self, request: HttpRequest) -> Any:
        factors = Authenticator.objects.filter(user=OuterRef("pk"), confirmed=True)
        rows = super().get_queryset(request)
        return rows.annotate(is_enrolled=Exists(factors), membership_count=Count("memberships"))

    has_second_factor = column("is_enrolled", "second factor", boolean=True)
    tenants = column("membership_count", "tenants")

    def roles(self, person: Person) -> str:
        rows = person.memberships.select_related("tenant").order_by("tenant__slug")
        return ", ".join(f"{row.tenant.slug}: {row.role}" for row in rows) or "none"


class Withdraw(AdminAction):
    name, label, needs, is_destructive = "withdraw", "Withdraw", Action.STAFF, True

    def preview(self, rows: Sequence[Invitation]) -> Iterable[str]:
        yield "The link stops working. People who have already joined keep their role."

    def do(self, row: Invitation, by: Any, values: dict[str, Any]) -> str:
        invitations.withdraw(row, by)
        return "withdrawn."


@register(Invitation)
class InvitationPage(ScopedAdmin):
    tenant = "tenant_id"
    needs = Action.STAFF
    deferred = ("mac",)
    row_actions = (Withdraw(),)
    list_display = ("address", "of", "role", "state", "invited_by", "made_at")
    list_select_related = ("tenant", "invited_by")
    list_filter = ("role", TenantFilter)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["address", "of", "role", "state", "inviter", "made_at"]}
    actions_list = ("invite",)
    invite = _invite

    of = column("tenant.slug", "tenant", ordering="tenant__slug")

    @display(description="invited by")
    def inviter(self, invitation: Invitation) -> str:
        """The inviter as text. There is no link, because only superusers may open the inviter's page."""
        return str(invitation.invited_by)

    @display(description="state", label={"open": "info", "used": "success", "expired": "warning"})
    def state(self, invitation: Invitation) -> str:
        if invitation.used_at:
            return "used"
        return "open" if invitations.is_in_time(invitation) else "expired"
