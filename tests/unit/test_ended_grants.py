"""A grant that anybody was told is over stays over, whatever the clock says afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.consent import Person
from audit.models import AccessRequest, AuditEntry
from memory import errors
from memory.consent import grant_tokens, granted_reads, grants, links
from memory.models import Agent, Membership
from memory.models import Person as Account
from tests.asking import PAT, PURPOSE, SILO, ask, state, with_a_past
from tests.steps import ME, fresh, problems


@pytest.fixture
def past(ada: Agent) -> Agent:
    return with_a_past(ada)


@pytest.fixture
def pat(past: Agent) -> Person:
    account = Account.objects.create(email=PAT.address)
    Membership.objects.create(person=account, tenant=past.tenant, role="auditor")
    return Person(account.pk, account.email)


def told(agent: Agent, number: int) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(agent_id=agent.pk, operation="access_expired", detail__request=number))


ROADS: dict[str, Callable[[Agent, int, Person, str, str], object]] = {
    "a read": lambda agent, number, pat, *_: granted_reads.memories(agent, number, pat, [1]),
    "a read of an entry": lambda agent, number, pat, *_: granted_reads.entry(agent, number, pat, 3),
    "its token made": lambda agent, number, pat, *_: grant_tokens.make(agent, number, pat),
    "its token shown": lambda agent, _, __, token, ___: grant_tokens.proven(agent, token),
    "a revocation": lambda agent, number, *_: grants.revoke(agent, number, ME),
    "its state": lambda agent, number, *_: grants.current_state(agent, grants.find(agent, number)),
    "the steward's link": lambda _, __, ___, ____, link: links.look(link),
    "a revocation by the link": lambda _, __, ___, ____, link: links.revoke(link),
}


@pytest.mark.parametrize("road", ROADS)
def test_by_whatever_road_it_was_told(road: str, past: Agent, pat: Person, time_machine: Any) -> None:
    now = timezone.now()
    number = grants.ask(past, pat, purpose=PURPOSE, scope=SILO, seconds=900).number
    link = links.make(fresh(past), number)
    grants.approve(fresh(past), number, ME)
    token = grant_tokens.make(fresh(past), number, pat)
    for ahead in (901, 902):
        time_machine.move_to(now + timedelta(seconds=ahead))
        try:
            ROADS[road](fresh(past), number, pat, token, link)
        except (errors.NotGranted, errors.NotOpen, errors.KeyRejected):
            assert road not in ("its state", "the steward's link")
    time_machine.move_to(now + timedelta(seconds=60))
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(past), number, pat, [1])
    assert links.look(link).state == "expired"
    assert (state(past, number), len(told(past, number))) == ("expired", 1)
    assert not AuditEntry.objects.filter(operation="content_read").exists()
    assert problems(past) == []


def test_all_that_are_over_are_with_one(past: Agent, bob: Agent, pat: Person, time_machine: Any) -> None:
    now = timezone.now()
    asked = [ask(past, Person(each, f"p{each}@acme.test"), seconds=900 + each) for each in range(3)]
    for each in asked:
        grants.approve(fresh(past), each.number, ME)
    elsewhere = ask(bob)  # as little in force, and nobody asked
    grants.approve(fresh(bob), elsewhere.number, ME)
    time_machine.move_to(now + timedelta(hours=2))
    before = fresh(bob).audit_seq
    grants.current_state(fresh(past), asked[0])  # as it was when it was asked: nothing is over of it
    assert [state(past, each.number) for each in asked] == ["active"] * 3
    grants.current_state(fresh(past), grants.find(past, asked[0].number))
    assert [state(past, each.number) for each in asked] == ["expired"] * 3
    assert (fresh(bob).audit_seq, state(bob, elsewhere.number)) == (before, "active")


def test_a_refusal_for_another_reason_ends_nothing(past: Agent, pat: Person) -> None:
    number = grants.ask(past, pat, purpose=PURPOSE, scope=SILO, seconds=900).number
    grants.approve(fresh(past), number, ME)
    before = fresh(past).audit_seq
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(past), number, Person(pat.id + 1, pat.address), [1])
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(past), number + 1, pat, [1])
    assert (fresh(past).audit_seq, state(past, number)) == (before, "active")
    assert len(granted_reads.memories(fresh(past), number, pat, [1])) == 1


def test_of_an_erased_silo_it_ends_too(past: Agent, pat: Person, time_machine: Any) -> None:
    number = grants.ask(past, pat, purpose=PURPOSE, scope=SILO, seconds=900).number
    grants.approve(fresh(past), number, ME)
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"")
    time_machine.move_to(timezone.now() + timedelta(hours=1))
    assert grants.current_state(fresh(past), grants.find(past, number)) == "expired"
    assert AccessRequest.objects.get(number=number).state == "expired"
