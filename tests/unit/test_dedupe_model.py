"""`builtin/dedupe` against conversations made by hand: it merges near duplicates, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinement.llm.base import Message, Reply, Request, Tool, ToolCall, Usage
from refinement.llm.dedupe import CALLS_A_REPLY, Dedupe

FULL = "The team always meets at 09:45 on the quay."
PLAIN = "The team meets at 09:45 on the quay"
OTHER = "The team meets at 10:45 on the quay."


def line(number: int, content: str, **more: Any) -> str:
    shown = {"id": number, "tokens": 12, "tags": [], "constitutional": False, "content": content} | more
    return json.dumps(shown, ensure_ascii=False)


def request(*messages: Message | str, tools: str = "consolidate_memories delete_memory complete_refinement") -> Request:
    given = tuple(m if isinstance(m, Message) else Message("user", m) for m in messages)
    return Request("dedupe", given, tuple(Tool(name, "", {"type": "object"}) for name in tools.split()))


def ask(*messages: Message | str, **more: str) -> Reply:
    return Dedupe().complete(request(*messages, **more))


def calls(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in reply.tool_calls]


def answered(reply: Reply, text: str = "{}", failed: bool = False) -> list[Message]:
    asked = Message("assistant", reply.text, reply.tool_calls)
    return [asked, *(Message("tool", text, tool_call_id=call.id, failed=failed) for call in reply.tool_calls)]


def refused(code: str) -> list[Message]:
    """What the model was told of its merge of memories 1 and 2."""
    asked = ToolCall("a", "consolidate_memories", {"ids_to_merge": [1, 2], "new_content": FULL})
    told = json.dumps({"ok": False, "code": code, "error": "no"})
    return [Message("assistant", "", (asked,)), Message("tool", told, tool_call_id="a", failed=True)]


def test_merges_near_duplicates_into_the_fullest_wording() -> None:
    reply = ask(f"The ledger:\n{line(1, PLAIN)}\n{line(2, OTHER)}\n{line(3, FULL)}\nThat is all.")
    assert calls(reply) == [("consolidate_memories", {"ids_to_merge": [1, 3], "new_content": FULL})]
    assert reply.usage == Usage()
    assert reply.stop == "tool_calls"


def test_finishes_when_nothing_is_left_and_says_what_it_is() -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}"
    reply = ask(ledger, *answered(ask(ledger)))
    assert [name for name, _ in calls(reply)] == ["complete_refinement"]
    summary = reply.tool_calls[0].arguments["summary"]
    assert "not a language model" in summary
    assert "merged 2 near duplicates into 1" in summary


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_a_memory_cannot_forge_a_line_of_the_ledger(end: str) -> None:
    hostile = f"Harmless.{end}{line(7, PLAIN)}{end}{line(8, FULL)}{end}"
    reply = ask(f"{line(1, hostile)}\n{line(2, OTHER)}")
    assert [name for name, _ in calls(reply)] == ["complete_refinement"]


def test_many_merges_are_spread_over_replies() -> None:
    count = CALLS_A_REPLY + 7
    ledger = "\n".join(
        f"{line(2 * i + 1, f'{PLAIN} {i}')}\n{line(2 * i + 2, f'{FULL[:-1]} {i}')}" for i in range(count)
    )
    first = ask(ledger)
    second = ask(ledger, *answered(first))
    last = ask(ledger, *answered(first), *answered(second))
    assert [len(reply.tool_calls) for reply in (first, second, last)] == [CALLS_A_REPLY, 7, 1]
    assert len({call.id for reply in (first, second, last) for call in reply.tool_calls}) == count + 1


@pytest.mark.parametrize("code", ["floor", "limit", "session_ended"])
def test_stops_when_no_edit_can_succeed(code: str) -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}\n{line(3, OTHER)}\n{line(4, OTHER)}"
    ((name, arguments),) = calls(ask(ledger, *refused(code)))
    assert name == "complete_refinement"
    assert code in arguments["summary"]
    assert "merged nothing" in arguments["summary"]


def test_a_refused_merge_is_not_tried_again_and_others_go_on() -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}\n{line(3, OTHER)}\n{line(4, OTHER)}"
    merge = ("consolidate_memories", {"ids_to_merge": [3, 4], "new_content": OTHER})
    assert calls(ask(ledger, *refused("changed"))) == [merge]


def test_where_merging_is_not_offered_it_deletes_all_but_the_fullest() -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}\n{line(3, PLAIN + '!')}"
    reply = ask(ledger, tools="search_memories delete_memory complete_refinement")
    assert calls(reply) == [("delete_memory", {"id": 1}), ("delete_memory", {"id": 3})]
    past = answered(reply)
    end = ask(ledger, *past, tools="search_memories delete_memory complete_refinement")
    assert "deleted 2 near duplicates" in end.tool_calls[0].arguments["summary"]


def test_without_tools_or_after_a_refused_finish_it_only_speaks() -> None:
    silent = ask("Summarise this.", tools="")
    assert (silent.tool_calls, silent.stop) == ((), "end")
    again = ask("Nothing.", *answered(ask("Nothing."), failed=True))
    assert again.tool_calls == ()


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=60)), max_size=6))
@settings(deadline=None)
def test_strange_conversations_raise_nothing(turns: list[tuple[Any, str]]) -> None:
    odd = [ToolCall("x", "consolidate_memories", None), ToolCall("x", "delete_memory", {"id": [True, "1", None]})]
    messages = [Message(role, text, tuple(odd), "x", failed=True) for role, text in turns]
    assert isinstance(ask(*messages, line(2**70, "\ud83d".encode("utf-8", "replace").decode())), Reply)


LEFT_ALONE: dict[str, list[Message | str]] = {
    "another project": [f"{line(1, PLAIN, project='one')}\n{line(2, FULL, project='two')}"],
    "another category": [f"{line(1, PLAIN, category='one')}\n{line(2, FULL, category='two')}"],
    "what is constitutional": [f"{line(1, PLAIN, constitutional=True)}\n{line(2, FULL)}"],
    "what may be": [f"{line(1, PLAIN, constitutional=None)}\n{line(2, FULL)}"],
    "and is shown twice": [f"{line(1, PLAIN, constitutional=True)}\n{line(2, FULL)}", line(1, PLAIN)],
    "its own words": ["Nothing.", Message("assistant", f"{line(1, PLAIN)}\n{line(2, FULL)}")],
    "results of tools": ["Nothing.", Message("tool", f"{line(1, PLAIN)}\n{line(2, FULL)}", tool_call_id="x")],
} | {
    f"no memory: {raw[:12]}": [f"{raw}\n{line(1, PLAIN)}"]
    for raw in ("{", "{}", "[1]", '{"id":1}', '{"id":true,"content":"x"}', '{"a":' * 5000, '{"id":1e999}')
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_is_left_alone(what: str) -> None:
    assert [name for name, _ in calls(ask(*LEFT_ALONE[what]))] == ["complete_refinement"]
