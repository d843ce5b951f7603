"""No content at rest, in logs or in messages: each interface runs with a marked memory, then a search for the marker.

The search leaves out what may contain it: requests to a model, an export, and responses to the agent's own side.
"""

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection

from audit.models import Operation
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.validation import Draft, parse_moment
from memory.search import cache as indexes
from memory.silo.silo import Silo
from memory.transfer import importing
from memory.writing import duplicates, operations
from refinement import loop
from refinement import session as sessions
from refinement.models import RefinementSession, SessionStep
from tests import refining, steps
from tests.commands.test_import import BAD
from tests.conftest import House
from tests.model_server import BAD_JSON, Action, Broken, Call, Cut, ModelServer, Raw, Say, Status, Turn, tidy
from tests.privacy.marker import MARKER
from tests.privacy.watch import Fault, Watch, watching
from tests.steps import ME, PERSON, SYSTEM

pytestmark = pytest.mark.database

PROTOCOLS = ("openai", "anthropic", "ollama")
TABLES = ("memory_memory", "audit_auditentry", "audit_change", "memory_agent", "refinement_sessionstep")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["a log line", "a log's argument", "an exception", "a row", "the cache", "a pickle"])
def test_the_search_finds_a_leak_in_each_place(place: str, ada: Agent) -> None:
    with watching() as watch:
        watch.marker = mark = watch.marker.replace("ZEBRA", "OKAPI")  # the plugin does not look for this one
        plant: dict[str, Callable[[], object]] = {
            "a log line": lambda: logging.getLogger("x").debug(mark),
            "a log's argument": lambda: logging.getLogger("x").debug("%.1s", mark),
            "an exception": lambda: watch.errors.append(KeyError(mark)),
            "a row": lambda: refining.change(ada, model=json.dumps(mark.encode("utf-16-le").hex())),
            "the cache": lambda: cache.set("x", pickle.dumps(mark)),
            "a pickle": lambda: refining.change(ada, model=mark[:-1] + mark[-1]),
        }
        plant[place]()
    found = watch.leaks()
    cache.clear()
    assert found


def remembered(watch: Watch, agent: Agent, count: int = 6) -> list[int]:
    things = ("boat", "dog", "key", "lamp", "map", "net")[:count]
    drafts = [Draft(watch.text(f"keeps a {n} about", watch.marker), tags=(f"tag-{watch.marker}",)) for n in things]
    return [memory.number for memory in operations.remember(agent, drafts, ME).memories]


