"""People, their roles in tenants, and their permissions."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from memory.access.roles import Action, may, tenant_ids
from memory.models import Agent, Person, Role
from tests.members import join

TABLE = {  # 50-admin: owner, admin, auditor, superuser
    Action.SEE: (True, True, True, True),
    Action.STEER: (True, True, False, True),
    Action.ASK: (True, True, True, True),
    Action.CONFIGURE: (True, True, False, True),
    Action.STAFF: (True, False, False, True),
    Action.REMOVE: (True, False, False, False),
    Action.TENANTS: (False, False, False, True),
}


def person(email: str, **values: bool) -> Person:
    return Person.objects.create_user(email, None, **values)


def test_permissions_of_each_role(ada: Agent, bob: Agent) -> None:
    people = [person(f"{role}@acme.test") for role in Role.values]
    for each, role in zip(people, Role.values, strict=True):
        join(person=each, tenant=ada.tenant, role=role)
    people.append(Person.objects.create_user("root@acme.test", is_superuser=True))
    assert set(TABLE) == set(Action)
    for action in Action:
        assert tuple(may(each, action, ada.tenant) for each in people) == TABLE[action], action
        assert [may(each, action, bob.tenant) for each in people[:3]] == [False] * 3
        for each in people:
            assert (ada.tenant.pk in tenant_ids(each)[action]) == may(each, action, ada.tenant)
    for each in people:
        each.is_active = False
        for action in Action:
            assert (tenant_ids(each)[action], may(each, action, ada.tenant)) == ([], False)


def test_a_role_applies_to_one_tenant(ada: Agent, bob: Agent) -> None:
    pat = person("pat@acme.test")
    join(person=pat, tenant=ada.tenant, role=Role.AUDITOR)
    join(person=pat, tenant=bob.tenant, role=Role.OWNER)
    ids = tenant_ids(pat)
    assert set(ids[Action.SEE]) == {ada.tenant.pk, bob.tenant.pk}
    assert ids[Action.STEER] == [bob.tenant.pk]


@pytest.mark.database
def test_an_address_belongs_to_one_person_without_regard_to_case(db: None) -> None:
    pat = person("  Pat@ACME.test ")
    assert pat.email == "pat@acme.test"
    assert Person.objects.get_by_natural_key("PAT@acme.TEST") == pat
    for again in ("pat@acme.test", "PAT@acme.test"):
        with pytest.raises(IntegrityError), transaction.atomic():
            Person(email=again, password="!").save()


def test_an_invalid_address_is_refused(db: None) -> None:
    for email in ("", "pat@", "a b@c.test"):
        with pytest.raises(ValidationError):
            person(email)
