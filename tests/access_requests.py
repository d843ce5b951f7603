"""Requests for access, and grants, without the admin."""

from typing import Any

from audit.consent import Person, Request, Scope
from audit.models import AccessRequest
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import approval, granted_reads, requests
from memory.models import Agent
from memory.writing import operations
from tests.members import with_account
from tests.steps import ME, fresh, remember

PAT = Person(1, "pat@acme.test")
EVE = Person(2, "eve@acme.test")
STEWARD = Actor.steward("stew@acme.test")
SILO = Scope("silo")
PURPOSE = "to see why it forgot the customer"


def with_a_past(ada: Agent) -> Agent:
    """Give the agent a steward, and three memories, one of them revised in session 7."""
    remember(ada, "tea", "milk", "sugar")
    operations.revise(ada, 3, ME, content="brown sugar", session=7)
    lifecycle.change(ada, ME, steward=STEWARD.label)
    return fresh(ada)


def ask(agent: Agent, person: Person = PAT, **fields: Any) -> Request:
    return requests.ask_to_read(fresh(agent), person, **{"purpose": PURPOSE, "scope": SILO, **fields})


def granted(agent: Agent, scope: Scope = SILO, person: Person = PAT, **fields: Any) -> int:
    """The number of a new grant."""
    number = ask(agent, with_account(person, agent), scope=scope, **fields).number
    approval.approve(fresh(agent), number, ME)
    return number


def read(agent: Agent, number: int, *numbers: int, person: Person = PAT) -> list[str]:
    """The contents of these memories, read under this grant."""
    return [each.opened.content for each in granted_reads.memories(fresh(agent), number, person, numbers)]


def current_state(agent: Agent, number: int) -> str:
    """The state that the pages and the API show. If the grant has expired, the trail then records this."""
    requests.expire(fresh(agent))
    return requests.find(agent, number).at(requests.clock(fresh(agent))).state


def state(agent: Agent, number: int) -> str:
    return AccessRequest.objects.get(agent_id=agent.pk, number=number).state
