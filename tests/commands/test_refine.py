"""refine: figures, exit codes, dry runs, and all agents that are due."""

import json
import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memory.agents import lifecycle
from memory.models import Agent
from memory.transfer import importing
from refinement import worker
from refinement.llm import connections
from refinement.models import Provider, RefinementSession, SessionStep
from tests import refining, steps
from tests.commands.calling import Ran, failed, run
from tests.model_server import BAD_JSON, Call, ModelServer, Say, Status, tidy
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database

BIRDS = ("a heron", "two coots", "some swans", "a grebe", "one bittern", "a kingfisher", "many gulls")
TEXTS = (
    *("likes her tea with lemon", "walks to the harbour on Sundays"),
    *("keeps keeps keeps the spare key under the blue pot", "once meant to paint the shed"),
    *("promised to call her sister", "promised to call her sister", "spoke with the plumber"),
    *(f"saw {bird}" for bird in BIRDS),
)
# The model `tidy` (tests/model_server.py) edits the first five.
LEDGER: list[dict[str, Any]] = [
    {"content": f"{MARKER} {text}", "created_at": f"2026-01-{day:02}T10:00:00Z"} for day, text in enumerate(TEXTS, 5)
]
LEDGER[0]["tags"], LEDGER[1]["tags"], LEDGER[6]["kind"] = ["tea"], ["walk"], "journal"
MERGED = f"{LEDGER[0]['content']} {LEDGER[1]['content']}"
TIGHTENED = f"{MARKER} keeps the spare key under the blue pot"
NEW, OLD, NOTICE = 15, 16, 17  # the merged memory, the text before a rewrite, and the session's notice
DRY_RUN = {"due", "tokens", "target", "budget", "floor", "memories", "constitutional", "duplicates", "batches"}
EXPECTED = {"expected_prompt_tokens", "expected_completion_tokens", "expected_price"}
DRY_RUN |= EXPECTED | {
    "ledger_tokens",
    "max_steps",
    "max_searches",
    "max_failed_calls",
    "max_seconds",
    "max_model_tokens",
}


GONE = ("beneath", "discarded")


def tokens(*texts: str) -> int:
    return sum(math.ceil(len(text) / 4) for text in texts)


def assert_figures(report: dict[str, Any]) -> None:
    """`refine --json` has exactly these keys, and the figures of the model `tidy`."""
    texts = {number: row["content"] for number, row in enumerate(LEDGER, 1) if number != 7}
    rest = [text for number, text in texts.items() if number > 4 and number != 6]
    measured = {"prompt_tokens", "completion_tokens", "model_seconds", "own_seconds"} | EXPECTED - {"expected_price"}
    assert all(report[name] >= 0 for name in measured)
    assert report["prompt_tokens"] > 0
    assert {name: value for name, value in report.items() if name not in measured} == {
        "session": 1,
        "outcome": "completed",
        "reason": "",
        "error": None,
        "tokens_before": tokens(*texts.values()),
        "tokens_after": tokens(MERGED, TIGHTENED, *rest),
        "memories_before": 13,
        "memories_after": 10,
        "repeated_tokens": tokens(texts[6]),
        "duplicates_removed": 1,
        "merged": 2,
        "updated": 1,
        "deleted": 1,
        "demoted": 0,
        "protected": 1,
        "promoted": 0,
        "left_out": 0,
        "refused": 0,
        "model_calls": 2,
        "cached_tokens": 0,
        "expected_price": None,
        "price": None,
        "problem": None,
    }


def assert_edited(exported: list[dict[str, Any]]) -> None:
    """The memories, with the discarded ones, are as `tidy` leaves them."""
    after = {row["id"]: row for row in exported}
    assert list(after) == list(range(1, NOTICE + 1))
    assert (after[NEW]["content"], after[NEW]["kind"]) == (MERGED, "core")
    assert (after[NEW]["origin"], after[NEW]["tags"]) == ("2026-01-05T10:00:00Z", ["tea", "walk"])
    gone = {number: (row["layer"], row["superseded_by"]) for number, row in after.items() if row["layer"] in GONE}
    assert gone == {
        1: ("beneath", NEW),
        2: ("beneath", NEW),
        OLD: ("beneath", 3),
        4: ("discarded", None),
        6: ("discarded", 5),
    }
    assert after[3]["content"] == TIGHTENED
    assert [number for number, row in after.items() if row["constitutional"]] == [5]
    for number in (5, *range(7, 15)):
        row = LEDGER[number - 1]
        assert (after[number]["content"], after[number]["origin"]) == (row["content"], row["created_at"])
    assert after[NOTICE]["kind"] == "journal"
    for words in (
        "Compressed 13 → 10 core memories",
        "merged 2, rewrote 1, deleted 1, demoted 0, promoted 0; protected 1",
        "Merged, tightened, discarded and protected one each.",
    ):
        assert words in after[NOTICE]["content"]


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    connections.close_clients()


