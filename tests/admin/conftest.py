"""People of two tenants, and how they sign in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import Client
from django_otp.oath import TOTP

from memory.accounts import people
from memory.models import Authenticator, Membership, Person, Role
from tests.conftest import House
from tests.enrolling import enrol

PASSWORD = "a good long passphrase"
Enter = Callable[[str], Client]


def code(person: Person, ahead: int = 0) -> str:
    """What the person's authenticator shows, or will show so many steps later."""
    totp = TOTP(people._secret(Authenticator.objects.get(user=person)), drift=ahead)
    return f"{totp.token():06d}"


def enrolled(email: str, *, is_superuser: bool = False) -> Person:
    person = Person.objects.create_user(email, PASSWORD, is_superuser=is_superuser)
    enrol(person)
    return person


def sign_in(client: Client, person: Person, **instead: str) -> Any:
    form = {"username": person.email, "password": PASSWORD, "code": code(person), "next": "/admin/"} | instead
    return client.post("/admin/login/", form)


class Quick(PBKDF2PasswordHasher):
    """Half of these tests' time went into a million rounds."""

    iterations = 10


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Quick"]


@pytest.fixture
def browser(settings: Any) -> Callable[[], Client]:
    settings.ALLOWED_HOSTS = ["testserver"]
    return lambda: Client(raise_request_exception=False)


@pytest.fixture
def signed_in(browser: Callable[[], Client]) -> Callable[[Person], Client]:
    def enter(person: Person) -> Client:
        client = browser()
        assert sign_in(client, person).status_code == 302
        return client

    return enter


@pytest.fixture(autouse=True)
def _database(db: None) -> None:
    """Every test here needs it."""


@pytest.fixture
def enter(staff: dict[str, Person], signed_in: Callable[[Person], Client]) -> Enter:
    """A client of somebody with this role."""
    return lambda role: signed_in(staff[role])


@pytest.fixture
def client(enter: Enter) -> Client:
    """The browser of acme's owner."""
    return enter("owner")


@pytest.fixture
def staff(house: House) -> dict[str, Person]:
    """Somebody of each role in acme, a superuser, and a stranger without a part anywhere."""
    found = {}
    for role in Role.values:
        found[role] = enrolled(f"{role}@acme.test")
        Membership.objects.create(person=found[role], tenant=house.ada.tenant, role=role)
    found["superuser"] = enrolled("root@service.test", is_superuser=True)
    found["stranger"] = enrolled("nobody@else.test")
    return found
