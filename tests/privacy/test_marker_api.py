"""Every address of the API, gone with marked memories, queries, bodies and headers, well and badly: the marker is told
to the agent's own side alone, and left nowhere. Made from the schema: a new address without a row here fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from memory.access import tenants
from memory.api.base.examples import OPERATIONS
from memory.search import cache
from memory.silo.silo import Silo
from refinement import gc_reports
from tests import steps
from tests.api.calling import Answer, Caller
from tests.api.test_keys import address, is_tenants, operations
from tests.conftest import House
from tests.privacy.marker import unique
from tests.privacy.watch import Watch

pytestmark = pytest.mark.database

# What each is sent, with M for the marker; None is no body. What names an agent or a key is metadata, and not content.
BODIES: dict[str, Any] = {
    "GET agent": None,
    "PATCH agent": {"retention": "0.80"},
    "POST agent/keys": {"label": "laptop"},
    "GET context": None,
    "GET memories": None,
    "POST memories": {"content": "M drinks tea", "tags": ["M"]},
    "POST memories/batch": {"memories": [{"content": "M drinks tea", "tags": ["M"]}, {"content": "M again"}]},
    "POST memories/search": {"q": 'M "M drinks" -tag:M', "tags": ["M"]},
    "POST retrieve": {"query": 'M "M drinks" -tag:M', "project": "acme/shop", "tags": ["M"]},
    "GET cleanup": None,
    "POST cleanup": {"keep": [1], "discard": [2], "expect": [{"id": 2, "version": 1}]},
    "GET memories/1": None,
    "PATCH memories/1": {"content": "M anew", "tags": ["M anew"]},
    "DELETE memories/1": None,
    "POST memories/1/restore": None,
    "POST runs": {"task": "M asked", "result": "M done"},
    "GET rules": None,
    "POST recordings": {"prompt": "M asked", "response": "M said", "topic": "M", "learnings": "M", "requested": True},
    "POST recorded-sessions/monday/end": {"goal": "M", "achieved": "M"},
    "GET vault": None,
    "GET gc-reports": None,
    "GET gc-reports/1": None,
    "GET refinement-sessions": None,
    "POST refinement-sessions": {"driver": "runtime"},
    "GET refinement-sessions/1": None,
    "GET refinement-sessions/1/briefing": None,
    "POST refinement-sessions/1/tools/search_memories": {"arguments": {"query": 'M "M" tag:M'}, "reply": "M"},
    "POST refinement-sessions/1/abort": {"reason": "M"},
    "GET audit": None,
    "GET audit/1": None,
    "GET access-requests": None,
    "POST access-requests/1/approve": None,
    "POST access-requests/1/deny": None,
    "POST grants/1/revoke": None,
    "GET content-reads": None,
    "GET proposals": None,
    "POST proposals/1/accept": None,
    "POST proposals/1/decline": None,
    "GET removal-requests": None,
    "GET removal-requests/1": None,
    "POST removal-requests/1/agree": {"include_constitutional": True},
    "POST removal-requests/1/decline": None,
    "GET export": None,
    "POST import": {"content": "M drinks tea", "tags": ["M"]},
    "GET agents": None,
    "POST agents": {"agent": "eve", "model": "builtin/dedupe"},
    "GET agents/ada": None,
    "PATCH agents/ada": {"budget_tokens": 9_000},
    "POST agents/ada/keys": {"label": "laptop"},
    "DELETE agents/ada/keys/000000000000": None,
}
METADATA = ("label", "project")  # names, kept in clear; whoever gives one knows that
ADDRESSES = [(method, path, f"{method} {address(path)}") for method, path in operations()]


class Fault(Exception):
    """Something outside the program's reach went wrong, and its error holds all there was."""


def test_every_address_has_a_row_here() -> None:
    assert {name for _, _, name in ADDRESSES} == set(BODIES)
    assert len(BODIES) == len(OPERATIONS)


@pytest.fixture
def filled(watch: Watch, house: House, settings: Any) -> House:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    steps.remember(house.ada, *(watch.text(f"keeps a {thing}") for thing in ("boat", "dog")), tags=(watch.marker,))
    steps.remember(house.bob, "coffee")
    gc_reports.keep(steps.fresh(house.ada), watch.text("a pattern"), model="openai/gpt", entries=1)
    Caller(house.ada_key).post("refinement-sessions", {})
    return house


