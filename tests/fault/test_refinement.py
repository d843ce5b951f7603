"""Whole sessions against a real model server: a good one, and all that goes wrong."""

from __future__ import annotations

import json
import socket
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from memory.access.authentication import agent_named
from memory.models import Agent, Memory
from refinement import loop
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests.fault.playing import DONE, EACH_PROTOCOL, Play, ended_well, ending
from tests.model_server import (
    BAD_JSON,
    Action,
    Broken,
    Call,
    Cut,
    ModelServer,
    Say,
    Script,
    Slow,
    Spent,
    Status,
    Turn,
)
from tests.refining import change, fill, notice, protected
from tests.steps import active, fresh, row, says

# --- a good session

_SHOPS = ("bakery", "library", "pharmacy", "garage", "market", "cinema", "florist", "tailor", "butcher", "post office")
_FACTS = (
    "The {0} opens at {1}:00 on weekdays.",
    "The {0} takes cards for sums above {1} euros.",
    "The {0} has a back door that sticks in winter.",
    "The {0} was repainted in 20{1}.",
    "The {0} is not far from the station.",
    "The {0} belongs to a cousin of Katarina.",
)
LEDGER = [
    {"content": fact.format(shop, 10 + place), "created_at": f"2026-{month + 1:02}-{28 - place:02}T08:00:00Z"}
    for month, fact in enumerate(_FACTS)
    for place, shop in enumerate(_SHOPS)
]
IDS = {line["content"]: number for number, line in enumerate(LEDGER, 1)}


def about(shop: str) -> list[str]:
    return [line["content"] for line in LEDGER if f" {shop} " in line["content"]]


def united(shop: str) -> str:
    """All six facts of a shop, in fewer words."""
    first, *rest = about(shop)
    return " ".join([first, *(fact.replace(f"The {shop}", "It") for fact in rest)])


