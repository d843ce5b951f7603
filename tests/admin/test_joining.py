"""Invitations: a link creates one complete person, once, and only as it was made."""

import io
import logging
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.core import mail
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from config import at_once as limits
from memory.accounts import invitations, memberships
from memory.errors import AlreadyExists, DomainError, Invalid, InvalidLink, NotAllowed, NotFound
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant
from tests.admin.actions import confirm, html, post
from tests.admin.conftest import NEW_PASSWORD, PASSWORD, NewClient, Quick, SignedIn, code_of, enrolled, sign_in
from tests.admin.test_account import nonce_of
from tests.conftest import House
from tests.members import join

NONCE = "0" * 32
ADDRESS = "new@acme.test"
INVITE = "/admin/memory/membership/invite/"


@pytest.fixture
def acme(house: House) -> Tenant:
    return house.ada.tenant


@pytest.fixture
def owner(acme: Tenant) -> Person:
    person = enrolled("first@acme.test")
    join(person=person, tenant=acme, role=Role.OWNER)
    return person


@pytest.fixture
def token(acme: Tenant, owner: Person) -> str:
    return invitations.invite(acme, ADDRESS, Role.ADMIN, owner)


def link(token: str) -> str:
    return reverse("join", args=[token])


def form(token: str, nonce: str = NONCE, **fields: str) -> dict[str, str]:
    code = code_of(invitations.candidate(token, nonce))
    return {"name": "New", "password": NEW_PASSWORD, "again": NEW_PASSWORD, "code": code, "nonce": nonce} | fields


def nobody_joined() -> bool:
    rows = Person.objects.filter(email=ADDRESS), Authenticator.objects.filter(user__email=ADDRESS)
    return not any(each.exists() for each in (*rows, Membership.objects.filter(person__email=ADDRESS)))


# --- joining


def test_an_invitation_creates_one_person_who_can_sign_in(token: str, browser: NewClient, time_machine: Any) -> None:
    client = browser()
    page = html(client.get(link(token)))
    assert ADDRESS in page
    assert "<svg" in page
    fields = form(token, nonce_of(page))
    assert "You joined acme as admin" in html(client.post(link(token), fields))
    for response in (browser().get(link(token)), browser().post(link(token), fields)):
        assert (response.status_code, "was already used" in html(response)) == (409, True)
    person = Person.objects.get(email=ADDRESS)
    assert (person.name, person.is_superuser, person.memberships.get().role) == ("New", False, Role.ADMIN)
    assert client.get("/admin/").status_code == 302, "joining signs nobody in"
    time_machine.move_to(timezone.now() + timedelta(seconds=31))
    assert sign_in(client, person, password=NEW_PASSWORD).status_code == 302
    assert client.get("/admin/memory/agent/").status_code == 200


def test_opening_a_link_changes_nothing_and_sets_no_cookie(token: str, browser: NewClient) -> None:
    client = browser()
    for response in (client.get(link(token)), client.head(link(token)), client.get(link(token))):
        assert response.status_code == 200
        assert "no-store" in response.headers["Cache-Control"]
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert response.headers["Referrer-Policy"] == "same-origin"
    assert nobody_joined()
    assert Invitation.objects.get().used_at is None
    assert "palimpsest_session" not in client.cookies


BAD_FORMS: list[dict[str, str]] = [
    *({"code": each} for each in ("000000", "", "\0", "１２３４５６")),
    *({"password": each, "again": each} for each in ("", "short", "123456789012345", ADDRESS, "x" * 2_000)),
    *({"nonce": each} for each in ("x" * 32, "", "1" * 32)),
    *({"name": each} for each in ("\0", "x" * 201)),
    {"again": "something different"},
]


def test_a_bad_form_creates_nothing_and_the_link_stays_valid(token: str, browser: NewClient) -> None:
    for fields in BAD_FORMS:
        response = browser().post(link(token), form(token) | fields)
        page = html(response)
        assert (response.status_code, "errorlist" in page, NEW_PASSWORD in page) == (200, True, False), fields
        assert nobody_joined(), fields
    assert Client(enforce_csrf_checks=True).post(link(token), form(token)).status_code == 403
    assert nobody_joined()
    assert browser().post(link(token), form(token)).status_code == 200
    assert not nobody_joined()


