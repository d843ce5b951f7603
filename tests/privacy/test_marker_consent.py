"""A steward's link: the mail and the pages contain no content, and of a token only its MAC is stored."""

import re
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from audit.consent import Person, Scope
from audit.models import Operation
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import granted_reads, requests
from tests.conftest import House
from tests.members import with_account
from tests.privacy.watch import FAULTS, Watch, failing, kept
from tests.queueing import work
from tests.steps import ME, fresh, remember

PAT, STEW = Person(1, "pat@else.test"), "stew@acme.test"
PURPOSE = "to see why it forgot the customer"


@pytest.fixture
def links(watch: Watch, house: House, settings: Any) -> list[str]:
    """The addresses of a request and of a proposal, from the mail."""
    settings.ALLOWED_HOSTS = ["testserver"]
    remember(house.ada, *(watch.text(f"keeps a {thing}") for thing in ("boat", "dog")), tags=(watch.marker,))
    lifecycle.change(house.ada, ME, steward=STEW, system_prompt="You are Ada.")
    reader = with_account(PAT, house.ada)
    requests.ask_to_read(fresh(house.ada), reader, purpose=PURPOSE, scope=Scope("memories", numbers=(1, 2)))
    requests.propose(fresh(house.ada), Actor.person("admin@else.test"), model="openai/gpt-4.1")
    work()
    messages = [message.message().as_string() for message in mail.outbox]
    watch.outputs += messages
    return [f"/consent/{token}" for token in re.findall(r"/consent/(\S+)", "".join(messages))]


def visit(watch: Watch, address: str, decision: str = "") -> int:
    client = Client(raise_request_exception=False)
    response = client.post(address, {"decision": decision}) if decision else client.get(address)
    return int(watch.response(response).status_code)


def test_mail_and_pages_leak_nothing(watch: Watch, house: House, links: list[str]) -> None:
    assert len(links) == 2
    for address in links:
        assert [visit(watch, address, decision) for decision in ("", "approve", "")] == [200, 303, 200]
    number = requests.present(house.ada, Operation.ACCESS_REQUESTED)[0].number
    granted_reads.memories(fresh(house.ada), number, PAT, [1, 2])
    for address in links:
        for decision in ("", "revoke", ""):
            visit(watch, address, decision)
        visit(watch, address[:-1])
        visit(watch, "/consent/nothing", "approve")
    for secret in (address.split("_", 1)[1].encode() for address in links):
        assert [where for where, content in kept() if secret in content] == []
        assert secret.decode() not in watch.log.text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaks_nothing(fault: str, watch: Watch, links: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(fault, monkeypatch):
        statuses = {visit(watch, address, decision) for address in links for decision in ("", "approve", "revoke")}
    assert statuses <= {200, 303, 500, 503}
    assert bool(statuses & {500, 503}) is (fault in ("the database", "seal_data"))  # an entry of new settings is sealed
    for address in links:
        assert address.split("_", 1)[1] not in watch.log.text
