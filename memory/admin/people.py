"""People and their parts in tenants: for a tenant's owners, and for superusers, who see everybody.

Nobody is made a superuser here: `manage.py create_superuser` does that, by whoever runs the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.admin import register
from django.core.mail import send_mail
from django.db.models import Count, Exists, OuterRef, Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action, display

from memory.access.roles import Action
from memory.accounts import invitations, memberships, people
from memory.admin.base.actions import LISTED, AdminAction
from memory.admin.base.page import (
    AdminForm,
    OfService,
    OfTenant,
    OfTenantForm,
    Scoped,
    column,
    form_page,
    seen_by,
    shown_once,
)
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant

INVITATIONS = "admin:memory_invitation_changelist"


class InviteForm(OfTenantForm):
    title, button = "Invite somebody", "Make the link"
    lead = (
        "Whoever opens the link within 72 hours sets a password and a second factor, and takes the part.",
        "An earlier link for the same address and tenant ends with it.",
    )
    field_order = ("address", "tenant", "role")
    address = forms.CharField(max_length=invitations.LONGEST_ADDRESS, help_text="their e-mail address")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.AUDITOR)


class RoleForm(AdminForm):
    title, button = "The role of {row.person} in {row.tenant}", "Change the role"
    lead = ("An owner sets up its people; an admin steers and configures its agents; an auditor looks.",)
    role = forms.ChoiceField(choices=Role.choices)


class LastOwnerForm(AdminForm):
    """A superuser's consent to leave a tenant without an owner."""

    even_the_last_owner = forms.BooleanField(
        required=False,
        label="Even if this leaves the tenant without an owner",
        help_text="then nobody but superusers sets up its people",
    )


class LastRoleForm(RoleForm, LastOwnerForm):
    pass


def _may_leave_no_owner(request: HttpRequest, parts: Sequence[Membership]) -> bool:
    """Whether the form asks for this consent."""
    person: Any = request.user
    return bool(person.is_superuser) and any(part.role == Role.OWNER for part in parts)


@action(description="Invite somebody", url_path="invite", permissions=["view"])
def _invite(page: Scoped, request: HttpRequest) -> HttpResponse:
    """Invite an address. The link is shown once, and mailed where mail is sent."""

    def save(given: dict[str, Any]) -> HttpResponse:
        address, tenant = given["address"], given["tenant"]
        lines = ["It is for the person of that address alone: whoever opens it first takes the part in their name."]
        if invitations.is_open(tenant, address):
            lines.append("The link that was made for them before is not valid any more: this one takes its place.")
        token = invitations.invite(tenant, address, given["role"], request.user)  # type: ignore[arg-type]
        link = f"{settings.PUBLIC_URL}{reverse('join', args=[token])}"
        lines.append(_mailed(invitations.written(address), tenant, link))
        return shown_once(request, title="The link", secret=link, lines=lines, back=reverse(INVITATIONS))

    initial = {"tenant": request.GET.get("tenant")}
    return form_page(page, request, InviteForm, save, tenants=seen_by(request, Action.STAFF), initial=initial)


def _mailed(address: str, tenant: Tenant, link: str) -> str:
    """Send the link, and say what became of it. It is in no queue: a queue keeps what it is given."""
    if settings.EMAIL_BACKEND.endswith(".console.EmailBackend"):
        return "No mail is set up here: hand the link over yourself."
    body = (
        f"You are invited to {tenant.slug} on Palimpsest. This link is good for 72 hours, and for once:\n\n{link}\n\n"
        "Opening it does nothing yet. If you did not expect it, you can ignore it.\n"
    )
    try:
        send_mail(f"An invitation to {tenant.slug}", body, None, [address])
    except OSError:  # the mail server's refusals are, too
        return "It could not be mailed: hand the link over yourself."
    return "It was mailed to them, too."


class Remove(AdminAction):
    name, label, needs, is_destructive = "remove", "Remove", Action.STAFF, True

    def get_form(self, request: HttpRequest, rows: Sequence[Membership]) -> type[forms.Form]:
        return LastOwnerForm if _may_leave_no_owner(request, rows) else AdminForm

    def preview(self, rows: Sequence[Membership]) -> Iterable[str]:
        for row in rows[:LISTED]:
            yield f"{row.person} is {row.role} of {row.tenant}, and will see nothing of it any more."
        yield people.would_end(*(Q(person_id=row.person_id, tenant_id=row.tenant_id) for row in rows))

    def do(self, row: Membership, by: Any, given: dict[str, Any]) -> str:
        memberships.remove(row, by, **given)
        return f"no part in {row.tenant} any more."


