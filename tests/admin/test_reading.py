"""Reading under a grant: who comes to see what, for how long, and what is left of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.consent import Scope
from audit.models import AuditEntry
from audit.trail import Actor
from memory.accounts import people
from memory.agents import lifecycle
from memory.consent import grants, redaction, removal_requests
from memory.models import Agent, Membership, Memory, Person
from memory.writing import operations
from tests import steps
from tests.admin.conftest import PASSWORD, Enter, code, enrolled, sign_in
from tests.admin.reading import PURPOSE, SILO, asked, asking, at, granted, page_of, read, read_entry, reads
from tests.enrolling import enrol
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, last_entry, problems

SignedIn = Callable[[Person], Client]
DEEDS = [(), ("memories",), ("entry",), ("token",), ("end",)]
FORMS = {"numbers": "1", "seq": "3"}


@pytest.fixture
def past(ada: Agent, bob: Agent) -> Agent:
    """Ada remembers three things, one of them revised in session 7; Bob remembers one."""
    steps.remember(ada, *(f"{MARKER} {thing}" for thing in ("tea", "milk", "sugar")), tags=["kitchen"])
    operations.revise(ada, 3, ME, content=f"{MARKER} brown sugar", session=7)
    steps.remember(bob, f"{MARKER} coffee")
    return fresh(ada)


@pytest.fixture
def pat(ada: Agent) -> Person:
    """Whoever asks and reads: of acme, which is enough for it."""
    person = enrolled("pat@acme.test")
    Membership.objects.create(person=person, tenant=ada.tenant, role="auditor")
    return person


def entry_of(agent: Agent, operation: str) -> int:
    return AuditEntry.objects.get(agent_id=agent.pk, operation=operation).seq


def said(page: str) -> list[str]:
    """What the page shows as said by memories."""
    shown = re.findall(r'(?s)<div class="content" dir="auto">(.*?)</div>', page)
    return [unescape(re.sub(r"</?(?:ins|del)>", "", each)) for each in shown]


# --- who


def test_who_asked_reads(past: Agent, staff: dict[str, Person], enter: Enter) -> None:
    for role in ("owner", "admin", "auditor", "superuser"):
        client, number = enter(role), granted(past, staff[role])
        page = page_of(client.get(at(past, number)))
        for told in ("acme/ada", PURPOSE, "all its memories", "runtime", "data-until"):
            assert told in page, role
        assert said(page_of(read(client, past, number, 1, 3))) == [f"{MARKER} tea", f"{MARKER} brown sugar"]


def test_for_anybody_else_there_is_no_such_page(past: Agent, staff: dict[str, Person], enter: Enter) -> None:
    """Also not for who holds a grant of their own, or a superuser."""
    number = granted(past, staff["auditor"])
    granted(past, staff["admin"])
    before = steps.state(past)
    for who in ("owner", "admin", "superuser", "stranger"):
        client = enter(who)
        for deed, method in itertools.product(DEEDS, ("get", "head", "post")):
            places = at(past, number, *deed), at(past, 9_999, *deed)
            answers = [getattr(client, method)(where, FORMS) for where in places]
            assert [answer.status_code for answer in answers] == [404, 404], (who, deed, method)
            told, not_there = (re.sub(r"csrf\w+", "", page_of(answer)) for answer in answers)
            assert told == not_there
    assert steps.state(past) == before


def test_another_address_is_none(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    places = [f"{agent}/{number}" for agent in ("globex/bob", "acme/bob", "globex/ada", "acme/ADA")]
    places += [f"acme/ada/{other}" for other in ("0", "1", "9" * 20)]
    for where, deed, method in itertools.product(places, DEEDS, (client.get, client.post)):
        answer = method("/".join(["/reading", where, *deed, ""]), FORMS)
        assert answer.status_code == 404, where
        assert MARKER not in page_of(answer)
    assert reads(past) == []


def test_who_is_not_signed_in_is_sent_to_sign_in(past: Agent, pat: Person, browser: Callable[[], Client]) -> None:
    number = granted(past, pat)
    one_factor = browser()
    one_factor.force_login(pat, backend="django.contrib.auth.backends.ModelBackend")
    for client, deed, method in itertools.product((browser(), one_factor), DEEDS, ("get", "head", "post")):
        answer = getattr(client, method)(at(past, number, *deed), FORMS)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"/admin/login/?next={at(past, number)}")
        page_of(answer)
    assert reads(past) == []
    client = browser()
    answer = sign_in(client, pat, next=at(past, number))
    assert answer.headers["Location"] == at(past, number)
    assert client.get(answer.headers["Location"]).status_code == 200


def test_who_left_the_tenant_reads_no_more(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    Membership.objects.filter(person=pat).delete()
    assert client.get(at(past, number)).status_code == 404
    assert read(client, past, number, 1).status_code == 404
    assert reads(past) == []


def test_other_methods_and_forms_from_elsewhere_are_refused(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    for deed, method in itertools.product(DEEDS, (client.put, client.patch, client.delete, client.options)):
        answer = method(at(past, number, *deed))
        assert answer.status_code == 405
        page_of(answer)
    client.handler.enforce_csrf_checks = True
    for deed in DEEDS[1:]:
        answer = client.post(at(past, number, *deed), FORMS)
        assert answer.status_code == 403
        assert MARKER not in answer.content.decode()
    assert reads(past) == []
    assert client.get(at(past, number)).status_code == 200


# --- looking is not reading


def test_looking_writes_nothing_and_shows_no_word(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    before = steps.state(past)
    queries = ("", "?show=discarded", "?show=edits", "?show=all&after=x", "?numbers=1&seq=3")
    for deed, query, method in itertools.product(DEEDS, queries, (client.get, client.head)):
        answer = method(at(past, number, *deed) + query)
        assert answer.status_code == (302 if deed else 200)
        assert not deed or answer.headers["Location"] == at(past, number)
        assert not re.search(f"{MARKER}|palg_", page_of(answer))
    assert steps.state(past) == before


def test_each_read_is_in_the_trail_and_told_once(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    read(client, past, number, 1, 2)
    read(client, past, number, 1)
    read_entry(client, past, number, entry_of(past, "revised"))
    assert reads(past) == [
        {"request": number, "memories": [1, 2]},
        {"request": number, "memories": [1]},
        {"request": number, "memories": [3], "entry": entry_of(past, "revised")},
    ]
    assert last_entry(past).actor_label == pat.email
    notices = [text for each in steps.active(past) if PURPOSE in (text := steps.says(past, each).content)]
    assert len(notices) == 1
    assert pat.email in notices[0]
    assert problems(past) == []


def test_the_list_of_memories_has_pages(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    steps.remember(past, *(f"{MARKER} {each}" for each in range(60)))
    operations.discard(past, [2], ME)
    number, client = granted(past, pat), signed_in(pat)

    def listed(query: str) -> tuple[list[int], list[str]]:
        page = page_of(client.get(at(past, number) + query))
        return [int(n) for n in re.findall(r'aria-label="Read memory (\d+)"', page)], re.findall(r"after=(\d+)", page)

    first, [after] = listed("")
    assert first == [n for n in range(1, 52) if n != 2]
    assert after == "51"
    assert listed(f"?show=active&after={after}")[0] == list(range(52, 64))
    assert listed("?show=discarded") == ([2], [])
    everything = re.search(r'value="([\d,]+)">Read these 50<', client.get(at(past, number)).content.decode())
    assert everything is not None
    assert len(said(page_of(read(client, past, number, *map(int, everything[1].split(",")))))) == 50


def test_the_list_of_edits_has_pages(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    for each in range(55):
        steps.remember(past, f"{MARKER} {each}")
    number, client = granted(past, pat), signed_in(pat)
    page = page_of(client.get(at(past, number) + "?show=edits"))
    entries = [int(seq) for seq in re.findall(r'aria-label="Read the changes of entry (\d+)"', page)]
    assert len(entries) == 50
    [after] = re.findall(r"after=(\d+)", page)
    rest = page_of(client.get(at(past, number) + f"?show=edits&after={after}"))
    entries += [int(seq) for seq in re.findall(r'aria-label="Read the changes of entry (\d+)"', rest)]
    changing = AuditEntry.objects.filter(agent_id=past.pk, changes__gt=0).order_by("seq")
    assert entries == list(changing.values_list("seq", flat=True))


def test_lists_and_reads_take_as_many_queries_however_long(
    past: Agent, pat: Person, signed_in: SignedIn, django_assert_max_num_queries: Any
) -> None:
    for each in range(60):
        steps.remember(past, f"{MARKER} {each}")
    number, client = granted(past, pat), signed_in(pat)
    for query in ("", "?show=edits", "?show=discarded"):
        with django_assert_max_num_queries(9):
            client.get(at(past, number) + query)
    read(client, past, number, 1)  # whose notice is another edit
    with django_assert_max_num_queries(26):
        read(client, past, number, *range(1, 51))


# --- what


@pytest.mark.parametrize(
    ("scope", "words", "memories", "entries"),
    [
        (Scope("silo"), "all its memories", [1, 2, 3], ["remembered", "revised"]),
        (Scope("memories", numbers=(1, 3)), "2 listed memories", [1, 3], ["remembered", "revised"]),
        (Scope("session", session=7), "session 7", [], ["revised"]),
        (Scope("entries", first=1, last=3), "entries 1 to 3", [], ["remembered"]),
    ],
)
def test_what_is_offered_and_read_is_what_the_scope_covers(
    scope: Scope, words: str, memories: list[int], entries: list[str], past: Agent, pat: Person, signed_in: SignedIn
) -> None:
    number, client = granted(past, pat, scope), signed_in(pat)
    page = page_of(client.get(at(past, number)))
    assert words in page
    assert [int(n) for n in re.findall(r'"Read memory (\d+)"', page)] == memories
    page = page_of(client.get(at(past, number) + "?show=edits"))
    offered = [int(seq) for seq in re.findall(r'"Read the changes of entry (\d+)"', page)]
    assert offered == [entry_of(past, name) for name in entries]
    for each in (1, 2, 3):
        answer = read(client, past, number, each)
        assert answer.status_code == (200 if each in memories else 409)
        assert (MARKER in page_of(answer)) == (each in memories)
    for name in ("remembered", "revised"):
        answer = read_entry(client, past, number, entry_of(past, name))
        assert answer.status_code == (200 if name in entries else 409)
        assert (MARKER in page_of(answer)) == (name in entries)


def test_of_an_entry_no_more_is_read_than_of_the_memories_covered(
    past: Agent, pat: Person, signed_in: SignedIn
) -> None:
    number, client = granted(past, pat, Scope("memories", numbers=(2,))), signed_in(pat)
    page = page_of(read_entry(client, past, number, entry_of(past, "remembered")))
    assert said(page) == [f"{MARKER} milk"]


def test_before_and_after_are_told_apart(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    page = page_of(read_entry(client, past, number, entry_of(past, "revised")))
    assert f"{MARKER} <ins>brown </ins>sugar" in page
    assert "Memory 3: rewritten" in page
    page = page_of(read_entry(client, past, number, entry_of(past, "remembered")))
    assert f"<ins>{MARKER} sugar</ins>" in page
    assert "Memory 3: new" in page


def test_what_was_redacted_is_told_to_be(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    request = removal_requests.ask_redaction(past, [3], Actor.person("owner@acme.test"), reason="asked for")
    redaction.redact(fresh(past), request.number, ME)
    number, client = granted(past, pat), signed_in(pat)
    page = page_of(read(client, past, number, 1, 3))
    assert said(page) == [f"{MARKER} tea"]
    assert "Redacted" in page
    page = page_of(read_entry(client, past, number, entry_of(past, "revised")))
    assert said(page) == []
    assert "Redacted" in page
    assert "Read memory 3" not in page_of(client.get(at(past, number) + "?show=discarded"))


def test_an_entry_of_many_memories_has_pages(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    steps.remember(past, *(f"{MARKER} {each}" for each in range(110)))
    seq = last_entry(past).seq
    number, client = granted(past, pat), signed_in(pat)
    page = page_of(read_entry(client, past, number, seq))
    assert len(said(page)) == 100
    [above] = re.findall(r'name="above" value="(\d+)"', page)
    rest = page_of(read_entry(client, past, number, seq, above=above))
    assert len(said(rest)) == 10
    assert 'name="above"' not in rest


BAD: list[tuple[str, dict[str, str], int]] = [
    ("memories", {}, 400),
    *(("memories", {"numbers": each}, 400) for each in ("", "1,", "0", "-1", "١", "1" * 30, "1," * 100 + "1")),
    ("memories", {"numbers": f"{MARKER}<script>"}, 400),
    *(("memories", {"numbers": each}, 409) for each in ("1,1", "1,99", "9" * 18)),
    ("entry", {}, 400),
    ("entry", {"seq": "1", "above": "x"}, 400),
    ("entry", {"seq": "99"}, 409),
    ("entry", {"seq": "1"}, 409),
]


def test_bad_input_is_told_without_repeating_it(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    before = steps.state(past)
    for deed, form, status in BAD:
        answer = client.post(at(past, number, deed), form)
        assert answer.status_code == status, form
        page = page_of(answer)
        assert (MARKER in page, "Request refused" in page, at(past, number) in page) == (False, True, True)
    assert steps.state(past) == before


HOSTILE = [
    f"{MARKER}<script>alert(1)</script>",
    f"{MARKER}\"'><img src=x onerror=alert(1)>",
    f"{MARKER}</div></main><form action=//evil.example>",
    f"{MARKER} {{{{ request }}}} {{% csrf_token %}} &lt;b&gt; &amp;",
    f"{MARKER} \u202eabc\u2066 \u05d0\u05d1 \u200f",
    f"{MARKER} \x01\x07\x08\x1b[31m\x7f\x85\ufffe end",
    f"{MARKER}  two  spaces\n\n\ttab and line",
    f"{MARKER} <del>x</del><ins>y</ins>",
    (f"{MARKER} " + "word " * 2_500)[:10_000],
    (f"{MARKER}" + "<" * 10_000)[:10_000],
]


def test_hostile_content_is_shown_as_it_is_and_does_nothing(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    for text in HOSTILE:
        [new] = steps.remember(past, text, tags=["<i>tag</i>"])
        operations.revise(past, new, ME, content=f"{MARKER} replaced")
        page = page_of(read_entry(client, past, number, last_entry(past).seq))
        operations.revise(past, new, ME, content=text)
        shown = page_of(read(client, past, number, new))
        assert said(shown) == [text]
        for each in (page, shown):
            assert not re.search(r"<img|<form action=//|<script>|<i>", each)
            assert each.count("<main>") == each.count("</main>") == 1


# --- how long


def test_it_ends_by_the_clock_while_it_is_read(
    past: Agent, pat: Person, signed_in: SignedIn, time_machine: Any
) -> None:
    now = timezone.now()
    number, client = granted(past, pat, seconds=900), signed_in(pat)
    assert read(client, past, number, 1).status_code == 200
    time_machine.move_to(now + timedelta(seconds=890))
    assert read(client, past, number, 1).status_code == 200
    time_machine.move_to(now + timedelta(seconds=901))
    before = steps.state(past)
    page = page_of(client.get(at(past, number)))
    assert "Expired" in page
    assert "<form" not in page
    time_machine.move_to(now + timedelta(seconds=60))
    assert "Expired" in page_of(client.get(at(past, number))), "what was told to be over stays so"
    assert read(client, past, number, 1).status_code == 409
    time_machine.move_to(now + timedelta(seconds=901))
    for answer in (read(client, past, number, 1), read_entry(client, past, number, 3)):
        assert answer.status_code == 409
        assert MARKER not in page_of(answer)
    for deed in ("token", "end"):
        answer = client.post(at(past, number, deed))
        assert answer.status_code == 409
        assert "palg_" not in page_of(answer)
    assert len(reads(past)) == 2
    time_machine.move_to(now + timedelta(seconds=1))
    assert read(client, past, number, 1).status_code == 409, "a clock that is set back revives nothing"
    assert "Expired" in page_of(client.get(at(past, number)))
    after = steps.state(past)
    assert before["memories"][:-1] == after["memories"][:-1]  # the last is the notice, which says that it is over
    assert len(after["entries"]) == len(before["entries"]) + 1


@pytest.mark.parametrize("change", ["password", "second factor"])
def test_a_change_of_either_factor_ends_it(
    change: str, past: Agent, pat: Person, signed_in: SignedIn, browser: Callable[[], Client]
) -> None:
    number, client = granted(past, pat), signed_in(pat)
    if change == "password":
        people.set_password(pat, "another good passphrase")
    else:
        enrol(pat)
    assert read(client, past, number, 1).status_code == 302, "signed out"
    again = browser()
    given = {"password": "another good passphrase" if change == "password" else PASSWORD, "code": code(pat, 1)}
    assert sign_in(again, pat, **given).status_code == 302
    assert "Revoked" in page_of(again.get(at(past, number)))
    assert read(again, past, number, 1).status_code == 409
    assert reads(past) == []


@pytest.mark.parametrize("who", ["runtime", "reader", "owner"])
def test_revoked_it_ends_at_once(who: str, past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    if who == "reader":
        answer = client.post(at(past, number, "end"))
        assert (answer.status_code, answer.headers["Location"]) == (302, at(past, number))
        assert last_entry(past).actor_label == pat.email
        assert client.post(at(past, number, "end")).status_code == 409
    else:
        grants.revoke(fresh(past), number, ME if who == "runtime" else Actor.person("owner@acme.test"))
    assert last_entry(past).operation == "access_revoked"
    assert "Revoked" in page_of(client.get(at(past, number)))
    assert MARKER not in page_of(read(client, past, number, 1))


@pytest.mark.parametrize("state", ["Waiting", "Denied", "Lapsed", "erased"])
def test_what_is_not_in_force_shows_its_state_and_no_more(
    state: str, past: Agent, pat: Person, signed_in: SignedIn, time_machine: Any
) -> None:
    now = timezone.now()
    number, client = asked(past, pat), None
    if state == "Denied":
        grants.deny(fresh(past), number, ME)
    if state == "erased":
        grants.approve(fresh(past), number, ME)
        Agent.objects.filter(pk=past.pk).update(wrapped_key=b"")
    if state == "Lapsed":
        time_machine.move_to(now + timedelta(hours=73))
    client = signed_in(pat)
    page = page_of(client.get(at(past, number)))
    assert state in page
    assert "<form" not in page
    assert "<table" not in page
    for answer in (read(client, past, number, 1), client.post(at(past, number, "token"))):
        assert answer.status_code == 409
        assert MARKER not in page_of(answer)
    assert reads(past) == []


def test_a_seal_that_does_not_open_is_told_on_such_a_page(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    number, client = granted(past, pat), signed_in(pat)
    Memory.objects.filter(agent_id=past.pk, number=1).update(sealed=bytes(steps.row(past, 2).sealed))
    answer = read(client, past, number, 1)
    assert answer.status_code == 409
    assert MARKER not in page_of(answer)
    assert reads(past) == []


def test_who_shares_an_address_with_nobody_reads_by_no_others_grant(
    past: Agent, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    """Somebody who comes to have the address of who asked is not who asked."""
    number = granted(past, staff["admin"])
    Person.objects.filter(pk=staff["admin"].pk).update(email="gone@acme.test")
    heir = enrolled("admin@acme.test")
    Membership.objects.create(person=heir, tenant=past.tenant, role="admin")
    assert read(signed_in(heir), past, number, 1).status_code == 404
    assert read(signed_in(staff["owner"]), past, number, 1).status_code == 404
    assert asking(heir).address == "admin@acme.test"


# --- the token


def test_the_token_is_shown_when_asked_for_and_the_steward_named(past: Agent, pat: Person, signed_in: SignedIn) -> None:
    lifecycle.change(past, ME, steward="stew@acme.test")
    number, client = granted(past, pat, SILO, by=Actor.steward("stew@acme.test")), signed_in(pat)
    assert "steward" in page_of(client.get(at(past, number)))
    page = page_of(client.post(at(past, number, "token")))
    assert re.search(rf"palg_{past.pk}_{number}_[0-9a-f]{{64}}", page)
    assert reads(past) == []