def test_the_second_factor_stays_the_same_after_a_mistake(token: str, browser: NewClient) -> None:
    client = browser()
    nonce = nonce_of(html(client.get(link(token))))
    assert nonce_of(html(client.post(link(token), form(token, nonce, code="000000")))) == nonce
    assert nonce_of(html(browser().get(link(token)))) != nonce, "another visitor gets another one"


def test_a_link_works_for_72_hours(token: str, browser: NewClient, time_machine: Any) -> None:
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    response = browser().get(link(token))
    assert (response.status_code, "has expired" in html(response)) == (409, True)
    with pytest.raises(InvalidLink):
        invitations.join(token, NONCE, name="", password=NEW_PASSWORD, code="000000")


def test_a_malformed_or_altered_link_is_refused(token: str, browser: NewClient) -> None:
    malformed = ("x", "x_y", "_", "", "_" * 300, "%00", "%ED%A0%80", "ä_ö", "١_٢", "9" * 5_000)
    altered = (token[:-1], f"{token}x", f"x{token}", token.swapcase(), token.replace("_", "__", 1))
    for address in [f"/join/{each}" for each in malformed] + [link(each) for each in altered]:
        response = browser().get(address)
        assert (response.status_code in (404, 409), ADDRESS in html(response)) == (True, False), address
    assert nobody_joined()


def test_an_invitation_inserted_or_altered_by_sql_is_invalid(
    token: str, acme: Tenant, owner: Person, house: House, browser: NewClient
) -> None:
    row = Invitation.objects.get()
    root = Person.objects.create_user("root@service.test", is_superuser=True)
    altered: dict[str, Any] = {"role": "owner", "tenant": house.bob.tenant, "address": "eve@acme.test"}
    altered |= {"mac": b"\0" * 32, "invited_by": root, "made_at": row.made_at + timedelta(hours=1), "prefix": "a" * 12}
    for column, value in altered.items():
        Invitation.objects.filter(pk=row.pk).update(**{column: value})
        sent = token if column != "prefix" else f"{value}_{token.partition('_')[2]}"
        assert "not valid" in html(browser().get(link(sent))), column
        row.save()
    assert browser().get(link(token)).status_code == 200
    fields = {"address": ADDRESS, "tenant": acme, "role": "owner", "invited_by": owner, "made_at": timezone.now()}
    Invitation.objects.all().delete()
    Invitation.objects.create(prefix="a" * 12, mac=b"\0" * 32, **fields)
    assert browser().get(link("a" * 12 + "_secret")).status_code == 409


def test_an_invitation_is_invalid_while_sql_gives_its_address_to_another_person(token: str, house: House) -> None:
    eve = enrolled("eve@globex.test")
    Person.objects.filter(pk=eve.pk).update(email=ADDRESS)
    with pytest.raises(InvalidLink):
        invitations.look(token)


@pytest.mark.parametrize("change", ["demoted", "removed", "deactivated"])
def test_an_invitation_is_invalid_once_its_maker_may_not_invite(
    change: str, token: str, owner: Person, browser: NewClient
) -> None:
    membership = Membership.objects.filter(person=owner)
    if change == "demoted":
        membership.update(role=Role.ADMIN)
    elif change == "removed":
        membership.delete()
    else:
        Person.objects.filter(pk=owner.pk).update(is_active=False)
    assert "may no longer invite people" in html(browser().get(link(token)))


def test_a_new_invitation_replaces_the_one_before(token: str, acme: Tenant, owner: Person) -> None:
    newer = invitations.invite(acme, f"  {ADDRESS.upper()} ", Role.AUDITOR, owner)
    with pytest.raises(InvalidLink):
        invitations.look(token)
    assert invitations.look(newer).role == Role.AUDITOR


def test_an_existing_person_accepts_while_signed_in(
    token: str, browser: NewClient, signed_in: SignedIn, one_factor: SignedIn
) -> None:
    person, other = enrolled(ADDRESS), enrolled("other@acme.test")
    for client in (browser(), signed_in(other), one_factor(person)):
        assert "<svg" not in html(client.get(link(token)))
        assert client.post(link(token), {"password": NEW_PASSWORD, "again": NEW_PASSWORD}).status_code == 403
    with pytest.raises(NotAllowed):
        invitations.accept(token, other)
    client = signed_in(person)
    assert client.get(link(token)).status_code == 200
    assert not person.memberships.exists()
    assert "You joined acme as admin" in html(client.post(link(token)))
    assert person.memberships.get().role == Role.ADMIN
    assert Person.objects.get(pk=person.pk).check_password(PASSWORD)