@register(Membership)
class PartPage(Scoped):
    """Who has which part in a tenant of one's own. What else somebody has elsewhere is not shown."""

    tenant = "tenant_id"
    needs = Action.STAFF
    row_actions = (Remove(),)
    list_display = ("address", "name", "of", "role", "can_sign_in")
    list_select_related = ("person", "tenant")
    list_filter = ("role", OfTenant)
    search_fields = ("person__email", "person__name")
    search_help_text = "an address or a name"
    ordering = ("tenant__slug", "person__email")
    sections: ClassVar[Any] = {"": ["address", "name", "of", "role", "can_sign_in"]}
    actions_list = ("invite",)
    actions_detail = ("change_role",)
    invite = _invite

    address = column("person.email", "address", ordering="person__email")
    name = column("person.name", "name")
    of = column("tenant.slug", "tenant", ordering="tenant__slug")
    can_sign_in = column("person.is_active", "signs in", boolean=True)

    @action(description="Change the role", url_path="role")
    def change_role(self, request: HttpRequest, object_id: str) -> HttpResponse:
        part: Membership = self.row_or_404(request, object_id)

        def save(given: dict[str, Any]) -> str:
            memberships.change_role(part, by=request.user, **given)  # type: ignore[arg-type]
            return f"{part.person} is {given['role']} of {part.tenant} now."

        form_class = LastRoleForm if _may_leave_no_owner(request, [part]) else RoleForm
        return form_page(self, request, form_class, save, row=part, initial={"role": part.role})


class Deactivate(AdminAction):
    name, label, needs, is_destructive = "deactivate", "Deactivate", Action.TENANTS, True

    def is_offered(self, row: Person) -> bool:
        return row.is_active

    def preview(self, rows: Sequence[Person]) -> Iterable[str]:
        yield "They are signed out at once, everywhere, and do not get in again until they are reactivated."
        yield people.would_end(Q(person_id__in=[row.pk for row in rows]))
        owners = Membership.objects.filter(role=Role.OWNER, person__is_active=True)
        others = owners.exclude(person__in=rows).values("tenant")
        if left := sorted(set(owners.exclude(tenant__in=others).values_list("tenant__slug", flat=True))):
            yield f"Tenants left without an owner who can sign in: {', '.join(left)}."

    def do(self, row: Person, by: Any, given: dict[str, Any]) -> str:
        people.deactivate(row, by)
        return "deactivated."


class Reactivate(AdminAction):
    name, label, needs = "reactivate", "Reactivate", Action.TENANTS

    def is_offered(self, row: Person) -> bool:
        return not row.is_active

    def preview(self, rows: Sequence[Person]) -> Iterable[str]:
        yield "They can sign in again, with the parts they have. What was ended stays ended."

    def do(self, row: Person, by: Any, given: dict[str, Any]) -> str:
        people.reactivate(row, by)
        return "can sign in again."


@register(Person)
class PersonPage(OfService):
    deferred = ("password",)
    row_actions = (Deactivate(), Reactivate())
    list_display = ("email", "name", "is_active", "is_superuser", "has_second_factor", "tenants", "last_login")
    list_filter = ("is_active", "is_superuser")
    search_fields = ("email", "name")
    search_help_text = "an address or a name"
    ordering = ("email",)
    sections: ClassVar[Any] = {
        "": ["email", "name", "is_active", "is_superuser", "has_second_factor", "parts"],
        "When": ["joined_at", "last_login"],
    }
    introduction = "Nobody is made a superuser here: manage.py create_superuser does that."
    actions_list = ("invite",)
    invite = _invite

    def get_queryset(self, request: HttpRequest) -> Any:
        factors = Authenticator.objects.filter(user=OuterRef("pk"), confirmed=True)
        rows = super().get_queryset(request)
        return rows.annotate(is_enrolled=Exists(factors), part_count=Count("memberships"))

    has_second_factor = column("is_enrolled", "second factor", boolean=True)
    tenants = column("part_count", "tenants")

    def parts(self, person: Person) -> str:
        held = person.memberships.select_related("tenant").order_by("tenant__slug")
        return ", ".join(f"{part.tenant.slug}: {part.role}" for part in held) or "none"


class Withdraw(AdminAction):
    name, label, needs, is_destructive = "withdraw", "Withdraw", Action.STAFF, True

    def preview(self, rows: Sequence[Invitation]) -> Iterable[str]:
        yield "Its link will not be valid any more. Whoever joined by it keeps their part."

    def do(self, row: Invitation, by: Any, given: dict[str, Any]) -> str:
        invitations.withdraw(row, by)
        return "withdrawn."


@register(Invitation)
class InvitationPage(Scoped):
    tenant = "tenant_id"
    needs = Action.STAFF
    deferred = ("mac",)
    row_actions = (Withdraw(),)
    list_display = ("address", "of", "role", "state", "invited_by", "made_at")
    list_select_related = ("tenant", "invited_by")
    list_filter = ("role", OfTenant)
    ordering = ("-pk",)
    sections: ClassVar[Any] = {"": ["address", "of", "role", "state", "inviter", "made_at"]}
    actions_list = ("invite",)
    invite = _invite

    of = column("tenant.slug", "tenant", ordering="tenant__slug")

    @display(description="invited by")
    def inviter(self, invitation: Invitation) -> str:
        """In words: a link would lead to the list of everybody, which is for superusers."""
        return str(invitation.invited_by)

    @display(description="state", label={"open": "info", "used": "success", "over": "warning"})
    def state(self, invitation: Invitation) -> str:
        if invitation.used_at:
            return "used"
        return "open" if timezone.now() < invitation.made_at + invitations.VALID else "over"
