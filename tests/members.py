"""Memberships for tests."""

from memory.accounts import memberships
from memory.models import Membership, Person, Tenant


def join(person: Person, tenant: Tenant, role: str) -> Membership:
    """Make the person a member of the tenant."""
    memberships.set_role(tenant.pk, person.pk, role)
    return Membership.objects.get(person=person, tenant=tenant)
