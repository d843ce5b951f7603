"""No plaintext at rest, in logs, in messages: every road is gone with a marked memory, and the marker looked for.

What may hold it is not looked at: a model's requests, an export, and what the agent's own side is answered.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection

from audit.models import Operation
from memory.models import Agent, Memory
from memory.policy.validation import Draft, parse_moment
from memory.search import cache as indexes
from memory.silo.silo import Silo
from memory.transfer import importing
from memory.writing import duplicates, operations
from refinement import dry_run, loop
from refinement import session as sessions
from refinement.models import RefinementSession, SessionStep
from tests import refining, steps
from tests.commands.test_import import BAD
from tests.conftest import House
from tests.model_server import BAD_JSON, Action, Broken, Call, Cut, ModelServer, Raw, Say, Status, Turn, tidy
from tests.privacy.marker import MARKER
from tests.privacy.watch import Watch

pytestmark = pytest.mark.database

PROTOCOLS = ("openai", "anthropic", "ollama")


# --- the watch sees what it should ----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["a log line", "a log's argument", "an exception", "a row", "the cache", "a pickle"])
def test_a_leak_planted_in_each_place_is_found(place: str, ada: Agent) -> None:
    import logging

    from tests.privacy.watch import watching

    with watching() as watch:
        said = watch.marker.replace("ZEBRA", "OKAPI")  # what is planted here is not for the plugin to find
        watch.marker = said
        plant: dict[str, Callable[[], object]] = {
            "a log line": lambda: logging.getLogger("x").debug(said),
            "a log's argument": lambda: logging.getLogger("x").debug("%.1s", said),
            "an exception": lambda: watch.errors.append(KeyError(said)),
            "a row": lambda: refining.change(ada, system_prompt=json.dumps(said.encode("utf-16-le").hex())),
            "the cache": lambda: cache.set("x", pickle.dumps(said)),
            "a pickle": lambda: refining.change(ada, refinement_prompt=said[:-1] + said[-1]),
        }
        plant[place]()
    found = watch.leaks()
    cache.clear()
    assert found


# --- the write path -------------------------------------------------------------------------------------------------


def remembered(watch: Watch, agent: Agent, count: int = 6) -> list[int]:
    drafts = [
        Draft(watch.text(f"keeps a {n} about", watch.marker), tags=(f"tag-{watch.marker}",))
        for n in ("boat", "dog", "key", "lamp", "map", "net")[:count]
    ]
    return [m.number for m in operations.remember(agent, drafts, steps.ME).memories]


def test_every_verb(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    operations.revise(ada, 1, steps.ME, content=watch.text("revised"), dropping=[watch.text("dropped")])
    operations.revise(ada, 1, steps.ME, tags=[watch.marker, f"other {watch.marker}"])
    operations.consolidate(ada, [1, 2], watch.text("both"), steps.ME, dropping=[watch.marker])
    operations.discard(ada, [3], steps.ME)
    operations.restore(ada, [3], steps.ME)
    operations.protect(ada, [3], steps.PERSON)
    operations.unprotect(ada, [3], steps.PERSON, reason="asked for")
    operations.remember(ada, [Draft(watch.text("a run"), kind="journal", source="run")] * 3, steps.ME)
    operations.promote(ada, 8, steps.ME)
    operations.trim(ada, 0, steps.SYSTEM)
    operations.notify(ada, watch.text("told"), operation=Operation.SESSION_CLOSED, actor=steps.SYSTEM, detail={})
    duplicates.remove(ada)
    assert steps.problems(ada) == []


def test_every_refusal_of_the_write_path(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    operations.protect(ada, [2], steps.PERSON)
    operations.discard(ada, [3], steps.ME)
    said = watch.marker
    refusals: list[Callable[[], object]] = [
        lambda: operations.remember(ada, [Draft(watch.text("x" * 10_000))], steps.ME),
        lambda: operations.remember(ada, [Draft(f"{said}\0")], steps.ME),
        lambda: operations.remember(ada, [Draft(f"{said}\ud800")], steps.ME),
        lambda: operations.remember(ada, [Draft(said, kind=said)], steps.ME),
        lambda: operations.remember(ada, [Draft(said, category=said)], steps.ME),
        lambda: operations.remember(ada, [Draft(said, project=f"{said}/../")], steps.ME),
        lambda: operations.remember(ada, [Draft(said, tags=[f"{said}\ud800"])], steps.ME),
        lambda: operations.remember(ada, [Draft(said, tags=[said * 9])], steps.ME),
        lambda: operations.remember(ada, [Draft(said, tags=said)], steps.ME),
        lambda: operations.remember(ada, [Draft(said, origin=said)], steps.ME),  # type: ignore[arg-type]
        lambda: operations.remember(ada, [Draft([said])], steps.ME),  # type: ignore[arg-type]
        lambda: operations.revise(ada, 2, steps.ME, content=said),
        lambda: operations.revise(ada, 3, steps.ME, content=said),
        lambda: operations.revise(ada, 99, steps.ME, content=said),
        lambda: operations.revise(ada, 1, steps.ME, content=said, expect={1: 99}),
        lambda: operations.consolidate(ada, [1, 2], said, steps.ME),
        lambda: operations.consolidate(ada, [1, 1], said, steps.ME),
        lambda: operations.consolidate(ada, [1], said, steps.ME),
        lambda: operations.consolidate(ada, [1, 4], "", steps.ME),
        lambda: operations.discard(ada, [2, 3, 99], steps.ME),
        lambda: parse_moment("since", f"{said}"),
        lambda: importing.check_lines([f'{{"content": "{said}", "created_at": "{said}"}}'.encode()]).store(
            ada, steps.ME
        ),
    ]
    for refusal in refusals:
        watch.refused(refusal)


def test_searching(watch: Watch, ada: Agent) -> None:
    remembered(watch, ada)
    for query in (
        watch.marker,
        f'"{watch.marker} keeps"',
        f"tag:tag-{watch.marker}",
        f'-{watch.marker} "',
        "\0" + watch.marker,
    ):
        with indexes.reader(steps.fresh(ada)) as index:
            watch.attempt(lambda query=query, index=index: index.search(query, limit=5))
    assert watch.errors == []


def test_seals_that_do_not_open(watch: Watch, house: House) -> None:
    remembered(watch, house.ada)
    ada = steps.fresh(house.ada)
    row = steps.row(ada, 1)
    sealed = bytes(row.sealed)
    others = Silo.for_agent(house.bob)
    for broken in (
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
        sealed[:10],
        b"",
        b"\x01" + b"\xff" * 50,
        sealed + sealed,
        sealed[5:],
    ):
        row.sealed = broken
        watch.refused(lambda: Silo.for_agent(ada).open(row))
    row.sealed = sealed
    watch.refused(lambda: others.open(row))
    row.number = 2
    watch.refused(lambda: Silo.for_agent(ada).open(row))


# --- faults ---------------------------------------------------------------------------------------------------------


class Fault(Exception):
    """Something outside the program's reach went wrong."""


