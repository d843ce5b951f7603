"""Requests to read an agent's memories: who may ask, who decides, what a grant opens, and what SQL cannot change."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from audit.consent import Person, Scope, same_address
from audit.models import AccessRequest, AuditEntry, Change
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import approval, granted_reads, grants, links, requests, withdrawals
from memory.models import Agent
from memory.models import Person as Account
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from tests.access_requests import PAT, PURPOSE, STEWARD, ask, current_state, granted, read, state, with_a_past
from tests.conftest import drop_guards
from tests.members import join
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, refused, remember, says, signed_update


@pytest.fixture
def agent(ada: Agent) -> Agent:
    return with_a_past(ada)


def cannot_read(agent: Agent, number: int, *numbers: int, person: Person = PAT) -> None:
    with refused(agent, errors.NotGranted):
        read(agent, number, *numbers, person=person)


def test_a_request_out_of_bounds_or_for_an_erased_silo_is_refused(agent: Agent) -> None:
    purposes = ["because I want to", "x" * 1_001, "\u200b" * 30, "\u202e\u3164" * 15, f"{PURPOSE}\0"]
    scopes = [Scope("memories"), Scope("memories", numbers=tuple(range(1, 1_003))), Scope("all")]
    scopes += [Scope("entries", first=3, last=2), Scope("entries", first=1, last=999)]
    invalid = [{"purpose": text} for text in purposes] + [{"seconds": n} for n in (14 * 60, 4 * 3600 + 1)]
    rows: list[tuple[dict[str, Any], type[Exception]]] = [
        *((fields, errors.Invalid) for fields in [*invalid, *({"scope": scope} for scope in scopes)]),
        ({"scope": Scope("memories", numbers=(1, 9))}, errors.UnknownMemory),
        ({"scope": Scope("session", session=8)}, errors.UnknownEntry),
    ]
    for fields, error in rows:
        with refused(agent, error):
            ask(agent, **fields)
        assert not AccessRequest.objects.exists()
    signed_update(Agent.objects.filter(pk=agent.pk), wrapped_key=b"")
    with pytest.raises(errors.Erased):
        ask(agent)


def test_a_request_is_an_entry_of_the_trail(agent: Agent) -> None:
    request = ask(agent, scope=Scope("memories", numbers=(1, 2)), seconds=900)
    entry = last_entry(agent)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("access_requested", "person", PAT.address)
    assert (entry.seq, entry.detail["purpose"], entry.detail["seconds"]) == (request.number, PURPOSE, 900)
    assert (state(agent, request.number), problems(agent)) == ("requested", [])


def test_only_the_agents_side_decides(agent: Agent) -> None:
    number = ask(agent).number
    people = Actor.person(PAT.address), Actor.person(STEWARD.label), Actor.steward("another@acme.test")
    for actor in (*people, Actor.operator("shell"), Actor.system("sweep")):
        for decide in (approval.approve, requests.deny):
            with refused(agent, errors.ConsentRequired):
                decide(fresh(agent), number, actor)


@pytest.mark.parametrize("address", ["stew@acme.test", "Stew@ACME.test", "stew+work@acme.test"])
def test_a_steward_cannot_approve_their_own_request(agent: Agent, address: str) -> None:
    number = ask(agent, Person(3, address)).number
    with refused(agent, errors.ConsentRequired):
        approval.approve(fresh(agent), number, STEWARD)
    lifecycle.change(agent, ME, is_steward_only=True)
    with refused(agent, errors.ConsentRequired):
        ask(agent, Person(4, address))


def test_addresses_of_the_same_person_are_recognized() -> None:
    same = [
        ("a@x.test", "A@X.TEST"),
        ("a@x.test", " a@x.test. "),
        ("a+b@x.test", "a@x.test"),
        ('"a"@x.test', "a@x.test"),
    ]
    same += [("a.b@gmail.com", "ab@googlemail.com"), ("a.b@pm.me", "ab@protonmail.com"), ("a@me.com", "a@icloud.com")]
    same += [("a@ya.ru", "a@yandex.ru"), ("\uff41@x.test", "a@x.test"), ("a@stra\u00dfe.de", "a@XN--STRAE-OQA.de")]
    same += [("a@b\u00fccher.example", "a@xn--bcher-kva.example")]
    different = [("a.b@x.test", "ab@x.test"), ("a@x.test", "b@x.test"), ("", "")]
    assert [same_address(*pair) for pair in same + different] == [True] * len(same) + [False] * len(different)


def test_each_read_is_recorded_and_one_notice_names_the_reader(agent: Agent) -> None:
    number = granted(agent)
    assert read(agent, number, 1, 3) == ["tea", "brown sugar"]
    first = last_entry(agent)
    assert (first.operation, first.actor_label) == ("content_read", PAT.address)
    assert first.detail == {"request": number, "memories": [1, 3]}
    assert read(agent, number, 2) == ["milk"]
    assert last_entry(agent).detail == {"request": number, "memories": [2]}
    contents = [says(agent, memory).content for memory in active(agent)]
    [notice] = [content for content in contents if PURPOSE in content]
    assert PAT.address in notice
    assert problems(agent) == []


def test_a_read_takes_few_queries_although_the_memories_are_from_many_entries(
    agent: Agent, django_assert_max_num_queries: Any
) -> None:
    numbers = []
    for each in range(30):
        numbers += remember(agent, f"bread {each}")
        remember(agent, f"salt {each}")
    number = granted(agent)
    read(agent, number, 1)
    with django_assert_max_num_queries(30):
        assert len(read(agent, number, *numbers)) == 30


def test_a_read_checks_large_entries_before_the_lock(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    number, check, looked = granted(agent), granted_reads._snapshots, []

    def checked(agent_id: int, wanted: Any) -> Any:
        looked.append(len(wanted))
        return check(agent_id, wanted)

    monkeypatch.setattr(granted_reads, "_snapshots", checked)
    assert (read(agent, number, 1), looked) == (["tea"], [1, 0])


@pytest.mark.parametrize("check", ["_ahead", "_entry_ahead"])
def test_what_is_altered_meanwhile_is_not_shown(agent: Agent, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, ahead = granted(agent), getattr(granted_reads, check)
    drop_guards()

    def then_altered(*given: Any) -> Any:
        found = ahead(*given)
        Change.objects.filter(agent_id=agent.pk, number=1).update(after=b"other")
        return found

    monkeypatch.setattr(granted_reads, check, then_altered)
    found: Any = read(agent, number, 1) if check == "_ahead" else granted_reads.entry(fresh(agent), number, PAT, 3)
    assert [step.number for step in found] == ([] if check == "_ahead" else [2, 3])


def test_nothing_is_read_if_sql_prevents_that_the_grant_is_revoked(agent: Agent) -> None:
    number = granted(agent)
    assert read(agent, number, 1) == ["tea"]
    Change.objects.create(agent_id=agent.pk, seq=fresh(agent).audit_seq + 9, number=4)
    cannot_read(agent, number, 1)


@pytest.mark.parametrize("what", ["entry", "all"])
def test_a_rollback_keeps_the_notice_of_a_read(agent: Agent, what: str) -> None:
    number = granted(agent)
    remember(agent, "bread")
    read(agent, number, 1)
    if what == "entry":
        with refused(agent, errors.NothingToUndo):
            rollback.roll_back(agent, What("entry", last_entry(agent).seq), PERSON)
    else:
        rollback.roll_back(agent, What("since_entry", number), PERSON)
    contents = [says(agent, memory).content for memory in active(agent)]
    assert [PAT.address in content for content in contents].count(True) == 1
    assert ("bread" in contents, problems(agent)) == (what == "entry", [])


def test_a_grant_works_while_memory_is_off(agent: Agent) -> None:
    signed_update(Agent.objects.filter(pk=agent.pk), memory_enabled=False)
    assert read(agent, granted(agent), 1) == ["tea"]


def test_a_row_inserted_by_sql_grants_nothing(agent: Agent) -> None:
    number = ask(agent).number
    AccessRequest.objects.filter(number=number).update(state="active", until=timezone.now() + timedelta(hours=1))
    cannot_read(agent, number, 1)
    assert [problem.seq for problem in problems(agent)] == [number]
    forged = AccessRequest.objects.get(number=number)
    forged.pk, forged.number, forged.person_id = None, number + 1, 9
    forged.save()
    cannot_read(agent, number + 1, 1, person=Person(9, PAT.address))


def test_a_new_password_ends_grants_whose_rows_were_altered(agent: Agent, bob: Agent) -> None:
    number, other = granted(agent), ask(bob).number
    AccessRequest.objects.filter(agent_id=agent.pk).update(state="denied")
    AccessRequest.objects.filter(agent_id=bob.pk).update(person_id=9)
    withdrawals.withdraw_all(PAT.id, "password")
    cannot_read(agent, number, 1)
    assert (state(agent, number), state(bob, other)) == ("revoked", "lapsed")


@pytest.mark.sqlite
def test_a_grant_whose_person_has_another_notation_opens_nothing_after_a_new_password(agent: Agent) -> None:
    """SQLite did not find the person's grant, so it stayed active, and the trail was valid."""
    number = granted(agent)
    drop_guards()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_auditentry SET detail = replace(detail, 'person_id', 'person\\u005fid')")
    withdrawals.withdraw_all(PAT.id, "password")
    with pytest.raises(ValueError):  # noqa: PT011  the entry cannot be read
        read(agent, number, 1)
    assert number in [problem.seq for problem in problems(agent)]