def test_an_invitation_does_not_take_over_a_person_without_a_second_factor(
    token: str, house: House, browser: NewClient
) -> None:
    """SQL can remove a member's second factor and memberships, and put the memberships back after somebody joined."""
    person = enrolled(ADDRESS)
    join(person=person, tenant=house.bob.tenant, role=Role.OWNER)
    for rows in (Authenticator.objects.filter(user=person), Membership.objects.filter(person=person)):
        rows.delete()
        assert browser().get(link(token)).status_code == browser().post(link(token), {}).status_code == 409
    assert Person.objects.get(pk=person.pk).check_password(PASSWORD)


# --- inviting


def invite(client: Client, to: Tenant, **fields: str) -> Any:
    return client.post(INVITE, {"address": ADDRESS, "tenant": str(to.pk), "role": "admin"} | fields)


def token_in(response: Any) -> str:
    return re.search(r"/join/([a-z0-9]{12}_[A-Za-z0-9_-]{43})", html(response)).group(1)


def test_an_owner_invites_to_their_own_tenant_only(house: House, client: Client) -> None:
    for tenant in (str(house.bob.tenant.pk), "99999999"):
        page = html(invite(client, house.bob.tenant, tenant=tenant))
        assert (page.count("not one of the available choices"), "globex" in page) == (1, False)
    assert not Invitation.objects.exists()


