"""Memberships for tests."""

from audit.consent import Person as Reader
from memory.accounts import memberships
from memory.models import Agent, Membership, Person, Role, Tenant


def join(person: Person, tenant: Tenant, role: str) -> Membership:
    """Make the person a member of the tenant."""
    memberships.set_role(tenant.pk, person.pk, role)
    return Membership.objects.get(person=person, tenant=tenant)


def with_account(reader: Reader, agent: Agent) -> Reader:
    """Give the reader an account, and make them an auditor in the agent's tenant, unless they have both."""
    person = Person.objects.filter(pk=reader.id).first() or Person.objects.create_user(reader.address, pk=reader.id)
    if not Membership.objects.filter(person=person, tenant=agent.tenant_id).exists():
        memberships.set_role(agent.tenant_id, person.pk, Role.AUDITOR)
    return reader
