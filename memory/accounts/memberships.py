"""Changes and removes memberships of tenants. Invitations add memberships (`memory.accounts.invitations`).

Only a superuser can remove a tenant's last owner. If a membership is removed, the
person's requests and grants in the tenant end.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from memory.access.roles import Action, live_fingerprints, lock, locked_for, manages, roles_in, sign_roles
from memory.consent import withdrawals
from memory.errors import Invalid, LastOwner, NotAllowed, NotFound
from memory.models import Membership, Person, Role, Tenant

MOST = 1_000  # members of a tenant, because each change of its people, keys and invitations signs them all


def change_role(membership: Membership, role: str, by: Person) -> None:
    """Change a role. Raises Invalid, NotAllowed, NotFound, LastOwner."""
    if role not in Role.values:
        raise Invalid("role", f"must be one of: {', '.join(Role.values)}")
    with _locked(membership, by) as row:
        if row.person_id == by.pk:
            raise NotAllowed("You cannot change your own role. Ask another owner or a superuser.")
        if role != Role.OWNER:
            _require_another_owner(row, by)
        set_role(row.tenant_id, row.person_id, role)


def remove(membership: Membership, by: Person) -> None:
    """Remove a membership, and end the person's requests and grants in the tenant. Raises NotFound, LastOwner."""
    withdrawals.check_ahead(membership.person_id)
    with _locked(membership, by) as row:
        _require_another_owner(row, by)
        lock(row.tenant_id)  # so that the person asks for nothing meanwhile
        withdrawals.withdraw_all(row.person_id, "left", tenant_id=row.tenant_id)  # first: people may remove themselves
        set_role(row.tenant_id, row.person_id, None)


def set_role(tenant_id: int, person_id: int, role: str | None) -> None:
    """Give the person this role in the tenant. With None, remove the membership.

    This signs the roles that count. A membership that somebody changed with SQL stays without effect. Raises
    NotAllowed if the tenant would have more than MOST members.
    """
    with transaction.atomic():
        tenant = lock(tenant_id)
        known, live = roles_in(tenant), live_fingerprints(tenant)
        if role is not None and person_id not in known and len(known) >= MOST:
            raise NotAllowed(f"A tenant can have at most {MOST:,} members. An owner must remove one first.")
        roles = known | {person_id: role}
        sign_roles(tenant, {person: role for person, role in roles.items() if role is not None}, live)
        if role is None:  # last, because a hidden trigger may change what is signed
            Membership.objects.filter(tenant=tenant, person_id=person_id).delete()


def lock_tenants(person_id: int) -> None:
    """Lock the tenants of a person, and then all their people, until the transaction ends. Between two tenants, no
    person is locked: otherwise, this and a lock of the second tenant could wait for each other."""
    tenants = _tenants_of(person_id)
    list(Tenant.objects.select_for_update(no_key=True).filter(pk__in=tenants).order_by("pk"))
    people = Membership.objects.filter(tenant__in=tenants).values("person")
    list(Person.objects.select_for_update(no_key=True).filter(pk__in=people).order_by("pk"))
    for tenant_id in tenants:
        lock(tenant_id)


def _tenants_of(person_id: int) -> list[int]:
    return list(Tenant.objects.filter(memberships__person=person_id).order_by("pk").values_list("pk", flat=True))


def sign_again(person_id: int) -> None:
    """End the person's sessions, and sign the person and their memberships with the newest pepper. This signs only what
    counts now."""
    for person in Person.objects.select_for_update().filter(pk=person_id):
        if person.is_proven():
            person.generation += 1
            person.save(update_fields=["generation"])
            person.sign()
    for tenant_id in _tenants_of(person_id):
        with transaction.atomic():
            tenant = lock(tenant_id)
            if person_id in (roles := roles_in(tenant)):
                sign_roles(tenant, roles, live_fingerprints(tenant))


@contextmanager
def _locked(membership: Membership, by: Person) -> Iterator[Membership]:
    """Lock the tenant, and read the membership again. So two owners cannot remove each other."""
    with locked_for(Action.STAFF, membership.tenant_id, by):
        rows = Membership.objects.select_related("person").filter(pk=membership.pk, tenant_id=membership.tenant_id)
        row = rows.first()
        if row is None or row.person_id != membership.person_id:
            raise NotFound("No such membership.")
        yield row


def _require_another_owner(membership: Membership, by: Person) -> None:
    owners = [person for person, role in roles_in(membership.tenant).items() if role == Role.OWNER]
    others = Person.objects.filter(pk__in=owners, is_active=True).exclude(pk=membership.person_id)
    is_last = membership.person_id in owners and not others.exists()
    if is_last and not manages(by):
        raise LastOwner("A tenant needs an owner who can sign in. Make somebody else an owner first.")