@pytest.fixture
def server(ada: Agent, settings: Any) -> Iterator[ModelServer]:
    """The server of ada's model."""
    with ModelServer(tidy) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY = server.anthropic_url, "any"
        settings.OLLAMA_BASE_URL = server.ollama_url
        refining.change(ada, model="openai/scripted")
        yield server


@pytest.fixture
def filled(ada: Agent) -> None:
    importing.check_lines([json.dumps(row).encode() for row in LEDGER]).store(ada, steps.SYSTEM)


def refine(*more: str) -> Ran:
    return run("refine", "acme/ada", *more)


def make_due(*agents: Agent) -> None:
    """The first is due first."""
    for number, agent in enumerate(agents):
        refining.change(agent, due_at=timezone.now() - timedelta(minutes=60 - number))


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_the_report_has_the_sessions_figures(provider: str, ada: Agent, server: ModelServer, filled: None) -> None:
    refining.change(ada, model=f"{provider}/scripted")
    ran = refine("--json")
    assert (ran.code, ran.err, server.refused, MARKER in ran.out) == (0, "", [], False)
    assert_figures(ran.json)
    assert_edited([json.loads(line) for line in steps.exported(steps.fresh(ada), with_discarded=True)])
    assert steps.problems(ada) == []


@pytest.mark.parametrize(
    ("script", "code", "outcome", "reason"),
    [
        (tidy, 0, "completed", ""),
        (Call("decline_refinement", {"reason": f"{MARKER} all is well"}), 0, "declined", ""),
        (Say(f"{MARKER} just talks"), 0, "incomplete", "no_tool_call"),
        (BAD_JSON, 3, "failed", "model_reply_invalid"),
    ],
)
def test_the_exit_code_follows_the_outcome(
    script: Any, code: int, outcome: str, reason: str, ada: Agent, server: ModelServer, filled: None
) -> None:
    server.script = script
    ran = refine("--json")
    assert (ran.code, ran.json["outcome"], ran.json["reason"]) == (code, outcome, reason)
    assert ran.json["error"] == (reason if code == 3 else None)
    assert MARKER not in ran.out + ran.err
    assert steps.problems(ada) == []


def test_a_model_that_is_not_configured_opens_no_session(ada: Agent, settings: Any) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = ""
    settings.OPENAI_BASE_URL, settings.OLLAMA_BASE_URL = "https://api.openai.com/v1", "gopher://nowhere"
    for model in ("openai/gpt-4.1", "anthropic/claude", "ollama/other", "builtin/other"):
        refining.change(ada, model=model)
        ran = refine("--json")
        assert (ran.code, ran.json["error"]) == (3, "model_not_configured")
        assert ran.err.startswith("error: acme/ada: ")
        assert "gpt" not in model or ran.err.endswith("No OpenAI key on this server: set OPENAI_API_KEY.\n")
        assert refine().err == ran.err
        dry = refine("--dry-run", "--json")
        assert (dry.code, dry.json["error"], dry.err) == (3, "model_not_configured", ran.err)
    assert not Provider.objects.exists(), "the service may have another configuration"


@pytest.mark.parametrize("status", [401, 404])
def test_a_model_that_the_server_refuses_is_recorded_only_by_the_service(
    status: int, ada: Agent, server: ModelServer
) -> None:
    server.script = Status(status)
    ran = refine("--json")
    assert (ran.code, ran.json["error"], Provider.objects.exists()) == (3, "model_refused", False)
    assert {401: "correct OPENAI_API_KEY", 404: "the agent's model or OPENAI_BASE_URL"}[status] in ran.err
    make_due(ada)
    worker.refine_next(ada.pk)
    dry = refine("--dry-run", "--json")
    assert (dry.code, dry.err, RefinementSession.objects.exists()) == (3, ran.err, False)


def test_a_dry_run_changes_nothing_and_calls_no_model(ada: Agent, server: ModelServer, filled: None) -> None:
    with refining.untouched(ada):
        ran = refine("--dry-run", "--json")
    assert (ran.code, server.requests, MARKER in ran.out) == (0, [], False)
    assert set(ran.json) >= DRY_RUN
    assert [ran.json[name] for name in ("memories", "duplicates", "batches")] == [13, 1, 1]
    assert [ran.json[name] for name in ("mode", "model", "error")] == ["full", "openai/scripted", None]
    assert refine("--dry-run", "--dedupe-only", "--json").json["mode"] == "dedupe_only"


