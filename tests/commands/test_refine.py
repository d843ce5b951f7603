from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent
from memory.transfer import importing
from refinement.llm import connections
from refinement.models import RefinementSession, SessionStep
from tests import refining, steps
from tests.commands import scripted
from tests.commands.calling import Ran, failed, run
from tests.model_server import BAD_JSON, Action, Call, ModelServer, Say, Status, Turn, tidy
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database

Providers = ("openai", "anthropic", "ollama")
DRY = ["due", "tokens", "target", "budget", "floor", "memories", "constitutional", "duplicates", "batches"]
DRY += ["ledger_tokens", "max_steps", "max_searches", "max_failed_calls", "max_seconds", "max_model_tokens"]


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


@pytest.fixture
def served(ada: Agent, settings: Any) -> Iterator[ModelServer]:
    """A server that ada's model lives on. Set its `script`, and `refining.change(ada, model=…)` for a protocol."""
    with ModelServer(tidy) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY = server.anthropic_url, "any"
        settings.OLLAMA_BASE_URL = server.ollama_url
        refining.change(ada, model="openai/scripted")
        yield server


def fill(agent: Agent) -> None:
    lines = [json.dumps(row).encode() for row in scripted.LEDGER]
    importing.check_lines(lines).store(agent, steps.SYSTEM)


def refine(*more: str) -> Ran:
    return run("refine", "acme/ada", *more)


@pytest.mark.parametrize("provider", Providers)
def test_figures_are_as_the_script_implies(provider: str, ada: Agent, served: ModelServer) -> None:
    refining.change(ada, model=f"{provider}/scripted")
    fill(ada)
    ran = refine("--json")
    assert (ran.code, ran.err, served.refused) == (0, "", [])
    assert MARKER not in ran.out
    scripted.figures(ran.json)
    scripted.outcome([json.loads(line) for line in steps.exported(steps.fresh(ada), with_discarded=True)])
    assert steps.problems(ada) == []


def declines(_: Turn) -> Action:
    return Call("decline_refinement", {"reason": f"{MARKER} all is well"})


@pytest.mark.parametrize(
    ("script", "code", "outcome", "reason"),
    [
        (tidy, 0, "completed", ""),
        (declines, 0, "declined", ""),
        (Say(f"{MARKER} just talks"), 0, "incomplete", "no_tool_call"),
        (Status(401), 3, "failed", "model_refused"),
        (BAD_JSON, 3, "failed", "model_reply_invalid"),
    ],
)
def test_exit_codes_follow_the_outcome(
    script: Any, code: int, outcome: str, reason: str, ada: Agent, served: ModelServer
) -> None:
    served.script = script
    fill(ada)
    ran = refine("--json")
    assert (ran.code, ran.json["outcome"], ran.json["reason"]) == (code, outcome, reason)
    assert ran.json["error"] == (reason if code == 3 else None)
    assert MARKER not in ran.out + ran.err
    assert steps.problems(ada) == []


def test_a_model_that_is_not_configured_is_a_failed_session(ada: Agent, settings: Any) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = ""
    settings.OPENAI_BASE_URL, settings.OLLAMA_BASE_URL = "https://api.openai.com/v1", "gopher://nowhere"
    for model in ("openai/gpt-4.1", "anthropic/claude", "ollama/other", "builtin/other"):
        refining.change(ada, model=model)
        ran = refine("--json")
        assert (ran.code, ran.json["error"], ran.json["model_calls"]) == (3, "model_not_configured", 0)
        assert ran.err.startswith("error: acme/ada: ")
        assert refine().err == ran.err
        dry = refine("--dry-run", "--json")
        assert (dry.code, dry.json["error"], dry.err) == (3, "model_not_configured", ran.err)


def test_a_dry_run_changes_nothing_and_calls_nobody(ada: Agent, served: ModelServer) -> None:
    fill(ada)
    with refining.untouched(ada):
        ran = refine("--dry-run", "--json")
    assert (ran.code, served.requests) == (0, [])
    assert (ran.json["memories"], ran.json["duplicates"], ran.json["batches"]) == (13, 1, 1)
    assert set(ran.json) >= set(DRY)
    assert [ran.json[name] for name in ("mode", "model", "error")] == ["full", "openai/scripted", None]
    assert refine("--dry-run", "--dedupe-only", "--json").json["mode"] == "dedupe_only"
    assert MARKER not in ran.out


