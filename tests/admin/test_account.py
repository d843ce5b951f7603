"""A person's own account: the password, the second factor, and what a change of either ends."""

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from audit.models import AccessRequest, State
from memory.accounts import people
from memory.errors import NotAllowed
from memory.models import Person
from memory.writing import edits
from tests.admin.actions import html
from tests.admin.conftest import NEW_PASSWORD, PASSWORD, NewClient, SignedIn, Staff, code, code_of, sign_in
from tests.admin.reading import granted, read
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import remember

NONCE = "0" * 32


@pytest.fixture
def pat(staff: Staff) -> Person:
    return staff["auditor"]


@pytest.fixture
def client(pat: Person, signed_in: SignedIn) -> Client:
    return signed_in(pat)


def nonce_of(page: str) -> str:
    return re.search(r'name="nonce" value="([0-9a-f]{32})"', page).group(1)


def new_code(person: Person, nonce: str) -> str:
    """The code of the second factor that the page offers."""
    return code_of(people.candidate(person, f"replacing/{person.pk}/{nonce}"))


def seed(person: Person) -> bytes:
    return bytes(Person.objects.get(pk=person.pk).authenticator.seed)


def password_form(person: Person) -> dict[str, str]:
    form = {"present": PASSWORD, "present_code": code(person, 1)}
    return form | {"password": NEW_PASSWORD, "again": NEW_PASSWORD}


def test_a_person_changes_their_password(house: House, pat: Person, client: Client, one_factor: SignedIn) -> None:
    other, address = one_factor(pat), reverse("admin:account_password")
    granted(house.ada, pat)
    assert "Active grants that will end: 1." in html(client.get(address))
    assert "Password changed" in html(client.post(address, password_form(pat)))
    assert AccessRequest.objects.get().state == State.REVOKED
    assert client.get("/admin/").status_code == other.get("/admin/").status_code == 302
    assert Person.objects.get(pk=pat.pk).check_password(NEW_PASSWORD)


@pytest.mark.parametrize(
    "fields",
    [
        *({"present": each} for each in ("not this one", "x" * 2_000)),
        *({"present_code": each} for each in ("000000", "\0")),
        *({"password": each, "again": each} for each in ("short", "auditor@acme.test")),
        {"again": "something different"},
    ],
)
def test_a_bad_change_of_the_password_is_refused(fields: dict[str, str], pat: Person, client: Client) -> None:
    response = client.post(reverse("admin:account_password"), password_form(pat) | fields)
    assert response.status_code == 200
    assert not re.search(f"{PASSWORD}|{NEW_PASSWORD}", html(response))
    assert Person.objects.get(pk=pat.pk).check_password(PASSWORD)
    assert client.get("/admin/").status_code == 200


def test_djangos_own_password_page_redirects_to_the_account(pat: Person, client: Client) -> None:
    """It asks for no code."""
    form = {"old_password": PASSWORD, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}
    assert client.post("/admin/password_change/", form)["Location"] == "/admin/account/password/"
    assert Person.objects.get(pk=pat.pk).check_password(PASSWORD)


def test_a_person_replaces_their_second_factor(house: House, pat: Person, client: Client) -> None:
    address, before = reverse("admin:account_factor"), seed(pat)
    granted(house.ada, pat)
    nonce = nonce_of(html(client.get(address)))
    form = {"present": PASSWORD, "present_code": code(pat, 1), "nonce": nonce}
    assert nonce_of(html(client.post(address, form | {"code": "000000"}))) == nonce, "the same factor is shown again"
    assert seed(pat) == before
    assert "replaced" in html(client.post(address, form | {"code": new_code(pat, nonce)}))
    assert Person.objects.get(pk=pat.pk).authenticator.confirmed
    assert seed(pat) != before
    assert AccessRequest.objects.get().state == State.REVOKED
    assert client.get("/admin/").status_code == 302
    assert sign_in(client, Person.objects.get(pk=pat.pk), code=code(pat, 1)).status_code == 302


@pytest.mark.parametrize(
    "fields",
    [{"present": "not this one"}, {"present_code": "000000"}, *({"nonce": each} for each in ("x" * 32, "", "\0" * 32))],
)
def test_a_bad_replacement_of_the_second_factor_is_refused(fields: dict[str, str], pat: Person, client: Client) -> None:
    before = seed(pat)
    form = {"present": PASSWORD, "present_code": code(pat, 1), "nonce": NONCE, "code": new_code(pat, NONCE)}
    assert client.post(reverse("admin:account_factor"), form | fields).status_code == 200
    assert seed(pat) == before
    assert client.get("/admin/").status_code == 200


def test_the_account_needs_both_factors_and_is_not_cached(
    browser: NewClient, pat: Person, client: Client, one_factor: SignedIn
) -> None:
    for name in ("account", "account_password", "account_factor"):
        address = reverse(f"admin:{name}")
        assert browser().get(address).status_code == one_factor(pat).get(address).status_code == 302
        headers = client.get(address).headers
        assert "no-store" in headers["Cache-Control"]
        assert "unsafe" not in headers["Content-Security-Policy"]


def test_a_person_chooses_how_often_they_get_a_digest(pat: Person, client: Client) -> None:
    address = reverse("admin:account")
    for choice, stored in (("daily", "daily"), ("hourly", "daily"), ("weekly", "weekly"), ("", "")):
        response = client.post(address, {"digest": choice}, follow=True)
        assert ("Your choice is saved." in html(response)) == (choice == stored)
        assert Person.objects.get(pk=pat.pk).digest == stored
    assert Person.objects.exclude(digest="").count() == 0


@pytest.mark.parametrize("change", ["password", "deactivation"])
def test_a_form_that_waits_does_not_undo_a_later_change(change: str, staff: Staff) -> None:
    """A thief may have sent it before, with a stolen password and code."""
    thief, owner = (Person.objects.get(pk=staff["owner"].pk) for _ in range(2))
    new = people.candidate(thief, "replacing")
    if change == "password":
        people.set_password(owner, "the owner's new password 7")
    else:
        people.set_active(owner, staff["superuser"], is_active=False)
    with pytest.raises(NotAllowed, match="has changed in the meantime"):
        people.set_password(thief, "a thief's own password 8")
    with pytest.raises(NotAllowed, match="has changed in the meantime"):
        people.install(new, code_of(new))
    assert not Person.objects.get(pk=owner.pk).check_password("a thief's own password 8")


def test_a_session_that_is_signed_out_while_its_read_waits_sees_nothing(
    house: House, staff: Staff, signed_in: SignedIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(house.ada, MARKER)
    number, client, locking = granted(house.ada, staff["auditor"]), signed_in(staff["auditor"]), edits._locking

    def late(pk: int) -> Any:
        Session.objects.all().delete()
        return locking(pk)

    assert MARKER in html(read(client, house.ada, number, 1))
    monkeypatch.setattr(edits, "_locking", late)
    assert MARKER not in html(read(client, house.ada, number, 1))
