"""People and their parts in tenants: for a tenant's owners, and for superusers, who see everybody.

Nobody is made a superuser here: `manage.py create_superuser` does that, by whoever runs the service.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.admin import register
from django.core.mail import send_mail
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import display

from memory.access.roles import Action
from memory.accounts import invitations, memberships, people
from memory.admin.base.forms_pages import Sheet, SheetForm, about, button, done, offered, row_or_404, shown_once
from memory.admin.base.page import OfService, Scoped
from memory.admin.base.scope import OwnTenant, seen_by
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant

PARTS = "admin:memory_membership_changelist"
INVITATIONS = "admin:memory_invitation_changelist"


class InviteForm(SheetForm):
    address = forms.CharField(max_length=invitations.LONGEST_ADDRESS, help_text="their e-mail address")
    tenant: forms.ModelChoiceField[Tenant] = forms.ModelChoiceField(Tenant.objects.none())
    role = forms.ChoiceField(choices=Role.choices, initial=Role.AUDITOR)

    def __init__(self, *args: Any, tenants: QuerySet[Tenant], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants.order_by("slug")  # type: ignore[attr-defined]


class RoleForm(SheetForm):
    role = forms.ChoiceField(choices=Role.choices)


class LastOwnerForm(SheetForm):
    """What a superuser says who takes a tenant's last owner away."""

    even_the_last_owner = forms.BooleanField(
        required=False, label="Leave the tenant without an owner", help_text="nobody but superusers sets up its people"
    )


class LastRoleForm(RoleForm, LastOwnerForm):
    pass


@register(Membership)
class PartPage(Scoped):
    """Who has which part in a tenant of one's own. What else somebody has elsewhere is not shown."""

    tenant = "tenant"
    action = Action.STAFF
    list_display = ("address", "name", "of", "role", "can_sign_in")
    list_select_related = ("person", "tenant")
    list_filter = ("role", OwnTenant)
    search_fields = ("person__email", "person__name")
    search_help_text = "an address or a name"
    ordering = ("tenant__slug", "person__email")
    fieldsets: ClassVar[Any] = [(None, {"fields": ["address", "name", "of", "role", "can_sign_in"]})]
    actions_list = ("invite",)
    actions_detail = ("change_role", "remove")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        return super().get_queryset(request).select_related("person", "tenant")

    @display(description="address", ordering="person__email")
    def address(self, part: Membership) -> str:
        return part.person.email

    @display(description="name")
    def name(self, part: Membership) -> str:
        return part.person.name

    @display(description="tenant", ordering="tenant__slug")
    def of(self, part: Membership) -> str:
        return part.tenant.slug

    @display(description="signs in", boolean=True)
    def can_sign_in(self, part: Membership) -> bool:
        return part.person.is_active

    @button("Invite somebody", "invite")
    def invite(self, request: HttpRequest) -> HttpResponse:
        return invite(self, request)

    @button("Change the role", "role")
    def change_role(self, request: HttpRequest, object_id: str) -> HttpResponse:
        part: Membership = row_or_404(self, request, object_id)
        sheet = Sheet(
            title=f"The role of {part.person.email} in {part.tenant.slug}",
            button="Change the role",
            back=reverse("admin:memory_membership_change", args=[part.pk]),
            said=["An owner sets up its people; an admin steers and configures its agents; an auditor looks."],
        )

        def do(given: dict[str, Any]) -> HttpResponse:
            memberships.change_role(part, by=_who(request), **given)
            return done(request, f"{part.person.email} is {given['role']} of {part.tenant.slug} now.", sheet.back)

        form = LastRoleForm if _asks_for_word(request, part) else RoleForm
        return offered(self, request, sheet, do, form, initial={"role": part.role})

    @button("Remove", "remove")
    def remove(self, request: HttpRequest, object_id: str) -> HttpResponse:
        part: Membership = row_or_404(self, request, object_id)
        sheet = Sheet(
            title=f"Remove {part.person.email} from {part.tenant.slug}",
            button="Remove",
            back=reverse("admin:memory_membership_change", args=[part.pk]),
            said=[
                f"They are {part.role} of {part.tenant.slug}, and will see nothing of it any more.",
                people.would_end(part.person, tenant_id=part.tenant_id),
            ],
            is_grave=True,
        )

        def do(given: dict[str, Any]) -> HttpResponse:
            memberships.remove(part, _who(request), **given)
            back = reverse(PARTS) if part.person_id != request.user.pk else reverse("admin:index")
            return done(request, f"{part.person.email} has no part in {part.tenant.slug} any more.", back)

        return offered(self, request, sheet, do, LastOwnerForm if _asks_for_word(request, part) else SheetForm)


