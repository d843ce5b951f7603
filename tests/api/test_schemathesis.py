"""Random requests from the schema: no failure, no response that the schema does not describe, and nothing of another
tenant.

The suite runs a few seconds with one seed. `SCHEMATHESIS_SECONDS=600` runs for ten minutes, half of it with each kind
of key, with seeds from the clock. It prints the seeds, and `SCHEMATHESIS_SEED` sets the first one.
"""

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
from memory.consent import requests
from memory.errors import KeyRejected
from memory.models import Agent
from tests import steps
from tests.conftest import OPERATOR, House
from tests.steps import problems

SECONDS = int(os.environ.get("SCHEMATHESIS_SECONDS", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.database, pytest.mark.timeout(2 * SECONDS + 300)]
SEED = int(os.environ.get("SCHEMATHESIS_SEED", time.time() if SECONDS else 7))
application = WSGIHandler()
# Only the other tenant has this text. It is reversed because Hypothesis uses the literals of a test as input.
FOREIGN = "".join(reversed("ngierof7AGGAUQ"))
FEW = 6
PLACEHOLDER = "Bearer the-key"  # Schemathesis sends it; it stands for the current key
OF_TENANTS = r"^/api/v1/agents"


@schemathesis.serializer("application/x-ndjson", "application/gzip", "text/markdown")
def lines(context: schemathesis.SerializationContext, value: Any) -> dict[str, Any]:
    return {"data": value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")}


@dataclass
class Service:
    """The WSGI application. Requests revoke keys here, so each request gets a valid key in place of PLACEHOLDER."""

    key: str
    renew: Callable[[str], str]
    requests: int = 0
    succeeded: int = 0
    broken: list[str] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("HTTP_AUTHORIZATION") == PLACEHOLDER:
            self.key = self.renew(self.key)
            environ["HTTP_AUTHORIZATION"] = f"Bearer {self.key}"
        head: list[Any] = []

        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            head.extend((status, headers))
            return start_response(status, headers, *rest)

        response: Any = application(environ, started)
        body = b"".join(response)
        response.close()
        connections.close_all()
        self.requests += 1
        self.succeeded += head[0].startswith("2")
        if FOREIGN.encode() in body or FOREIGN in str(head) or head[0].startswith("5"):
            self.broken.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}: {head[0]}")
        return [body]


def configured(examples: int, seed: int) -> SchemathesisConfig:
    """With few examples, the phase that tries every bound of every value is off: it sends hundreds of requests."""
    # A schema cannot describe all that is refused: unknown memories, ended sessions, 409 and 412.
    refused = [400, 401, 404, 405, 406, 409, 412, 413, 415, 422]
    checks: dict[str, Any] = {
        "positive_data_acceptance": {"expected-statuses": [200, 201, 202, 204, 304, *refused]},
        "negative_data_rejection": {"enabled": False},  # an unknown header, or text for a number in a query
        "ignored_auth": {"enabled": False},  # test_keys.py calls every address without a key
        "use_after_free": {"enabled": False},  # a discarded memory stays readable
        "missing_required_header": {"enabled": False},  # only Authorization is required
        "object_level_authorization": {"enabled": False},  # FOREIGN finds content of another tenant
    }
    generation = {"max-examples": examples, "database": "none"}
    phases = {"coverage": {"enabled": examples > FEW}}
    options = {"seed": seed, "continue-on-failure": True, "phases": phases, "generation": generation, "checks": checks}
    return SchemathesisConfig.from_dict(options)


def failures(service: Service, section: str, examples: int, seed: int) -> list[str]:
    """The failures at the addresses of one kind of key, in every phase."""
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", service, config=configured(examples, seed))
    schema = schema.include(path_regex=OF_TENANTS) if section == "tenant" else schema.exclude(path_regex=OF_TENANTS)
    schema.config.update(headers={"Authorization": PLACEHOLDER})
    found: list[str] = []
    for event in engine.from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            found.append(f"{event!r}"[:2000])
        if isinstance(event, events.ScenarioFinished | events.FuzzScenarioFinished):
            checks = [check for each in event.recorder.checks.values() for check in each if check.failure_info]
            found += [f"{event.recorder.label} {check.name}: {check.failure_info.failure}" for check in checks]
    return found


def check_until_time_is_up(service: Service, section: str) -> None:
    end, seed = time.monotonic() + SECONDS / 2, SEED
    while not (found := failures(service, section, 20 if SECONDS else FEW, seed)) and time.monotonic() < end:
        seed += 1
    print(*sorted(set(found)), f"{section}'s key: {service.requests:,} requests, seeds {SEED} to {seed}", sep="\n")
    assert service.succeeded > service.requests / 10
    assert (found, service.broken) == ([], [])


@pytest.fixture
def populated(house: House, settings: Any, transactional_db: None) -> House:
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
    for number in range(1, FEW):  # no erasure: the silo would refuse every later request
        person = Person(number, f"person-{number}@acme.test")
        requests.ask_to_read(house.ada, person, purpose="to see why it forgot a customer", scope=Scope("silo"))
        requests.ask_redaction(house.ada, [3], Actor.person(person.address), reason=f"request {number}")
    requests.propose(house.ada, Actor.person("admin@acme.test"), model="openai/gpt-4.1")
    return house


def test_random_requests_with_an_agents_key(populated: House) -> None:
    def renewed(key: str) -> str:
        try:
            authentication.agent_key(key)
        except KeyRejected:
            return lifecycle.issue_key(populated.ada, OPERATOR)
        return key

    before = steps.state(populated.bob)
    check_until_time_is_up(Service(populated.ada_key, renewed), "agent")
    assert steps.state(populated.bob) == before
    assert problems(populated.ada) == []


def test_random_requests_with_a_tenants_key(populated: House) -> None:
    before = steps.state(populated.bob)
    check_until_time_is_up(Service(tenants.issue_key("acme"), lambda key: key), "tenant")
    assert steps.state(populated.bob) == before
    for agent in Agent.objects.filter(tenant=populated.ada.tenant):
        assert problems(agent) == []
