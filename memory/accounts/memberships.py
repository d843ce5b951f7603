"""People's parts in tenants: given by invitation (`memory.accounts.invitations`), changed and taken here.

Whoever does it must be allowed to at that moment; a tenant keeps an owner unless a superuser says otherwise; who has no
part in a tenant any more reads nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from memory.access.roles import Action, may
from memory.consent import grants
from memory.errors import Invalid, LastOwner, NotAllowed, NotFound
from memory.models import Membership, Person, Role, Tenant


def change_role(part: Membership, role: str, by: Person, *, even_the_last_owner: bool = False) -> None:
    """Raises Invalid, NotAllowed, NotFound, LastOwner."""
    if role not in Role.values:
        raise Invalid("role", f"must be one of: {', '.join(Role.values)}")
    with _held(part, by) as row:
        if row.person_id == by.pk:
            raise NotAllowed("Nobody changes their own role: another owner does, or a superuser.")
        if role != Role.OWNER:
            _require_another_owner(row, by, even_the_last_owner)
        Membership.objects.filter(pk=row.pk).update(role=role)


def remove(part: Membership, by: Person, *, even_the_last_owner: bool = False) -> None:
    """Take a part away; the person's requests to that tenant's agents end, and grants. Raises as `change_role` does."""
    with _held(part, by) as row:
        _require_another_owner(row, by, even_the_last_owner)
        row.delete()
        grants.withdraw_all(row.person_id, "left", tenant_id=row.tenant_id)


def is_last_owner(part: Membership) -> bool:
    """Whether nobody else who may sign in owns the tenant."""
    owners = Membership.objects.filter(tenant_id=part.tenant_id, role=Role.OWNER, person__is_active=True)
    return part.role == Role.OWNER and not owners.exclude(pk=part.pk).exists()


def require_tenant(tenant_id: int, by: Person) -> Tenant:
    """The tenant, locked, for somebody who may say who its people are. Raises NotFound, whatever is wrong."""
    tenant = Tenant.objects.select_for_update(no_key=True).filter(pk=tenant_id).first()
    if tenant is None or not may(by, Action.STAFF, tenant):
        raise NotFound("There is no such part.")
    return tenant


@contextmanager
def _held(part: Membership, by: Person) -> Iterator[Membership]:
    """The part as it stands, while its tenant is locked: of two owners who remove each other, the second is none."""
    with transaction.atomic():
        require_tenant(part.tenant_id, by)
        row = Membership.objects.select_related("person").filter(pk=part.pk, tenant_id=part.tenant_id).first()
        if row is None:
            raise NotFound("There is no such part.")
        yield row


def _require_another_owner(part: Membership, by: Person, even_the_last: bool) -> None:
    if is_last_owner(part) and not (by.is_superuser and even_the_last):
        raise LastOwner("A tenant keeps an owner who can sign in: make somebody else one first.")
