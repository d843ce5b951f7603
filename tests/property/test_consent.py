"""Consent as a machine with a moving clock: whoever asks, decides, replays a link or steps the clock, nobody reads
outside an active grant's person, scope and time, and nobody decides about their own request."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from audit.consent import LAPSES, Person, Scope, same_address
from audit.models import AccessRequest, AccessState, AuditEntry
from audit.trail import Actor
from config.errors import DomainError
from memory.agents import lifecycle
from memory.consent import granted_reads, grants, links
from memory.errors import NotGranted
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import ME, fresh

PEOPLE = [Person(1, "pat@acme.test"), Person(2, "eve@acme.test"), Person(3, "Stew+admin@ACME.test")]
STEWARDS = ["stew@acme.test", "other@elsewhere.test", ""]
PURPOSE = "to see why it forgot the customer"
SCOPES = [
    Scope("silo"),
    Scope("memories", numbers=(1, 2)),
    Scope("session", session=7),
    Scope("entries", first=1, last=4),
]
WHO = st.sampled_from(PEOPLE)
PICK = st.integers(0, 50)
MOST, MOST_OF_ALL = 3, 6  # requests within a day, by one person and of the agent
TELLING = {"active": "lasts until", "revoked": "was ended on", "expired": "The grant expired"}
_run = itertools.count(1)


@dataclass
class Asked:
    """What a plain reader of the rules makes of a request."""

    number: int
    person: Person
    scope: Scope
    seconds: int
    at: datetime
    granted_at: datetime | None = None
    is_over: bool = False

    def allows(self, person: Person, now: datetime) -> bool:
        if self.granted_at is None or self.is_over or person != self.person:
            return False
        return now < self.granted_at + timedelta(seconds=self.seconds)

    def see(self, now: datetime) -> None:
        """Somebody is told how it stands: over is over from then on."""
        if self.granted_at is not None and now >= self.granted_at + timedelta(seconds=self.seconds):
            self.is_over = True

    def is_read_by(self, person: Person, now: datetime, clock: datetime) -> bool:
        """Nor while the clock itself is before the grant: one that was ahead must not make it longer."""
        return self.allows(person, now) and self.granted_at is not None and self.granted_at <= clock


class Consent(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.traveller = self.at_end.enter_context(time_machine.travel(self.now, tick=False))
        run = next(_run)
        self.agent = lifecycle.create(f"t{run}", "ada", model="builtin/dedupe", actor=OPERATOR, steward=STEWARDS[0])[0]
        self.asked: list[Asked] = []
        self.links: list[tuple[str, Asked, str, datetime]] = []  # token, request, whom it was mailed to, when

    @initialize()
    def memories(self) -> None:
        steps.remember(self.agent, "tea", "milk", "sugar")
        operations.revise(self.agent, 3, ME, content="brown sugar", session=7)

    def check_at_end(self) -> None:
        assert steps.problems(self.agent) == []

    def row(self) -> Agent:
        return fresh(self.agent)

    def latest(self) -> datetime:
        """Clocks that are set back count for nothing."""
        at = self.row().audit_at
        return max(self.now, at) if at else self.now

    def one(self, pick: int) -> Asked:
        """The newest request as often as any."""
        return self.asked[-1 if pick % 2 else pick % len(self.asked)]

    # --- what people and the agent's side do

    @rule(person=WHO, scope=st.sampled_from(SCOPES), minutes=st.sampled_from([15, 60, 240]))
    def ask(self, person: Person, scope: Scope, minutes: int) -> None:
        mine = [each for each in self.asked if each.person == person and self.is_open(each)]
        at, seconds = self.latest(), minutes * 60
        recent = [each for each in self.asked if each.at > at - timedelta(hours=24)]
        is_full = len(recent) >= MOST_OF_ALL or [each.person for each in recent].count(person) >= MOST
        try:
            with transaction.atomic():
                told = grants.ask(self.row(), person, purpose=PURPOSE, scope=scope, seconds=seconds)
        except DomainError:
            alone = self.row().is_steward_only and same_address(self.row().steward, person.address)
            assert mine or is_full or alone
            return
        assert not mine
        assert not is_full
        self.asked.append(Asked(told.number, person, scope, seconds, at))

    @rule(person=WHO, scope=st.sampled_from(SCOPES), minutes=st.sampled_from([15, 60, 240]))
    def ask_and_be_granted(self, person: Person, scope: Scope, minutes: int) -> None:
        before = len(self.asked)
        self.ask(person, scope, minutes)
        if len(self.asked) > before:
            self.decided(1, Actor.agent(), approves=True, may=not self.row().is_steward_only)

    def is_open(self, asked: Asked) -> bool:
        return asked.granted_at is None and not asked.is_over and self.latest() < asked.at + LAPSES

    @rule(pick=PICK, approves=st.booleans())
    def runtime_decides(self, pick: int, approves: bool) -> None:
        self.decided(pick, Actor.agent(), approves, may=not self.row().is_steward_only)

    @rule(pick=PICK, approves=st.booleans(), who=st.sampled_from(["person", "operator", "system"]), person=WHO)
    def others_decide(self, pick: int, approves: bool, who: str, person: Person) -> None:
        self.decided(pick, Actor(who, person.address), approves, may=False)

    @rule(pick=PICK, approves=st.booleans(), person=WHO)
    def somebody_decides_as_steward(self, pick: int, approves: bool, person: Person) -> None:
        """Also whoever asked, under an address that reaches them."""
        if self.asked:
            asked = self.one(pick)
            is_steward = same_address(person.address, self.row().steward)
            may = is_steward and not same_address(person.address, asked.person.address)
            self.decided(pick, Actor.steward(person.address), approves, may=may)

    def decided(self, pick: int, actor: Actor, approves: bool, *, may: bool) -> None:
        if not self.asked:
            return
        asked = self.one(pick)
        may = may and self.is_open(asked)
        at = self.latest()
        try:
            with transaction.atomic():
                (grants.approve if approves else grants.deny)(self.row(), asked.number, actor)
        except DomainError:
            assert not may
            return
        assert may
        asked.granted_at, asked.is_over = (at, False) if approves else (None, True)

    @rule(pick=PICK)
    def mail(self, pick: int) -> None:
        if not self.asked:
            return
        asked, steward = self.one(pick), self.row().steward
        try:
            with transaction.atomic():
                token = links.make(self.row(), asked.number)
        except DomainError:
            assert not (self.is_open(asked) and steward)
            return
        self.links.append((token, asked, steward, self.now))

    @rule(pick=PICK, approves=st.booleans())
    def steward_decides(self, pick: int, approves: bool) -> None:
        if not self.links:
            return
        token, asked, steward, made = self.links[pick % len(self.links)]
        may = steward == self.row().steward and not same_address(steward, asked.person.address)
        may = may and self.is_open(asked) and self.now < made + LAPSES
        at = self.latest()
        try:
            with transaction.atomic():
                links.decide(token, approve=approves)
        except DomainError:
            assert not may
            return
        assert may
        asked.granted_at, asked.is_over = (at, False) if approves else (None, True)

    @rule(pick=PICK, how=st.sampled_from(["altered", "short", "long", "other", "empty"]))
    def forged(self, pick: int, how: str) -> None:
        if not self.links:
            return
        token = self.links[pick % len(self.links)][0]
        prefix, _, secret = token.partition("_")
        made_up = {
            "altered": f"{prefix}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}",
            "short": token[:-1],
            "long": f"{token}A",
            "other": f"{'a' * 12}_{secret}",
            "empty": "",
        }[how]
        for do in (links.look, links.revoke, lambda t: links.decide(t, approve=True)):
            with pytest.raises(DomainError) as refused:
                do(made_up)
            assert refused.value.code == "link_broken"

    @rule(pick=PICK, by_link=st.booleans())
    def revoke(self, pick: int, by_link: bool) -> None:
        if by_link and self.links:
            token, asked, steward, _ = self.links[pick % len(self.links)]
            may = steward == self.row().steward
        elif self.asked:
            token, asked, may = "", self.one(pick), True
        else:
            return
        may = may and asked.allows(asked.person, self.latest())
        try:
            links.revoke(token) if token else grants.revoke(self.row(), asked.number, ME)
        except DomainError as refused:
            assert not may
            if refused.code == "not_open":
                self.all_seen()
            return
        assert may
        asked.is_over = True

    def all_seen(self) -> None:
        for asked in self.asked:
            asked.see(self.latest())

    @rule(pick=PICK, by_link=st.booleans())
    def look(self, pick: int, by_link: bool) -> None:
        if by_link and self.links:
            token, asked, steward, _ = self.links[pick % len(self.links)]
            if steward != self.row().steward:
                return
            shown = links.look(token).state
        elif self.asked:
            asked = self.one(pick)
            shown = grants.current_state(self.row(), grants.find(self.row(), asked.number))
        else:
            return
        assert (shown == AccessState.ACTIVE) == asked.allows(asked.person, self.latest())
        asked.see(self.latest())

    @rule(
        pick=PICK, minutes=st.sampled_from([16, 61, 241]), how=st.sampled_from(["read", "look", "revoke", "link", ""])
    )
    def the_clock_is_ahead_for_a_moment(self, pick: int, minutes: int, how: str) -> None:
        """And whoever looks meanwhile is told that a grant is over."""
        self.time_passes(minutes)
        if how == "read":
            self.read(PEOPLE[0], 1, 1)
        elif how == "revoke":
            self.revoke(pick, False)
        elif how:
            self.look(pick, how == "link")
        self.time_passes(-minutes)

    @rule(person=WHO)
    def another_password(self, person: Person) -> None:
        grants.withdraw_all(person.id, "password")
        for asked in self.asked:
            if asked.person == person:
                asked.is_over = True

    @rule(steward=st.sampled_from(STEWARDS), alone=st.booleans())
    def another_steward(self, steward: str, alone: bool) -> None:
        lifecycle.change(self.row(), ME, steward=steward, is_steward_only=alone and bool(steward))

    @rule(minutes=st.sampled_from([-600, -16, -1, 1, 1, 1, 14, 15, 16, 59, 60, 61, 239, 241, 72 * 60 - 1, 72 * 60 + 1]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self.traveller.move_to(self.now, tick=False)

    @rule()
    def life_goes_on(self) -> None:
        steps.remember(self.agent, "honey")

    # --- what is read

    @rule(person=WHO, pick=PICK, number=st.integers(1, 3))
    def read(self, person: Person, pick: int, number: int) -> None:
        if not self.asked:
            return
        asked = self.one(pick)
        person = asked.person if pick % 3 else person
        may = asked.is_read_by(person, self.latest(), self.now) and (
            asked.scope.kind == "silo" or (asked.scope.kind == "memories" and number in asked.scope.numbers)
        )
        try:
            [read] = granted_reads.memories(self.row(), asked.number, person, [number])
        except NotGranted:
            assert not may
            self.all_seen()
            return
        assert may
        assert read.memory.number == number
        told = steps.last_entry(self.agent)
        assert (told.operation, told.actor_label, told.detail["memories"]) == ("content_read", person.address, [number])

    @rule(person=WHO, pick=PICK, seq=st.integers(1, 6))
    def read_entry(self, person: Person, pick: int, seq: int) -> None:
        if not self.asked:
            return
        asked = self.one(pick)
        person = asked.person if pick % 3 else person
        entry = steps.entries(self.agent)[seq - 1] if seq <= self.row().audit_seq else None
        may = entry is not None and asked.is_read_by(person, self.latest(), self.now)
        kind = asked.scope.kind
        covered = set(asked.scope.numbers) if kind == "memories" else {1, 2, 3}
        touched = {change.number for change in steps.changes(self.agent, seq)} & covered
        may = may and bool(touched) and (kind != "session" or (entry is not None and entry.session == 7))
        may = may and (kind != "entries" or seq <= 4)
        try:
            found = granted_reads.entry(self.row(), asked.number, person, seq)
        except DomainError as refused:
            assert not may
            if refused.code == "not_granted":
                self.all_seen()
            return
        assert may
        assert {step.number for step in found} == touched

    @rule(number=st.integers(1, 3), seq=st.integers(1, 6), entry=st.booleans())
    def who_asked_last_reads(self, number: int, seq: int, entry: bool) -> None:
        if self.asked:
            person = self.asked[-1].person
            self.read_entry(person, 1, seq) if entry else self.read(person, 1, number)

    # --- what always holds

    @invariant()
    def rows_repeat_the_trail(self) -> None:
        self.grown(self.agent)

    @invariant()
    def the_agent_is_told_what_is_so(self) -> None:
        """Of each grant by which somebody read, once, and as the trail has it."""
        said = [steps.says(self.agent, number).content for number in steps.active(self.agent)]
        told = [(int(found[1]), text) for text in said if (found := re.search(r"under grant (\d+)\.", text))]
        read = AuditEntry.objects.filter(agent_id=self.agent.pk, operation="content_read")
        assert sorted(number for number, _ in told) == sorted({entry.detail["request"] for entry in read})
        for number, text in told:
            state = grants.find(self.row(), number).state
            assert [each for each, words in TELLING.items() if words in text] == [state]

    @invariant()
    def one_open_request_a_person(self) -> None:
        opened = AccessRequest.objects.filter(agent_id=self.agent.pk, state=AccessState.REQUESTED)
        people = list(opened.values_list("person_id", flat=True))
        assert len(people) == len(set(people))


@pytest.mark.django_db
def test_nobody_reads_outside_a_grant(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = MOST, MOST_OF_ALL
    run_state_machine_as_test(Consent, settings=walks(12, steps=25))
