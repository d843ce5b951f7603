"""Whole sessions with a real model server: a good one, and what can go wrong."""

import json
import socket
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from memory.access.authentication import agent_named
from memory.agents import rule_changes
from memory.consent import erasure, redaction, requests
from memory.models import Agent, Memory
from refinement import loop
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from refinement.providers import Availability
from tests.fault.whole_sessions import DONE, EACH_PROTOCOL, Play, assert_ended_well, ending
from tests.model_server import BAD_JSON, Action, Broken, Call, Cut, ModelServer, Say, Script, Slow, Spent, Status, Turn
from tests.refining import change, fill, filler, notice, protected
from tests.rules import recordings
from tests.steps import ME, PERSON, active, fresh, remember, row, says

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


def merged(shop: str) -> str:
    """All six facts of a shop, in fewer words."""
    first, *rest = about(shop)
    return " ".join([first, *(fact.replace(f"The {shop}", "It") for fact in rest)])


def weight(*texts: str) -> int:
    return sum(-(-len(text) // 4) for text in texts)


def refiner(turn: Turn) -> Action:
    """Merges all facts of two shops (one of the second is constitutional), rewrites, deletes, protects, completes."""
    ids = {memory["content"]: memory["id"] for memory in turn.ledger()}
    bakery, library = ([ids[fact] for fact in about(shop)] for shop in ("bakery", "library"))
    market, cinema = ids[about("market")[4]], ids[about("cinema")[5]]
    first = [
        Call("search_memories", {"query": "bakery"}),
        Call("consolidate_memories", {"ids_to_merge": bakery, "new_content": merged("bakery")}),
    ]
    second = [
        Call("consolidate_memories", {"ids_to_merge": [f"#{n}" for n in library], "new_content": merged("library")}),
        Call("delete_memory", {"id": str(ids[about("tailor")[2]])}),
        Call("protect_memory", {"id": cinema}),
        Call("delete_memory", {"id": cinema}),
        Call("update_memory", {"id": market, "content": "The market is not far from the station!"}),
    ]
    replies: list[Action] = [first, second, DONE]
    return replies[turn.number]


@pytest.fixture
def imported(ada: Agent, provider: str, tmp_path: Path) -> Agent:
    """An agent that the commands create and fill, with one constitutional memory."""
    file = tmp_path / "memories.jsonl"
    file.write_text("\n".join(map(json.dumps, LEDGER)))
    call_command("create_agent", "acme/eve", "--model", f"{provider}/scripted", stdout=StringIO(), stderr=StringIO())
    call_command("import_memories", "acme/eve", str(file), stdout=StringIO(), stderr=StringIO())
    eve = agent_named("acme/eve")
    protected(eve, IDS[about("library")[3]])
    return eve


@EACH_PROTOCOL
def test_a_session_carries_out_the_calls_of_its_model(imported: Agent, serve: Callable[[Script], ModelServer]) -> None:
    serve(refiner)
    out = StringIO()
    call_command("refine", "acme/eve", "--json", stdout=out, stderr=StringIO())
    report = json.loads(out.getvalue())
    kept = about("library")[3]
    gone = [*about("bakery"), *(fact for fact in about("library") if fact != kept), about("tailor")[2]]
    before = weight(*(line["content"] for line in LEDGER))
    after = before - weight(*gone) + weight(merged("bakery"), merged("library"))
    counted = ("outcome", "memories_before", "memories_after", "merged", "updated", "deleted", "protected", "refused")
    assert [report[name] for name in counted] == ["completed", 60, 50, 11, 1, 1, 1, 1]
    assert (report["tokens_before"], report["tokens_after"], report["model_calls"]) == (before, after, 3)
    assert_ended_well(imported, RefinementSession.objects.get(agent=imported))
    assert notice(imported) == (
        f"Refinement completed. Compressed 60 → 50 core memories; saved {before - after:,} tokens; "
        "merged 11, rewrote 1, deleted 1, demoted 0, promoted 0; protected 1; exact duplicates removed 0. "
        'In your own words: "Saved 999,999 tokens in 500 merges."'
    )
    [bakery] = Memory.objects.filter(agent_id=imported.pk, number=61)
    assert bakery.origin.isoformat() == "2026-01-28T08:00:00+00:00"
    library, constitutional = row(imported, 62), row(imported, IDS[kept])
    assert library.origin.isoformat() == "2026-01-27T08:00:00+00:00"
    assert (constitutional.discarded_at, constitutional.constitutional) == (None, True)
    assert says(imported, constitutional.number).content == kept


SERVERS: dict[str, tuple[Script, str]] = {
    "401": (Status(401), "model_not_configured"),
    "429 in an hour": (Status(429, {"Retry-After": "3600"}), "model_unavailable"),
    "cut midway": (Cut(midway=True), "model_unavailable"),
    "slow": (Slow(seconds=5), "model_unavailable"),
    "invalid JSON": (BAD_JSON, "model_reply_invalid"),
}


@pytest.mark.parametrize("fault", SERVERS)
def test_an_error_of_the_server_fails_the_session_with_a_code(
    play: Play, ada: Agent, settings: Any, fault: str
) -> None:
    settings.MODEL_CALL_SECONDS = 0.3 if fault == "slow" else 10
    script, code = SERVERS[fault]
    numbers = fill(ada, 5, 20)
    assert ending(play(script)) == (Outcome.FAILED, code)
    assert active(ada)[:5] == numbers


def fail_to_refine(agent: Agent, model: str) -> str:
    """The reason why a session with this model fails."""
    change(agent, model=model)
    session = loop.refine(fresh(agent), trigger="manual")
    assert session.outcome == Outcome.FAILED
    assert_ended_well(agent, session)
    return session.reason


@EACH_PROTOCOL
def test_a_server_that_does_not_listen_fails_the_session(
    provider: str, ada: Agent, no_pauses: None, settings: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as former:
        address = f"http://127.0.0.1:{former.getsockname()[1]}"
    settings.OPENAI_BASE_URL = settings.ANTHROPIC_BASE_URL = settings.OLLAMA_BASE_URL = address
    assert fail_to_refine(ada, f"{provider}/scripted") == "model_unavailable"


def test_edits_before_a_fault_of_the_server_stay(play: Play, ada: Agent) -> None:
    numbers = fill(ada, 8, 20)
    session = play([Call("delete_memory", {"id": numbers[0]}), *[Status(500)] * 4])
    assert ending(session) == (Outcome.FAILED, "model_unavailable")
    assert (session.deleted, session.tokens_after, row(ada, 1).discarded_at is None) == (1, 140, False)
    assert notice(ada).startswith("Refinement failed (model unavailable). Compressed 8 → 7")


def test_retries_are_counted_as_calls(play: Play) -> None:
    assert play([Status(500), Status(503), DONE]).model_calls == 3


def test_a_broken_seal_fails_the_session(provider: str, ada: Agent) -> None:
    fill(ada, 5, 20)
    whole = bytes(row(ada, 3).sealed)
    Memory.objects.filter(agent_id=ada.pk, number=3).update(sealed=whole[:-1] + bytes([whole[-1] ^ 1]))
    change(ada, model="openai/scripted")
    assert ending(loop.refine(fresh(ada), trigger="manual")) == (Outcome.FAILED, "seal_broken")


PROMOTE = Call("promote_memory", {"id": 1})
MODELS: dict[str, tuple[Script, str]] = {
    "only talks": (Say("I have done it all, saving 5,000 tokens."), "no_tool_call"),
    "says nothing": (Say(""), "no_tool_call"),
    "unknown tools": ([[Call("drop_table", {"id": 1})] * 7] * 4, "limit_failed_calls"),
    "arguments of wrong types": ([[Call("delete_memory", {"id": [{}]})] * 7] * 4, "limit_failed_calls"),
    "no arguments": ([[Call("update_memory")] * 7] * 4, "limit_failed_calls"),
    "ten thousand deletions of nothing": ([[Call("delete_memory", {"id": 999})] * 10_000], "limit_failed_calls"),
    "ten thousand searches": ([[Call("search_memories", {"query": "tea"})] * 10_000], "limit_searches"),
    "ten thousand calls that do nothing": ([[PROMOTE] * 10_000], "limit_failed_calls"),
    "does nothing for ever": (PROMOTE, "limit_failed_calls"),
    "never ends": ([Call("search_memories", {"query": "tea"}), PROMOTE] * 16, "limit_steps"),
}


@EACH_PROTOCOL
def test_tokens_are_estimated_if_the_server_does_not_count_them(play: Play, ada: Agent) -> None:
    def without_usage(body: Any) -> Any:
        return {k: v for k, v in body.items() if k not in ("usage", "prompt_eval_count", "eval_count")}

    fill(ada, 50, 20)
    script = Broken(without_usage, Say("", (Call("search_memories", {"query": "tea"}),)))
    session = play(script, max_model_tokens=5_000)
    assert ending(session) == (Outcome.INCOMPLETE, "limit_model_tokens")
    assert 0 < session.prompt_tokens + session.completion_tokens <= 5_000


@pytest.mark.parametrize("fault", MODELS)
def test_an_error_of_the_model_ends_the_session_early(play: Play, ada: Agent, fault: str) -> None:
    script, reason = MODELS[fault]
    fill(ada, 8, 20)
    session = play(script, max_steps=30)
    assert ending(session) == (Outcome.INCOMPLETE, reason)
    assert session.tokens_after >= session.floor_tokens


@pytest.mark.parametrize(
    ("script", "reason"), [([[PROMOTE] * 10_000], "limit_calls_per_reply"), (PROMOTE, "limit_steps")]
)
def test_other_limits_hold_if_thousands_of_failed_calls_are_allowed(
    play: Play, ada: Agent, script: Script, reason: str
) -> None:
    fill(ada, 8, 20)
    assert ending(play(script, max_failed_calls=100_000, max_steps=30)) == (Outcome.INCOMPLETE, reason)


@pytest.mark.parametrize(
    ("second", "ends"), [(DONE, (Outcome.COMPLETED, "")), (Say("Well."), (Outcome.INCOMPLETE, "no_tool_call"))]
)
def test_one_reply_without_a_tool_call_gets_a_nudge_and_a_second_ends_the_session(
    play: Play, second: Action, ends: tuple[str, str]
) -> None:
    session = play([Say("Let me think."), second])
    assert (ending(session), session.model_calls) == (ends, 2)


@EACH_PROTOCOL
def test_arguments_that_are_not_a_json_object_are_a_failed_call(play: Play, ada: Agent) -> None:
    fill(ada, 8, 20)
    session = play([Call("delete_memory", '{"id": 1'), DONE])
    assert ending(session) in [(Outcome.COMPLETED, ""), (Outcome.FAILED, "model_reply_invalid")]
    assert (session.deleted, row(ada, 1).discarded_at) == (0, None)


@pytest.mark.parametrize(
    "last", [DONE, Call("decline_refinement", {"reason": "All is well."})], ids=["done", "declined"]
)
def test_calls_after_a_decline_are_not_made(play: Play, ada: Agent, last: Call) -> None:
    numbers = fill(ada, 8, 20)
    session = play([[last, *(Call("delete_memory", {"id": number}) for number in numbers)]])
    assert (session.deleted, active(ada)[:8]) == (0, numbers)
    assert session.outcome == (Outcome.COMPLETED if last is DONE else Outcome.DECLINED)


@EACH_PROTOCOL
def test_model_tokens_end_the_session(play: Play) -> None:
    spending = Say(calls=(PROMOTE,), usage=Spent(5_000, 2_000))
    session = play(spending, max_model_tokens=20_000)
    assert ending(session) == (Outcome.INCOMPLETE, "limit_model_tokens")
    assert (session.model_calls, session.prompt_tokens, session.completion_tokens) == (2, 10_000, 4_000)


def test_calls_are_a_part_of_the_next_prompt(play: Play) -> None:
    """Their ids and arguments are sent back. A server that does not count them got 300 MB in each request."""
    long = Call("search_memories", {"query": "x " * 40_000})
    session = play(Say(calls=(long,), usage=Spent(1, 1)), max_model_tokens=20_000)
    assert (*ending(session), session.model_calls) == (Outcome.INCOMPLETE, "limit_model_tokens", 1)


@EACH_PROTOCOL
def test_tokens_of_an_invalid_reply_are_counted(play: Play) -> None:
    def spoil(reply: dict[str, Any]) -> dict[str, Any]:
        return {name: 7 if name in ("choices", "content", "message") else value for name, value in reply.items()}

    session = play(Broken(spoil, Say("x", usage=Spent(150, 50))))
    assert ending(session) == (Outcome.FAILED, "model_reply_invalid")
    assert (session.prompt_tokens, session.completion_tokens) == (150, 50)


def test_a_worker_stops_when_its_session_is_abandoned(play: Play, ada: Agent) -> None:
    fill(ada, 8, 20)

    def abandon(line: str) -> None:
        if line.startswith("delete_memory"):
            sessions.close(RefinementSession.objects.get(), Outcome.ABANDONED, "lease_expired")

    session = play([[Call("delete_memory", {"id": number}) for number in (1, 2, 3)]], report=abandon)
    assert (ending(session), session.deleted) == ((Outcome.ABANDONED, "lease_expired"), 1)


def redact(agent: Agent) -> None:
    redaction.redact(fresh(agent), requests.ask_redaction(fresh(agent), [1], PERSON, reason="x").number, ME)


def erase(agent: Agent) -> None:
    erasure.erase(fresh(agent), requests.ask_erasure(fresh(agent), PERSON, reason="x").number, ME)


STOPS: dict[str, Callable[[Agent], object]] = {
    "redaction": redact,
    "erasure": erase,
    "memory_disabled": lambda agent: rule_changes.change(fresh(agent), PERSON, enabled=False),
    "category_disabled": lambda agent: recordings.off(agent, "technical"),
}


@pytest.mark.parametrize("reason", ["redaction", "erasure"])
def test_removed_texts_are_not_sent_although_sql_opens_the_session_again(
    reason: str, ada: Agent, provider: str, serve: Callable[[Script], ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "The spare key hangs behind the door.", "Bob likes tea.")
    change(ada, model=f"{provider}/scripted")
    server, failed = serve([Status(503), DONE]), Availability.failed

    def then_remove(availability: Availability, *args: Any, **options: Any) -> None:
        failed(availability, *args, **options)
        STOPS[reason](ada)
        RefinementSession.objects.update(outcome=Outcome.OPEN, closed_at=None)

    monkeypatch.setattr(Availability, "failed", then_remove)
    session = loop.refine(fresh(ada), trigger="manual")
    assert (len(server.requests), session.outcome) == (1, Outcome.INCOMPLETE)


@pytest.mark.parametrize("reason", STOPS)
def test_a_call_is_not_tried_again_after_its_texts_were_removed(
    reason: str, ada: Agent, provider: str, serve: Callable[[Script], ModelServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "The spare key hangs behind the door.", "Bob likes tea.", category="technical")
    change(ada, model=f"{provider}/scripted")
    server, failed = serve([Status(503), DONE]), Availability.failed

    def then_remove(availability: Availability, *args: Any, **options: Any) -> None:
        failed(availability, *args, **options)
        STOPS[reason](ada)

    monkeypatch.setattr(Availability, "failed", then_remove)
    session = loop.refine(fresh(ada), trigger="manual")
    assert (len(server.requests), ending(session)) == (1, (Outcome.INCOMPLETE, reason))


def test_a_category_that_is_switched_off_is_in_no_later_batch(
    ada: Agent, provider: str, serve: Callable[[Script], ModelServer], settings: Any
) -> None:
    settings.BATCH_TOKENS = 120
    fill(ada, 4, 80)
    remember(ada, f"The spare key hangs behind the door. {filler(60, 99)}", category="technical")
    change(ada, model=f"{provider}/scripted")
    server = serve(lambda _: DONE)
    said: list[str] = []

    def report(line: str) -> None:
        if line.startswith("complete_refinement") and not said:
            recordings.off(ada, "technical")
            said.append(line)

    session = loop.refine(fresh(ada), trigger="manual", report=report)
    assert said
    assert ending(session) == (Outcome.INCOMPLETE, "category_disabled")
    assert len(server.requests) == 1
