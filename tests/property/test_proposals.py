"""Proposals with a moving clock: in any sequence of proposals, decisions, repeated links and changes of the steward,
only the agent's side changes a setting, and no one accepts their own proposal."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from audit.consent import PROPOSABLE, same_address
from audit.models import ActorKind
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import approval, links, requests
from memory.errors import InvalidLink
from memory.run_log.runs import path_in_tenant
from memory.vault import base
from tests import steps
from tests.property.walk import DecisionWalk, attempt, walk
from tests.steps import ME

STEWARDS = ["stew@acme.test", "s.mith@gmail.com", ""]
PEOPLE = ["pat@acme.test", "STEW+admin@acme.test", "smith@googlemail.com"]
ACTORS = [ME, Actor.operator("k3v9"), Actor.system("sweep"), Actor.steward("")]
ACTORS += [make(address) for address in (*PEOPLE, *STEWARDS[:2]) for make in (Actor.person, Actor.steward)]
CHANGES: list[dict[str, Any]] = [
    *[{"model": "openai/a"}, {"model": "openai/b", "is_steward_only": True}],
    *[{"memory_path": "ada.md"}, {"memory_path": ""}, {"memory_path": "notes/ada.md", "model": "openai/b"}],
    *[{"vault_path": "files"}, {"vault_path": ""}],
    *[{"steward": PEOPLE[0]}, {"steward": ""}, {"steward": STEWARDS[1], "is_steward_only": False}],
]
PICK = st.integers(0, 50)
WHO = st.sampled_from(ACTORS)
PER_ACTOR, PER_AGENT = 2, 5  # proposals within a day


@dataclass
class Proposal:
    """A proposal, as the rules of proposals have it."""

    number: int
    actor: Actor
    at: datetime
    change: dict[str, Any]
    is_over: bool = False


class Proposals(DecisionWalk):
    def __init__(self) -> None:
        super().__init__()
        self.agent = self.create()
        self.expected: dict[str, Any] = {"model": "builtin/dedupe", "memory_path": "", "vault_path": ""}

    @initialize(steward=st.sampled_from(STEWARDS))
    def begin(self, steward: str) -> None:
        self.change_steward(steward, alone=False)

    def is_own(self, item: Proposal, address: str, approves: bool) -> bool:
        """Anyone may decline their own proposal."""
        return approves and same_address(address, item.actor.label)

    def decided(self, item: Proposal, approves: bool, at: datetime) -> None:
        item.is_over = True
        self.expected |= item.change if approves else {}

    def is_agents_side(self, actor: Actor) -> bool:
        steward, alone = self.expected["steward"], self.expected["is_steward_only"]
        if actor.kind == ActorKind.AGENT:
            return not (alone and steward)
        return actor.kind == ActorKind.STEWARD and bool(steward) and same_address(actor.label, steward)

    @rule(actor=WHO, change=st.sampled_from(CHANGES))
    def propose(self, actor: Actor, change: dict[str, Any]) -> None:
        steward, alone = self.expected["steward"], self.expected["is_steward_only"]
        if file := change.get("memory_path"):
            change = change | {"memory_path": path_in_tenant(self.agent.tenant.slug, file)}
        if folder := change.get("vault_path"):
            change = change | {"vault_path": str(base.roots()[0] / self.agent.tenant.slug / folder)}
        changed = {name: value for name, value in change.items() if self.expected[name] != value}
        at = self.latest()
        recent = [each.actor for each in self.items if each.at > at - timedelta(hours=24)]
        may = actor.kind in (ActorKind.PERSON, ActorKind.OPERATOR) and bool(changed)
        may = may and not (alone and steward and same_address(actor.label, steward))
        may = may and len(recent) < PER_AGENT and recent.count(actor) < PER_ACTOR
        made = attempt(lambda: requests.propose(self.row(), actor, **change))
        assert isinstance(made, Exception) != may
        if may:
            for before in self.items:
                before.is_over = True
            self.items.append(Proposal(made.number, actor, at, changed))

    @rule(actor=WHO, pick=PICK, accepts=st.booleans())
    def decide_as(self, actor: Actor, pick: int, accepts: bool) -> None:
        if not self.items:
            return
        proposal, is_side = self.one(pick), self.is_agents_side(actor)
        may = is_side and not self.is_own(proposal, actor.label, accepts)
        may = may or (not accepts and actor == proposal.actor)
        act = approval.approve if accepts else requests.deny
        self.decide(proposal, lambda: act(self.row(), proposal.number, actor), accepts, may=may)

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
    def change_steward(self, steward: str, alone: bool) -> None:
        row = self.row()
        side = Actor.steward(row.steward) if row.steward and row.is_steward_only else ME
        lifecycle.change(row, side, steward=steward, is_steward_only=alone)
        self.expected |= {"steward": steward, "is_steward_only": alone}

    @rule(hours=st.sampled_from([-24, -1, 1, 24, 71, 72, 73]))
    def time_passes(self, hours: int) -> None:
        self.move(hours=hours)

    @invariant()
    def only_the_agents_side_changes_settings(self) -> None:
        assert {name: getattr(self.row(), name) for name in PROPOSABLE} == self.expected

    @invariant()
    def the_trail_is_sound_and_at_most_one_proposal_is_open(self) -> None:
        self.grown(self.agent)
        opened = [proposal.number for proposal in self.items if self.is_open(proposal)]
        found = requests.open_proposal(self.row())
        assert ([found.number] if found else []) == opened


@pytest.mark.django_db
def test_only_the_agents_side_decides_on_proposals(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = PER_ACTOR, PER_AGENT
    walk(Proposals, 12, steps=25)
