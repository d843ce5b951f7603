"""Reading under a grant: who reads, what they see, how long, and what the trail keeps."""

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
from memory.consent import approval, redaction, requests
from memory.models import Agent, Membership, Memory, Person
from memory.writing import operations
from tests import steps
from tests.admin.actions import html
from tests.admin.conftest import NEW_PASSWORD, Enter, NewClient, SignedIn, Staff, enrolled, sign_in
from tests.admin.reading import PURPOSE, asked, at, granted, page_of, read, read_entry, reads
from tests.members import join
from tests.privacy.marker import MARKER
from tests.second_factors import enrol
from tests.steps import ME, fresh, last_entry, problems, signed_update

ACTIONS = [(), ("memories",), ("entry",), ("token",), ("end",)]
FORM = {"numbers": "1", "seq": "3"}


@pytest.fixture
def past(ada: Agent, bob: Agent) -> Agent:
    """Ada has three memories, one of them revised in session 7. Bob has one."""
    steps.remember(ada, *(f"{MARKER} {thing}" for thing in ("tea", "milk", "sugar")), tags=["kitchen"])
    operations.revise(ada, 3, ME, content=f"{MARKER} brown sugar", session=7)
    steps.remember(bob, f"{MARKER} coffee")
    return fresh(ada)


@pytest.fixture
def pat(ada: Agent) -> Person:
    """The reader, an auditor of acme."""
    person = enrolled("pat@acme.test")
    join(person=person, tenant=ada.tenant, role="auditor")
    return person


@pytest.fixture
def reader(pat: Person, signed_in: SignedIn) -> Client:
    return signed_in(pat)


def entry_of(agent: Agent, operation: str) -> int:
    return AuditEntry.objects.get(agent_id=agent.pk, operation=operation).seq


def contents(page: str) -> list[str]:
    """The contents of memories that the page shows."""
    found = re.findall(r'(?s)<div class="content" dir="auto">(.*?)</div>', page)
    return [unescape(re.sub(r"</?(?:ins|del)>", "", each)) for each in found]


def offered(page: str) -> tuple[list[int], list[int]]:
    """The memories and the entries that the page offers to read."""
    memories, entries = (re.findall(rf'"Read {what} (\d+)"', page) for what in ("memory", "the changes of entry"))
    return list(map(int, memories)), list(map(int, entries))


# --- who reads


def test_the_person_who_asked_reads(past: Agent, staff: Staff, enter: Enter) -> None:
    for role in ("owner", "admin", "auditor", "superuser"):
        client, number = enter(role), granted(past, staff[role])
        page = page_of(client.get(at(past, number)))
        assert all(text in page for text in ("acme/ada", PURPOSE, "all its memories", "runtime", "data-until")), role
        assert contents(page_of(read(client, past, number, 1, 3))) == [f"{MARKER} tea", f"{MARKER} brown sugar"]


def test_another_person_gets_the_response_of_a_missing_page(past: Agent, staff: Staff, enter: Enter) -> None:
    """Also a superuser, and a person who holds another grant."""
    number, _ = granted(past, staff["auditor"]), granted(past, staff["admin"])
    before = steps.state(past)
    for role in ("owner", "admin", "superuser", "stranger"):
        client = enter(role)
        for action, method in itertools.product(ACTIONS, ("get", "head", "post")):
            addresses = at(past, number, *action), at(past, 9_999, *action)
            responses = [getattr(client, method)(address, FORM) for address in addresses]
            assert {response.status_code for response in responses} == {404}, (role, action, method)
            assert len({re.sub(r"csrf\w+", "", page_of(response)) for response in responses}) == 1
    assert steps.state(past) == before