def verbs(watch: Watch, agent: Agent) -> dict[str, Callable[[], object]]:
    said = watch.text("anew")
    return {
        "remember": lambda: operations.remember(agent, [Draft(said, tags=[watch.marker])], steps.ME),
        "revise": lambda: operations.revise(agent, 1, steps.ME, content=said, dropping=[watch.marker]),
        "consolidate": lambda: operations.consolidate(agent, [1, 2], said, steps.ME, dropping=[watch.marker]),
        "notify": lambda: operations.notify(agent, said, operation="session_closed", actor=steps.SYSTEM, detail={}),
        "import": lambda: importing.check_lines([json.dumps({"content": said}).encode()]).store(agent, steps.ME),
        "search": lambda: indexes.reader(steps.fresh(agent)).__enter__(),
        "merge in a session": lambda: _in_a_session(
            agent, "consolidate_memories", {"ids_to_merge": [3, 4], "new_content": said, "dropping": [watch.marker]}
        ),
    }


def _in_a_session(agent: Agent, tool: str, arguments: dict[str, Any]) -> object:
    RefinementSession.objects.filter(agent=agent, outcome="open").update(
        outcome="failed", closed_at="2026-01-01T00:00Z"
    )
    return refining.opened(agent).send(tool, arguments)


@pytest.mark.parametrize("place", ["seal_data", "open_data", "digest"])
def test_a_cipher_that_fails(place: str, watch: Watch, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(watch, ada)
    indexes.forget()

    def fails(*_: object) -> bytes:
        raise Fault

    monkeypatch.setattr(Silo, place, fails)
    for act in verbs(watch, ada).values():
        watch.attempt(act)
    assert watch.errors


@pytest.mark.parametrize(
    "table", ["memory_memory", "audit_auditentry", "audit_change", "memory_agent", "refinement_sessionstep"]
)
def test_a_database_that_fails(table: str, watch: Watch, ada: Agent) -> None:
    """Its error carries the whole statement with its values, as the worst of drivers would."""
    remembered(watch, ada)

    def fails(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if table in sql and sql.lstrip().upper().startswith(("INSERT", "UPDATE")):
            raise OperationalError(f"{sql} {params!r}")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fails):
        for act in verbs(watch, ada).values():
            watch.attempt(act)
    assert watch.errors


def test_rows_that_are_in_the_way(watch: Watch, ada: Agent) -> None:
    """The database's own words about a row it refuses."""
    remembered(watch, ada)
    refining.change(ada, next_number=1)
    for act in verbs(watch, ada).values():
        watch.attempt(act)
    assert watch.errors


def test_a_command_whose_cipher_speaks(watch: Watch, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception whose own text is the content: the edge tells its type and place, and not its text."""
    remembered(watch, house.ada)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)

    def speaks(_: object, __: str, ___: int, given: bytes) -> bytes:
        raise ValueError(f"cannot take {watch.text()!r}") from KeyError(given, watch.marker)

    for place in ("seal_data", "open_data"):
        with monkeypatch.context() as patch:
            patch.setattr(Silo, place, speaks)
            lines = json.dumps({"content": watch.text()}).encode()
            codes = [watch.run("import_memories", "acme/ada", "-", stdin=lines).code] if place == "seal_data" else []
            codes += [watch.run("export_memories", "acme/ada").code] if place == "open_data" else []
            codes += [watch.run("refine", "acme/ada").code]
        assert codes == [1, 1]


# --- commands -------------------------------------------------------------------------------------------------------


def test_the_commands(watch: Watch, ada: Agent, bob: Agent) -> None:
    lines = "\n".join(json.dumps({"content": watch.text(str(n)), "tags": [watch.marker]}) for n in range(8))
    assert watch.run("import_memories", "acme/ada", "-", "--json", stdin=lines.encode()).code == 0
    assert watch.run("refine", "acme/ada", "--dry-run", "--json").code == 0
    assert watch.run("refine", "acme/ada", "--json").code == 0
    assert watch.run("refine", "--all-due").code == 0
    assert watch.run("verify_audit", "--all", "--json").code == 0
    assert watch.run("rotate_silo_keys").code == 0
    assert watch.run("export_memories", "acme/ada").code == 2
    assert watch.run("create_agent", "acme/ada", "--model", "builtin/dedupe").code == 1
    dry_run.preview(steps.fresh(ada))


def test_the_commands_that_take_back_and_remove(watch: Watch, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(watch, house.ada)
    operations.consolidate(house.ada, [1, 2], watch.text("both"), steps.ME, dropping=[watch.marker])
    operations.revise(house.ada, 7, steps.ME, content=watch.text("again"))
    last = steps.last_entry(house.ada).seq
    conflict = watch.run("rollback", "acme/ada", "--entry", str(last - 1))
    assert (conflict.code, "conflict" in conflict.out) == (1, True)
    assert watch.run("rollback", "acme/ada", "--entry", str(last - 1), "--force").code == 0
    assert watch.run("rollback", "acme/ada", "--to-entry", "0", "--preview", "--json").code == 0
    assert watch.run("redact", "acme/ada", "1", "--reason", "asked").code == 0
    assert watch.run("redact", "acme/ada", "--waiting").code == 0
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert watch.run("redact", "acme/ada", "1", "7", "--reason", "asked", "--yes").code == 0
    assert watch.run("redact", "acme/ada", "1", "--preview").code == 1
    assert watch.run("erase_agent", "acme/ada", "--reason", "asked", "--yes", "--json").code == 0
    assert watch.run("verify_audit", "--all", "--json").code == 0
    assert watch.run("audit_heads").code == 0


def test_imports_that_fail(watch: Watch, ada: Agent) -> None:
    for line, _ in BAD:
        bad = line.replace(MARKER.encode(), watch.marker.encode())
        ran = watch.run("import_memories", "acme/ada", "-", stdin=b'{"content": "good"}\n' + bad)
        assert ran.code == 2
    assert not Memory.objects.exists()


def test_a_trail_that_was_tampered_with(watch: Watch, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(watch, house.ada)
    first, second = steps.row(house.ada, 1), steps.row(house.ada, 2)
    Memory.objects.filter(pk=first.pk).update(sealed=bytes(second.sealed))
    assert watch.run("verify_audit", "--all", "--json").code == 1
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert watch.run("export_memories", "acme/ada").code == 1
    assert watch.run("refine", "acme/ada").code == 3


# --- sessions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(ada: Agent, settings: Any) -> Iterator[ModelServer]:
    with ModelServer(tidy) as serving:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = serving.openai_url, "any"
        settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY = serving.anthropic_url, "any"
        settings.OLLAMA_BASE_URL = serving.ollama_url
        settings.MODEL_CALL_SECONDS = 2
        yield serving


def hostile(said: str) -> Callable[[Turn], Action]:
    """Every tool, with the marker wherever a model can put it."""
    calls = [
        Call("search_memories", {"query": f'{said} "{said}" tag:{said}', "since": said}),
        Call("search_memories", {"query": said, "kind": said, "limit": said}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": said, "dropping": [said] * 101}),
        Call("consolidate_memories", {"ids_to_merge": [1, said], "new_content": said, said: said}),
        Call("consolidate_memories", {"ids_to_merge": said, "new_content": [said], "category": said}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": f"{said}\0"}),
        Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": said * 1_000}),
        Call("update_memory", {"id": 3, "content": f"{said} is 7 feet", "dropping": [said, f"not {said}"]}),
        Call("update_memory", {"id": {said: 1}, "content": said}),
        Call("delete_memory", {"id": f"#{said}"}),
        Call("delete_memory", said),
        Call(said, {"id": said}),
        Call("protect_memory", {"id": 4}),
        Call("promote_memory", {"id": 5, said: said}),
        Call("decline_refinement", {"reason": said}),
        Call("search_memories", {"query": said}),
        Call("complete_refinement", {"summary": f"{said} " * 40}),
    ]
    return lambda turn: [call for call in calls if turn.protocol == "openai" or not isinstance(call.args, str)]


def echo(said: str) -> dict[str, Any]:
    """Servers that answer with what they were sent, where an error's text might take it up."""
    body = json.dumps({"error": {"message": said, "type": said, "code": said}})
    return {
        "refuses": Status(400, {"X-Echo": said, "Retry-After": said}, body),
        "signs out": Status(401, {"WWW-Authenticate": said}, body),
        "moves": Status(302, {"Location": f"http://127.0.0.1:1/{said}?q={said}"}, body),
        "fails": Status(500, {"Retry-After": "60", "Set-Cookie": f"a={said}"}, body),
        "says nothing": Say(said),
        "is cut off": Cut(),
        "is no json": Raw(f'{{"choices": "{said}'.encode()),
        "is another shape": Raw(json.dumps({said: said, "choices": [{said: said}], "content": said}).encode()),
        "is bad": BAD_JSON,
        "counts wrong": Broken(lambda wire: wire | {"usage": {said: said}, "message": said, "content": [said]}),
    }


def session(watch: Watch, agent: Agent) -> RefinementSession | None:
    result: RefinementSession | None = watch.attempt(lambda: loop.refine(steps.fresh(agent), trigger="manual"))
    return result


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_good_session(protocol: str, watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model=f"{protocol}/scripted", high_water_tokens=0)
    ended = session(watch, ada)
    assert ended is not None
    assert (ended.outcome, ended.merged, server.refused) == ("completed", 2, [])
    assert watch.marker in json.dumps([request.body for request in server.requests])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hostile_model(protocol: str, watch: Watch, ada: Agent, server: ModelServer) -> None:
    server.script = hostile(watch.marker)
    remembered(watch, ada)
    refining.change(ada, model=f"{protocol}/scripted", system_prompt="You are ada.")
    ended = session(watch, ada)
    assert ended is not None
    assert ended.outcome == "completed"
    assert SessionStep.objects.filter(session=ended).count() > 10
    assert steps.problems(ada) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_servers_that_echo(protocol: str, watch: Watch, ada: Agent, server: ModelServer) -> None:
    remembered(watch, ada)
    refining.change(ada, model=f"{protocol}/scripted")
    for name, script in echo(watch.marker).items():
        server.script = script
        ended = session(watch, ada)
        assert ended is not None
        assert ended.outcome in ("failed", "incomplete"), name


def test_a_session_in_batches_that_is_abandoned(watch: Watch, ada: Agent, settings: Any) -> None:
    """The words for a batch lie sealed in the session's row until it ends."""
    remembered(watch, ada)
    held = refining.opened(ada, shown=False)
    held.knife.show(0, 2, refining.entries(ada))
    assert held.call("complete_refinement", summary=watch.text("in the first batch"))["ok"]
    RefinementSession.objects.update(lease_until="2026-01-01T00:00Z")
    assert [ended.outcome for ended in sessions.close_stale()] == ["abandoned"]


def test_a_session_that_meets_another_writer(watch: Watch, ada: Agent) -> None:
    """A stale edit is answered with the present content: to the model, and to nobody else."""
    remembered(watch, ada)
    held = refining.opened(ada)
    refining.outside(ada, 1, watch.text("changed meanwhile"))
    answer = held.call("delete_memory", id=1)
    assert answer["code"] == "stale_memory"
    assert watch.marker in json.dumps(answer)
    assert held.call("decline_refinement", reason=watch.text("no"))["ok"]


def test_a_session_whose_program_fails(
    watch: Watch, ada: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered(watch, ada)
    refining.change(ada, model="ollama/scripted")

    def fails(*_: object, **__: object) -> None:
        raise Fault

    monkeypatch.setattr(operations, "consolidate", fails)
    assert session(watch, ada) is None
    assert isinstance(watch.errors[0], Fault)
