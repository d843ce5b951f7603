"""Every operation of the API with marked memories, queries, bodies and headers: only the agent's own side receives the
marker. The list of operations comes from the schema, so an operation without a row here fails."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from memory.access import tenants
from memory.api.base.examples import OPERATIONS
from memory.search import cache
from refinement import gc_reports
from tests import steps
from tests.api.calling import Answer, Caller
from tests.api.test_keys import address, is_tenants, operations
from tests.conftest import House
from tests.privacy.marker import unique
from tests.privacy.watch import FAULTS, Watch, failing

pytestmark = pytest.mark.database

WITHOUT_BODY = {
    "GET": "agent context memories cleanup memories/1 rules vault gc-reports gc-reports/1 refinement-sessions "
    "refinement-sessions/1 refinement-sessions/1/briefing audit audit/1 access-requests content-reads "
    "proposals removal-requests removal-requests/1 export import/1 agents agents/ada",
    "DELETE": "memories/1 agents/ada/keys/000000000000",
    "POST": "memories/1/restore access-requests/1/approve access-requests/1/deny grants/1/revoke "
    "proposals/1/accept proposals/1/decline removal-requests/1/decline agents/ada/keys/suspend",
}
# The body of each operation, with M for the marker. Names of agents and keys are metadata, no content.
BODIES: dict[str, Any] = {f"{method} {path}": None for method, paths in WITHOUT_BODY.items() for path in paths.split()}
BODIES |= {
    "PATCH agent": {"retention": "0.80", "system_prompt": "M is Ada.", "refinement_prompt": "M"},
    "POST agent/keys": {"label": "laptop"},
    "POST memories": {"content": "M drinks tea", "tags": ["M"]},
    "POST memories/batch": {"memories": [{"content": "M drinks tea", "tags": ["M"]}, {"content": "M again"}]},
    "POST memories/search": {"q": 'M "M drinks" -tag:M', "tags": ["M"]},
    "POST retrieve": {"query": 'M "M drinks" -tag:M', "project": "acme/shop", "tags": ["M"]},
    "POST cleanup": {"keep": [1], "discard": [2], "expect": [{"id": 2, "version": 1}]},
    "PATCH memories/1": {"content": "M again", "tags": ["M again"]},
    "POST runs": {"task": "M asked", "result": "M done"},
    "POST recordings": {"prompt": "M asked", "response": "M said", "topic": "M", "learnings": "M", "requested": True},
    "POST recorded-sessions/monday/end": {"goal": "M", "achieved": "M"},
    "POST refinement-sessions": {"driver": "runtime"},
    "POST refinement-sessions/1/tools/search_memories": {"arguments": {"query": 'M "M" tag:M'}, "reply": "M"},
    "POST refinement-sessions/1/abort": {"reason": "M"},
    "POST removal-requests/1/agree": {"include_constitutional": True},
    "POST import": {"content": "M drinks tea", "tags": ["M"]},
    "POST agents": {"agent": "eve", "model": "builtin/dedupe"},
    "PATCH agents/ada": {"budget_tokens": 9_000},
    "POST agents/ada/keys": {"label": "laptop"},
}
METADATA = ("label", "project")  # names, which are stored in clear text
ADDRESSES = [(method, path, f"{method} {address(path)}") for method, path in operations()]


def test_every_operation_has_a_row_here() -> None:
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


def send(watch: Watch, caller: Caller, name: str, body: Any, **more: str) -> Answer:
    method, path = name.split(" ", 1)
    raw = b"" if body is None else json.dumps(body).replace("M", watch.marker).encode()
    kind = "application/x-ndjson" if path == "import" else "application/json"
    return caller.ask(method, path, raw=raw, kind=kind, **more)


@pytest.mark.parametrize(("method", "path", "name"), ADDRESSES, ids=[name for _, _, name in ADDRESSES])
def test_each_operation_leaks_nothing(method: str, path: str, name: str, watch: Watch, filled: House) -> None:
    runtime, stranger = Caller(filled.ada_key), Caller(filled.bob_key)
    acme, globex = (Caller(tenants.issue_key(slug)) for slug in ("acme", "globex"))
    mark, body, where = watch.marker, BODIES[name], name.split(" ", 1)[1]
    right, wrong = (acme, runtime) if is_tenants(path) else (runtime, acme)
    for caller in (Caller(), globex, wrong):
        watch.response(send(watch, caller, name, body))
    if method in ("GET", "DELETE"):  # with other methods, the stranger's own silo stores and returns the marker
        watch.response(send(watch, stranger, name, body))
    for invalid in invalid_bodies(body, mark):
        answer = right.ask(method, where, raw=invalid, kind="application/json")
        if answer.status >= 400:
            watch.response(answer)
    for query in ("{}=1", "cursor={}", "kind={}", "since={}", "format={}"):  # addresses are no place for content
        other = unique().replace("ZEBRA", "OKAPI")  # the SQL in the log may contain a cursor
        assert other.encode() not in right.ask(method, f"{where}?{query.format(other)}").content
    marked = {"if_match": mark, "if_none_match": mark, "idempotency_key": mark, "accept": mark, "user_agent": mark}
    assert send(watch, right, name, body, **marked).status < 500
    for headers in ({"content_encoding": mark}, {"authorization": f"Bearer {mark}"}):
        assert watch.response(send(watch, Caller(), name, body, **headers)).status >= 400
    done = send(watch, right, name, body)
    assert done.status < 500
    if is_tenants(path) or done.status >= 400:
        watch.response(done)


def invalid_bodies(body: Any, mark: str) -> Iterator[bytes]:
    """Bodies with the marker in every possible place."""
    for text in (f'{{"{mark}": 1}}', f'{{"{mark}', f'["{mark}"]', f'"{mark}"', f'{{"{mark}": "\\ud800"}}'):
        yield text.encode()
    for name in body or ():
        for value in (mark, f"{mark}\0", [mark], {mark: mark}, mark * 1_000):
            if name not in METADATA or value != mark:
                yield json.dumps(body | {name: value}).encode()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_operation_leaks_nothing_in_a_fault(
    fault: str, watch: Watch, filled: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, acme = Caller(filled.ada_key), Caller(tenants.issue_key("acme"))
    statuses = set()
    with failing(fault, monkeypatch):
        for _, path, name in sorted(ADDRESSES, key=lambda each: each[1].endswith("/suspend")):  # this ends all keys
            cache.forget()
            if name == "GET export":  # it fails after the first lines, which the agent may read
                continue
            answer = send(watch, acme if is_tenants(path) else runtime, name, BODIES[name])
            statuses.add(answer.status)
            if answer.status >= 400:
                watch.response(answer)
    assert statuses & {500, 503}
