"""What people may do in a tenant, by their role. No action shows the content of a memory.

Each membership has a MAC under the pepper. Each tenant counts the changes of its memberships, and has a MAC of this
number, of all memberships together, and of the fingerprints of its valid keys and open invitations. So a membership,
key or invitation that somebody inserts, changes or puts back with SQL gives nothing. The same is true of people.
"""

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, Prefetch, Q, QuerySet, Value

from audit.ill_formed import ill_formed
from audit.verify import Problem
from config.at_once import session_of_form
from config.keyring import is_proven, macs
from memory.access import authority
from memory.errors import Invalid, NotAllowed, NotFound
from memory.models import Invitation, Membership, Person, Role, Tenant, TenantKey

MOST_LIVE = 50  # keys of a tenant that are not revoked, and open invitations, because each change signs them all


class Action(Enum):
    SEE = auto()  # see metadata, sessions and the trail; verify the trail
    STEER = auto()  # protect, remove protection, restore, roll back, refine now, pause, resume
    ASK = auto()  # request access; read under one's own grant
    CONFIGURE = auto()  # create and set up agents, revoke or suspend keys
    STAFF = auto()  # manage people and their roles; set the tenant's webhook
    REMOVE = auto()  # request redaction or erasure; lift a suspension of keys
    TENANTS = auto()  # create and delete tenants


_AUDITOR = frozenset({Action.SEE, Action.ASK})
_ADMIN = _AUDITOR | {Action.STEER, Action.CONFIGURE}
ACTIONS_OF_ROLE = {Role.AUDITOR: _AUDITOR, Role.ADMIN: _ADMIN, Role.OWNER: _ADMIN | {Action.STAFF, Action.REMOVE}}
ACTIONS_OF_SUPERUSER = frozenset(Action) - {Action.REMOVE}


def may(person: Person, action: Action, tenant: Tenant) -> bool:
    """Whether the person may carry out `action` in this tenant now."""
    return _counts(person) and action in _actions_now(person, tenant.pk)


def tenant_ids(person: Person) -> dict[Action, list[int]]:
    """For each action, the ids of the tenants in which the person may carry it out. This makes at most two queries."""
    found: dict[Action, list[int]] = {action: [] for action in Action}
    if not _counts(person):
        return found
    for tenant_id, roles in _by_tenant(Membership.objects.filter(tenant__memberships__person=person)).items():
        for action in ACTIONS_OF_ROLE[Role(roles[person.pk])] if person.pk in roles else ():
            found[action].append(tenant_id)
    if person.is_superuser:
        every = list(Tenant.objects.values_list("pk", flat=True))
        found |= dict.fromkeys(ACTIONS_OF_SUPERUSER, every)
    return found


def manages(person: Person) -> bool:
    """Whether the person may manage all tenants and people."""
    return _counts(person) and person.is_superuser


def _counts(person: Person) -> bool:
    return person.is_active and person.is_proven()


# --- a request

# The person of a form, and the ids of the tenants in which each action was allowed when it began.
Rights = tuple[Person, dict[Action, list[int]]]
request_rights: ContextVar[Rights | None] = ContextVar("request_rights", default=None)


def require_same_rights(tenant_id: int) -> None:
    """Raise NotAllowed if the person of this request has lost a right in the tenant since the request began. This is
    called when the tenant's row is locked, for which a request may wait long, and at the end of an edit."""
    known = request_rights.get()
    needed = {action for action, ids in known[1].items() if tenant_id in ids} if known else set()
    if known and needed and not needed <= _actions_now(known[0], tenant_id):
        raise NotAllowed("Your role in this tenant has changed, so nothing was done.")


def _actions_now(person: Person, tenant_id: int) -> frozenset[Action]:
    """What the person may do in the tenant, read again: in one query for its members. Nothing if the person's sessions
    have ended since `person` was read, or the request's session."""
    rows: list[Any] = []
    with ill_formed():
        members = Membership.objects.filter(tenant=tenant_id).select_related("tenant", "person")
        rows += members.annotate(is_signed_in=is_signed_in(person))
    own: Any = next((row for row in rows if row.person_id == person.pk), None)
    current = own and own.person
    if own is None and person.is_superuser:
        own = current = Person.objects.filter(pk=person.pk).annotate(is_signed_in=is_signed_in(person)).first()
    if own is None or not (own.is_signed_in and _counts(current) and has_same_sessions(current, person)):
        return frozenset()
    found = ACTIONS_OF_SUPERUSER if current.is_superuser else frozenset()
    with ill_formed():
        roles = _signed(rows[0].tenant, rows) if rows else {}
        if person.pk in roles and _is_whole(rows[0].tenant, roles):
            found |= ACTIONS_OF_ROLE[Role(roles[person.pk])]
    return found