@register(Person)
class PersonPage(OfService):
    list_display = ("email", "name", "is_active", "is_superuser", "has_second_factor", "tenants", "last_login")
    list_filter = ("is_active", "is_superuser")
    search_fields = ("email", "name")
    search_help_text = "an address or a name"
    ordering = ("email",)
    fieldsets: ClassVar[Any] = [
        (
            None,
            {
                "fields": ["email", "name", "is_active", "is_superuser", "has_second_factor", "parts"],
                "description": "Nobody is made a superuser here: manage.py create_superuser does that.",
            },
        ),
        ("When", {"fields": ["joined_at", "last_login"]}),
    ]
    actions_list = ("invite",)
    actions_detail = ("deactivate", "reactivate")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Person]:
        factors = Authenticator.objects.filter(user=OuterRef("pk"), confirmed=True)
        rows = super().get_queryset(request).defer("password")
        counted: QuerySet[Person] = rows.annotate(is_enrolled=Exists(factors), part_count=Count("memberships"))
        return counted

    def has_activate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_active(request, object_id) is False

    def has_deactivate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_active(request, object_id) is True

    def _is_active(self, request: HttpRequest, object_id: str | None) -> bool | None:
        person = self.get_object(request, object_id) if object_id else None
        return person.is_active if person is not None else None

    @display(description="second factor", boolean=True)
    def has_second_factor(self, person: Any) -> bool:
        return bool(person.is_enrolled)

    @display(description="tenants")
    def tenants(self, person: Any) -> int:
        return int(person.part_count)

    @display(description="parts")
    def parts(self, person: Person) -> str:
        held = person.memberships.select_related("tenant").order_by("tenant__slug")
        return ", ".join(f"{part.tenant.slug}: {part.role}" for part in held) or "none"

    @button("Invite somebody", "invite")
    def invite(self, request: HttpRequest) -> HttpResponse:
        return invite(self, request)

    @button("Deactivate", "deactivate", to="deactivate")
    def deactivate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        person: Person = row_or_404(self, request, object_id)
        owned = [
            part.tenant.slug for part in person.memberships.select_related("tenant") if memberships.is_last_owner(part)
        ]
        sheet = Sheet(
            title=f"Deactivate {person.email}",
            button="Deactivate",
            back=reverse("admin:memory_person_change", args=[person.pk]),
            said=[
                "They are signed out at once, everywhere, and do not get in again until they are reactivated.",
                people.would_end(person),
                *([f"Tenants left without an owner who can sign in: {', '.join(owned)}."] if owned else []),
            ],
            is_grave=True,
        )

        def do(_: dict[str, Any]) -> HttpResponse:
            people.deactivate(person, _who(request))
            return done(request, f"{person.email} is deactivated.", sheet.back)

        return offered(self, request, sheet, do)

    @button("Reactivate", "reactivate", to="activate")
    def reactivate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        person: Person = row_or_404(self, request, object_id)
        sheet = Sheet(
            title=f"Reactivate {person.email}",
            button="Reactivate",
            back=reverse("admin:memory_person_change", args=[person.pk]),
            said=["They can sign in again, with the parts they have. What was ended stays ended."],
        )

        def do(_: dict[str, Any]) -> HttpResponse:
            people.reactivate(person, _who(request))
            return done(request, f"{person.email} can sign in again.", sheet.back)

        return offered(self, request, sheet, do)


