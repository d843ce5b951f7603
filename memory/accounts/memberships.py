"""Changes and removes memberships of tenants. Invitations add memberships (`memory.accounts.invitations`).

A tenant keeps at least one owner, unless a superuser confirms that it may have none. If a membership is removed, the
person's requests and grants in the tenant end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from memory.access.roles import Action, may
from memory.consent import grants
from memory.errors import Invalid, LastOwner, NotAllowed, NotFound
from memory.models import Membership, Person, Role, Tenant


def change_role(membership: Membership, role: str, by: Person, *, even_the_last_owner: bool = False) -> None:
    """Change a role. Raises Invalid, NotAllowed, NotFound, LastOwner."""
    if role not in Role.values:
        raise Invalid("role", f"must be one of: {', '.join(Role.values)}")
    with _locked(membership, by) as row:
        if row.person_id == by.pk:
            raise NotAllowed("You cannot change your own role. Ask another owner or a superuser.")
        if role != Role.OWNER:
            _require_another_owner(row, by, even_the_last_owner)
        Membership.objects.filter(pk=row.pk).update(role=role)


def remove(membership: Membership, by: Person, *, even_the_last_owner: bool = False) -> None:
    """Remove a membership, and end the person's requests and grants in the tenant. Raises NotFound, LastOwner."""
    with _locked(membership, by) as row:
        _require_another_owner(row, by, even_the_last_owner)
        row.delete()
        grants.withdraw_all(row.person_id, "left", tenant_id=row.tenant_id)


def is_last_owner(membership: Membership) -> bool:
    """Whether this is the tenant's only owner who can sign in."""
    owners = Membership.objects.filter(tenant_id=membership.tenant_id, role=Role.OWNER, person__is_active=True)
    return membership.role == Role.OWNER and not owners.exclude(pk=membership.pk).exists()


def require_tenant(tenant_id: int, by: Person) -> Tenant:
    """Lock and return the tenant, if the person may manage its members. Raises NotFound otherwise."""
    tenant = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).first()
    if tenant is None or not may(by, Action.STAFF, tenant):
        raise NotFound("No such membership.")
    return tenant


@contextmanager
def _locked(membership: Membership, by: Person) -> Iterator[Membership]:
    """Lock the tenant, and read the membership again. So two owners cannot remove each other."""
    with transaction.atomic():
        require_tenant(membership.tenant_id, by)
        row = (
            Membership.objects.select_related("person").filter(pk=membership.pk, tenant_id=membership.tenant_id).first()
        )
        if row is None:
            raise NotFound("No such membership.")
        yield row


def _require_another_owner(membership: Membership, by: Person, even_the_last: bool) -> None:
    if is_last_owner(membership) and not (by.is_superuser and even_the_last):
        raise LastOwner("A tenant needs an owner who can sign in. Make somebody else an owner first.")