def test_a_link_is_shown_once_mailed_and_stored_nowhere(
    acme: Tenant, client: Client, caplog: Any, settings: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    response = invite(client, acme)
    token = token_in(response)
    assert f"{settings.PUBLIC_URL}/join/{token}" in html(response)
    assert "no-store" in response.headers["Cache-Control"]
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert (mail.outbox[0].to, token in mail.outbox[0].body) == ([ADDRESS], True)
    kept = [list(model.objects.values()) for model in (Invitation, LogEntry, Session)]
    kept += [*client.session.items(), *(row.get_decoded() for row in Session.objects.all())]
    kept += [*map(str, get_messages(response.wsgi_request)), caplog.text, log.getvalue()]
    kept += [html(client.get("/admin/memory/invitation/"))]
    assert token.partition("_")[2] not in str(kept)


def test_an_address_that_a_letter_could_misrepresent_is_refused(acme: Tenant, owner: Person) -> None:
    """The address stands in the letter to a steward, before the link. It could contain another link."""
    quoted = ('"https://evil.test/yes"@x.test', '"\x0b\x1b"@x.test')
    for address in (*quoted, "jo@\u0430cme.test", "jo@acme.test\nBcc: x@x.test"):
        with pytest.raises(Invalid, match="plain email address"):
            invitations.invite(acme, address, Role.AUDITOR, owner)
    assert not Invitation.objects.exists()


def test_the_link_goes_to_the_normalized_address(acme: Tenant, client: Client) -> None:
    for typed, kept in (("lee@stra\u00dfe.test", "lee@strasse.test"), (" \u212aim@x.test", "kim@x.test")):
        fields = {"address": typed, "tenant": str(acme.pk), "role": "auditor"}
        assert client.post("/admin/memory/invitation/invite/", fields).status_code == 200
        assert [Invitation.objects.latest("pk").address] == mail.outbox[-1].to == [kept]


@pytest.mark.parametrize(("backend", "text"), [("console", "send the link yourself"), ("smtp", "not be mailed")])
def test_the_page_warns_when_the_link_is_not_mailed(
    backend: str, text: str, acme: Tenant, client: Client, settings: Any
) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    response = invite(client, acme)
    assert text in html(response)
    assert invitations.look(token_in(response)).address == ADDRESS
    assert mail.outbox == []


BAD_INVITATIONS: list[dict[str, str]] = [
    *({"address": each} for each in ("", "x", "a@b.test\nBcc: c@d.test", "\0@b.test", f"{'a' * 250}@b.test")),
    {"address": "owner@acme.test"},
    *({"role": each} for each in ("superuser", "")),
    *({"tenant": each} for each in ("x", "\0", "9" * 5_000)),
]


def test_a_bad_invitation_is_refused(acme: Tenant, house: House, client: Client) -> None:
    for fields in BAD_INVITATIONS:
        assert invite(client, acme, **fields).status_code == 200, fields
    owner = Person.objects.get(email="owner@acme.test")
    for error, tenant, address, role in (
        (NotFound, house.bob.tenant, ADDRESS, Role.AUDITOR),
        (Invalid, acme, ADDRESS, "god"),
        (AlreadyExists, acme, "OWNER@acme.test", Role.ADMIN),
    ):
        with pytest.raises(error):
            invitations.invite(tenant, address, role, owner)
    with pytest.raises(Invalid):
        memberships.change_role(Membership.objects.get(person=owner), "god", owner)
    assert not Invitation.objects.exists()
    assert mail.outbox == []


def test_a_withdrawn_invitation_is_invalid(token: str, owner: Person, signed_in: SignedIn) -> None:
    client, row = signed_in(owner), Invitation.objects.get()
    assert post(client, "withdraw", row).status_code == 200
    assert invitations.look(token)
    assert confirm(client, "withdraw", row).status_code == 302
    with pytest.raises(InvalidLink):
        invitations.look(token)


@pytest.mark.django_db(transaction=True)
def test_joining_hashes_a_password_without_a_lock_and_only_after_the_right_code(
    token: str, browser: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_locked, encode = list[bool](), Quick.encode
    note = lambda *args: is_locked.append(connection.in_atomic_block) or encode(*args)  # noqa: E731
    monkeypatch.setattr(Quick, "encode", note)
    browser().post(link(token), form(token, code="000000"))
    assert is_locked == []
    browser().post(link(token), form(token))
    assert (is_locked, nobody_joined()) == ([False], False)


def test_one_address_has_a_few_pages_of_invitations_at_once(
    token: str, browser: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_WAIT", 0)
    mine = {("page turn", "127.0.0.1"): limits.PAGES}
    for _ in range(limits.PAGES):
        assert limits.begin(mine)
    try:
        assert browser().post(link(token), form(token)).status_code == 429
        assert Client(REMOTE_ADDR="10.0.0.9").get(link(token)).status_code == 200
    finally:
        limits.end([*mine] * limits.PAGES)


# --- races


def at_once(*functions: Callable[[], Any]) -> list[str]:
    """Call all functions at the same time. Return "done" or the error code of each, sorted."""
    start, results = threading.Barrier(len(functions)), []

    def run(function: Callable[[], Any]) -> None:
        try:
            start.wait()
            function()
            results.append("done")
        except DomainError as error:
            results.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results)


def joining(token: str) -> Callable[[], Any]:
    code = code_of(invitations.candidate(token, NONCE))
    return lambda: invitations.join(token, NONCE, name="", password=NEW_PASSWORD, code=code)


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_one_of_many_uses_of_a_link_at_once_succeeds(token: str) -> None:
    assert at_once(*[joining(token)] * 4) == ["done", "link_broken", "link_broken", "link_broken"]
    for rows in (Person.objects.filter(email=ADDRESS), Authenticator.objects.filter(user__email=ADDRESS)):
        assert rows.count() == 1


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_one_of_two_invitations_used_at_once_creates_the_person(token: str, house: House) -> None:
    root = Person.objects.create_user("root@service.test", is_superuser=True)
    other = invitations.invite(house.bob.tenant, ADDRESS, Role.OWNER, root)
    first, second = at_once(joining(token), joining(other))
    assert first == "done"
    assert second in ("taken", "not_allowed")
    assert Membership.objects.filter(person__email=ADDRESS).count() == 1


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_remove_each_other_at_once_one_stays(acme: Tenant, owner: Person) -> None:
    other = Person.objects.create_user("second@acme.test")
    mine = Membership.objects.get(person=owner)
    theirs = join(person=other, tenant=acme, role=Role.OWNER)
    results = at_once(lambda: memberships.remove(theirs, owner), lambda: memberships.remove(mine, other))
    assert results == ["done", "not_found"]
    assert Membership.objects.filter(tenant=acme, role=Role.OWNER).count() == 1