def has_same_sessions(row: Person, before: Person) -> bool:
    """Whether the person's sessions have not ended since `before` was read."""
    return hmac.compare_digest(row.get_session_auth_hash(), before.get_session_auth_hash())


def is_signed_in(person: Person) -> Exists | Value:
    """An SQL expression: whether the session of this request still exists, if it is the person's."""
    form = session_of_form.get()
    if form is None or form[0] != person.pk:
        return Value(value=True)
    return Exists(Session.objects.filter(session_key=form[1]))


def require_same_session(person: Person) -> None:
    """Lock the person's row and session, so that neither ends before the transaction does. Raise NotAllowed if the
    person's sessions have ended since `person` was read."""
    row = Person.objects.select_for_update(no_key=True).filter(pk=person.pk).first()
    is_here = row is not None and row.is_active and has_same_sessions(row, person)
    if not (is_here and _lock_session(person.pk)):
        raise NotAllowed("Your account has changed in the meantime. Sign in again.")


def _lock_session(person_id: int) -> bool:
    """Lock the session of this request. Returns False if it has ended. If it is not this person's, returns True."""
    form = session_of_form.get()
    if form is None or form[0] != person_id:
        return True
    return bool(Session.objects.select_for_update(no_key=True).filter(session_key=form[1]))


@contextmanager
def locked_account(person_id: int) -> Iterator[None]:
    """A transaction that locks a person's account, so that the account does not end while the person asks for
    something."""
    with transaction.atomic():
        list(Person.objects.select_for_update(no_key=True).filter(pk=person_id))
        yield


# --- signed memberships


def roles_in(tenant: Tenant) -> dict[int, str]:
    """The roles that count in the tenant, by the person's id."""
    return _by_tenant(Membership.objects.filter(tenant=tenant)).get(tenant.pk, {})


def _by_tenant(memberships: QuerySet[Membership]) -> dict[int, dict[int, str]]:
    """The roles that count, by tenant and person. The queryset must contain all memberships of a tenant, or none."""
    with ill_formed():
        rows = groupby(memberships.select_related("tenant", "person").order_by("tenant_id"), attrgetter("tenant"))
        signed = [(tenant, _signed(tenant, group)) for tenant, group in rows]
        return {tenant.pk: roles for tenant, roles in signed if _is_whole(tenant, roles)}
    return {}


def _signed(tenant: Tenant, rows: Iterable[Membership]) -> dict[int, str]:
    """The roles of the memberships whose own MAC is right."""
    return {row.person_id: row.role for row in rows if is_proven(row.mac, _text(tenant, _values(row.person, row.role)))}


def _values(person: Person, role: str) -> list[Any]:
    return [person.pk, person.joined_at, role]  # `joined_at`: SQL could give the number to another person


def _is_whole(tenant: Tenant, roles: Mapping[int, str]) -> bool:
    return is_proven(tenant.members_mac, _text(tenant, roles))


def live_fingerprints(tenant: Tenant) -> list[str]:
    """The fingerprints of the tenant's keys and invitations that count."""
    with ill_formed():
        for _ in range(3):
            if _is_whole(tenant, _signed(tenant, tenant.memberships.select_related("person"))):
                return tenant.live_prefixes.split()
            tenant = Tenant.objects.get(pk=tenant.pk)  # another process may have changed it since the row was read
    return []


def _text(tenant: Tenant, signed: Mapping[int, str] | list[Any]) -> str:
    """The text for the MAC of one membership (a list), or of all roles in the tenant."""
    values = [tenant.pk, tenant.slug, tenant.members_seq, tenant.live_prefixes, signed]
    return f"memberships/{json.dumps(values, default=repr, sort_keys=True)}"


def whole_roles(tenant: Tenant) -> dict[int, str]:
    """The tenant's roles. Raises NotAllowed if SQL changed its name or members."""
    roles = roles_in(tenant)
    if not _is_whole(tenant, roles):
        raise NotAllowed(f"The tenant {tenant.slug} {_CHANGED}. A superuser must set or remove each role there.")
    return roles


def set_live(tenant_id: int, added: str = "", *, ended: str = "", address: str = "") -> None:
    """Sign a new key or invitation of the tenant, and end another one, or the earlier invitations for an address.
    `added` and `ended` are prefixes. Raises NotFound if the tenant has signed nothing with the prefix `ended`. Raises
    Invalid if the tenant already has MOST_LIVE of this kind."""
    with transaction.atomic():
        tenant = lock(tenant_id)
        live, kept = tenant.live_prefixes.split(), list[str]()
        prefixes = [added, *(each.partition("-")[0] for each in live)]  # without the many rows that ended before
        kinds: Any = (tenant.keys, "keys. Revoke one"), (tenant.invitations, "open invitations. Withdraw one")
        for rows, what in kinds:
            found = list(rows.filter(prefix__in=prefixes))
            if len(found) > MOST_LIVE and any(row.prefix == added for row in found):
                raise Invalid("tenant", f"already has {MOST_LIVE} {what} first")
            # These rows decide, and no others: SQL may have shown other rows to an earlier query.
            left = [row for row in found if row.prefix != ended and not (address and _address(row) == address)]
            kept += [row.fingerprint for row in left if row.fingerprint in live]
            kept += [row.fingerprint for row in found if row.prefix == added]
        if ended and set(kept) == set(live):
            raise NotFound("This key or invitation has ended, or was changed outside the service.")
        sign_roles(tenant, whole_roles(tenant), kept)