def told(watch: Watch, answer: Answer) -> Answer:
    """An answer in which the marker has no business: the watch looks through it, and its headers."""
    watch.outputs.append(f"{answer.content!r} {dict(answer.headers)!r}")
    return answer


def sent(watch: Watch, caller: Caller, method: str, name: str, body: Any, **more: str) -> Answer:
    path = name.split(" ", 1)[1]
    raw = b"" if body is None else json.dumps(body).replace("M", watch.marker).encode()
    kind = "application/x-ndjson" if path == "import" else "application/json"
    return caller.ask(method, path, raw=raw, kind=kind, **more)


@pytest.mark.parametrize(("method", "path", "name"), ADDRESSES, ids=[name for _, _, name in ADDRESSES])
def test_each_address(method: str, path: str, name: str, watch: Watch, filled: House) -> None:
    runtime, stranger, nobody = Caller(filled.ada_key), Caller(filled.bob_key), Caller()
    acme, globex = (Caller(tenants.issue_key(slug)) for slug in ("acme", "globex"))
    said, body = watch.marker, BODIES[name]
    others = (stranger, nobody, globex, runtime) if is_tenants(path) else (stranger, nobody, globex, acme)
    for caller in others:  # in the stranger's own silo what he sent himself may be said; nothing of it else
        if caller is not stranger or method in ("GET", "DELETE"):
            told(watch, sent(watch, caller, method, name, body))
    right = acme if is_tenants(path) else runtime
    for wrong in wrongs(body, said):
        answer = right.ask(method, name.split(" ", 1)[1], raw=wrong, kind="application/json")
        if answer.status >= 400:
            told(watch, answer)
    for question in ("{}=1", "cursor={}", "kind={}", "since={}", "format={}"):  # addresses are no place for content
        odd = unique().replace("ZEBRA", "OKAPI")  # an agent's name, as a cursor, is in the SQL that is looked at here
        answer = right.ask(method, f"{name.split(' ', 1)[1]}?{question.format(odd)}")
        assert odd.encode() not in answer.content
    marked = {"if_match": said, "if_none_match": said, "idempotency_key": said, "accept": said, "user_agent": said}
    answer = sent(watch, right, method, name, body, **marked)
    assert answer.status < 500
    for headers in ({"content_encoding": said}, {"authorization": f"Bearer {said}"}):
        refused = sent(watch, Caller(), method, name, body, **headers)
        assert refused.status >= 400
        told(watch, refused)
    done = sent(watch, right, method, name, body)
    assert done.status < 500
    if is_tenants(path) or done.status >= 400:
        told(watch, done)


def wrongs(body: Any, said: str) -> Iterator[bytes]:
    """Bodies that are refused, with the marker wherever it can stand."""
    yield f'{{"{said}": 1}}'.encode()
    yield f'{{"{said}'.encode()
    yield f'["{said}"]'.encode()
    yield f'"{said}"'.encode()
    yield f'{{"{said}": "\\ud800"}}'.encode()
    for name in body or ():
        for value in (said, f"{said}\0", [said], {said: said}, said * 1_000):
            if name in METADATA and value == said:
                continue
            yield json.dumps(body | {name: value}).encode()


@pytest.mark.parametrize("fault", ["the database", "seal_data", "open_data", "digest"])
def test_each_address_when_something_fails(
    fault: str, watch: Watch, filled: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors say all there was: the statement with its values, or what was to be sealed."""
    runtime, acme = Caller(filled.ada_key), Caller(tenants.issue_key("acme"))
    statuses = set()
    with failing(fault, monkeypatch):
        for method, path, name in ADDRESSES:
            cache.forget()
            if name == "GET export":  # it is under way before it fails: what was answered till then is the agent's own
                continue
            answer = sent(watch, acme if is_tenants(path) else runtime, method, name, BODIES[name])
            statuses.add(answer.status)
            if answer.status >= 400:
                told(watch, answer)
    assert statuses & {500, 503}


@contextmanager
def failing(fault: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def of_database(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "memory_memory" in sql or "audit_" in sql:
            raise OperationalError(f"{sql} {params!r}")
        return execute(sql, params, many, context)

    def of_silo(_: object, *given: object) -> bytes:
        raise Fault(repr(given))

    with ExitStack() as stack:
        if fault == "the database":
            stack.enter_context(connection.execute_wrapper(of_database))
        else:
            stack.enter_context(monkeypatch.context()).setattr(Silo, fault, of_silo)
        yield
