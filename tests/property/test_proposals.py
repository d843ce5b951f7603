"""Proposals as a machine with a moving clock: whoever proposes, decides, replays a link or changes the steward, a
setting changes by the agent's side alone, and nobody accepts what they proposed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from audit.consent import LAPSES, same_address
from audit.models import ActorKind
from audit.proposals import PROPOSABLE
from audit.trail import Actor
from config.errors import DomainError
from memory.agents import lifecycle
from memory.consent import links, proposals
from memory.errors import InvalidLink
from memory.models import Agent
from memory.run_log.runs import path_in_tenant
from memory.vault import base
from tests import steps
from tests.conftest import OPERATOR
from tests.property.effort import Walk, walks
from tests.steps import ME, fresh

STEWARDS = ["stew@acme.test", "s.mith@gmail.com", ""]
PEOPLE = ["pat@acme.test", "STEW+admin@acme.test", "smith@googlemail.com"]
ACTORS = [ME, Actor.operator("k3v9"), Actor.system("sweep"), Actor.steward("")]
ACTORS += [make(address) for address in (*PEOPLE, *STEWARDS[:2]) for make in (Actor.person, Actor.steward)]
CHANGES: list[dict[str, Any]] = [
    {"model": "openai/a"},
    {"model": "openai/b", "is_steward_only": True},
    {"memory_path": "ada.md"},
    {"memory_path": ""},
    {"vault_path": "files"},
    {"vault_path": ""},
    {"memory_path": "notes/ada.md", "model": "openai/b"},
    {"steward": PEOPLE[0]},
    {"steward": ""},
    {"steward": STEWARDS[1], "is_steward_only": False},
]
PICK = st.integers(0, 50)
MOST, MOST_OF_ALL = 2, 5  # proposals within a day, by one actor and of the agent
_run = itertools.count(1)


@dataclass
class Made:
    """What a plain reader of the rules makes of a proposal."""

    number: int
    actor: Actor
    at: datetime
    change: dict[str, Any]
    is_over: bool = False


class Proposals(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.traveller = self.at_end.enter_context(time_machine.travel(self.now, tick=False))
        self.agent = lifecycle.create(f"p{next(_run)}", "ada", model="builtin/dedupe", actor=OPERATOR)[0]
        self.made: list[Made] = []
        self.links: list[tuple[str, Made, str, datetime]] = []
        self.expected: dict[str, Any] = {"model": "builtin/dedupe", "steward": "", "is_steward_only": False}
        self.expected["memory_path"] = self.expected["vault_path"] = ""

    @initialize(steward=st.sampled_from(STEWARDS))
    def begins(self, steward: str) -> None:
        self.agents_side(steward, alone=False)

    def check_at_end(self) -> None:
        assert steps.problems(self.agent) == []

    def row(self) -> Agent:
        return fresh(self.agent)

    def latest(self) -> datetime:
        at = self.row().audit_at
        return max(self.now, at) if at else self.now

    def one(self, pick: int) -> Made:
        return self.made[-1 if pick % 3 else pick % len(self.made)]

    def is_open(self, made: Made) -> bool:
        return not made.is_over and self.latest() < made.at + LAPSES

    def is_side(self, actor: Actor) -> bool:
        steward, alone = self.expected["steward"], self.expected["is_steward_only"]
        if actor.kind == ActorKind.AGENT:
            return not (alone and steward)
        return actor.kind == ActorKind.STEWARD and bool(steward) and same_address(actor.label, steward)

    @rule(actor=st.sampled_from(ACTORS), change=st.sampled_from(CHANGES))
    def propose(self, actor: Actor, change: dict[str, Any]) -> None:
        steward, alone = self.expected["steward"], self.expected["is_steward_only"]
        if file := change.get("memory_path"):
            change = change | {"memory_path": path_in_tenant(self.agent.tenant.slug, file)}
        if folder := change.get("vault_path"):
            change = change | {"vault_path": str(base.roots()[0] / self.agent.tenant.slug / folder)}
        changed = {name: value for name, value in change.items() if self.expected[name] != value}
        may = actor.kind in (ActorKind.PERSON, ActorKind.OPERATOR) and bool(changed)
        may = may and not (alone and steward and same_address(actor.label, steward))
        at = self.latest()
        recent = [made.actor for made in self.made if made.at > at - timedelta(hours=24)]
        may = may and len(recent) < MOST_OF_ALL and recent.count(actor) < MOST
        try:
            with transaction.atomic():
                told = proposals.propose(self.row(), actor, **change)
        except DomainError:
            assert not may
            return
        assert may
        for before in self.made:
            before.is_over = True
        self.made.append(Made(told.number, actor, at, changed))

    @rule(actor=st.sampled_from(ACTORS), pick=PICK, accepts=st.booleans())
    def decide(self, actor: Actor, pick: int, accepts: bool) -> None:
        if not self.made:
            return
        made = self.one(pick)
        may = self.is_open(made) and self.is_side(actor)
        if accepts:
            may = may and not same_address(actor.label, made.actor.label)
        else:
            may = may or (self.is_open(made) and actor == made.actor)
        self.settle(
            made,
            lambda: (proposals.accept if accepts else proposals.decline)(self.row(), made.number, actor),
            may,
            accepts,
        )

    def settle(self, made: Made, do: Any, may: bool, accepts: bool) -> None:
        try:
            with transaction.atomic():
                do()
        except DomainError:
            assert not may
            return
        assert may
        made.is_over = True
        if accepts:
            self.expected |= made.change

    @rule(pick=PICK)
    def mail(self, pick: int) -> None:
        if not self.made:
            return
        made, steward = self.one(pick), self.expected["steward"]
        try:
            with transaction.atomic():
                token = links.make(self.row(), made.number)
        except DomainError:
            assert not (self.is_open(made) and steward)
            return
        self.links.append((token, made, steward, self.now))

    @rule(pick=PICK, accepts=st.booleans())
    def steward_decides(self, pick: int, accepts: bool) -> None:
        if not self.links:
            return
        token, made, steward, at = self.links[pick % len(self.links)]
        may = steward == self.expected["steward"] and self.is_open(made) and self.now < at + LAPSES
        may = may and not (accepts and same_address(steward, made.actor.label))
        self.settle(made, lambda: links.decide(token, approve=accepts), may, accepts)

    @rule(pick=PICK)
    def look(self, pick: int) -> None:
        before = steps.state(self.agent)
        for token, _, steward, _ in self.links[pick % (len(self.links) or 1) :]:
            try:
                links.look(token)
            except InvalidLink:
                assert steward != self.expected["steward"]
        assert steps.state(self.agent) == before

    @rule(steward=st.sampled_from(STEWARDS), alone=st.booleans())
    def agents_side(self, steward: str, alone: bool) -> None:
        lifecycle.change(self.row(), ME, steward=steward, is_steward_only=alone)
        self.expected |= {"steward": steward, "is_steward_only": alone}

    @rule(hours=st.sampled_from([-24, -1, 1, 24, 71, 72, 73]))
    def time_passes(self, hours: int) -> None:
        self.now += timedelta(hours=hours)
        self.traveller.move_to(self.now, tick=False)

    @invariant()
    def what_decides_who_reads_is_as_its_side_left_it(self) -> None:
        row = self.row()
        assert {name: getattr(row, name) for name in PROPOSABLE} == self.expected

    @invariant()
    def the_trail_is_whole_and_one_is_open(self) -> None:
        self.grown(self.agent)
        opened = [made.number for made in self.made if self.is_open(made)]
        shown = proposals.open_one(self.row())
        assert ([shown.number] if shown else []) == opened


@pytest.mark.django_db
def test_the_agents_side_alone_decides_who_decides(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = MOST, MOST_OF_ALL
    run_state_machine_as_test(Proposals, settings=walks(12, steps=25))