def weight(*texts: str) -> int:
    return sum(-(-len(text) // 4) for text in texts)


def refiner(turn: Turn) -> Action:
    """Merges all of two shops (one fact of the second is constitutional), rewrites, deletes, protects, completes."""
    ids = {memory["content"]: memory["id"] for memory in turn.ledger()}
    replies: list[Action] = [
        [
            Call("search_memories", {"query": "bakery"}),
            Call(
                "consolidate_memories",
                {"ids_to_merge": [ids[fact] for fact in about("bakery")], "new_content": united("bakery")},
            ),
        ],
        [
            Call(
                "consolidate_memories",
                {"ids_to_merge": [f"#{ids[fact]}" for fact in about("library")], "new_content": united("library")},
            ),
            Call("delete_memory", {"id": str(ids[about("tailor")[2]])}),
            Call("protect_memory", {"id": ids[about("cinema")[5]]}),
            Call("delete_memory", {"id": ids[about("cinema")[5]]}),
            Call(
                "update_memory", {"id": ids[about("market")[4]], "content": "The market is not far from the station!"}
            ),
        ],
        DONE,
    ]
    return replies[turn.number]


@pytest.fixture
def imported(ada: Agent, provider: str, tmp_path: Path) -> Agent:
    """An agent made and filled by the commands, one of its memories constitutional."""
    file = tmp_path / "memories.jsonl"
    file.write_text("\n".join(map(json.dumps, LEDGER)))
    call_command("create_agent", "acme/eve", "--model", f"{provider}/scripted", stdout=StringIO(), stderr=StringIO())
    call_command("import_memories", "acme/eve", str(file), stdout=StringIO(), stderr=StringIO())
    eve = agent_named("acme/eve")
    protected(eve, IDS[about("library")[3]])
    return eve


@EACH_PROTOCOL
def test_a_good_session_does_what_its_model_asked(imported: Agent, provider: str, settings: Any) -> None:
    out = StringIO()
    with ModelServer(refiner) as server:
        settings.OPENAI_BASE_URL, settings.ANTHROPIC_BASE_URL = server.openai_url, server.anthropic_url
        settings.OLLAMA_BASE_URL = server.ollama_url
        call_command("refine", "acme/eve", "--json", stdout=out, stderr=StringIO())
    told = json.loads(out.getvalue())
    kept = about("library")[3]
    gone = [*about("bakery"), *(fact for fact in about("library") if fact != kept), about("tailor")[2]]
    before = weight(*(line["content"] for line in LEDGER))
    after = before - weight(*gone) + weight(united("bakery"), united("library"))
    counted = ("outcome", "memories_before", "memories_after", "merged", "updated", "deleted", "protected", "refused")
    assert [told[name] for name in counted] == ["completed", 60, 50, 11, 1, 1, 1, 1]
    assert (told["tokens_before"], told["tokens_after"], told["model_calls"]) == (before, after, 3)
    ended_well(imported, RefinementSession.objects.get(agent=imported))
    assert notice(imported) == (
        f"Refinement completed. Compressed 60 → 50 core memories; saved {before - after:,} tokens; "
        "merged 11, rewrote 1, deleted 1, promoted 0; protected 1; exact duplicates removed 0. "
        'In your own words: "Saved 999,999 tokens in 500 merges."'
    )
    [bakery] = Memory.objects.filter(agent_id=imported.pk, number=61)
    assert bakery.origin.isoformat() == "2026-01-28T08:00:00+00:00"
    library, constitutional = row(imported, 62), row(imported, IDS[kept])
    assert library.origin.isoformat() == "2026-01-27T08:00:00+00:00"
    assert (constitutional.discarded_at, constitutional.constitutional) == (None, True)
    assert says(imported, constitutional.number).content == kept


# --- what goes wrong with the server

# tests/fault/test_models.py has every fault. Here is one of each kind.
SERVERS: dict[str, tuple[Script, str]] = {
    "401": (Status(401), "model_refused"),
    "429 in an hour": (Status(429, {"Retry-After": "3600"}), "model_unavailable"),
    "cut midway": (Cut(midway=True), "model_unavailable"),
    "slow": (Slow(seconds=5), "model_unavailable"),
    "invalid JSON": (BAD_JSON, "model_reply_invalid"),
}


@pytest.mark.parametrize("fault", SERVERS)
def test_a_server_at_fault_fails_the_session_with_a_code(play: Play, ada: Agent, settings: Any, fault: str) -> None:
    settings.MODEL_CALL_SECONDS = 0.3 if fault == "slow" else 10
    script, code = SERVERS[fault]
    numbers = fill(ada, 5, 20)
    assert ending(play(script)) == (Outcome.FAILED, code)
    assert active(ada)[:5] == numbers


@EACH_PROTOCOL
def test_a_server_that_is_not_there_fails_the_session(provider: str, ada: Agent, settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as was:
        address = f"http://127.0.0.1:{was.getsockname()[1]}"
    settings.OPENAI_BASE_URL = settings.ANTHROPIC_BASE_URL = settings.OLLAMA_BASE_URL = address
    change(ada, model=f"{provider}/scripted")
    session = loop.refine(fresh(ada), trigger="manual")
    assert ending(session) == (Outcome.FAILED, "model_unavailable")
    ended_well(ada, session)


@pytest.mark.parametrize("model", ["nobody/nothing", "", "anthropic/x", "openai/x", "builtin/other"])
def test_a_model_that_is_not_set_up_fails_the_session(ada: Agent, settings: Any, model: str) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = ""
    change(ada, model=model)
    session = loop.refine(fresh(ada), trigger="manual")
    assert ending(session) == (Outcome.FAILED, "model_not_configured")
    ended_well(ada, session)


def test_a_server_that_fails_midway_leaves_the_edits_made_so_far(play: Play, ada: Agent) -> None:
    numbers = fill(ada, 8, 20)
    session = play([Call("delete_memory", {"id": numbers[0]}), *[Status(500)] * 4])
    assert ending(session) == (Outcome.FAILED, "model_unavailable")
    assert (session.deleted, session.tokens_after, row(ada, 1).discarded_at is None) == (1, 140, False)
    assert notice(ada).startswith("Refinement failed (model unavailable). Compressed 8 → 7")


def test_retries_are_counted_as_calls(play: Play) -> None:
    assert play([Status(500), Status(503), DONE]).model_calls == 3


def test_a_broken_seal_fails_the_session(play: Play, ada: Agent) -> None:
    fill(ada, 5, 20)
    whole = bytes(row(ada, 3).sealed)
    Memory.objects.filter(agent_id=ada.pk, number=3).update(sealed=whole[:-1] + bytes([whole[-1] ^ 1]))
    change(ada, model="openai/scripted")
    session = loop.refine(fresh(ada), trigger="manual")
    assert ending(session) == (Outcome.FAILED, "seal_broken")


# --- what goes wrong with the model

MODELS: dict[str, tuple[Script, str]] = {
    "talks only": (Say("I have done it all, saving 5,000 tokens."), "no_tool_call"),
    "says nothing": (Say(""), "no_tool_call"),
    "unknown tools": ([[Call("drop_table", {"id": 1})] * 7] * 4, "limit_failed_calls"),
    "arguments of wrong types": ([[Call("delete_memory", {"id": [{}]})] * 7] * 4, "limit_failed_calls"),
    "no arguments": ([[Call("update_memory")] * 7] * 4, "limit_failed_calls"),
    "ten thousand deletions of nothing": ([[Call("delete_memory", {"id": 999})] * 10_000], "limit_failed_calls"),
    "ten thousand searches": ([[Call("search_memories", {"query": "tea"})] * 10_000], "limit_searches"),
    "ten thousand calls that do nothing": ([[Call("promote_memory", {"id": 1})] * 10_000], "limit_failed_calls"),
    "does nothing for ever": (Call("promote_memory", {"id": 1}), "limit_failed_calls"),
    "never ends": ([Call("search_memories", {"query": "tea"}), Call("promote_memory", {"id": 1})] * 16, "limit_steps"),
    "wants it all gone": ([[Call("delete_memory", {"id": n}) for n in range(1, 11)]], "floor"),
}


@EACH_PROTOCOL
def test_a_server_that_counts_no_tokens_is_counted_for(play: Play, ada: Agent) -> None:
    def without_usage(body: Any) -> Any:
        return {k: v for k, v in body.items() if k not in ("usage", "prompt_eval_count", "eval_count")}

    fill(ada, 50, 20)
    script = Broken(without_usage, Say("", (Call("search_memories", {"query": "tea"}),)))
    session = play(script, max_model_tokens=5_000)
    assert ending(session) == (Outcome.INCOMPLETE, "limit_model_tokens")
    assert session.prompt_tokens >= 5_000


@pytest.mark.parametrize("fault", MODELS)
def test_a_model_at_fault_ends_the_session_early(play: Play, ada: Agent, fault: str) -> None:
    script, reason = MODELS[fault]
    fill(ada, 8, 20)
    session = play(script)
    assert ending(session) == (Outcome.INCOMPLETE, reason)
    assert session.tokens_after >= session.floor_tokens


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([[Call("promote_memory", {"id": 1})] * 10_000], "limit_calls_per_reply"),
        (Call("promote_memory", {"id": 1}), "limit_steps"),
    ],
)
def test_where_failed_calls_are_allowed_by_the_thousand_other_limits_hold(
    play: Play, ada: Agent, script: Script, reason: str
) -> None:
    fill(ada, 8, 20)
    assert ending(play(script, max_failed_calls=100_000)) == (Outcome.INCOMPLETE, reason)


@pytest.mark.parametrize(
    ("second", "ends"), [(DONE, (Outcome.COMPLETED, "")), (Say("Well."), (Outcome.INCOMPLETE, "no_tool_call"))]
)
def test_one_reply_without_a_tool_call_gets_a_nudge_and_a_second_ends_the_session(
    play: Play, second: Action, ends: tuple[str, str]
) -> None:
    session = play([Say("Let me think."), second])
    assert (ending(session), session.model_calls) == (ends, 2)


@EACH_PROTOCOL
def test_arguments_that_are_no_json_object_are_a_failed_call(play: Play, ada: Agent) -> None:
    fill(ada, 8, 20)
    session = play([Call("delete_memory", '{"id": 1'), DONE])
    assert ending(session) in [(Outcome.COMPLETED, ""), (Outcome.FAILED, "model_reply_invalid")]
    assert (session.deleted, row(ada, 1).discarded_at) == (0, None)


@pytest.mark.parametrize(
    "last", [DONE, Call("decline_refinement", {"reason": "All is well."})], ids=["done", "declined"]
)
def test_calls_after_the_end_are_not_made_and_why_it_declined_is_told(play: Play, ada: Agent, last: Call) -> None:
    numbers = fill(ada, 8, 20)
    session = play([[last, *(Call("delete_memory", {"id": number}) for number in numbers)]])
    assert (session.deleted, active(ada)[:8]) == (0, numbers)
    if last is DONE:
        assert session.outcome == Outcome.COMPLETED
    else:
        assert ending(session) == (Outcome.DECLINED, "")
        assert notice(ada).endswith(' "All is well."')


@EACH_PROTOCOL
def test_model_tokens_end_the_session(play: Play) -> None:
    spending = Say(calls=(Call("promote_memory", {"id": 1}),), usage=Spent(150, 50))
    session = play(spending, max_model_tokens=500)
    assert ending(session) == (Outcome.INCOMPLETE, "limit_model_tokens")
    assert (session.model_calls, session.prompt_tokens, session.completion_tokens) == (3, 450, 150)


@EACH_PROTOCOL
def test_tokens_of_a_reply_that_makes_no_sense_are_counted(play: Play) -> None:
    def senseless(reply: dict[str, Any]) -> dict[str, Any]:
        for part in ("choices", "content", "message"):
            if part in reply:
                reply[part] = 7
        return reply

    session = play(Broken(senseless, Say("x", usage=Spent(150, 50))))
    assert ending(session) == (Outcome.FAILED, "model_reply_invalid")
    assert (session.prompt_tokens, session.completion_tokens) == (150, 50)


def test_a_session_taken_for_lost_is_left_alone_by_its_worker(play: Play, ada: Agent) -> None:
    fill(ada, 8, 20)

    def take(line: str) -> None:
        if line.startswith("delete_memory"):
            sessions.close(RefinementSession.objects.get(), Outcome.ABANDONED, "lease_expired")

    session = play([[Call("delete_memory", {"id": number}) for number in (1, 2, 3)]], report=take)
    assert (ending(session), session.deleted) == ((Outcome.ABANDONED, "lease_expired"), 1)
