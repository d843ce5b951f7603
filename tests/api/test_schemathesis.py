"""Whatever the schema allows, and what it does not, asked at random: no failure, no answer beside the schema, nothing
of another tenant.

In the suite for a few seconds with one seed; `SCHEMATHESIS_SECONDS=600` asks for ten minutes, half of it with each kind
of key, with seeds of the clock's that are printed (`SCHEMATHESIS_SEED` repeats the first).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.db import connections
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events

from audit.consent import Person, Scope
from audit.trail import Actor
from memory.access import authentication, tenants
from memory.agents import lifecycle
from memory.consent import grants, proposals, removal_requests
from memory.errors import KeyRejected
from memory.models import Agent
from tests import steps
from tests.conftest import OPERATOR, House
from tests.steps import problems

pytestmark = pytest.mark.database

SECONDS = int(os.environ.get("SCHEMATHESIS_SECONDS", "0"))
SEED = int(os.environ.get("SCHEMATHESIS_SEED", time.time() if SECONDS else 7))
application = WSGIHandler()
# Only ever said by the other tenant. Put together, because what stands in a test as it is Hypothesis sends by itself.
FOREIGN = "".join(reversed("ngierof7AGGAUQ"))
FEW = 6
PLACE = "Bearer the-key"  # what the client sends for the key of the moment


@schemathesis.serializer("application/x-ndjson", "application/gzip", "text/markdown")
def lines(context: schemathesis.SerializationContext, value: Any) -> dict[str, Any]:
    return {"data": value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")}


@dataclass
class Door:
    """The service as a WSGI application, behind which the key is always a good one, though keys are ended here too."""

    key: str
    renew: Callable[[str], str]
    requests: int = 0
    done: int = 0
    broken: list[str] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("HTTP_AUTHORIZATION") == PLACE:
            self.key = self.renew(self.key)
            environ["HTTP_AUTHORIZATION"] = f"Bearer {self.key}"
        said: list[Any] = []

        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            said.extend((status, headers))
            return start_response(status, headers, *rest)

        answer: Any = application(environ, started)
        body = b"".join(answer)
        answer.close()
        connections.close_all()
        self.requests += 1
        self.done += said[0].startswith("2")
        if FOREIGN.encode() in body or FOREIGN in str(said) or said[0].startswith("5"):
            self.broken.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}: {said[0]}")
        return [body]


def configured(examples: int, seed: int) -> SchemathesisConfig:
    """Few examples go without the phase that tries every bound of every value: it is of hundreds of requests."""
    # What may be refused is more than a schema can say: memories that are none, sessions that are over, 409 and 412.
    refused = [400, 401, 404, 405, 406, 409, 412, 413, 415, 422]
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "continue-on-failure": True,
            "phases": {"coverage": {"enabled": examples > FEW}},
            "generation": {"max-examples": examples, "database": "none"},
            "checks": {
                "positive_data_acceptance": {"expected-statuses": [200, 201, 202, 204, 304, *refused]},
                "negative_data_rejection": {"enabled": False},  # an unknown header or a text for a number in a query
                "ignored_auth": {"enabled": False},  # every address is asked without a key in test_keys.py
                "use_after_free": {"enabled": False},  # what is discarded is kept, and read
                "missing_required_header": {"enabled": False},  # there is none but the key's
                "object_level_authorization": {"enabled": False},  # `nothing of another tenant` is told by FOREIGN
            },
        }
    )


def failures(door: Door, section: str, examples: int, seed: int) -> list[str]:
    """What the engine finds at the addresses of one kind of key, in each of its phases."""
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", door, config=configured(examples, seed))
    of_tenants = r"^/api/v1/agents"
    schema = schema.include(path_regex=of_tenants) if section == "tenant" else schema.exclude(path_regex=of_tenants)
    schema.config.update(headers={"Authorization": PLACE})
    found: list[str] = []
    for event in engine.from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            found.append(f"{event!r}"[:2000])
        if isinstance(event, events.ScenarioFinished | events.FuzzScenarioFinished):
            for checks in event.recorder.checks.values():
                found += [
                    f"{event.recorder.label} {check.name}: {check.failure_info.failure}"
                    for check in checks
                    if check.failure_info is not None
                ]
    return found


def until_the_time_is_up(door: Door, section: str) -> list[str]:
    end, seed = time.monotonic() + SECONDS / 2, SEED
    while not (found := failures(door, section, 20 if SECONDS else FEW, seed)) and time.monotonic() < end:
        seed += 1
    print(*sorted(set(found)), f"{section}'s key: {door.requests:,} requests, seeds {SEED} to {seed}", sep="\n")
    assert door.done > door.requests / 10  # it is not refused whatever it asks
    return found


@pytest.fixture
def peopled(house: House, settings: Any, transactional_db: None) -> House:
    settings.API_RATE = 10**9
    settings.ALLOWED_HOSTS = ["*"]
    tenant = house.bob.tenant
    tenant.name = FOREIGN
    tenant.save()
    steps.remember(house.bob, f"{FOREIGN} tea", f"{FOREIGN} milk", tags=(FOREIGN,), project=FOREIGN)
    lifecycle.create("globex", FOREIGN.lower(), model="builtin/dedupe", actor=OPERATOR)
    lifecycle.change(house.bob, steps.ME, refinement_prompt=FOREIGN)
    steps.remember(house.ada, "Tea is hot", "Milk is white", "Sugar is sweet", tags=("drinks",))
    steps.remember(house.ada, "Talked of tea", kind="journal")
    _ask(house.ada)
    return house


def _ask(agent: Agent) -> None:
    """What its side is asked to decide. (Not an erasure: after it, all that is asked of the agent would be refused.)"""
    for number in range(1, FEW):
        person = Person(number, f"person-{number}@acme.test")
        grants.ask(agent, person, purpose="to see why it forgot a customer", scope=Scope("silo"))
        removal_requests.ask_redaction(agent, [3], Actor.person(person.address), reason=f"request {number}")
    proposals.propose(agent, Actor.person("admin@acme.test"), model="openai/gpt-4.1")


@pytest.mark.timeout(2 * SECONDS + 300)
def test_an_agents_key(peopled: House) -> None:
    def renewed(key: str) -> str:
        try:
            authentication.agent_key(key)
        except KeyRejected:
            return lifecycle.issue_key(peopled.ada, OPERATOR)
        return key

    before = steps.state(peopled.bob)
    door = Door(peopled.ada_key, renewed)
    assert until_the_time_is_up(door, "agent") == []
    assert door.broken == []
    assert steps.state(peopled.bob) == before
    assert problems(peopled.ada) == []


@pytest.mark.timeout(2 * SECONDS + 300)
def test_a_tenants_key(peopled: House) -> None:
    before = steps.state(peopled.bob)
    door = Door(tenants.issue_key("acme"), lambda key: key)
    assert until_the_time_is_up(door, "tenant") == []
    assert door.broken == []
    assert steps.state(peopled.bob) == before
    for agent in Agent.objects.filter(tenant=peopled.ada.tenant):
        assert problems(agent) == []