def test_a_request_with_the_last_date_has_a_state(agent: Agent) -> None:
    """SQL can store this date. To add a time to it is an error."""
    request = replace(ask(agent), asked_at=datetime.max.replace(tzinfo=UTC))
    assert request.at(timezone.now()).state == "requested"


def test_deleting_a_revocation_by_sql_revives_no_grant(agent: Agent) -> None:
    number = granted(agent)
    requests.revoke(fresh(agent), number, ME)
    remember(agent, "honey")
    drop_guards()
    AuditEntry.objects.filter(agent_id=agent.pk, operation="access_revoked").delete()
    cannot_read(agent, number, 1)


def test_a_forged_request_of_a_wrong_form_is_not_found(agent: Agent) -> None:
    number = ask(agent).number
    drop_guards()
    entry = AuditEntry.objects.get(agent_id=agent.pk, seq=number)
    forged: list[dict[str, Any]] = [{"purpose": 7}, {"person": {}}, {"person_id": "1"}, {"seconds": "900"}]
    forged += [{"seconds": True}, {"scope": {}}, {"scope": {"kind": "all"}}, {"scope": {"kind": []}}]
    forged += [{"scope": {"kind": "memories", "numbers": ["1"]}}, {"scope": {"kind": "session", "session": "1"}}]
    for fields in forged:
        AuditEntry.objects.filter(pk=entry.pk).update(detail=entry.detail | fields)
        with pytest.raises(errors.NotFound):
            requests.find(fresh(agent), number)


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("access_requested", {"detail": {}}),
        ("access_requested", {"actor_label": "nobody"}),
        ("access_denied", {"operation": "access_granted"}),
        ("remembered", {"actor_label": "nobody"}),
    ],
)
def test_an_altered_trail_grants_nothing(agent: Agent, operation: str, values: dict[str, Any]) -> None:
    denied = ask(agent).number
    requests.deny(fresh(agent), denied, ME)
    number = granted(agent)
    remember(agent, "honey")
    assert read(agent, number, 1) == ["tea"]
    drop_guards()
    assert AuditEntry.objects.filter(agent_id=agent.pk, operation=operation, seq__gte=denied).update(**values)
    for each in (denied, number):
        if each == denied or operation != "access_denied":
            cannot_read(agent, each, 1)
    assert problems(agent)


