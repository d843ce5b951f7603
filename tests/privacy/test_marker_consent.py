"""The road of a steward's link, gone well and badly: the letter and the pages say nothing of what is remembered, and
nothing is left of a token but its MAC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core import mail
from django.db import OperationalError, connection
from django.test import Client

from audit.consent import Person, Scope
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import granted_reads, grants, proposals
from memory.silo.silo import Silo
from tests.conftest import House
from tests.privacy.watch import Watch, kept
from tests.queueing import work
from tests.steps import ME, fresh, remember

PAT, STEW = Person(1, "pat@else.test"), "stew@acme.test"
PURPOSE = "to see why it forgot the customer"


@pytest.fixture
def links(watch: Watch, house: House, settings: Any) -> list[str]:
    """The addresses of a request and of a proposal, as they were mailed."""
    settings.ALLOWED_HOSTS = ["testserver"]
    remember(house.ada, *(watch.text(f"keeps a {thing}") for thing in ("boat", "dog")), tags=(watch.marker,))
    lifecycle.change(house.ada, ME, steward=STEW, system_prompt="You are Ada.")
    grants.ask(fresh(house.ada), PAT, purpose=PURPOSE, scope=Scope("memories", numbers=(1, 2)))
    proposals.propose(fresh(house.ada), Actor.person("admin@else.test"), model="openai/gpt-4.1")
    work()
    said = [message.message().as_string() for message in mail.outbox]
    watch.outputs += said
    return [f"/consent/{token}" for token in re.findall(r"/consent/(\S+)", "".join(said))]


def visit(watch: Watch, address: str, decision: str = "") -> int:
    """The page, of which the watch is told; with what it led to."""
    client = Client(raise_request_exception=False)
    answer = client.post(address, {"decision": decision}) if decision else client.get(address)
    watch.outputs.append(f"{answer.content!r} {dict(answer.headers)!r}")
    return int(answer.status_code)


def test_the_whole_road(watch: Watch, house: House, links: list[str]) -> None:
    assert len(links) == 2
    for address in links:
        assert visit(watch, address) == 200
        assert visit(watch, address, "approve") == 303
        assert visit(watch, address) == 200
    number = next(iter(grants.standings(house.ada.pk)))
    granted_reads.memories(fresh(house.ada), number, PAT, [1, 2])
    for address in links:
        visit(watch, address)
        visit(watch, address, "revoke")
        visit(watch, address)
        visit(watch, address[:-1])
        visit(watch, "/consent/nothing", "approve")
    for secret in (address.split("_", 1)[1].encode() for address in links):
        assert [where for where, said in kept() if secret in said] == []
        assert secret.decode() not in watch.log.text


@pytest.mark.parametrize("fault", ["the database", "seal_data", "open_data", "digest"])
def test_when_something_fails(fault: str, watch: Watch, links: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors say all there was; what answers and what is logged does not, nor names the link."""
    with failing(fault, monkeypatch):
        statuses = {visit(watch, address, decision) for address in links for decision in ("", "approve", "revoke")}
    assert statuses <= {200, 303, 500}
    assert (500 in statuses) is (fault == "the database")
    for address in links:
        assert address.split("_", 1)[1] not in watch.log.text


@contextmanager
def failing(fault: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def of_database(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "audit_" in sql:
            raise OperationalError(f"{sql} {params!r}")
        return execute(sql, params, many, context)

    def of_silo(_: object, *given: object) -> bytes:
        raise RuntimeError(repr(given))

    if fault == "the database":
        with connection.execute_wrapper(of_database):
            yield
    else:
        with monkeypatch.context() as patched:
            patched.setattr(Silo, fault, of_silo)
            yield
