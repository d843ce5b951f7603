"""What people may do in a tenant, by their role. No action shows the content of a memory."""

from __future__ import annotations

from enum import Enum, auto

from memory.models import Membership, Person, Role, Tenant


class Action(Enum):
    SEE = auto()  # see metadata, sessions and the trail; verify the trail
    STEER = auto()  # protect, remove protection, restore, roll back, refine now, pause, resume
    ASK = auto()  # request access; read under one's own grant
    CONFIGURE = auto()  # create and set up agents, revoke keys
    STAFF = auto()  # manage people and their roles
    REMOVE = auto()  # request redaction or erasure
    TENANTS = auto()  # create and delete tenants


_AUDITOR = frozenset({Action.SEE, Action.ASK})
_ADMIN = _AUDITOR | {Action.STEER, Action.CONFIGURE}
ACTIONS_OF_ROLE = {Role.AUDITOR: _AUDITOR, Role.ADMIN: _ADMIN, Role.OWNER: _ADMIN | {Action.STAFF, Action.REMOVE}}
ACTIONS_OF_SUPERUSER = frozenset(Action) - {Action.REMOVE}


def may(person: Person, action: Action, tenant: Tenant) -> bool:
    """Whether the person may carry out `action` in this tenant."""
    if not person.is_active:
        return False
    if person.is_superuser and action in ACTIONS_OF_SUPERUSER:
        return True
    roles = [role for role, actions in ACTIONS_OF_ROLE.items() if action in actions]
    return Membership.objects.filter(person=person, tenant=tenant, role__in=roles).exists()


def grantable(person: Person, tenant: Tenant) -> frozenset[str]:
    """The roles that the person may give to others in this tenant."""
    return frozenset(Role.values) if may(person, Action.STAFF, tenant) else frozenset()


def manages(person: Person) -> bool:
    """Whether the person may manage all tenants and people."""
    return person.is_active and person.is_superuser