@pytest.fixture
def pat(agent: Agent) -> Person:
    account = Account.objects.create_user("pat@acme.test")
    join(person=account, tenant=agent.tenant, role="auditor")
    return Person(account.pk, account.email)


USES: dict[str, Callable[[Agent, int, Person, str, str], object]] = {
    "read memories": lambda agent, number, pat, *_: granted_reads.memories(agent, number, pat, [1]),
    "read an entry": lambda agent, number, pat, *_: granted_reads.entry(agent, number, pat, 3),
    "make its token": lambda agent, number, pat, *_: grants.make_token(agent, number, pat),
    "use its token": lambda agent, _, __, token, ___: grants.prove_token(agent, token),
    "revoke": lambda agent, number, *_: requests.revoke(agent, number, ME),
    "show its state": lambda agent, number, *_: current_state(agent, number),
    "open the steward's link": lambda _, __, ___, ____, link: links.look(link),
    "revoke by the link": lambda _, __, ___, ____, link: links.revoke(link),
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_after_the_end_records_it_once(use: str, agent: Agent, pat: Person, time_machine: Any) -> None:
    number = ask(agent, pat, seconds=900).number
    link = links.make(fresh(agent), number)
    approval.approve(fresh(agent), number, ME)
    token, now = grants.make_token(fresh(agent), number, pat), timezone.now()
    for ahead in (901, 902):
        time_machine.move_to(now + timedelta(seconds=ahead))
        try:
            USES[use](fresh(agent), number, pat, token, link)
        except (errors.NotGranted, errors.NotOpen, errors.KeyRejected):
            assert use not in ("show its state", "open the steward's link")
    time_machine.move_to(now + timedelta(seconds=60))
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(agent), number, pat, [1])
    assert links.look(link).request.state == "expired"
    expired = AuditEntry.objects.filter(agent_id=agent.pk, operation="access_expired", detail__request=number)
    assert (state(agent, number), expired.count()) == ("expired", 1)
    assert not AuditEntry.objects.filter(operation="content_read").exists()
    assert problems(agent) == []


