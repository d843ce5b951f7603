"""Invitations: a link makes a person whole or not at all, once, and only as it was made."""

from __future__ import annotations

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

from memory.accounts import invitations, memberships
from memory.errors import AlreadyExists, DomainError, Invalid, InvalidLink, NotAllowed, NotFound
from memory.models import Authenticator, Invitation, Membership, Person, Role, Tenant
from tests.admin.acting import confirm, post
from tests.admin.conftest import PASSWORD, Enter, enrolled, sign_in
from tests.admin.test_people import NEW, code_of, nonce_of
from tests.conftest import House

SignedIn = Callable[[Person], Client]
Browser = Callable[[], Client]
NONCE = "0" * 32
ADDRESS = "new@acme.test"


@pytest.fixture
def acme(house: House) -> Tenant:
    return house.ada.tenant


@pytest.fixture
def owner(acme: Tenant) -> Person:
    person = enrolled("owner@acme.test")
    Membership.objects.create(person=person, tenant=acme, role=Role.OWNER)
    return person


@pytest.fixture
def token(acme: Tenant, owner: Person) -> str:
    return invitations.invite(acme, ADDRESS, Role.ADMIN, owner)


def link(token: str) -> str:
    return reverse("join", args=[token])


def filled(token: str, nonce: str = NONCE, **instead: str) -> dict[str, str]:
    code = code_of(invitations.candidate(token, nonce))
    return {"name": "New", "password": NEW, "again": NEW, "code": code, "nonce": nonce} | instead


def nobody_new() -> bool:
    people = Person.objects.filter(email=ADDRESS), Authenticator.objects.filter(user__email=ADDRESS)
    return not any(rows.exists() for rows in (*people, Membership.objects.filter(person__email=ADDRESS)))


def test_an_invitation_makes_somebody_who_signs_in(
    token: str, acme: Tenant, browser: Browser, time_machine: Any
) -> None:
    client = browser()
    page = client.get(link(token)).content.decode()
    assert ADDRESS in page
    assert "<svg" in page
    answer = client.post(link(token), filled(token, nonce_of(page)))
    assert "You joined acme as admin" in answer.content.decode()
    person = Person.objects.get(email=ADDRESS)
    assert (person.name, person.is_superuser, person.memberships.get().role) == ("New", False, Role.ADMIN)
    assert client.get("/admin/").status_code == 302, "and is not signed in by it"
    time_machine.move_to(timezone.now() + timedelta(seconds=31))
    code = code_of(person.authenticator)
    assert sign_in(client, person, password=NEW, code=code).status_code == 302
    assert client.get("/admin/memory/agent/").status_code == 200