def test_other_addresses_of_a_grant_are_missing(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    grant_paths = [f"{agent}/{number}" for agent in ("globex/bob", "acme/bob", "globex/ada", "acme/ADA")]
    grant_paths += [f"acme/ada/{other}" for other in ("0", "1", "9" * 20)]
    for path, action, method in itertools.product(grant_paths, ACTIONS, (reader.get, reader.post)):
        response = method("/".join(["/reading", path, *action, ""]), FORM)
        assert (response.status_code, MARKER in page_of(response)) == (404, False), path
    assert reads(past) == []


def test_a_visitor_without_both_factors_is_sent_to_sign_in(
    past: Agent, pat: Person, browser: NewClient, one_factor: SignedIn
) -> None:
    number = granted(past, pat)
    for client, action, method in itertools.product((browser(), one_factor(pat)), ACTIONS, ("get", "head", "post")):
        response = getattr(client, method)(at(past, number, *action), FORM)
        assert (response.status_code, response["Location"]) == (302, f"/admin/login/?next={at(past, number)}")
        page_of(response)
    assert reads(past) == []
    client = browser()
    assert sign_in(client, pat, next=at(past, number))["Location"] == at(past, number)
    assert client.get(at(past, number)).status_code == 200


def test_a_person_who_left_the_tenant_reads_nothing(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    Membership.objects.filter(person=pat).delete()
    assert reader.get(at(past, number)).status_code == read(reader, past, number, 1).status_code == 404
    assert reads(past) == []


def test_other_methods_and_posts_without_a_csrf_token_are_refused(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    for action, method in itertools.product(ACTIONS, (reader.put, reader.patch, reader.delete, reader.options)):
        response = method(at(past, number, *action))
        assert response.status_code == 405
        page_of(response)
    reader.handler.enforce_csrf_checks = True
    for action in ACTIONS[1:]:
        response = reader.post(at(past, number, *action), FORM)
        assert (response.status_code, MARKER in html(response)) == (403, False)
    assert reads(past) == []
    assert reader.get(at(past, number)).status_code == 200


# --- the trail


def test_get_and_head_write_nothing_and_show_no_content(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    before = steps.state(past)
    queries = ("", "?show=discarded", "?show=edits", "?show=all&after=x", "?numbers=1&seq=3")
    for action, query, method in itertools.product(ACTIONS, queries, (reader.get, reader.head)):
        response = method(at(past, number, *action) + query)
        assert response.status_code == (302 if action else 200)
        assert not action or response["Location"] == at(past, number)
        assert not re.search(f"{MARKER}|palg_", page_of(response))
    assert steps.state(past) == before


def test_each_read_is_in_the_trail_and_the_agent_gets_one_notice(past: Agent, pat: Person, reader: Client) -> None:
    number, revised = granted(past, pat), entry_of(past, "revised")
    read(reader, past, number, 1, 2)
    read(reader, past, number, 1)
    read_entry(reader, past, number, revised)
    assert reads(past) == [
        {"request": number, "memories": [1, 2]},
        {"request": number, "memories": [1]},
        {"request": number, "memories": [3, 4], "entry": revised},  # 4 is the text before, beneath
    ]
    assert last_entry(past).actor_label == pat.email
    [notice] = [text for each in steps.active(past) if PURPOSE in (text := steps.says(past, each).content)]
    assert pat.email in notice
    assert problems(past) == []


# --- lists


def test_the_memories_that_a_request_names_are_in_one_list(past: Agent, pat: Person, reader: Client) -> None:
    operations.discard(past, [2], ME)
    page = page_of(reader.get(at(past, granted(past, pat, Scope("memories", numbers=(1, 2, 4))))))
    assert offered(page)[0] == [1, 2, 4]
    for text in ("<b>Memory 2</b>, discarded", "<b>Memory 4</b>, beneath", ">Read all 3<"):
        assert text in page


def test_lists_have_pages_and_take_a_fixed_number_of_queries(
    past: Agent, pat: Person, reader: Client, django_assert_max_num_queries: Any
) -> None:
    for each in range(60):
        steps.remember(past, f"{MARKER} {each}")
    operations.discard(past, [2], ME)
    address = at(past, granted(past, pat))

    def page(query: str) -> tuple[str, list[str]]:
        with django_assert_max_num_queries(9):
            text = page_of(reader.get(address + query))
        return text, re.findall(r"after=(\d+)", text)

    first, [after] = page("")
    assert (offered(first)[0], after) == ([n for n in range(1, 53) if n not in (2, 4)], "52")
    assert offered(page(f"?show=active&after={after}")[0])[0] == list(range(53, 65))
    assert offered(page("?show=beneath")[0])[0] == [4]
    discarded, following = page("?show=discarded")
    assert (offered(discarded)[0], following) == ([2], [])
    [every] = re.findall(r'value="([\d,]+)">Read all 50 on this page<', first)
    assert len(contents(page_of(reader.post(f"{address}memories/", {"numbers": every})))) == 50
    with django_assert_max_num_queries(35):  # also those that check the entries of the memories
        reader.post(f"{address}memories/", {"numbers": every})
    first, [after] = page("?show=edits")
    entries = offered(first)[1]
    assert len(entries) == 50
    changing = AuditEntry.objects.filter(agent_id=past.pk, changes__gt=0).order_by("seq")
    assert entries + offered(page(f"?show=edits&after={after}")[0])[1] == list(changing.values_list("seq", flat=True))


def test_an_entry_of_many_memories_has_pages(past: Agent, pat: Person, reader: Client) -> None:
    steps.remember(past, *(f"{MARKER} {each}" for each in range(110)))
    seq = last_entry(past).seq
    number = granted(past, pat)
    page = page_of(read_entry(reader, past, number, seq))
    [above] = re.findall(r'name="above" value="(\d+)"', page)
    rest = page_of(read_entry(reader, past, number, seq, above=above))
    assert (len(contents(page)), len(contents(rest)), 'name="above"' in rest) == (100, 10, False)


# --- what a reader sees


@pytest.mark.parametrize(
    ("scope", "words", "memories", "entries"),
    [
        (Scope("silo"), "all its memories", [1, 2, 3], ["remembered", "revised"]),
        (Scope("memories", numbers=(1, 3)), "2 listed memories", [1, 3], ["remembered", "revised"]),
        (Scope("session", session=7), "session 7", [], ["revised"]),
        (Scope("entries", first=1, last=3), "entries 1 to 3", [], ["remembered"]),
    ],
)
def test_the_scope_decides_what_is_offered_and_read(
    scope: Scope, words: str, memories: list[int], entries: list[str], past: Agent, pat: Person, reader: Client
) -> None:
    number = granted(past, pat, scope)
    page = page_of(reader.get(at(past, number)))
    assert words in page
    assert offered(page)[0] == memories
    edits = page_of(reader.get(at(past, number) + "?show=edits"))
    assert offered(edits)[1] == [entry_of(past, name) for name in entries]
    tries = [(each in memories, read(reader, past, number, each)) for each in (1, 2, 3)]
    for name in ("remembered", "revised"):
        tries.append((name in entries, read_entry(reader, past, number, entry_of(past, name))))
    for covered, response in tries:
        assert (response.status_code, MARKER in page_of(response)) == ((200, True) if covered else (409, False))


def test_an_entry_marks_what_changed(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    for operation, change, title in (
        ("revised", f"{MARKER} <ins>brown </ins>sugar", "Memory 3: rewritten"),
        ("remembered", f"<ins>{MARKER} sugar</ins>", "Memory 3: new"),
    ):
        page = page_of(read_entry(reader, past, number, entry_of(past, operation)))
        assert (change in page, title in page) == (True, True), operation


def test_redacted_content_is_marked(past: Agent, pat: Person, reader: Client) -> None:
    request = requests.ask_redaction(past, [3], Actor.person("owner@acme.test"), reason="a request")
    redaction.redact(fresh(past), request.number, ME)
    number = granted(past, pat)
    memories = page_of(read(reader, past, number, 1, 3))
    entry = page_of(read_entry(reader, past, number, entry_of(past, "revised")))
    assert (contents(memories), contents(entry)) == ([f"{MARKER} tea"], [])
    assert "Redacted" in memories
    assert "Redacted" in entry
    assert "Read memory 3" not in page_of(reader.get(at(past, number) + "?show=discarded"))


BAD: list[tuple[str, dict[str, str], int]] = [
    *(("memories", {"numbers": each}, 400) for each in ("", "1,", "0", "-1", "١", "1" * 30, "1," * 100 + "1")),
    *(("memories", each, 400) for each in ({}, {"numbers": f"{MARKER}<script>"})),
    *(("memories", {"numbers": each}, 409) for each in ("1,1", "1,99", "9" * 18)),
    *(("entry", each, 400) for each in ({}, {"seq": "1", "above": "x"})),
    *(("entry", {"seq": each}, 409) for each in ("99", "1")),
]


def test_bad_input_is_refused_and_not_repeated(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    before = steps.state(past)
    for action, form, status in BAD:
        response = reader.post(at(past, number, action), form)
        page = page_of(response)
        assert (response.status_code, MARKER in page, "Request refused" in page) == (status, False, True), form
        assert at(past, number) in page, "the way back"
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


def test_hostile_content_is_shown_unchanged_and_does_nothing(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    for text in HOSTILE:
        [new] = steps.remember(past, text, tags=["<i>tag</i>"])
        operations.revise(past, new, ME, content=f"{MARKER} replaced")
        entry = page_of(read_entry(reader, past, number, last_entry(past).seq))
        operations.revise(past, new, ME, content=text)
        memory = page_of(read(reader, past, number, new))
        assert contents(memory) == [text]
        for page in (entry, memory):
            assert not re.search(r"<img|<form action=//|<script>|<i>", page)
            assert page.count("<main>") == page.count("</main>") == 1


def test_content_that_cannot_be_decrypted_is_refused(past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    Memory.objects.filter(agent_id=past.pk, number=1).update(sealed=bytes(steps.row(past, 2).sealed))
    response = read(reader, past, number, 1)
    assert (response.status_code, MARKER in page_of(response), reads(past)) == (409, False, [])


# --- how long


def test_a_grant_expires_and_no_clock_revives_it(past: Agent, pat: Person, reader: Client, time_machine: Any) -> None:
    now, number = timezone.now(), granted(past, pat, seconds=900)
    time_machine.move_to(now + timedelta(seconds=890))
    assert read(reader, past, number, 1).status_code == 200
    for seconds in (901, 60):
        time_machine.move_to(now + timedelta(seconds=seconds))
        page = page_of(reader.get(at(past, number)))
        assert ("Expired" in page, "<form" in page) == (True, False)
        responses = [reader.post(at(past, number, *action), FORM) for action in ACTIONS[1:]]
        assert {response.status_code for response in responses} == {409}
        assert not any(re.search(f"{MARKER}|palg_", page_of(response)) for response in responses)
    assert len(reads(past)) == 1


@pytest.mark.parametrize("change", [lambda pat: people.set_password(pat, NEW_PASSWORD), enrol])
def test_a_new_password_or_second_factor_ends_sessions_and_grants(
    change: Callable[[Person], Any], past: Agent, pat: Person, reader: Client
) -> None:
    number = granted(past, pat)
    change(pat)
    assert read(reader, past, number, 1).status_code == 302, "signed out"
    assert (requests.find(past, number).state, reads(past)) == ("revoked", [])


@pytest.mark.parametrize("who", ["runtime", "reader", "owner"])
def test_a_revocation_ends_a_grant_at_once(who: str, past: Agent, pat: Person, reader: Client) -> None:
    number = granted(past, pat)
    if who == "reader":
        response = reader.post(at(past, number, "end"))
        assert (response.status_code, response["Location"]) == (302, at(past, number))
        assert last_entry(past).actor_label == pat.email
        assert reader.post(at(past, number, "end")).status_code == 409
    else:
        requests.revoke(fresh(past), number, ME if who == "runtime" else Actor.person("owner@acme.test"))
    assert last_entry(past).operation == "access_revoked"
    page = page_of(reader.get(at(past, number)))
    assert ("Revoked: you ended it at" in page, "Revoked: somebody ended" in page) == (who == "reader", who != "reader")
    assert f"/access/{number}/" in page
    assert MARKER not in page_of(read(reader, past, number, 1))


@pytest.mark.parametrize("state", ["Waiting", "Denied", "Not approved", "erased"])
def test_a_request_that_is_no_grant_shows_only_its_state(
    state: str, past: Agent, pat: Person, signed_in: SignedIn, time_machine: Any
) -> None:
    number = asked(past, pat)
    if state == "Denied":
        requests.deny(fresh(past), number, ME)
    elif state == "erased":
        approval.approve(fresh(past), number, ME)
        signed_update(Agent.objects.filter(pk=past.pk), wrapped_key=b"")
    elif state == "Not approved":
        time_machine.move_to(timezone.now() + timedelta(hours=73))
    client = signed_in(pat)
    page = page_of(client.get(at(past, number)))
    assert (state in page, "<form" in page, "<table" in page) == (True, False, False)
    for response in (read(client, past, number, 1), client.post(at(past, number, "token"))):
        assert (response.status_code, MARKER in page_of(response)) == (409, False)
    assert reads(past) == []


def test_the_token_is_shown_on_request(past: Agent, pat: Person, reader: Client) -> None:
    lifecycle.change(past, ME, steward="stew@acme.test")
    number = granted(past, pat, by=Actor.steward("stew@acme.test"))
    assert "steward" in page_of(reader.get(at(past, number)))
    page = page_of(reader.post(at(past, number, "token")))
    assert re.search(rf"palg_{past.pk}_{number}_[0-9a-f]{{64}}", page)
    assert reads(past) == []
