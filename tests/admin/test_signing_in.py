"""Signing in needs both factors. Errors do not tell which one is wrong. The database holds nothing to sign in with."""

import json
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session
from django.core.files import uploadhandler
from django.core.files.base import ContentFile
from django.test import Client
from django.utils import timezone

from config import at_once
from config.keyring import keyring
from memory.accounts import people
from memory.admin.plain_pages import accounts
from memory.admin.plain_pages.accounts import MOST_FAILURES, SIGN_IN_FAILED, SIGN_INS_AT_ONCE
from memory.models import Authenticator, Person
from tests.admin.actions import html
from tests.admin.conftest import PASSWORD, NewClient, SignedIn, code, enrolled, sign_in
from tests.second_factors import enrol

WRONG_PASSWORD = "another passphrase"


@pytest.fixture
def pat(db: None) -> Person:
    return enrolled("pat@acme.test")


@pytest.fixture
def now(time_machine: Any) -> Any:
    """A time of the test's own. No time passes unless the test moves it."""
    now = timezone.now() + timedelta(minutes=1)
    time_machine.move_to(now, tick=False)
    return now


def is_in(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def test_a_person_signs_in_with_both_factors_and_out(browser: NewClient, pat: Person) -> None:
    client = browser()
    assert not is_in(client)
    response = sign_in(client, pat, username="  PAT@acme.test ")
    cookie, page = client.cookies["palimpsest_session"], client.get("/admin/")
    assert (response.status_code, response["Location"], page.status_code) == (302, "/admin/", 200)
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    policy = page["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy
    assert (page["X-Frame-Options"], page["Referrer-Policy"]) == ("DENY", "same-origin")
    assert all("no-store" in each["Cache-Control"] for each in (page, response))
    client.post("/admin/logout/")
    assert not is_in(client)


@pytest.mark.parametrize(
    "fields",
    [
        {"password": WRONG_PASSWORD},
        *({"code": each} for each in ("000000", "", "abcdef", "１２３４５６")),
        *({"username": each} for each in ("eve@acme.test", "")),
    ],
)
def test_every_wrong_field_gets_the_same_error(fields: dict[str, str], browser: NewClient, pat: Person) -> None:
    client = browser()
    response = sign_in(client, pat, **fields)
    assert (response.status_code, PASSWORD in html(response), is_in(client)) == (200, False, False)
    assert SIGN_IN_FAILED in html(response) or not all(fields.values())


def test_a_session_ends_after_twelve_hours(browser: NewClient, pat: Person, now: Any, time_machine: Any) -> None:
    sign_in(client := browser(), pat)
    for hours, is_still_in in ((11, True), (13, False)):
        time_machine.move_to(now + timedelta(hours=hours), tick=False)
        client.post("/admin/account/", {"digest": "daily"})  # a message is stored in the session
        assert is_in(client) == is_still_in


def test_a_code_works_once(browser: NewClient, pat: Person) -> None:
    same = code(pat)
    assert [sign_in(browser(), pat, code=same).status_code for _ in range(2)] == [302, 200]


def test_after_a_wrong_code_the_next_must_wait(browser: NewClient, pat: Person, now: Any, time_machine: Any) -> None:
    assert sign_in(browser(), pat, code="000000").status_code == 200
    assert sign_in(browser(), pat).status_code == 200, "too soon"
    Authenticator.objects.update(throttling_failure_count=30)
    for seconds, status in ((511, 200), (513, 302)):  # the wait has a limit
        time_machine.move_to(now + timedelta(seconds=seconds), tick=False)
        assert sign_in(browser(), pat).status_code == status


def test_wrong_passwords_lock_the_address_for_a_while(
    browser: NewClient, pat: Person, now: Any, time_machine: Any
) -> None:
    assert [sign_in(browser(), pat, password=WRONG_PASSWORD).status_code for _ in range(6)][-1] == 429
    assert sign_in(browser(), pat).status_code == 429
    time_machine.move_to(now + timedelta(minutes=16), tick=False)
    assert sign_in(browser(), pat).status_code == 302


def test_a_right_password_with_wrong_codes_is_locked_out_like_a_wrong_one(browser: NewClient, pat: Person) -> None:
    """Otherwise an attacker without a code could find out the password."""
    right, wrong = (
        [sign_in(browser(), person, password=password, code="000000").status_code for _ in range(6)]
        for person, password in ((pat, PASSWORD), (enrolled("lee@acme.test"), WRONG_PASSWORD))
    )
    assert right == wrong
    assert right[-1] == 429


def test_behind_a_proxy_attempts_are_counted_by_the_clients_address(
    browser: NewClient, pat: Person, settings: Any
) -> None:
    """By the proxy's own address, one client could lock out everybody."""
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

    def status(forwarded_for: str) -> int:
        form = {"username": pat.email, "password": WRONG_PASSWORD, "code": "000000"}
        return int(browser().post("/admin/login/", form, headers={"X-Forwarded-For": forwarded_for}).status_code)

    assert [status(f"10.9.9.{n}, 192.0.2.1") for n in range(6)][-1] == 429, "a client can forge all but the last"
    assert status("192.0.2.2") == 200
    assert [status("no address\x7f") for _ in range(6)][-1] == 429
    settings.SECURE_PROXY_SSL_HEADER = None
    assert status("192.0.2.77") == 429, "without a proxy, the address of the connection counts"


def failures(client: Client, person: Person, *addresses: str) -> list[int]:
    """The status of one failed sign-in from each address."""
    form = {"username": person.email, "password": WRONG_PASSWORD, "code": "000000"}
    return [client.post("/admin/login/", form, REMOTE_ADDR=each).status_code for each in addresses]


def test_failures_from_many_addresses_lock_the_name_slowly(
    browser: NewClient, pat: Person, now: Any, time_machine: Any
) -> None:
    few = [f"10.0.{n}.{m}" for n in range(20) for m in [1] * 4 + [2]]
    assert set(failures(browser(), pat, *few[: MOST_FAILURES - 1])) == {200}
    assert sign_in(browser(), pat).status_code == 302, "nobody locks a person out with a few addresses"
    assert failures(browser(), pat, "10.1.1.1", "10.1.1.2") == [429, 429]
    elsewhere = Client(REMOTE_ADDR="10.9.9.9")
    assert sign_in(elsewhere, pat).status_code == 429
    assert sign_in(browser(), enrolled("lee@acme.test")).status_code == 302
    time_machine.move_to(now + timedelta(minutes=1), tick=False)
    assert sign_in(browser(), pat).status_code == 302, "they signed in from this address before"
    time_machine.move_to(now + timedelta(minutes=17), tick=False)
    assert sign_in(elsewhere, pat).status_code == 302


def test_attempts_are_counted_by_the_network_of_an_ipv6_address(browser: NewClient, pat: Person) -> None:
    """A client has all 2^64 addresses of its network."""
    assert failures(browser(), pat, *(f"2001:db8:0:1:{n}::1" for n in range(6)))[-1] == 429
    assert failures(browser(), pat, "2001:db8:0:2::1", *(f"::ffff:192.0.2.{n}" for n in range(6))) == [200] * 7


def test_nobody_signs_in_without_a_confirmed_second_factor(browser: NewClient, one_factor: SignedIn) -> None:
    new = Person.objects.create_user("new@acme.test", PASSWORD)
    assert sign_in(browser(), new, code="123456").status_code == 200
    enrol(new)
    Authenticator.objects.update(confirmed=False)
    assert sign_in(browser(), new).status_code == 200
    assert not is_in(one_factor(new))
    Authenticator.objects.update(confirmed=True)
    assert sign_in(browser(), new).status_code == 302


def test_a_deactivated_person_is_signed_out_at_once(signed_in: SignedIn, pat: Person) -> None:
    client = signed_in(pat)
    Person.objects.filter(pk=pat.pk).update(is_active=False)
    assert not is_in(client)


def test_the_session_of_another_person_cannot_be_copied(signed_in: SignedIn, pat: Person) -> None:
    theirs = signed_in(pat)
    [row] = Session.objects.all()
    client = signed_in(enrolled("eve@globex.test"))
    assert Session.objects.exclude(pk=row.pk).update(session_data=row.session_data) == 1
    assert (is_in(theirs), is_in(client)) == (True, False)


def test_the_database_holds_nothing_to_sign_in_with(signed_in: SignedIn, browser: NewClient, pat: Person) -> None:
    cookie, row = signed_in(pat).cookies["palimpsest_session"].value, Session.objects.get()
    assert cookie not in (row.session_key, row.session_data)
    thief = browser()
    thief.cookies["palimpsest_session"] = row.session_key
    assert not is_in(thief)
    factor = Authenticator.objects.get()
    secret = people._secret(factor)
    assert secret not in bytes(factor.seed)
    assert keyring().pepper[0].id == factor.pepper_id
    other_pepper = Authenticator(user=pat, seed=factor.seed, pepper_id="deadbeef")
    assert people._secret(other_pepper) != secret
    assert people._secret(other_pepper) != people._secret(other_pepper), "random, so that nobody knows it"


def test_a_second_factor_moved_by_sql_to_another_person_is_invalid(browser: NewClient, pat: Person) -> None:
    """Also when SQL swapped the addresses, which the secret depends on."""
    Person.objects.filter(pk=pat.pk).update(email="lent@acme.test")
    eve = enrolled("pat@acme.test")
    eves_code = code(eve, 1)
    moved = {name: getattr(eve.authenticator, name) for name in ("seed", "pepper_id", "proof", "confirmed")}
    Person.objects.filter(pk=eve.pk).update(email="eve@acme.test")
    Person.objects.filter(pk=pat.pk).update(email="pat@acme.test", password=eve.password)
    Authenticator.objects.filter(user=pat).update(**moved)
    assert sign_in(browser(), Person.objects.get(pk=pat.pk), code=eves_code).status_code == 200


def test_recorded_attempts_hold_no_secret(browser: NewClient, pat: Person) -> None:
    fields = {"username": pat.email, "password": "my other passphrase", "code": "424242", "next": "/join/token"}
    browser().post("/admin/login/?next=/join/token", fields)  # the link of an invitation
    kept = json.dumps(list(AccessAttempt.objects.values()), default=str)
    assert [value in kept for value in fields.values()] == [True, False, False, False]


def test_the_form_needs_a_csrf_token_and_redirects_to_no_other_host(browser: NewClient, pat: Person) -> None:
    assert sign_in(Client(enforce_csrf_checks=True), pat).status_code == 403
    assert sign_in(browser(), pat, next="https://evil.example/")["Location"] == "/admin/"


def test_no_page_takes_a_file(client: Client, db: None) -> None:
    """Django would write it to the temporary folder."""
    with mock.patch.object(uploadhandler, "TemporaryUploadedFile", side_effect=AssertionError):
        sent = client.post("/admin/login/", {"username": "x", "file": ContentFile(b"x" * 3_000_000, name="x")})
    assert (sent.status_code, sent.wsgi_request.FILES) == (200, {})


def test_one_address_cannot_keep_a_process_busy_with_sign_ins(browser: NewClient, pat: Person) -> None:
    sender = "sign-in", "127.0.0.1"
    for _ in range(SIGN_INS_AT_ONCE):
        assert at_once.begin({sender: SIGN_INS_AT_ONCE})
    assert "Too many sign-ins" in html(sign_in(browser(), pat))
    other = Client(REMOTE_ADDR="10.0.0.9")
    assert sign_in(other, pat).status_code == 302
    for _ in range(SIGN_INS_AT_ONCE):
        at_once.end([sender])
    assert sign_in(browser(), enrolled("lee@acme.test")).status_code == 302


def test_many_addresses_cannot_keep_a_process_busy_with_sign_ins(
    browser: NewClient, pat: Person, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sign-ins from 32 addresses made all other requests wait for 10 seconds."""
    settings.WEB_THREADS = 16
    monkeypatch.setattr(accounts, "MAX_WAIT", 0.1)
    for name, most in (("sign-in", 8), ("password", 2)):
        for _ in range(most):
            assert at_once.begin({name: most})
        assert "Too many sign-ins" in html(sign_in(browser(), pat))
        for _ in range(most):
            at_once.end([name])
    assert sign_in(browser(), pat).status_code == 302
