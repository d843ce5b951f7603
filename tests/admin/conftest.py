"""People of two tenants, and clients that are signed in as them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import Client
from django_otp.oath import TOTP

from memory.accounts import people
from memory.models import Authenticator, Person, Role
from tests.conftest import House
from tests.members import join
from tests.second_factors import enrol

PASSWORD, NEW_PASSWORD = "a good long passphrase", "another good passphrase"
Enter = Callable[[str], Client]
NewClient = Callable[[], Client]
SignedIn = Callable[[Person], Client]
Staff = dict[str, Person]


def code(person: Person, ahead: int = 0) -> str:
    """The code that the person's authenticator shows, or will show `ahead` steps later."""
    return code_of(Authenticator.objects.get(user=person), ahead)


def code_of(factor: Authenticator, ahead: int = 0) -> str:
    return f"{TOTP(people._secret(factor), drift=ahead).token():06d}"


def enrolled(email: str, *, is_superuser: bool = False) -> Person:
    person = Person.objects.create_user(email, PASSWORD, is_superuser=is_superuser)
    enrol(person)
    return person


def sign_in(client: Client, person: Person, **fields: str) -> Any:
    form = {"username": person.email, "password": PASSWORD, "next": "/admin/"} | fields
    return client.post("/admin/login/", form if "code" in form else form | {"code": code(person)})


class Quick(PBKDF2PasswordHasher):
    """Django's default takes a million rounds, which is half of the time of these tests."""

    iterations = 10


@pytest.fixture(autouse=True)
def _admin(db: None, settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Quick"]
    settings.ALLOWED_HOSTS = ["testserver"]


@pytest.fixture
def browser() -> NewClient:
    return lambda: Client(raise_request_exception=False)


@pytest.fixture
def signed_in(browser: NewClient) -> SignedIn:
    def enter(person: Person) -> Client:
        client = browser()
        assert sign_in(client, person).status_code == 302
        return client

    return enter


@pytest.fixture
def one_factor(browser: NewClient) -> SignedIn:
    """A function that returns a client whose person gave a password, but no code."""

    def enter(person: Person) -> Client:
        client = browser()
        client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
        return client

    return enter


@pytest.fixture
def enter(staff: Staff, signed_in: SignedIn) -> Enter:
    """A function that returns the client of a person with this role."""
    return lambda role: signed_in(staff[role])


@pytest.fixture
def client(enter: Enter) -> Client:
    """The client of acme's owner."""
    return enter("owner")


@pytest.fixture
def staff(house: House) -> Staff:
    """A person of each role in acme, a superuser, and a stranger without a membership."""
    staff = {}
    for role in Role.values:
        staff[role] = enrolled(f"{role}@acme.test")
        join(person=staff[role], tenant=house.ada.tenant, role=role)
    return staff | {
        "superuser": enrolled("root@service.test", is_superuser=True),
        "stranger": enrolled("nobody@else.test"),
    }