def test_every_write_operation_leaks_nothing(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    operations.revise(ada, 1, ME, content=watch.text("revised"))
    operations.revise(ada, 1, ME, tags=[watch.marker, f"other {watch.marker}"])
    operations.consolidate(ada, [1, 2], watch.text("both"), ME)
    operations.demote(ada, [4], ME, reason=watch.text("reason"))
    operations.discard(ada, [3], ME)
    operations.restore(ada, [3], ME)
    operations.protect(ada, [3], PERSON)
    operations.unprotect(ada, [3], PERSON, reason="request 17")
    operations.remember(ada, [Draft(watch.text("a run"), kind="journal", source="run")] * 3, ME)
    operations.promote(ada, 8, ME)
    operations.trim(ada, 0, SYSTEM)
    operations.notify(ada, watch.text("notice"), operation=Operation.SESSION_CLOSED, actor=SYSTEM, detail={})
    duplicates.remove(ada)
    assert steps.problems(ada) == []


def test_every_refused_write_leaks_nothing(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    operations.protect(ada, [2], PERSON)
    operations.discard(ada, [3], ME)
    mark: Any = watch.marker
    drafts = [
        Draft(watch.text("x" * 10_000)),
        Draft(f"{mark}\0"),
        Draft(f"{mark}\ud800"),
        Draft(mark, kind=mark),
        Draft(mark, category=mark),
        Draft(mark, project=f"{mark}/../"),
        Draft(mark, tags=[f"{mark}\ud800"]),
        Draft(mark, tags=[mark * 9]),
        Draft(mark, tags=mark),
        Draft(mark, origin=mark),
        Draft([mark]),  # type: ignore[arg-type]
    ]
    for draft in drafts:
        watch.refused(lambda draft=draft: operations.remember(ada, [draft], ME))
    for number, expect in ((2, None), (3, None), (99, None), (1, {1: 99})):
        more = {"expect": expect} if expect else {}
        watch.refused(lambda n=number, more=more: operations.revise(ada, n, ME, content=mark, **more))
    for numbers, content in (([1, 2], mark), ([1, 1], mark), ([1], mark), ([1, 4], "")):
        watch.refused(lambda numbers=numbers, content=content: operations.consolidate(ada, numbers, content, ME))
    watch.refused(lambda: operations.discard(ada, [2, 3, 99], ME))
    watch.refused(lambda: parse_moment("since", mark))
    line = json.dumps({"content": mark, "created_at": mark}).encode()
    watch.refused(lambda: importing.check_lines([line]).store(ada, ME))


def test_a_search_leaks_nothing(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    mark = watch.marker
    for query in (mark, f'"{mark} keeps"', f"tag:tag-{mark}", f'-{mark} "', "\0" + mark):
        with indexes.reader(steps.fresh(ada)) as index:
            watch.attempt(lambda query=query, index=index: index.search(query, limit=5))
    assert watch.errors == []


def test_a_seal_that_does_not_open_leaks_nothing(watch: Watch, house: House) -> None:
    remembered(watch, house.ada)
    silo = Silo.for_agent(steps.fresh(house.ada))
    row = steps.row(house.ada, 1)
    sealed = bytes(row.sealed)
    changed = (sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed[:10], b"", b"\x01" + b"\xff" * 50, sealed * 2, sealed[5:])
    for row.sealed in changed:
        watch.refused(lambda: silo.open(row))
    row.sealed = sealed
    watch.refused(lambda: Silo.for_agent(house.bob).open(row))
    row.number = 2
    watch.refused(lambda: silo.open(row))


def attempt_writes(watch: Watch, agent: Agent) -> None:
    """Each way to write or search. At least one of them fails."""
    text, mark = watch.text("again"), watch.marker
    merge = {"ids_to_merge": [3, 4], "new_content": text, "dropping": [mark]}
    for act in (
        lambda: operations.remember(agent, [Draft(text, tags=[mark])], ME),
        lambda: operations.revise(agent, 1, ME, content=text),
        lambda: operations.consolidate(agent, [1, 2], text, ME),
        lambda: operations.notify(agent, text, operation="session_closed", actor=SYSTEM, detail={}),
        lambda: importing.check_lines([json.dumps({"content": text}).encode()]).store(agent, ME),
        lambda: indexes.reader(steps.fresh(agent)).__enter__(),
        lambda: _in_a_session(agent, "consolidate_memories", merge),
    ):
        watch.attempt(act)
    assert watch.errors


def _in_a_session(agent: Agent, tool: str, arguments: dict[str, Any]) -> object:
    closed = {"outcome": "failed", "closed_at": "2026-01-01T00:00Z"}
    RefinementSession.objects.filter(agent=agent, outcome="open").update(**closed)
    return refining.opened(agent).send(tool, arguments)


@pytest.mark.parametrize("place", ["seal_data", "open_data", "digest"])
def test_a_cipher_that_fails_leaks_nothing(place: str, watch: Watch, ada: Agent, monkeypatch: Any) -> None:
    remembered(watch, ada)
    indexes.forget()

    def fails(*_: object) -> bytes:
        raise Fault

    monkeypatch.setattr(Silo, place, fails)
    attempt_writes(watch, ada)


@pytest.mark.parametrize("table", TABLES)
def test_a_database_that_fails_leaks_nothing(table: str, watch: Watch, ada: Agent) -> None:
    """Its error contains the whole statement with its values."""
    remembered(watch, ada)

    def fails(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if table in sql and sql.lstrip().upper().startswith(("INSERT", "UPDATE")):
            raise OperationalError(f"{sql} {params!r}")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fails):
        attempt_writes(watch, ada)


def test_a_row_that_the_database_refuses_leaks_nothing(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    refining.change(ada, next_number=1)
    attempt_writes(watch, ada)


def test_a_command_does_not_print_the_text_of_an_exception(watch: Watch, house: House, monkeypatch: Any) -> None:
    remembered(watch, house.ada)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)

    def fails(_: object, __: str, ___: int, value: bytes) -> bytes:
        raise ValueError(f"cannot take {watch.text()!r}") from KeyError(value, watch.marker)

    lines = json.dumps({"content": watch.text()}).encode()
    commands = {"seal_data": ("import_memories", "acme/ada", "-"), "open_data": ("export_memories", "acme/ada")}
    for place, first in commands.items():
        with monkeypatch.context() as patched:
            patched.setattr(Silo, place, fails)
            assert [watch.run(*first, stdin=lines).code, watch.run("refine", "acme/ada").code] == [1, 1]


def test_commands_leak_nothing(watch: Watch, ada: Agent, bob: Agent) -> None:
    lines = "\n".join(json.dumps({"content": watch.text(str(n)), "tags": [watch.marker]}) for n in range(8))
    assert watch.run("import_memories", "acme/ada", "-", "--json", stdin=lines.encode()).code == 0
    for command, code in {
        "refine acme/ada --dry-run --json": 0,
        "refine acme/ada --json": 0,
        "refine --all-due": 0,
        "verify_audit --all --json": 0,
        "rotate_silo_keys": 0,
        "export_memories acme/ada": 2,
        "create_agent acme/ada --model builtin/dedupe": 1,
    }.items():
        assert watch.run(*command.split()).code == code, command
    sessions.preview(steps.fresh(ada))


def test_commands_that_roll_back_and_remove_leak_nothing(watch: Watch, house: House, monkeypatch: Any) -> None:
    remembered(watch, house.ada)
    operations.consolidate(house.ada, [1, 2], watch.text("both"), ME)
    operations.revise(house.ada, 7, ME, content=watch.text("again"))
    last = steps.last_entry(house.ada).seq
    conflict = watch.run("rollback", "acme/ada", "--entry", str(last - 1))
    assert (conflict.code, "conflict" in conflict.out) == (1, True)
    for command, code in {
        f"rollback acme/ada --entry {last - 1} --force": 0,
        "rollback acme/ada --to-entry 0 --preview --json": 0,
        "redact acme/ada 1 --reason request": 0,
        "redact acme/ada --waiting": 0,
        "redact acme/ada 1 7 --reason request --yes": 0,
        "redact acme/ada 1 --preview": 1,
        "erase_agent acme/ada --reason request --yes --json": 0,
        "verify_audit --all --json": 0,
        "audit_heads": 0,
    }.items():
        if "--yes" in command:
            monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
        assert watch.run(*command.split()).code == code, command


def test_a_failed_import_leaks_nothing(watch: Watch, ada: Agent) -> None:
    for line, _ in BAD:
        lines = b'{"content": "good"}\n' + line.replace(MARKER.encode(), watch.marker.encode())
        assert watch.run("import_memories", "acme/ada", "-", stdin=lines).code == 2
    assert not Memory.objects.exists()


def test_commands_over_an_altered_trail_leak_nothing(watch: Watch, house: House, monkeypatch: Any) -> None:
    remembered(watch, house.ada)
    first, second = steps.row(house.ada, 1), steps.row(house.ada, 2)
    Memory.objects.filter(pk=first.pk).update(sealed=bytes(second.sealed))
    assert watch.run("verify_audit", "--all", "--json").code == 1
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert watch.run("export_memories", "acme/ada").code == 1
    assert watch.run("refine", "acme/ada").code == 3


@pytest.fixture
def server(ada: Agent, settings: Any) -> Iterator[ModelServer]:
    with ModelServer(tidy) as serving:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = serving.openai_url, "any"
        settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY = serving.anthropic_url, "any"
        settings.OLLAMA_BASE_URL = serving.ollama_url
        settings.MODEL_CALL_SECONDS = 2
        yield serving


def hostile(mark: str) -> Callable[[Turn], Action]:
    """Every tool, with the marker in every possible place."""
    calls = [
        Call("search_memories", {"query": f'{mark} "{mark}" tag:{mark}', "since": mark}),
        Call("search_memories", {"query": mark, "kind": mark, "limit": mark}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": mark, "dropping": [mark] * 101}),
        Call("consolidate_memories", {"ids_to_merge": [1, mark], "new_content": mark, mark: mark}),
        Call("consolidate_memories", {"ids_to_merge": mark, "new_content": [mark], "category": mark}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": f"{mark}\0"}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": mark * 1_000}),
        Call("update_memory", {"id": 3, "content": f"{mark} is 7 feet", "dropping": [mark, f"not {mark}"]}),
        Call("update_memory", {"id": {mark: 1}, "content": mark}),
        Call("delete_memory", {"id": f"#{mark}"}),
        Call("delete_memory", mark),
        Call(mark, {"id": mark}),
        Call("protect_memory", {"id": 4}),
        Call("promote_memory", {"id": 5, mark: mark}),
        Call("decline_refinement", {"reason": mark}),
        Call("search_memories", {"query": mark}),
        Call("complete_refinement", {"summary": f"{mark} " * 40}),
    ]
    return lambda turn: [call for call in calls if turn.protocol == "openai" or not isinstance(call.args, str)]


def echo(mark: str) -> dict[str, Any]:
    """Servers that repeat their input in the places that an error message may quote."""
    body = json.dumps({"error": {"message": mark, "type": mark, "code": mark}})
    return {
        "bad request": Status(400, {"X-Echo": mark, "Retry-After": mark}, body),
        "unauthorized": Status(401, {"WWW-Authenticate": mark}, body),
        "redirect": Status(302, {"Location": f"http://127.0.0.1:1/{mark}?q={mark}"}, body),
        "error": Status(500, {"Retry-After": "60", "Set-Cookie": f"a={mark}"}, body),
        "no call": Say(mark),
        "closed connection": Cut(),
        "incomplete json": Raw(f'{{"choices": "{mark}'.encode()),
        "unknown json": Raw(json.dumps({mark: mark, "choices": [{mark: mark}], "content": mark}).encode()),
        "bad arguments": BAD_JSON,
        "bad usage": Broken(lambda wire: wire | {"usage": {mark: mark}, "message": mark, "content": [mark]}),
    }


def refine(watch: Watch, agent: Agent) -> RefinementSession | None:
    result: RefinementSession | None = watch.attempt(lambda: loop.refine(steps.fresh(agent), trigger="manual"))
    return result


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_good_session_leaks_nothing(protocol: str, watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model=f"{protocol}/scripted", high_water_tokens=0)
    ended = refine(watch, ada)
    assert ended is not None
    assert (ended.outcome, ended.merged, server.refused) == ("completed", 2, [])
    assert watch.marker in json.dumps([request.body for request in server.requests])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hostile_model_leaks_nothing(protocol: str, watch: Watch, ada: Agent, server: ModelServer) -> None:
    server.script = hostile(watch.marker)
    remembered(watch, ada)
    lifecycle.change(ada, ME, model=f"{protocol}/scripted", system_prompt=watch.text("is ada"))
    ended = refine(watch, ada)
    assert ended is not None
    assert ended.outcome == "completed"
    assert SessionStep.objects.filter(session=ended).count() > 10
    assert steps.problems(ada) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_repeats_its_input_leaks_nothing(
    protocol: str, watch: Watch, ada: Agent, server: ModelServer
) -> None:
    remembered(watch, ada)
    refining.change(ada, model=f"{protocol}/scripted")
    for name, script in echo(watch.marker).items():
        server.script = script
        ended = refine(watch, ada)
        assert ended is not None
        assert ended.outcome in ("failed", "incomplete"), name


def test_an_abandoned_session_leaks_no_summary_of_its_batches(watch: Watch, ada: Agent) -> None:
    """Summaries of batches are sealed in the session's row until it ends."""
    remembered(watch, ada)
    held = refining.opened(ada, shown=False)
    held.knife.show(0, 2, refining.entries(ada))
    assert held.call("complete_refinement", summary=watch.text("in the first batch"))["ok"]
    RefinementSession.objects.update(lease_until="2026-01-01T00:00Z")
    assert [ended.outcome for ended in sessions.close_stale()] == ["abandoned"]


def test_a_stale_edit_leaks_nothing_outside_its_answer(watch: Watch, ada: Agent) -> None:
    """The answer to the model contains the current content."""
    remembered(watch, ada)
    held = refining.opened(ada)
    refining.outside(ada, 1, watch.text("changed meanwhile"))
    answer = held.call("delete_memory", id=1)
    assert (answer["code"], watch.marker in json.dumps(answer)) == ("stale_memory", True)
    assert held.call("decline_refinement", reason=watch.text("no"))["ok"]


def test_an_edit_that_fails_leaks_nothing(watch: Watch, ada: Agent, server: ModelServer, monkeypatch: Any) -> None:
    remembered(watch, ada)
    refining.change(ada, model="ollama/scripted")

    def fails(*_: object, **__: object) -> None:
        raise Fault

    monkeypatch.setattr(operations, "consolidate", fails)
    assert refine(watch, ada) is None
    assert isinstance(watch.errors[0], Fault)
