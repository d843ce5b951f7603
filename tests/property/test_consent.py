"""Consent with a moving clock: in any sequence of requests, decisions, repeated links and clock changes, no one reads
outside the person, scope and time of an active grant, and no one decides on their own request."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from audit.consent import Person, Scope, same_address
from audit.models import AccessRequest, AuditEntry, State
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import approval, granted_reads, links, requests, withdrawals
from memory.errors import NotGranted
from memory.writing import operations
from tests import steps
from tests.access_requests import current_state
from tests.members import with_account
from tests.property.walk import DecisionWalk, attempt, walk
from tests.steps import ME

PEOPLE = [Person(1, "pat@acme.test"), Person(2, "eve@acme.test"), Person(3, "Stew+admin@ACME.test")]
STEWARDS = ["stew@acme.test", "other@elsewhere.test", ""]
PURPOSE = "to see why it forgot the customer"
SCOPES = [Scope("silo"), Scope("memories", numbers=(1, 2)), Scope("session", session=7)]
SCOPES += [Scope("entries", first=1, last=4)]
WHO = st.sampled_from(PEOPLE)
PICK = st.integers(0, 50)
REQUEST = {"person": WHO, "scope": st.sampled_from(SCOPES), "minutes": st.sampled_from([15, 60, 240])}
PER_PERSON, PER_AGENT = 3, 6  # requests within a day
MINUTES = [-600, -16, -1, 1, 1, 1, 14, 15, 16, 59, 60, 61, 239, 241, 72 * 60 - 1, 72 * 60 + 1]
HOW = ["read", "look", "revoke", "link", ""]
NOTICES = {"active": "lasts until", "revoked": "was ended on", "expired": "The grant expired"}


@dataclass
class Request:
    """A request, as the rules of consent have it."""

    number: int
    person: Person
    scope: Scope
    lasts: timedelta
    at: datetime
    granted_at: datetime | None = None
    is_over: bool = False

    def is_active(self, now: datetime) -> bool:
        return self.granted_at is not None and not self.is_over and now < self.granted_at + self.lasts

    def see(self, now: datetime) -> None:
        """Once the end of a grant is seen, the grant stays over."""
        if self.granted_at is not None and now >= self.granted_at + self.lasts:
            self.is_over = True

    def allows(self, person: Person, now: datetime, clock: datetime) -> bool:
        """A clock that is before the grant does not allow a read: a clock that was ahead must not prolong a grant."""
        is_before = self.granted_at is None or clock < self.granted_at
        return person == self.person and self.is_active(now) and not is_before


class Consent(DecisionWalk):
    def __init__(self) -> None:
        super().__init__()
        self.agent = self.create(steward=STEWARDS[0])

    @initialize()
    def begin(self) -> None:
        for person in PEOPLE:
            with_account(person, self.agent)
        steps.remember(self.agent, "tea", "milk", "sugar")
        operations.revise(self.agent, 3, ME, content="brown sugar", session=7)

    def is_open(self, item: Request) -> bool:
        return item.granted_at is None and super().is_open(item)

    def is_own(self, item: Request, address: str, approves: bool) -> bool:
        return same_address(address, item.person.address)

    def decided(self, item: Request, approves: bool, at: datetime) -> None:
        item.granted_at, item.is_over = (at, False) if approves else (None, True)

    def see_all(self) -> None:
        for request in self.items:
            request.see(self.latest())

    @rule(**REQUEST)
    def request(self, person: Person, scope: Scope, minutes: int) -> None:
        own = [each for each in self.items if each.person == person and self.is_open(each)]
        at, lasts = self.latest(), timedelta(minutes=minutes)
        recent = [each.person for each in self.items if each.at > at - timedelta(hours=24)]
        is_full = len(recent) >= PER_AGENT or recent.count(person) >= PER_PERSON
        is_steward = self.row().is_steward_only and same_address(self.row().steward, person.address)
        seconds = minutes * 60
        made = attempt(lambda: requests.ask_to_read(self.row(), person, purpose=PURPOSE, scope=scope, seconds=seconds))
        if isinstance(made, Exception):
            assert own or is_full or is_steward
            return
        assert not own
        assert not is_full
        self.items.append(Request(made.number, person, scope, lasts, at))

    @rule(**REQUEST)
    def request_and_grant(self, person: Person, scope: Scope, minutes: int) -> None:
        before = len(self.items)
        self.request(person, scope, minutes)
        if len(self.items) > before:
            self.runtime_decides(1, True)

    @rule(pick=PICK, approves=st.booleans())
    def runtime_decides(self, pick: int, approves: bool) -> None:
        self.decide_as(pick, Actor.agent(), approves, may=not self.row().is_steward_only)

    @rule(pick=PICK, approves=st.booleans(), who=st.sampled_from(["person", "operator", "system"]), person=WHO)
    def others_decide(self, pick: int, approves: bool, who: str, person: Person) -> None:
        self.decide_as(pick, Actor(who, person.address), approves, may=False)

    @rule(pick=PICK, approves=st.booleans(), person=WHO)
    def a_person_decides_as_steward(self, pick: int, approves: bool, person: Person) -> None:
        """Also the person who made the request, with another address of theirs."""
        if self.items:
            is_steward = same_address(person.address, self.row().steward)
            may = is_steward and not self.is_own(self.one(pick), person.address, approves)
            self.decide_as(pick, Actor.steward(person.address), approves, may=may)

    def decide_as(self, pick: int, actor: Actor, approves: bool, *, may: bool) -> None:
        if self.items:
            request = self.one(pick)
            decide = approval.approve if approves else requests.deny
            self.decide(request, lambda: decide(self.row(), request.number, actor), approves, may=may)

    @rule(pick=PICK)
    def forge_a_link(self, pick: int) -> None:
        if not self.links:
            return
        token = self.links[pick % len(self.links)][0]
        prefix, _, secret = token.partition("_")
        altered = f"{prefix}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}"
        for forged in (altered, token[:-1], f"{token}A", f"{'a' * 12}_{secret}", ""):
            for act in (links.look, links.revoke, lambda t: links.decide(t, approve=True)):
                assert attempt(lambda act=act, forged=forged: act(forged)).code == "link_broken"

    @rule(pick=PICK, by_link=st.booleans())
    def revoke(self, pick: int, by_link: bool) -> None:
        if by_link and self.links:
            token, request, steward, _ = self.links[pick % len(self.links)]
            may, act = steward == self.row().steward, lambda: links.revoke(token)
        elif self.items:
            request, may = self.one(pick), True
            act = lambda: requests.revoke(self.row(), request.number, ME)  # noqa: E731
        else:
            return
        may = may and request.is_active(self.latest())
        refusal = attempt(act, atomic=False)
        assert isinstance(refusal, Exception) != may
        if may:
            request.is_over = True
        elif refusal.code == "not_open":
            self.see_all()

    @rule(pick=PICK, by_link=st.booleans())
    def look(self, pick: int, by_link: bool) -> None:
        if by_link and self.links:
            token, request, steward, _ = self.links[pick % len(self.links)]
            if steward != self.row().steward:
                return
            state = links.look(token).request.state
        elif self.items:
            request = self.one(pick)
            state = current_state(self.agent, request.number)
        else:
            return
        assert (state == State.ACTIVE) == request.is_active(self.latest())
        request.see(self.latest())

    @rule(pick=PICK, minutes=st.sampled_from([16, 61, 241]), how=st.sampled_from(HOW))
    def the_clock_is_ahead_for_a_moment(self, pick: int, minutes: int, how: str) -> None:
        """Someone looks in that moment and sees that a grant is over."""
        self.move(minutes=minutes)
        if how == "read":
            self.read(PEOPLE[0], 1, 1)
        elif how == "revoke":
            self.revoke(pick, False)
        elif how:
            self.look(pick, how == "link")
        self.move(minutes=-minutes)

    @rule(person=WHO)
    def change_password(self, person: Person) -> None:
        withdrawals.withdraw_all(person.id, "password")
        for request in self.items:
            if request.person == person:
                request.is_over = True

    @rule(steward=st.sampled_from(STEWARDS), alone=st.booleans())
    def change_steward(self, steward: str, alone: bool) -> None:
        row = self.row()
        side = Actor.steward(row.steward) if row.steward and row.is_steward_only else ME
        lifecycle.change(row, side, steward=steward, is_steward_only=alone and bool(steward))

    @rule(minutes=st.sampled_from(MINUTES))
    def time_passes(self, minutes: int) -> None:
        self.move(minutes=minutes)

    @rule()
    def remember(self) -> None:
        steps.remember(self.agent, "honey")

    @rule(person=WHO, pick=PICK, number=st.integers(1, 3))
    def read(self, person: Person, pick: int, number: int) -> None:
        if not self.items:
            return
        request = self.one(pick)
        person, scope = request.person if pick % 3 else person, request.scope
        is_covered = scope.kind == "silo" or (scope.kind == "memories" and number in scope.numbers)
        may = is_covered and request.allows(person, self.latest(), self.now)
        try:
            [read] = granted_reads.memories(self.row(), request.number, person, [number])
        except NotGranted:
            assert not may
            self.see_all()
            return
        assert may
        assert read.memory.number == number
        entry = steps.last_entry(self.agent)
        assert (entry.operation, entry.actor_label) == ("content_read", person.address)
        assert entry.detail["memories"] == [number]

    @rule(person=WHO, pick=PICK, seq=st.integers(1, 6))
    def read_entry(self, person: Person, pick: int, seq: int) -> None:
        if not self.items:
            return
        request = self.one(pick)
        person, kind = request.person if pick % 3 else person, request.scope.kind
        entry = steps.entries(self.agent)[seq - 1] if seq <= self.row().audit_seq else None
        may = entry is not None and request.allows(person, self.latest(), self.now)
        covered = set(request.scope.numbers) if kind == "memories" else {1, 2, 3}
        changed = {change.number for change in steps.changes(self.agent, seq)} & covered
        may = may and bool(changed) and (kind != "session" or (entry is not None and entry.session == 7))
        may = may and (kind != "entries" or seq <= 4)
        found = attempt(lambda: granted_reads.entry(self.row(), request.number, person, seq), atomic=False)
        if isinstance(found, Exception):
            assert not may
            if found.code == "not_granted":
                self.see_all()
            return
        assert may
        assert {step.number for step in found} == changed

    @rule(number=st.integers(1, 3), seq=st.integers(1, 6), entry=st.booleans())
    def the_last_person_reads(self, number: int, seq: int, entry: bool) -> None:
        if self.items:
            person = self.items[-1].person
            self.read_entry(person, 1, seq) if entry else self.read(person, 1, number)

    @invariant()
    def the_trail_is_sound(self) -> None:
        self.grown(self.agent)

    @invariant()
    def the_agent_has_one_true_notice_of_each_grant_that_was_read_by(self) -> None:
        contents = [steps.says(self.agent, number).content for number in steps.active(self.agent)]
        notices = [(int(found[1]), text) for text in contents if (found := re.search(r"under grant (\d+)\.", text))]
        reads = AuditEntry.objects.filter(agent_id=self.agent.pk, operation="content_read")
        assert sorted(number for number, _ in notices) == sorted({entry.detail["request"] for entry in reads})
        for number, text in notices:
            state = requests.find(self.row(), number).state
            assert [each for each, words in NOTICES.items() if words in text] == [state]

    @invariant()
    def a_person_has_at_most_one_open_request(self) -> None:
        opened = AccessRequest.objects.filter(agent_id=self.agent.pk, state=State.REQUESTED)
        people = list(opened.values_list("person_id", flat=True))
        assert len(people) == len(set(people))


@pytest.mark.django_db
def test_no_one_reads_outside_a_grant(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = PER_PERSON, PER_AGENT
    walk(Consent, 8, steps=25)
