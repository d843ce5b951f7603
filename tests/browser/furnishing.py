"""A house that is lived in: two tenants whose agents remember, refine, take back and are asked, by the product's verbs.

No figure on the pages is written down here: budgets are, and what is said; what comes of them is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import refinement.demo
from audit.consent import Person as Asking
from audit.consent import Scope
from audit.trail import Actor
from memory.accounts import invitations
from memory.agents import lifecycle
from memory.consent import grants, removal_requests
from memory.models import Agent, DueReason, Membership, Person, Role
from memory.policy.validation import Draft
from memory.time_machine.rollback import What, roll_back
from memory.transfer import importing
from memory.writing import operations
from refinement import backlog, loop
from tests.admin.conftest import enrolled

LEDGER = Path(refinement.demo.__file__).parent / "ledger.jsonl"
RUNTIME = Actor.agent("runtime")
OPERATOR = Actor.operator("operations")
MODEL = "builtin/dedupe"
WHY = "Customers were told an opening hour that changed in spring: I look for where it comes from."


@dataclass(frozen=True)
class Home:
    """Who lives there. `owner` owns the first tenant and looks after the second's books."""

    owner: Person
    auditor: Person
    root: Person
    ada: Agent
    agents: tuple[Agent, ...]


def furnish(mark: str = "") -> Home:
    """Fill an empty database. `mark` goes before each text, to look for it on pages."""
    owner, auditor = enrolled("mirela@quayside.test"), enrolled("jonas@quayside.test")
    ada = _agent("quayside", "ada", mark, steward="lindiwe@stewards.test")
    ines = _agent("quayside", "ines", mark, lines=slice(60, 130))
    wren = _agent("quayside", "wren", mark)
    otto = _agent("quayside", "otto", mark, lines=slice(0, 200, 2), paused=True)
    bela = _agent("harbourmaster", "bela", mark, lines=slice(100, 216), budget_tokens=2_000, target_tokens=1_500)
    noor = _agent("harbourmaster", "noor", mark, lines=slice(0, 12))
    for person, tenant, role in (
        (owner, ada.tenant, Role.OWNER),
        (owner, bela.tenant, Role.AUDITOR),
        (auditor, ada.tenant, Role.AUDITOR),
    ):
        Membership.objects.create(person=person, tenant=tenant, role=role)
    invitations.invite(ada.tenant, "tomasz@quayside.test", Role.AUDITOR, owner)
    backlog.request(noor)
    _refined(ada, ines, bela)
    _edited(ines, mark)
    roll_back(ines, What.session(1), Actor.person(owner.email), reason="two merges went too far")
    _asked(ada, ines, owner, auditor)
    root = enrolled("root@service.test", is_superuser=True)
    return Home(owner, auditor, root, _fresh(ada), tuple(map(_fresh, (ada, ines, wren, otto, bela, noor))))


def _fresh(agent: Agent) -> Agent:
    return Agent.objects.select_related("tenant").get(pk=agent.pk)


def _agent(tenant: str, slug: str, mark: str, *, lines: slice = slice(None), **settings: Any) -> Agent:
    agent, _ = lifecycle.create(tenant, slug, model=MODEL, actor=OPERATOR, **settings)
    importing.check_lines(_marked(LEDGER.read_bytes().splitlines()[lines], mark)).store(agent, OPERATOR)
    return _fresh(agent)


def _marked(lines: Iterable[bytes], mark: str) -> Iterable[bytes]:
    for line in lines:
        said = json.loads(line)
        yield json.dumps(said | {"content": f"{mark} {said['content']}".strip()}).encode() + b"\n"


def _refined(*of: Agent) -> None:
    operations.protect(of[0], [1, 2], Actor.person("mirela@quayside.test"))
    for agent in of:
        loop.refine(_fresh(agent), trigger=DueReason.WEEKLY)


def _edited(agent: Agent, mark: str) -> None:
    """What happens between sessions."""
    operations.remember(agent, [Draft(f"{mark} The pier closes at nine.", kind="journal")], RUNTIME)
    operations.discard(agent, [5], RUNTIME)


def _asked(ada: Agent, ines: Agent, owner: Person, auditor: Person) -> None:
    """Requests in each state that needs no waiting."""
    mine, theirs = (Asking(person.pk, person.email) for person in (owner, auditor))
    denied = grants.ask(ada, theirs, purpose=WHY, scope=Scope("silo"))
    grants.deny(ada, denied.number, RUNTIME)
    grants.ask(ada, theirs, purpose=WHY, scope=Scope("session", session=1))
    granted = grants.ask(ada, mine, purpose=WHY, scope=Scope("memories", numbers=(1, 2, 3)))
    grants.approve(ada, granted.number, RUNTIME)
    ended = grants.ask(ines, mine, purpose=WHY, scope=Scope("session", session=1))
    grants.approve(ines, ended.number, RUNTIME)
    grants.revoke(ines, ended.number, Actor.person(owner.email))
    grants.ask(ines, theirs, purpose=WHY, scope=Scope("silo"))
    removal_requests.ask_redaction(ada, [3, 4], Actor.person(owner.email), reason="request 2026-114 of a customer")