@register(Invitation)
class InvitationPage(Scoped):
    tenant = "tenant"
    action = Action.STAFF
    list_display = ("address", "of", "role", "state", "invited_by", "made_at")
    list_select_related = ("tenant", "invited_by")
    list_filter = ("role", OwnTenant)
    ordering = ("-pk",)
    fieldsets: ClassVar[Any] = [(None, {"fields": ["address", "of", "role", "state", "invited_by", "made_at"]})]
    actions_list = ("invite",)
    actions_detail = ("withdraw",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Invitation]:
        return super().get_queryset(request).defer("mac").select_related("tenant", "invited_by")

    @display(description="tenant", ordering="tenant__slug")
    def of(self, invitation: Invitation) -> str:
        return invitation.tenant.slug

    @display(description="state", label={"open": "info", "used": "success", "over": "warning"})
    def state(self, invitation: Invitation) -> str:
        if invitation.used_at:
            return "used"
        return "open" if timezone.now() < invitation.made_at + invitations.VALID else "over"

    @button("Invite somebody", "invite")
    def invite(self, request: HttpRequest) -> HttpResponse:
        return invite(self, request)

    @button("Withdraw", "withdraw")
    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invitation: Invitation = row_or_404(self, request, object_id)
        sheet = Sheet(
            title=f"Withdraw the invitation of {invitation.address}",
            button="Withdraw",
            back=reverse(INVITATIONS),
            said=["Its link will not be valid any more. Whoever joined by it keeps their part."],
            is_grave=True,
        )

        def do(_: dict[str, Any]) -> HttpResponse:
            invitations.withdraw(invitation, _who(request))
            return done(request, f"The invitation of {invitation.address} is withdrawn.", sheet.back)

        return offered(self, request, sheet, do)


def invite(page: Scoped, request: HttpRequest) -> HttpResponse:
    """Invite an address; its link is shown this once, and mailed where mail is sent."""
    tenants = seen_by(request, Action.STAFF)
    sheet = Sheet(
        title="Invite somebody",
        button="Make the link",
        back=reverse(PARTS),
        said=[
            "Whoever opens the link within 72 hours sets a password and a second factor, and takes the part.",
            "An earlier link for the same address and tenant ends with it.",
        ],
    )

    def do(given: dict[str, Any]) -> HttpResponse:
        is_again = invitations.is_open(given["tenant"], given["address"])
        token = invitations.invite(given["tenant"], given["address"], given["role"], _who(request))
        link = f"{settings.PUBLIC_URL}{reverse('join', args=[token])}"
        told = _mailed(invitations.written(given["address"]), given["tenant"], link)
        said = [_FOR_WHOM, told, *([_ENDED] if is_again else [])]
        return shown_once(request, title="The link", secret=link, said=said, back=reverse(INVITATIONS))

    return offered(page, request, sheet, do, InviteForm, tenants=tenants, initial=about(request))


_FOR_WHOM = "It is for the person of that address alone: whoever opens it first takes the part in their name."
_ENDED = "The link that was made for them before is not valid any more: this one takes its place."


def _mailed(address: str, tenant: Tenant, link: str) -> str:
    """Send the link, and say what became of it. It is in no queue: a queue keeps what it is given."""
    if settings.EMAIL_BACKEND.endswith(".console.EmailBackend"):
        return "No mail is set up here: hand the link over yourself."
    body = (
        f"You are invited to {tenant.slug} on Palimpsest. This link is good for 72 hours, and for once:\n\n{link}\n\n"
        "Opening it does nothing yet. Whoever did not expect it may leave it.\n"
    )
    try:
        send_mail(f"An invitation to {tenant.slug}", body, None, [address])
    except OSError:  # the mail server's refusals are, too
        return "It could not be mailed: hand the link over yourself."
    return "It was mailed to them, too."


def _asks_for_word(request: HttpRequest, part: Membership) -> bool:
    return _who(request).is_superuser and memberships.is_last_owner(part)


def _who(request: HttpRequest) -> Person:
    person: Any = request.user
    return Person.objects.get(pk=person.pk)