def test_a_grant_approved_while_the_clock_was_ahead_is_not_longer(agent: Agent, time_machine: Any) -> None:
    now = timezone.now()
    time_machine.move_to(now + timedelta(days=30))
    number = granted(agent, seconds=900)
    time_machine.move_to(now + timedelta(days=29))
    cannot_read(agent, number, 1)


def test_all_expired_grants_of_the_agent_are_recorded_together(agent: Agent, bob: Agent, time_machine: Any) -> None:
    now = timezone.now()
    asked = [ask(agent, Person(each, f"p{each}@acme.test"), seconds=900 + each) for each in range(3)]
    for request in asked:
        approval.approve(fresh(agent), request.number, ME)
    other = granted(bob)
    time_machine.move_to(now + timedelta(hours=2))
    before = fresh(bob).audit_seq
    assert [state(agent, request.number) for request in asked] == ["active"] * 3
    current_state(agent, asked[0].number)
    assert [state(agent, request.number) for request in asked] == ["expired"] * 3
    assert (fresh(bob).audit_seq, state(bob, other)) == (before, "active")


def test_a_refusal_for_another_reason_ends_no_grant(agent: Agent, pat: Person) -> None:
    number = granted(agent, person=pat, seconds=900)
    before = fresh(agent).audit_seq
    for wrong_number, person in ((number, Person(pat.id + 1, pat.address)), (number + 1, pat)):
        with pytest.raises(errors.NotGranted):
            granted_reads.memories(fresh(agent), wrong_number, person, [1])
    assert (fresh(agent).audit_seq, state(agent, number)) == (before, "active")
    assert len(granted_reads.memories(fresh(agent), number, pat, [1])) == 1


def test_a_grant_to_an_erased_silo_expires_too(agent: Agent, pat: Person, time_machine: Any) -> None:
    number = granted(agent, person=pat, seconds=900)
    signed_update(Agent.objects.filter(pk=agent.pk), wrapped_key=b"")
    time_machine.move_to(timezone.now() + timedelta(hours=1))
    assert current_state(agent, number) == state(agent, number) == "expired"
