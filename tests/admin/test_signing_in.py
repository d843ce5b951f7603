"""Signing in takes both factors; what is wrong is not told apart; the database holds nothing to sign in with."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from config.keyring import keyring
from memory.accounts import people
from memory.admin.plain_pages.accounts import SIGN_IN_FAILED
from memory.models import Authenticator, Person
from tests.admin.conftest import PASSWORD, code, enrolled, sign_in
from tests.enrolling import enrol

NewClient = Callable[[], Client]


@pytest.fixture
def pat(db: None) -> Person:
    return enrolled("pat@acme.test")


def is_in(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def test_both_factors_open_it(browser: NewClient, pat: Person) -> None:
    client = browser()
    assert client.get("/admin/").status_code == 302
    answer = sign_in(client, pat, username="  PAT@acme.test ")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    assert is_in(client)
    client.post("/admin/logout/")
    assert not is_in(client)


@pytest.mark.parametrize(
    "instead",
    [
        {"password": "another passphrase"},
        *({"code": each} for each in ("000000", "", "abcdef", "１２３４５６")),
        *({"username": each} for each in ("eve@acme.test", "")),
    ],
)
def test_whatever_is_wrong_is_told_alike(instead: dict[str, str], browser: NewClient, pat: Person) -> None:
    client = browser()
    answer = sign_in(client, pat, **instead)
    assert answer.status_code == 200
    page = answer.content.decode()
    assert PASSWORD not in page
    assert not is_in(client)
    if all(instead.values()):
        assert SIGN_IN_FAILED in page


def test_a_code_is_good_for_once(browser: NewClient, pat: Person) -> None:
    same = code(pat)
    assert sign_in(browser(), pat, code=same).status_code == 302
    assert sign_in(browser(), pat, code=same).status_code == 200


def test_codes_that_are_wrong_make_the_next_wait(browser: NewClient, pat: Person, time_machine: Any) -> None:
    now = timezone.now() + timedelta(minutes=1)
    time_machine.move_to(now, tick=False)
    assert sign_in(browser(), pat, code="000000").status_code == 200
    assert sign_in(browser(), pat).status_code == 200, "too soon"
    time_machine.move_to(now + timedelta(seconds=2), tick=False)
    assert sign_in(browser(), pat).status_code == 302


def test_passwords_that_are_wrong_lock_the_address_for_a_while(
    browser: NewClient, pat: Person, time_machine: Any
) -> None:
    now = timezone.now() + timedelta(minutes=1)
    time_machine.move_to(now, tick=False)
    answers = [sign_in(browser(), pat, password="another passphrase") for _ in range(6)]
    assert answers[-1].status_code == 429
    assert sign_in(browser(), pat).status_code == 429
    time_machine.move_to(now + timedelta(minutes=16), tick=False)
    assert sign_in(browser(), pat).status_code == 302


def test_without_a_second_factor_nobody_gets_in(browser: NewClient, db: None) -> None:
    new = Person.objects.create_user("new@acme.test", PASSWORD)
    client = browser()
    form = {"username": new.email, "password": PASSWORD, "code": "123456"}
    assert client.post("/admin/login/", form).status_code == 200
    enrol(new)
    Authenticator.objects.update(confirmed=False)
    assert client.post("/admin/login/", form | {"code": code(new)}).status_code == 200
    assert not is_in(client)
    client.force_login(new, backend="django.contrib.auth.backends.ModelBackend")
    assert not is_in(client), "one factor alone"
    Authenticator.objects.update(confirmed=True)
    assert sign_in(client, new).status_code == 302


def test_who_left_is_out_at_once(signed_in: Callable[[Person], Client], pat: Person) -> None:
    client = signed_in(pat)
    pat.is_active = False
    pat.save()
    assert not is_in(client)


@pytest.mark.parametrize("change", ["password", "second factor"])
def test_a_change_of_either_factor_ends_the_sessions_there_are(
    change: str, signed_in: Callable[[Person], Client], pat: Person
) -> None:
    client = signed_in(pat)
    people.set_password(pat, "another good passphrase") if change == "password" else enrol(pat)
    assert not is_in(client)


def test_the_database_holds_nothing_to_sign_in_with(signed_in: Callable[[Person], Client], pat: Person) -> None:
    client = signed_in(pat)
    cookie = client.cookies["palimpsest_session"].value
    row = Session.objects.get()
    assert cookie not in (row.session_key, row.session_data)
    thief = Client(raise_request_exception=False)
    thief.cookies["palimpsest_session"] = row.session_key
    assert not is_in(thief)
    factor = Authenticator.objects.get()
    assert people._secret(factor) not in bytes(factor.seed)
    again = Authenticator(user=pat, seed=factor.seed, pepper_id="deadbeef")
    assert people._secret(again) != people._secret(factor), "of another pepper"
    assert people._secret(again) != people._secret(again), "nobody knows it"
    assert keyring().pepper[0].id == factor.pepper_id


def test_cookies_and_headers(browser: NewClient, pat: Person) -> None:
    client = browser()
    answer = sign_in(client, pat)
    cookie = client.cookies["palimpsest_session"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    page = client.get("/admin/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy
    assert (page.headers["X-Frame-Options"], page.headers["Referrer-Policy"]) == ("DENY", "same-origin")
    assert "no-store" in page.headers["Cache-Control"]
    assert "no-store" in answer.headers["Cache-Control"]


def test_a_form_from_elsewhere_is_refused(pat: Person, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    assert sign_in(client, pat).status_code == 403


def test_nowhere_else_is_sent_to_after_signing_in(browser: NewClient, pat: Person) -> None:
    answer = sign_in(browser(), pat, next="https://evil.example/")
    assert answer.headers["Location"] == "/admin/"


def test_what_is_kept_of_attempts_holds_no_secret(browser: NewClient, pat: Person) -> None:
    from axes.models import AccessAttempt

    sign_in(browser(), pat, password="my other passphrase", code="424242")
    kept = json.dumps(list(AccessAttempt.objects.values()), default=str)
    assert "my other passphrase" not in kept
    assert "424242" not in kept


def test_a_right_password_with_wrong_codes_is_locked_out_as_a_wrong_one_is(browser: NewClient, pat: Person) -> None:
    """Or who tries passwords would learn, without a code, which one is right."""
    told = [
        [sign_in(browser(), person, password=password, code="000000").status_code for _ in range(6)]
        for person, password in ((pat, PASSWORD), (enrolled("lee@acme.test"), "another passphrase"))
    ]
    assert told[0] == told[1]
    assert told[0][-1] == 429


def test_behind_a_proxy_attempts_are_counted_by_where_they_come_from(
    browser: NewClient, pat: Person, settings: Any
) -> None:
    """By the proxy's own address, anybody would keep everybody out."""
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

    def tried(written: str) -> int:
        form = {"username": pat.email, "password": "another passphrase", "code": "000000"}
        status: int = browser().post("/admin/login/", form, headers={"X-Forwarded-For": written}).status_code
        return status

    assert [tried(f"10.9.9.{n}, 192.0.2.1") for n in range(6)][-1] == 429, "what is before the last, anybody writes"
    assert tried("192.0.2.2") == 200
    assert [tried("no address\x7f") for _ in range(6)][-1] == 429
    settings.SECURE_PROXY_SSL_HEADER = None
    assert tried("192.0.2.77") == 429, "that of the connection, where there is no proxy"


def test_a_second_factor_moved_by_sql_to_another_person_is_none(browser: NewClient, pat: Person) -> None:
    """Also where SQL lent the one the other's address, of which the secret is made."""
    Person.objects.filter(pk=pat.pk).update(email="lent@acme.test")
    eve = enrolled("pat@acme.test")
    shown = code(eve, 1)
    moved = {name: getattr(eve.authenticator, name) for name in ("seed", "pepper_id", "proof", "confirmed")}
    Person.objects.filter(pk=eve.pk).update(email="eve@acme.test")
    Person.objects.filter(pk=pat.pk).update(email="pat@acme.test", password=eve.password)
    Authenticator.objects.filter(user=pat).update(**moved)
    assert sign_in(browser(), Person.objects.get(pk=pat.pk), code=shown).status_code == 200