def test_dedupe_only_offers_no_merge(ada: Agent, server: ModelServer) -> None:
    server.script = Call("complete_refinement", {"summary": "Nothing."})
    steps.remember(ada, f"{MARKER} drinks tea")
    assert refine("--dedupe-only").code == 0
    offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
    assert ("consolidate_memories" in offered, "delete_memory" in offered) == (False, True)


def test_a_second_session_or_memory_that_is_off_is_refused(ada: Agent) -> None:
    refining.opened(ada)
    with refining.untouched(ada):
        failed(refine(), 1, "session 1 of this agent is open")
    refining.change(ada, memory_enabled=False)
    with refining.untouched(ada):
        failed(refine(), 1, "Memory is off")
        failed(refine("--dry-run"), 1, "Memory is off")


def test_all_due_refines_only_agents_that_are_due(ada: Agent, bob: Agent) -> None:
    steps.remember(ada, f"{MARKER} drinks tea", f"{MARKER} drinks tea")
    Agent.objects.update(due_at=timezone.now() + timedelta(days=1))
    assert run("refine", "--all-due").err == "no agent is due\n"
    make_due(ada)
    ran = run("refine", "--all-due", "--json")
    assert (ran.code, ran.json["outcome"], ran.json["duplicates_removed"]) == (0, "completed", 1)
    assert list(RefinementSession.objects.values_list("agent__slug", "trigger")) == [("ada", "weekly")]
    assert run("refine", "--all-due").err == "no agent is due\n"


def test_all_due_continues_after_an_agent_whose_model_fails(ada: Agent, bob: Agent, server: ModelServer) -> None:
    server.script = Status(403)
    make_due(ada, bob)
    ran = run("refine", "--all-due", "--json")
    reports = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 3
    assert [(each["agent"], each["error"]) for each in reports] == [("acme/ada", "model_refused"), ("globex/bob", None)]
    assert list(RefinementSession.objects.values_list("agent", "outcome")) == [(bob.pk, "completed")]


def test_all_due_skips_a_model_that_does_not_answer(ada: Agent, bob: Agent, server: ModelServer, settings: Any) -> None:
    settings.MODEL_CALL_SECONDS = 5  # enough for the second failure on a slow machine
    server.script = Status(503)
    Provider.objects.create(name="openai/scripted", has_answered=True)
    crowd = [lifecycle.create("acme", f"c{n}", model="openai/scripted", actor=steps.SYSTEM)[0] for n in range(4)]
    make_due(ada, *crowd, bob)
    ran = run("refine", "--all-due")
    assert (ran.code, ran.err.count("error: acme/")) == (3, 5)
    sessions = RefinementSession.objects.order_by("pk").values_list("agent", "outcome")
    assert list(sessions) == [(bob.pk, "completed")]
    assert len(server.requests) == 2  # then the model is closed


def test_all_due_continues_after_an_agent_whose_silo_cannot_be_decrypted(ada: Agent, bob: Agent) -> None:
    wrapped = bytes(steps.fresh(ada).wrapped_key)
    refining.change(ada, wrapped_key=wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    make_due(ada, bob)
    ran = run("refine", "--all-due", "--json")
    assert (ran.code, ran.json["outcome"]) == (1, "completed")
    assert "acme/ada" in ran.err
    assert "cannot be decrypted" in ran.err


def test_all_due_closes_an_abandoned_session_except_in_a_dry_run(ada: Agent) -> None:
    stale = refining.opened(ada).session
    RefinementSession.objects.filter(pk=stale.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    make_due(ada)
    with refining.untouched(ada):
        assert run("refine", "--all-due", "--dry-run").code == 0
    run("refine", "--all-due")
    assert RefinementSession.objects.get(pk=stale.pk).outcome == "abandoned"


def test_the_steps_of_a_session_have_only_codes(ada: Agent, server: ModelServer, filled: None) -> None:
    server.script = [
        [Call(f"{MARKER}_tool", {MARKER: MARKER}), Call("delete_memory", {"id": MARKER, MARKER: 1})],
        Call("complete_refinement", {"summary": f"{MARKER} did nothing"}),
    ]
    assert refine().code == 0
    rows = list(SessionStep.objects.order_by("pk").values_list("tool", "result"))
    assert rows == [("unknown", "unknown_tool"), ("delete_memory", "bad_arguments"), ("complete_refinement", "ok")]


def test_refine_needs_one_agent_or_all_due(ada: Agent) -> None:
    for arguments in ([], ["acme/ada", "--all-due"]):
        failed(run("refine", *arguments), 2, "--all-due")
