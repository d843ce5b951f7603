"""Which page of the admin shows what."""

from __future__ import annotations

from audit.models import AccessRequest, AuditEntry
from config.admin.access import AccessPage
from config.admin.agents import AgentPage
from config.admin.keys import AgentKeyPage, TenantKeyPage
from config.admin.memories import MemoryPage
from config.admin.people import InvitationPage, PartPage, PersonPage
from config.admin.sessions import SessionPage
from config.admin.site import site
from config.admin.tenants import TenantPage
from config.admin.trail import EntryPage
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Tenant, TenantKey
from refinement.models import RefinementSession

for model, page in {
    Agent: AgentPage,
    Memory: MemoryPage,
    RefinementSession: SessionPage,
    AuditEntry: EntryPage,
    AccessRequest: AccessPage,
    AgentKey: AgentKeyPage,
    TenantKey: TenantKeyPage,
    Membership: PartPage,
    Invitation: InvitationPage,
    Person: PersonPage,
    Tenant: TenantPage,
}.items():
    site.register(model, page)
