"""Whole sessions with models that do not do as they are told: text instead of calls, long replies, small contexts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from memory.models import Agent
from refinement import loop
from refinement.models import Outcome, RefinementSession
from tests.fault.whole_sessions import DONE, EACH_PROTOCOL, Play, ending
from tests.model_server import Action, Call, ModelServer, Say, Script, Status, Turn
from tests.refining import change, fill, filler
from tests.steps import active, fresh

DEMOTE = [Call("demote_memory", {"id": number}) for number in (1, 2)]
OVERFLOWS = (
    "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "prompt is too long: 9000 tokens > 4096 maximum",
)


def test_calls_as_text_are_made_and_shown_to_the_model_as_its_calls(play: Play, ada: Agent) -> None:
    fill(ada, 12, 20)
    text = "\n".join(json.dumps({"name": f"functions.{call.name}", "arguments": call.args}) for call in DEMOTE)

    def write(turn: Turn) -> Action:
        if turn.number == 0:
            return Say(f"```json\n{text}\n```")
        _, reply, *results = turn.messages
        assert [call.args for call in reply.calls] == [call.args for call in DEMOTE]
        assert ["left" in result.text for result in results] == [False, True], "figures come once in a reply"
        return DONE

    session = play(write)
    assert (ending(session), session.demoted) == ((Outcome.COMPLETED, ""), 2)


def test_the_nudge_shows_a_call_and_the_operator_reads_what_was_wrong(play: Play) -> None:
    nudges: list[str] = []

    def talk(turn: Turn) -> Action:
        nudges.append(turn.messages[-1].text)
        return Say("I would merge 1 and 2.")

    session = play(talk)
    assert (ending(session), session.problem) == ((Outcome.INCOMPLETE, "no_tool_call"), loop.NO_CALL)
    assert '{"name": "complete_refinement", "arguments": {' in nudges[1]


def test_the_result_of_a_repeated_refused_call_says_so(play: Play) -> None:
    results: list[str] = []

    def repeat(turn: Turn) -> Action:
        results.append(turn.messages[-1].text)
        return [Call("demote_memory", {"id": 999})] if turn.number < 2 else DONE

    assert ending(play(repeat)) == (Outcome.COMPLETED, "")
    assert [loop.REPEATED in result for result in results] == [False, False, True]


@EACH_PROTOCOL
def test_of_a_reply_that_was_cut_off_the_complete_calls_are_made(play: Play, ada: Agent, provider: str) -> None:
    fill(ada, 12, 20)
    # Ollama drops an incomplete call, OpenAI sends incomplete JSON, and Anthropic an incomplete object.
    rest = {"openai": [Call("demote_memory", '{"id": 3')], "anthropic": [Call("demote_memory", {"id": 3})]}

    def long(turn: Turn) -> Action:
        if turn.number == 0:
            return Say(calls=(*DEMOTE, *rest.get(provider, ())), stop="length")
        assert "smaller steps" in turn.messages[-1].text
        return DONE

    session = play(long)
    assert (ending(session), session.demoted, session.failed_calls) == ((Outcome.COMPLETED, ""), 2, 0)


def test_two_cut_replies_without_a_call_end_the_session_and_name_the_setting(play: Play) -> None:
    session = play(Say("x", stop="length"))
    assert (ending(session), session.model_calls) == ((Outcome.INCOMPLETE, "no_tool_call"), 2)
    assert "MAX_OUTPUT_TOKENS" in session.problem


def test_a_session_that_reaches_a_limit_after_edits_is_completed(play: Play, ada: Agent) -> None:
    fill(ada, 8, 20)
    session = play([[Call("demote_memory", {"id": n}) for n in range(1, 11)]])
    assert ending(session) == (Outcome.COMPLETED, "floor")
    assert (fresh(ada).failures_in_a_row, session.tokens_after >= session.floor_tokens) == (0, True)


def test_a_new_memory_can_be_edited_only_in_the_next_reply(play: Play, ada: Agent) -> None:
    fill(ada, 12, 20)
    merge = Call("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": filler(39)})

    def chain(turn: Turn) -> Action:
        if turn.number == 0:
            return [merge, Call("demote_memory", {"id": 13}), Call("search_memories", {"query": "tea"})]
        if turn.number == 1:
            refused = json.loads(turn.results[1].text)
            assert (refused["code"], refused["present"][0]["id"]) == ("stale_memory", 13)
            return Call("demote_memory", {"id": 13})
        return DONE

    session = play(chain, retention="0.50")
    assert (ending(session), session.merged, session.demoted) == ((Outcome.COMPLETED, ""), 2, 1)


@pytest.mark.parametrize("message", OVERFLOWS)
def test_a_batch_larger_than_the_models_context_is_halved(play: Play, ada: Agent, message: str) -> None:
    fill(ada, 8, 20)
    seen: list[int] = []

    def small(turn: Turn) -> Action:
        seen.append(len(turn.ledger()))
        if seen[-1] > 2:
            return Status(400, body=json.dumps({"error": {"message": message}}))
        return DONE

    session = play(small)
    assert (ending(session), session.batches) == ((Outcome.COMPLETED, ""), 4)
    assert seen == [8, 4, 2, 2, 4, 2, 2]


def test_if_no_batch_is_small_enough_the_operator_reads_both_sizes(play: Play, ada: Agent) -> None:
    fill(ada, 2, 20)
    session = play(Status(400, body=json.dumps({"error": {"message": OVERFLOWS[0]}})))
    assert ending(session) == (Outcome.FAILED, "context_overflow")
    assert "the request has about" in session.problem
    assert "the model's context has 4,096 tokens" in session.problem


@EACH_PROTOCOL
def test_a_server_that_refuses_required_calls_or_long_replies_gets_a_plain_request(
    serve: Callable[[Script], ModelServer], ada: Agent, provider: str
) -> None:
    server = serve([Status(400), DONE])
    change(ada, model=f"{provider}/scripted")
    assert loop.refine(fresh(ada), trigger="manual").outcome == Outcome.COMPLETED
    sent = [one.body for one in server.requests if one.body.get("tools")]
    choices = {"openai": "required", "anthropic": {"type": "any"}, "ollama": None}
    assert [body.get("tool_choice") for body in sent] == [choices[provider], None]
    most = [body.get("max_tokens") or body["options"]["num_predict"] for body in sent]
    assert most == [8_192, 4_096]


def test_replies_of_an_agent_with_a_small_context_are_short(
    serve: Callable[[Script], ModelServer], ada: Agent, settings: Any
) -> None:
    numbers = fill(ada, 8, 20)
    for context, most in ((None, 8_192), (4_000, 1_000)):
        server = serve(DONE)
        change(ada, model="openai/scripted", context_tokens=context)
        loop.refine(fresh(ada), trigger="manual")
        assert [one.body["max_tokens"] for one in server.requests if one.body.get("tools")] == [most]
    assert set(numbers) <= set(active(ada))
    assert RefinementSession.objects.filter(outcome=Outcome.COMPLETED).count() == 2
