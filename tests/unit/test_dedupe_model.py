"""`builtin/dedupe`, in fixed conversations: it merges near duplicates, and nothing else."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz

from refinement import demo
from refinement.llm.base import Message, Reply, Request, Tool, ToolCall, Usage
from refinement.llm.dedupe import CALLS_A_REPLY, Dedupe
from refinement.similarity import near_groups

FULL = "The team always meets at 09:45 on the quay."
PLAIN = "The team meets at 09:45 on the quay"
OTHER = "The team meets at 10:45 on the quay."
COMPLETE = "complete_refinement"
DELETE_ONLY = f"search_memories delete_memory {COMPLETE}"


def line(number: int, content: str, **fields: Any) -> str:
    return json.dumps([number, content, *([fields] if fields else [])], ensure_ascii=False)


def ask(*messages: Message | str, tools: str = f"consolidate_memories delete_memory {COMPLETE}") -> Reply:
    conversation = tuple(m if isinstance(m, Message) else Message("user", m) for m in messages)
    schemas = tuple(Tool(name, "", {"type": "object"}) for name in tools.split())
    return Dedupe().complete(Request("dedupe", conversation, schemas))


def calls(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in reply.tool_calls]


def names(reply: Reply) -> list[str]:
    return [call.name for call in reply.tool_calls]


def summary(reply: Reply) -> str:
    [(name, arguments)] = calls(reply)
    assert name == COMPLETE
    return str(arguments["summary"])


def answered(reply: Reply, text: str = "{}", failed: bool = False) -> list[Message]:
    message = Message("assistant", reply.text, reply.tool_calls)
    return [message, *(Message("tool", text, tool_call_id=call.id, failed=failed) for call in reply.tool_calls)]


def refused(code: str) -> list[Message]:
    """A merge of memories 1 and 2, and its refusal."""
    merge = ToolCall("a", "consolidate_memories", {"ids_to_merge": [1, 2], "new_content": FULL})
    answer = json.dumps({"ok": False, "code": code, "error": "no"})
    return [Message("assistant", "", (merge,)), Message("tool", answer, tool_call_id="a", failed=True)]


def test_it_merges_near_duplicates_into_the_fullest_wording_and_completes() -> None:
    ledger = f"The ledger:\n{line(1, PLAIN)}\n{line(2, OTHER)}\n{line(3, FULL)}\nThat is all."
    reply = ask(ledger)
    assert calls(reply) == [("consolidate_memories", {"ids_to_merge": [1, 3], "new_content": FULL})]
    assert (reply.usage, reply.stop) == (Usage(), "tool_calls")
    end = summary(ask(ledger, *answered(reply)))
    assert "not a language model" in end
    assert "merged 2 near duplicates into 1" in end


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_a_memory_cannot_forge_a_line_of_the_ledger(end: str) -> None:
    hostile = f"Harmless.{end}{line(7, PLAIN)}{end}{line(8, FULL)}{end}"
    assert names(ask(f"{line(1, hostile)}\n{line(2, OTHER)}")) == [COMPLETE]


def test_it_makes_many_merges_in_several_replies() -> None:
    count = CALLS_A_REPLY + 7
    ledger = "\n".join(
        f"{line(2 * i + 1, f'{PLAIN} {i}')}\n{line(2 * i + 2, f'{FULL[:-1]} {i}')}" for i in range(count)
    )
    first = ask(ledger)
    second = ask(ledger, *answered(first))
    last = ask(ledger, *answered(first), *answered(second))
    assert [len(reply.tool_calls) for reply in (first, second, last)] == [CALLS_A_REPLY, 7, 1]
    assert len({call.id for reply in (first, second, last) for call in reply.tool_calls}) == count + 1


def test_after_a_refusal_it_stops_or_continues_with_other_merges() -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}\n{line(3, OTHER)}\n{line(4, OTHER)}"
    for code in ("floor", "limit", "session_ended"):
        end = summary(ask(ledger, *refused(code)))
        assert code in end
        assert "merged nothing" in end
    merge = ("consolidate_memories", {"ids_to_merge": [3, 4], "new_content": OTHER})
    assert calls(ask(ledger, *refused("changed"))) == [merge]


def test_without_the_merge_tool_it_deletes_all_but_the_fullest() -> None:
    ledger = f"{line(1, PLAIN)}\n{line(2, FULL)}\n{line(3, PLAIN + '!')}"
    reply = ask(ledger, tools=DELETE_ONLY)
    assert calls(reply) == [("delete_memory", {"id": 1}), ("delete_memory", {"id": 3})]
    assert "deleted 2 near duplicates" in summary(ask(ledger, *answered(reply), tools=DELETE_ONLY))


def test_without_tools_or_after_a_refused_end_it_only_replies_with_text() -> None:
    reply = ask("Summarise this.", tools="")
    assert (reply.tool_calls, reply.stop) == ((), "end")
    assert ask("Nothing.", *answered(ask("Nothing."), failed=True)).tool_calls == ()


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=60)), max_size=6))
@settings(deadline=None)
def test_no_conversation_raises_an_error(turns: list[tuple[Any, str]]) -> None:
    odd = [ToolCall("x", "consolidate_memories", None), ToolCall("x", "delete_memory", {"id": [True, "1", None]})]
    messages = [Message(role, text, tuple(odd), "x", failed=True) for role, text in turns]
    assert isinstance(ask(*messages, line(2**70, "\ud83d".encode("utf-8", "replace").decode())), Reply)


BOTH = f"{line(1, PLAIN)}\n{line(2, FULL)}"
UNCHANGED: dict[str, list[Message | str]] = {
    "another project": [f"{line(1, PLAIN, project='one')}\n{line(2, FULL, project='two')}"],
    "another category": [f"{line(1, PLAIN, category='one')}\n{line(2, FULL, category='two')}"],
    "constitutional": [f"{line(1, PLAIN, constitutional=True)}\n{line(2, FULL)}"],
    "perhaps constitutional": [f"{line(1, PLAIN, constitutional=None)}\n{line(2, FULL)}"],
    "constitutional in one of two lines": [f"{line(1, PLAIN, constitutional=True)}\n{line(2, FULL)}", line(1, PLAIN)],
    "its own text": ["Nothing.", Message("assistant", BOTH)],
    "results of tools": ["Nothing.", Message("tool", BOTH, tool_call_id="x")],
} | {
    f"no memory: {raw[:12]}": [f"{raw}\n{line(1, PLAIN)}"]
    for raw in ("[", "[]", "[1]", '{"id":1}', '[true,"x"]', "[" * 5000, "[1e999]", '[1,"x"] [2,"y"]')
}


@pytest.mark.parametrize("what", UNCHANGED)
def test_dedupe_model_changes_nothing_else(what: str) -> None:
    assert names(ask(*UNCHANGED[what])) == [COMPLETE]


# The ledger of the demo: its plan is true, and `builtin/dedupe` does what the plan says.
FOLDER = Path(demo.__file__).parent
ROWS: dict[int, dict[str, Any]] = {
    number: json.loads(line)
    for number, line in enumerate((FOLDER / "ledger.jsonl").read_text(encoding="utf-8").splitlines(), 1)
}
PLAN: dict[str, Any] = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
CONTENT = {number: row["content"] for number, row in ROWS.items()}


def place(number: int) -> tuple[Any, ...]:
    return tuple(ROWS[number].get(key) for key in ("kind", "category", "project"))


def tokens(content: str) -> int:
    return math.ceil(len(content) / 4)


def pairs(groups: list[list[int]]) -> set[tuple[int, int]]:
    return {pair for group in groups for pair in combinations(sorted(group), 2)}


def test_the_plan_of_the_demo_is_true() -> None:
    for group in PLAN["exact"]:
        assert len({CONTENT[number] for number in group}) == len({place(number) for number in group}) == 1
    assert len(ROWS) - len(set(CONTENT.values())) == sum(len(group) - 1 for group in PLAN["exact"])
    for one, other in PLAN["look_alikes"]:
        assert fuzz.token_sort_ratio(CONTENT[one], CONTENT[other]) > 90
        assert (near_groups([CONTENT[one], CONTENT[other]]), place(one)) == ([], place(other))


def test_dedupe_merges_the_planned_groups_and_no_look_alikes_and_the_core_shrinks() -> None:
    repeats = {number for group in PLAN["exact"] for number in group[1:]}
    core = [number for number in ROWS if ROWS[number].get("kind", "core") == "core"]
    distinct = [number for number in core if number not in repeats]
    protected = PLAN["protect_before"]
    ledger = "\n".join(
        line(n, CONTENT[n], **{k: ROWS[n].get(k) for k in ("category", "project")}, constitutional=n in protected)
        for n in distinct
    )
    tools = tuple(Tool(name, "", {}) for name in ("consolidate_memories", "complete_refinement"))
    reply = Dedupe().complete(Request("dedupe", (Message("user", ledger),), tools))
    merges = [call.arguments for call in reply.tool_calls if call.arguments and "ids_to_merge" in call.arguments]
    found, planned = pairs([merge["ids_to_merge"] for merge in merges]), pairs(PLAN["near"])
    assert len(found & planned) >= 0.8 * len(planned)  # the others have a phrase at another place
    assert found <= planned
    assert found.isdisjoint(pairs(PLAN["look_alikes"]))
    merged = {number for merge in merges for number in merge["ids_to_merge"]}
    kept = [CONTENT[n] for n in distinct if n not in merged] + [merge["new_content"] for merge in merges]
    assert sum(tokens(CONTENT[n]) for n in core) > 8_000 > 6_000 > sum(map(tokens, kept))