def _address(row: TenantKey | Invitation) -> str:
    return row.address if isinstance(row, Invitation) else ""


@contextmanager
def locked_for(action: Action, tenant_id: int, by: Person) -> Iterator[Tenant]:
    """`lock` the tenant, in a transaction, if the person still may carry out `action` in it. Raises NotFound, and
    NotAllowed."""
    with transaction.atomic():
        gone = NotFound("No such tenant, or you may no longer do this in it.")
        if not Tenant.objects.filter(pk=tenant_id).exists():
            raise gone
        tenant = lock(tenant_id, by.pk)
        if not may(by, action, tenant):
            raise gone
        yield tenant


def lock(tenant_id: int, *others: int) -> Tenant:
    """Lock the tenant, its people, the person and the session of this request, and others. Otherwise SQL could exchange
    a person between a check and a signature. Raises NotAllowed like `require_same_rights`. Until the transaction ends,
    none of these rights ends."""
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
    form = session_of_form.get()
    people = Q(pk__in=Membership.objects.filter(tenant=tenant).values("person"))
    people |= Q(pk__in=[*others, *([form[0]] if form else [])])
    list(Person.objects.select_for_update(no_key=True).filter(people).order_by("pk"))
    if form:
        _lock_session(form[0])  # each check of a right looks whether it exists
    require_same_rights(tenant_id)
    return tenant


def sign_roles(tenant: Tenant, roles: Mapping[int, str], live: Iterable[str]) -> None:
    """Make these the only roles, keys and invitations that count in the tenant. `live` has the fingerprints. The caller
    must have locked the tenant's row, and must not have changed it. Raises NotAllowed."""
    people = Person.objects.in_bulk(roles)
    if broken := [pk for pk, person in people.items() if not person.is_proven()]:
        raise NotAllowed(f"Person {broken[0]} {_CHANGED}. A superuser must deactivate and reactivate them.")
    tenant.live_prefixes = " ".join(sorted(live))
    seq: Any = tenant.members_seq  # by SQL, SQLite stores any type
    tenant.members_seq = seq + 1 if isinstance(seq, int) else 1
    tenant.members_mac = macs(_text(tenant, roles))[0]
    tenant.save(update_fields=["members_seq", "members_mac", "live_prefixes"])
    signed = {pk: macs(_text(tenant, _values(people[pk], role)))[0] for pk, role in roles.items()}
    rows = [Membership(tenant=tenant, person_id=pk, role=role, mac=signed[pk]) for pk, role in roles.items()]
    keys, values = ["person", "tenant"], ["role", "mac"]
    tenant.memberships.bulk_create(rows, update_conflicts=True, unique_fields=keys, update_fields=values)
    # For example a trigger, which can change a person before the signature.
    authority.require_nothing_added(or_removed=True)


def problems() -> Iterator[Problem]:
    """Yield what does not count: people, memberships, open keys and invitations of tenants, and tenants."""
    for person in Person.objects.order_by("pk"):
        if not person.is_proven():
            yield Problem("", 0, f"person {person.pk} {_CHANGED}: a superuser must deactivate and reactivate them")
    for tenant in Tenant.objects.prefetch_related("memberships__person", _OPEN_KEYS, _OPEN_INVITATIONS).order_by("pk"):
        roles = _signed(tenant, tenant.memberships.all())
        for row in tenant.memberships.all():
            if row.person_id not in roles:
                yield Problem(tenant.slug, 0, f"the membership of person {row.person_id} {_CHANGED}")
        if not _is_whole(tenant, roles):
            yield Problem(tenant.slug, 0, f"a membership {_CHANGED}: a superuser must set or remove each role here")
            continue
        live = {*tenant.live_prefixes.split()}
        rows: Any = (*tenant.keys.all(), *tenant.invitations.all())
        for each in sorted(live ^ {row.fingerprint for row in rows}):
            yield Problem(tenant.slug, 0, f"the tenant key or invitation {each.partition('-')[0]} {_CHANGED}")


_OPEN_KEYS = Prefetch("keys", TenantKey.objects.filter(revoked_at=None))
_OPEN_INVITATIONS = Prefetch("invitations", Invitation.objects.filter(used_at=None))
_CHANGED = "was changed outside the service, so it gives no access"