def test_a_dry_run_of_all_due_closes_no_abandoned_session(ada: Agent) -> None:
    stale = refining.opened(ada).session
    RefinementSession.objects.filter(pk=stale.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    refining.change(ada, due_at=timezone.now())
    with refining.untouched(ada):
        assert run("refine", "--all-due", "--dry-run").code == 0


def test_memory_that_is_off_is_not_refined(ada: Agent) -> None:
    refining.change(ada, memory_enabled=False)
    with refining.untouched(ada):
        failed(refine(), 1, "Memory is off")
        failed(refine("--dry-run"), 1, "Memory is off")


def test_an_open_session_refuses_another(ada: Agent) -> None:
    refining.opened(ada)
    with refining.untouched(ada):
        failed(refine(), 1, "session 1 of this agent is open")


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_is_told_that_a_session_is_open(ada: Agent, served: ModelServer) -> None:
    fill(ada)
    asked, go_on = threading.Event(), threading.Event()

    def waits(turn: Turn) -> Action:
        asked.set()
        assert go_on.wait(20)
        return tidy(turn)

    served.script = waits
    outcomes: list[RefinementSession] = []
    first = threading.Thread(target=_in_a_thread, args=(ada, outcomes))
    first.start()
    try:
        assert asked.wait(20)
        second = refine("--json")
    finally:
        go_on.set()
        first.join()
    failed(second, 1, "is open")
    assert [session.outcome for session in outcomes] == ["completed"]
    assert RefinementSession.objects.count() == 1
    assert steps.problems(ada) == []


def _in_a_thread(agent: Agent, outcomes: list[RefinementSession]) -> None:
    from refinement import loop

    try:
        outcomes.append(loop.refine(steps.fresh(agent), trigger="manual"))
    finally:
        connection.close()


def test_all_due_refines_those_that_are_due(ada: Agent, bob: Agent) -> None:
    steps.remember(ada, f"{MARKER} drinks tea", f"{MARKER} drinks tea")
    Agent.objects.update(due_at=timezone.now() + timedelta(days=1))
    assert run("refine", "--all-due").err == "no agent is due\n"
    refining.change(ada, due_at=timezone.now() - timedelta(days=1))
    ran = run("refine", "--all-due", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["duplicates_removed"]) == (0, "completed", 1)
    assert list(RefinementSession.objects.values_list("agent__slug", "trigger")) == [("ada", "weekly")]
    assert run("refine", "--all-due").err == "no agent is due\n"


def test_all_due_goes_on_after_an_agent_whose_model_fails(ada: Agent, bob: Agent, served: ModelServer) -> None:
    served.script = Status(403)
    Agent.objects.update(due_at=timezone.now() - timedelta(days=1))
    ran = run("refine", "--all-due", "--json")
    assert ran.code == 3
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert [(one["agent"], one["outcome"]) for one in told] == [("acme/ada", "failed"), ("globex/bob", "completed")]


def test_all_due_asks_a_model_that_does_not_answer_no_more_for_each(
    ada: Agent, bob: Agent, served: ModelServer, settings: Any
) -> None:
    settings.MODEL_CALL_SECONDS = 5  # time for the second failure, by which it is doubted, on a slow machine too
    served.script = Status(503)
    crowd = [lifecycle.create("acme", f"c{n}", model="openai/scripted", actor=steps.SYSTEM)[0] for n in range(4)]
    for number, agent in enumerate((ada, *crowd, bob)):
        refining.change(agent, due_at=timezone.now() - timedelta(minutes=9 - number))
    ran = run("refine", "--all-due")
    assert ran.code == 3
    assert ran.err.count("does not answer; skipped") == 4
    sessions = RefinementSession.objects.order_by("pk").values_list("agent", "outcome")
    assert list(sessions) == [(ada.pk, "failed"), (bob.pk, "completed")]


def test_all_due_goes_on_after_an_agent_whose_silo_does_not_open(ada: Agent, bob: Agent) -> None:
    wrapped = bytes(steps.fresh(ada).wrapped_key)
    refining.change(ada, wrapped_key=wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    Agent.objects.update(due_at=timezone.now() - timedelta(days=1))
    ran = run("refine", "--all-due", "--json")
    assert (ran.code, ran.json["outcome"]) == (1, "completed")
    assert "acme/ada" in ran.err
    assert "cannot be decrypted" in ran.err


def test_dedupe_only_offers_no_merge(ada: Agent, served: ModelServer) -> None:
    served.script = [Call("complete_refinement", {"summary": "Nothing."})]
    steps.remember(ada, f"{MARKER} drinks tea")
    assert refine("--dedupe-only").code == 0
    offered = [tool["function"]["name"] for tool in served.requests[0].body["tools"]]
    assert "consolidate_memories" not in offered
    assert "delete_memory" in offered


def test_the_timeline_holds_codes_and_counts_alone(ada: Agent, served: ModelServer) -> None:
    served.script = [
        [Call(f"{MARKER}_tool", {MARKER: MARKER}), Call("delete_memory", {"id": MARKER, MARKER: 1})],
        Call("complete_refinement", {"summary": f"{MARKER} did nothing"}),
    ]
    fill(ada)
    assert refine().code == 0
    rows = list(SessionStep.objects.order_by("pk").values_list("tool", "result"))
    assert rows == [("unknown", "unknown_tool"), ("delete_memory", "bad_arguments"), ("complete_refinement", "ok")]


@pytest.mark.parametrize("args", [[], ["acme/ada", "--all-due"]])
def test_one_agent_or_all_due_must_be_named(args: list[str], ada: Agent) -> None:
    failed(run("refine", *args), 2, "--all-due")


def test_all_due_closes_a_session_that_was_abandoned(ada: Agent) -> None:
    stale = refining.opened(ada).session
    RefinementSession.objects.filter(pk=stale.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    run("refine", "--all-due")
    assert RefinementSession.objects.get(pk=stale.pk).outcome == "abandoned"