def test_opening_it_does_nothing_and_nothing_is_kept_of_who_leaves_it_there(token: str, browser: Browser) -> None:
    client = browser()
    for answer in (client.get(link(token)), client.head(link(token)), client.get(link(token))):
        assert answer.status_code == 200
        assert "no-store" in answer.headers["Cache-Control"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "same-origin"
    assert nobody_new()
    assert Invitation.objects.get().used_at is None
    assert "palimpsest_session" not in client.cookies


PASSWORDS = ("", "short", "123456789012345", ADDRESS, "x" * 2_000)


HALVES: list[dict[str, str]] = [
    *({"code": each} for each in ("000000", "", "\0", "１２３４５６")),
    *({"password": each, "again": each} for each in PASSWORDS),
    *({"nonce": each} for each in ("x" * 32, "", "1" * 32)),
    {"again": "something different"},
    {"name": "\0"},
    {"name": "x" * 201},
]


def test_nobody_is_half_made(token: str, browser: Browser) -> None:
    for wrong in HALVES:
        answer = browser().post(link(token), filled(token) | wrong)
        assert answer.status_code == 200
        page = answer.content.decode()
        assert ("errorlist" in page, NEW in page) == (True, False), wrong
        assert nobody_new(), wrong
    assert browser().post(link(token), filled(token)).status_code == 200
    assert not nobody_new(), "the link is good as it was"


def test_a_mistake_shows_the_same_key_again(token: str, browser: Browser) -> None:
    client = browser()
    nonce = nonce_of(client.get(link(token)).content.decode())
    page = client.post(link(token), filled(token, nonce, code="000000")).content.decode()
    assert nonce_of(page) == nonce
    assert nonce_of(browser().get(link(token)).content.decode()) != nonce, "who else opens it sees another"


def test_a_link_is_good_once(token: str, browser: Browser) -> None:
    form = filled(token)
    assert "You joined acme" in browser().post(link(token), form).content.decode()
    for answer in (browser().get(link(token)), browser().post(link(token), form)):
        assert answer.status_code == 409
        assert "was already used" in answer.content.decode()
    assert Person.objects.filter(email=ADDRESS).count() == 1


def test_a_link_is_good_for_72_hours(token: str, browser: Browser, time_machine: Any) -> None:
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    answer = browser().get(link(token))
    assert answer.status_code == 409
    assert "has expired" in answer.content.decode()
    with pytest.raises(InvalidLink):
        invitations.join(token, NONCE, name="", password=NEW, code="000000")


def test_a_link_that_is_none_or_was_altered(token: str, browser: Browser) -> None:
    for none in ("x", "x_y", "_", "", "_" * 300, "%00", "%ED%A0%80", "ä_ö", "١_٢", "9" * 5_000):
        answer = browser().get(f"/join/{none}")
        assert answer.status_code in (404, 409)
        assert ADDRESS not in answer.content.decode()
    for altered in (token[:-1], f"{token}x", f"x{token}", token.swapcase(), token.replace("_", "__", 1)):
        answer = browser().get(link(altered))
        assert (answer.status_code, ADDRESS in answer.content.decode()) == (409, False)
    assert nobody_new()


def test_a_row_put_in_or_altered_by_sql_is_worth_nothing(
    token: str, acme: Tenant, owner: Person, house: House, browser: Browser
) -> None:
    row = Invitation.objects.get()
    root = Person.objects.create_superuser("root@service.test")
    altered: dict[str, Any] = {"role": "owner", "tenant": house.bob.tenant, "address": "eve@acme.test"}
    altered |= {"mac": b"\0" * 32, "invited_by": root, "made_at": row.made_at + timedelta(hours=1), "prefix": "a" * 12}
    for column, value in altered.items():
        Invitation.objects.filter(pk=row.pk).update(**{column: value})
        given = token if column != "prefix" else f"{value}_{token.partition('_')[2]}"
        assert "not valid" in browser().get(link(given)).content.decode(), column
        row.save()
    assert browser().get(link(token)).status_code == 200
    made = {"address": ADDRESS, "tenant": acme, "role": "owner", "invited_by": owner, "made_at": timezone.now()}
    Invitation.objects.all().delete()
    Invitation.objects.create(prefix="a" * 12, mac=b"\0" * 32, **made)
    assert browser().get(link("a" * 12 + "_secret")).status_code == 409


@pytest.mark.parametrize("fate", ["demoted", "removed", "deactivated"])
def test_an_invitation_counts_while_who_made_it_may_invite(
    fate: str, token: str, acme: Tenant, owner: Person, browser: Browser
) -> None:
    mine = Membership.objects.filter(person=owner)
    if fate == "demoted":
        mine.update(role=Role.ADMIN)
    elif fate == "removed":
        mine.delete()
    else:
        Person.objects.filter(pk=owner.pk).update(is_active=False)
    assert "may no longer invite people" in browser().get(link(token)).content.decode()


def test_a_newer_invitation_ends_the_one_before(token: str, acme: Tenant, owner: Person) -> None:
    newer = invitations.invite(acme, f"  {ADDRESS.upper()} ", Role.AUDITOR, owner)
    with pytest.raises(InvalidLink):
        invitations.look(token)
    assert invitations.look(newer).role == Role.AUDITOR


def test_who_is_there_already_takes_the_part_signed_in(
    token: str, acme: Tenant, owner: Person, browser: Browser, signed_in: SignedIn
) -> None:
    there, other = enrolled(ADDRESS), enrolled("other@acme.test")
    for client in (browser(), signed_in(other)):
        page = client.get(link(token))
        assert "<svg" not in page.content.decode()
        assert client.post(link(token), {"password": NEW, "again": NEW}).status_code == 403
    assert not there.memberships.exists()
    with pytest.raises(NotAllowed):
        invitations.accept(token, other)
    client = signed_in(there)
    assert client.get(link(token)).status_code == 200
    assert not there.memberships.exists()
    assert "You joined acme as admin" in client.post(link(token)).content.decode()
    assert there.memberships.get().role == Role.ADMIN
    assert Person.objects.get(pk=there.pk).check_password(PASSWORD)


def test_one_factor_alone_takes_no_part(token: str, browser: Browser) -> None:
    there, client = enrolled(ADDRESS), browser()
    client.force_login(there, backend="django.contrib.auth.backends.ModelBackend")
    assert client.post(link(token)).status_code == 403
    assert not there.memberships.exists()


def test_an_invitation_makes_nobody_another(token: str, house: House, browser: Browser) -> None:
    """Somebody of another tenant, or a superuser, whose second factor is gone: an owner's link is no way in."""
    there = Person.objects.create_user(ADDRESS, PASSWORD)
    assert browser().get(link(token)).status_code == 200, "who has no part anywhere may be made whole"
    part = Membership.objects.create(person=there, tenant=house.bob.tenant, role=Role.OWNER)
    assert browser().post(link(token), {}).status_code == 409
    part.delete()
    Person.objects.filter(pk=there.pk).update(is_superuser=True)
    assert browser().post(link(token), {}).status_code == 409
    Person.objects.filter(pk=there.pk).update(is_superuser=False, is_active=False)
    assert browser().get(link(token)).status_code == 409


def test_a_form_from_elsewhere_is_refused(token: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    assert Client(enforce_csrf_checks=True).post(link(token), filled(token)).status_code == 403
    assert nobody_new()


# --- inviting -------------------------------------------------------------------------------------------------------

INVITE = "/admin/memory/membership/invite/"


def invite(client: Client, to: Tenant, **instead: str) -> Any:
    return client.post(INVITE, {"address": ADDRESS, "tenant": str(to.pk), "role": "admin"} | instead)


def link_of(page: str) -> str:
    return re.search(r"/join/([a-z0-9]{12}_[A-Za-z0-9_-]{43})", page).group(1)


def test_who_may_invite(acme: Tenant, enter: Enter) -> None:
    for role, may in (("admin", False), ("auditor", False), ("owner", True), ("superuser", True)):
        client = enter(role)
        assert client.get(INVITE).status_code == invite(client, acme).status_code == (200 if may else 403), role
        assert confirm(client, "withdraw", Invitation(pk=99)).status_code == (404 if may else 403)
        assert Invitation.objects.exists() == may


def test_an_owner_invites_to_their_own_tenant_alone(house: House, client: Client) -> None:
    theirs, missing = invite(client, house.bob.tenant), invite(client, house.bob.tenant, tenant="99999999")
    told = [re.sub(r'value="[^"]*"', "", answer.content.decode()) for answer in (theirs, missing)]
    assert told[0].count("not one of the available choices") == told[1].count("not one of the available choices") == 1
    assert "globex" not in told[0]
    assert not Invitation.objects.exists()


def test_a_link_is_shown_once_and_kept_nowhere(acme: Tenant, client: Client, caplog: Any, settings: Any) -> None:
    caplog.set_level(logging.DEBUG)
    said = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(said))
    answer = invite(client, acme)
    token = link_of(answer.content.decode())
    assert f"{settings.PUBLIC_URL}/join/{token}" in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    secret = token.partition("_")[2]
    assert mail.outbox[0].to == [ADDRESS]
    assert token in mail.outbox[0].body
    kept = [*Invitation.objects.values(), *LogEntry.objects.values(), *client.session.items()]
    kept += [*Session.objects.values(), *(row.get_decoded() for row in Session.objects.all())]
    kept += [*map(str, get_messages(answer.wsgi_request)), caplog.text, said.getvalue()]
    assert secret not in str(kept)
    assert secret not in client.get("/admin/memory/invitation/").content.decode()


def test_an_address_that_is_not_read_as_it_is_shown_is_invited_nowhere(acme: Tenant, owner: Person) -> None:
    """It stands in the letter to a steward, before the link: who asks could write one of their own into it."""
    odd = ('"https://evil.test/yes"@x.test', '"\x0b\x1b"@x.test', "jo@\u0430cme.test", "jo@acme.test\nBcc: x@x.test")
    for address in odd:
        with pytest.raises(Invalid, match="plain email address"):
            invitations.invite(acme, address, Role.AUDITOR, owner)
    assert not Invitation.objects.exists()


def test_a_link_is_mailed_to_the_address_that_it_is_for(acme: Tenant, client: Client) -> None:
    for typed, kept in (("lee@stra\u00dfe.test", "lee@strasse.test"), (" \u212aim@x.test", "kim@x.test")):
        form = {"address": typed, "tenant": str(acme.pk), "role": "auditor"}
        assert client.post("/admin/memory/invitation/invite/", form).status_code == 200
        assert [Invitation.objects.latest("pk").address] == mail.outbox[-1].to == [kept]


@pytest.mark.parametrize(("backend", "told"), [("console", "send the link yourself"), ("smtp", "not be mailed")])
def test_where_the_link_is_not_mailed_that_is_said(
    backend: str, told: str, acme: Tenant, enter: Enter, settings: Any
) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    page = invite(enter("owner"), acme).content.decode()
    assert told in page
    assert invitations.look(link_of(page)).address == ADDRESS
    assert mail.outbox == []


ADDRESSES = ("", "x", "a@b.test\nBcc: c@d.test", "\0@b.test", f"{'a' * 250}@b.test", "owner@acme.test")


def test_an_invitation_that_is_none(acme: Tenant, client: Client) -> None:
    wrong: list[dict[str, str]] = [{"address": each} for each in ADDRESSES] + [{"role": "superuser"}, {"role": ""}]
    for form in [*wrong, *({"tenant": each} for each in ("x", "\0", "9" * 5_000))]:
        assert invite(client, acme, **form).status_code == 200, form
    assert not Invitation.objects.exists()
    assert mail.outbox == []


def test_an_invitation_is_withdrawn(token: str, owner: Person, signed_in: SignedIn) -> None:
    client, row = signed_in(owner), Invitation.objects.get()
    assert post(client, "withdraw", row).status_code == 200
    assert invitations.look(token)
    assert confirm(client, "withdraw", row).status_code == 302
    with pytest.raises(InvalidLink):
        invitations.look(token)


def test_the_verbs_ask_who_it_is_for_themselves(acme: Tenant, house: House, owner: Person) -> None:
    with pytest.raises(NotFound):
        invitations.invite(house.bob.tenant, ADDRESS, Role.AUDITOR, owner)
    with pytest.raises(Invalid):
        invitations.invite(acme, ADDRESS, "god", owner)
    with pytest.raises(AlreadyExists):
        invitations.invite(acme, "OWNER@acme.test", Role.ADMIN, owner)
    with pytest.raises(Invalid):
        memberships.change_role(Membership.objects.get(), "god", owner)


# --- at the same time -----------------------------------------------------------------------------------------------


def at_once(*deeds: Callable[[], Any]) -> list[str]:
    """What became of each."""
    start, told = threading.Barrier(len(deeds)), []

    def run(deed: Callable[[], Any]) -> None:
        try:
            start.wait()
            deed()
            told.append("done")
        except DomainError as refusal:
            told.append(refusal.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[deed]) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(told)


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_many_who_use_a_link_at_once_one_joins(token: str) -> None:
    code = code_of(invitations.candidate(token, NONCE))
    told = at_once(*[lambda: invitations.join(token, NONCE, name="", password=NEW, code=code)] * 4)
    assert told == ["done", "link_broken", "link_broken", "link_broken"]
    assert (
        Person.objects.filter(email=ADDRESS).count() == Authenticator.objects.filter(user__email=ADDRESS).count() == 1
    )


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_invitations_used_at_once_one_makes_the_person(token: str, house: House) -> None:
    root = Person.objects.create_superuser("root@service.test")
    other = invitations.invite(house.bob.tenant, ADDRESS, Role.OWNER, root)
    codes = {each: code_of(invitations.candidate(each, NONCE)) for each in (token, other)}

    def joining(each: str) -> Callable[[], Any]:
        return lambda: invitations.join(each, NONCE, name="", password=NEW, code=codes[each])

    told = at_once(joining(token), joining(other))
    assert told[0] == "done"
    assert told[1] in ("taken", "not_allowed")
    assert Membership.objects.filter(person__email=ADDRESS).count() == 1


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_remove_each_other_at_once_one_stays(acme: Tenant, owner: Person) -> None:
    other = Person.objects.create_user("second@acme.test")
    mine = Membership.objects.get(person=owner)
    theirs = Membership.objects.create(person=other, tenant=acme, role=Role.OWNER)
    told = at_once(lambda: memberships.remove(theirs, owner), lambda: memberships.remove(mine, other))
    assert told == ["done", "not_found"]
    assert Membership.objects.filter(tenant=acme, role=Role.OWNER).count() == 1
