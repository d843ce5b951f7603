"""Example data: two tenants whose agents have memories, sessions, a rollback, and requests in several states."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import time_machine
from django.utils import timezone

import refinement.demo
from audit.consent import Person as Asking
from audit.consent import Scope
from audit.trail import Actor
from memory.accounts import invitations
from memory.agents import lifecycle
from memory.consent import approval, requests
from memory.models import Agent, DueReason, Person, Role
from memory.policy.validation import Draft
from memory.time_machine.rollback import What, roll_back
from memory.transfer import importing
from memory.writing import operations
from refinement import backlog, loop
from refinement import session as sessions
from refinement.models import Outcome
from tests.admin.conftest import enrolled
from tests.members import join
from tests.steps import ME, fresh

LEDGER = Path(refinement.demo.__file__).parent / "ledger.jsonl"
WEEKS = 8
OPERATOR = Actor.operator("operations")
PURPOSE = "Customers were told an opening hour that changed in spring: I look for where it comes from."


@dataclass(frozen=True)
class Home:
    """The people and the agents. `owner` owns the first tenant and is an auditor of the second."""

    owner: Person
    auditor: Person
    root: Person
    ada: Agent


def furnish(mark: str = "") -> Home:
    """Fill an empty database. Each text starts with `mark`, so that tests can search pages for it."""
    owner, auditor = enrolled("mirela@quayside.test"), enrolled("jonas@quayside.test")
    person = Actor.person(owner.email)
    ada = _grown(mark)
    ines = _agent("quayside", "ines", mark, lines=slice(60, 130))
    wren = _agent("quayside", "wren", mark)
    _agent("quayside", "otto", mark, lines=slice(0, 200, 2), paused=True)
    bela = _agent("harbourmaster", "bela", mark, lines=slice(100, 216), budget_tokens=2_000, target_tokens=1_500)
    noor = _agent("harbourmaster", "noor", mark, lines=slice(0, 12))
    for member, tenant, role in (
        (owner, ada.tenant, Role.OWNER),
        (owner, bela.tenant, Role.AUDITOR),
        (auditor, ada.tenant, Role.AUDITOR),
    ):
        join(person=member, tenant=tenant, role=role)
    invitations.invite(ada.tenant, "tomasz@quayside.test", Role.AUDITOR, owner)
    backlog.request(noor)
    operations.protect(ada, [1, 2], person)
    for agent in (ines, bela):
        loop.refine(fresh(agent), trigger=DueReason.WEEKLY)
    for agent, outcome, reason, problem in (
        (wren, Outcome.FAILED, "interrupted", "The program that ran it was stopped."),
        (bela, Outcome.INCOMPLETE, "limit_seconds", "It reached its limit of 1,800 seconds."),
    ):
        opened = sessions.open_session(fresh(agent), trigger=DueReason.OVER_BUDGET)
        sessions.close(opened, outcome, reason, problem=problem)
    operations.remember(ines, [Draft(f"{mark} The pier closes at nine.", kind="journal")], ME)
    operations.discard(ines, [5], ME)
    roll_back(ines, What("session", 1), person, reason="two merges went too far")
    _add_requests(ada, ines, owner, auditor)
    root = enrolled("root@service.test", is_superuser=True)
    return Home(owner, auditor, root, fresh(ada))


def _grown(mark: str) -> Agent:
    """An agent that has got memories for WEEKS weeks, and was refined after each of them."""
    now = timezone.now()
    with time_machine.travel(now - timedelta(weeks=WEEKS, hours=5), tick=True):
        sizes = {"budget_tokens": 6_000, "target_tokens": 5_000}
        ada = _agent("quayside", "ada", mark, lines=slice(0, 0), steward="lindiwe@stewards.test", **sizes)
    lines, size = LEDGER.read_bytes().splitlines(), 216 // WEEKS
    for week in range(WEEKS):
        monday = now - timedelta(weeks=WEEKS - 1 - week, hours=5)
        for day in range(3):
            with time_machine.travel(monday - timedelta(days=6 - 2 * day), tick=True):
                part = lines[week * size + day * size // 3 : week * size + (day + 1) * size // 3]
                importing.check_lines(_marked(part, mark)).store(fresh(ada), OPERATOR)
        with time_machine.travel(monday, tick=True):
            loop.refine(fresh(ada), trigger=DueReason.WEEKLY)
    return fresh(ada)


def _agent(tenant: str, slug: str, mark: str, *, lines: slice = slice(None), **settings: Any) -> Agent:
    agent, _ = lifecycle.create(tenant, slug, model="builtin/dedupe", actor=OPERATOR, **settings)
    importing.check_lines(_marked(LEDGER.read_bytes().splitlines()[lines], mark)).store(agent, OPERATOR)
    return fresh(agent)


def _marked(lines: Iterable[bytes], mark: str) -> Iterable[bytes]:
    for line in lines:
        memory = json.loads(line)
        yield json.dumps(memory | {"content": f"{mark} {memory['content']}".strip()}).encode() + b"\n"


def _add_requests(ada: Agent, ines: Agent, owner: Person, auditor: Person) -> None:
    """Requests for access in each state but expired and lapsed, and a request to remove content."""
    own, other = (Asking(person.pk, person.email) for person in (owner, auditor))

    def ask(agent: Agent, person: Asking, scope: Scope) -> int:
        return requests.ask_to_read(agent, person, purpose=PURPOSE, scope=scope).number

    silo, session = Scope("silo"), Scope("session", session=1)
    requests.deny(ada, ask(ada, other, silo), ME)
    ask(ada, other, session)
    approval.approve(ada, ask(ada, own, Scope("memories", numbers=(1, 2, 3))), ME)
    ended = ask(ines, own, session)
    approval.approve(ines, ended, ME)
    requests.revoke(ines, ended, Actor.person(owner.email))
    ask(ines, other, silo)
    requests.ask_redaction(ada, [3, 4], Actor.person(owner.email), reason="request 2026-114 of a customer")
