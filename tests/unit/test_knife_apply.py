"""`apply`: many edits in one call, each checked, made and answered by itself."""

from typing import Any

import pytest

from memory.models import Agent
from memory.search import cache
from memory.writing import operations
from refinement import knife, tools
from refinement.effects import CallContext
from refinement.errors import FloorReached
from refinement.models import Outcome
from tests.refining import Held, fill, filler, opened, refused, sound, untouched
from tests.steps import active, remember, row

pytestmark = pytest.mark.database


def edit(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def apply(held: Held, *edits: Any) -> list[dict[str, Any]]:
    """Call `apply` and return the answers of the edits."""
    answers: list[dict[str, Any]] = held.call("apply", edits=list(edits))["edits"]
    assert len(answers) == len(edits)
    return answers


def test_each_edit_is_made_and_answered_as_if_it_was_called_alone(ada: Agent) -> None:
    fill(ada, 20, 20)
    held = opened(ada)
    good = [
        edit("consolidate_memories", ids_to_merge=[1, 2], new_content=filler(38, "m")),
        edit("update_memory", id=3, content="short"),
        edit("delete_memory", id=999),
        edit("demote_memory", id=4, reason="old"),
        edit("delete_memory", id="#5"),
        edit("protect_memory", id=6),
        edit("delete_memory", id=6),
        edit("promote_memory", id=4),
    ]
    answer = held.call("apply", edits=good)
    codes = [each.get("code", "ok") for each in answer["edits"]]
    assert codes == ["ok", "ok", "unknown_memory", "ok", "ok", "ok", "constitutional", "ok"]
    assert (answer["edits"][0]["merged"], answer["edits"][3]) == ([1, 2], {"ok": True, "id": 4, "saved": 20})
    assert (answer["ok"], answer["left"]["failed_calls"], answer["left"]["changes"]) == (True, 19, 94)
    counted = held.row
    assert (counted.merged, counted.updated, counted.demoted, counted.deleted, counted.promoted) == (2, 1, 1, 1, 1)
    assert [row(ada, number).layer for number in (1, 4, 5)] == ["beneath", "core", "discarded"]
    steps = held.row.timeline.order_by("pk").values_list("tool", "result")
    assert list(steps) == [(each["tool"], code) for each, code in zip(good, codes, strict=True)]
    assert sound(ada)


def test_an_edit_sees_the_edits_before_it(ada: Agent, django_capture_on_commit_callbacks: Any) -> None:
    """What a merge leaves out is searched for among the memories as they are after the earlier edits."""
    fill(ada, 20, 40)
    remember(ada, "The code is 4711.", "The code for the door is 4711.", "Tea at 4711 Elm Street.")
    held = opened(ada)
    demote, merge = edit("demote_memory", id=23), {"ids_to_merge": [21, 22], "new_content": "The door has a code."}
    with cache.reader(ada) as index, django_capture_on_commit_callbacks(execute=True):
        before = index
        found = apply(held, demote, edit("consolidate_memories", **merge))[1]["left_out"]
    assert {each["text"] for each in found} == {"4711"}
    with cache.reader(ada) as index:
        assert index is before, "the index is not built again"


def test_a_hundred_bad_edits_change_nothing_and_are_all_answered(ada: Agent) -> None:
    fill(ada, 20, 20)
    held = opened(ada, max_failed_calls=1)
    bad: list[dict[str, Any]] = [edit("delete_memory", id=900 + n) for n in range(94)]
    bad += [edit("apply", edits=[]), edit("search_memories", query="tea"), edit("nothing"), edit("demote_memory")]
    bad += [{"tool": "demote_memory", "arguments": 1}, edit("update_memory", id=1, content=filler(90))]
    with untouched(ada):
        answer = held.send("apply", {"edits": bad})
    assert (answer["ok"], answer["code"], len(answer["edits"])) == (False, "no_edit", 100)
    codes = [each["code"] for each in answer["edits"]]
    assert codes == ["unknown_memory"] * 94 + ["unknown_tool"] * 3 + ["bad_arguments"] * 2 + ["grown"]
    assert "`tool`" in answer["edits"][94]["error"]
    assert "session_ended" not in answer
    assert (held.row.failed_calls, held.call("apply", edits=bad)["session_ended"]) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"edits": []}, "edits: "),
        ({"edits": [edit("demote_memory", id=1)] * 101}, "edits: "),
        ({"edits": {}}, "edits: "),
        ({}, "edits: "),
        ({"edits": [edit("demote_memory", id=1), "demote_memory"]}, "edits.1: "),
        ({"edits": [{"arguments": {"id": 1}}]}, "edits.0.tool: "),
        ({"edits": [{"tool": "demote_memory"}]}, "edits.0.arguments: "),
        ({"edits": [{"tool": 3, "arguments": {}}]}, "edits.0.tool: "),
    ],
)
def test_a_malformed_list_of_edits_is_refused_with_its_field(ada: Agent, arguments: Any, field: str) -> None:
    fill(ada, 5, 20)
    held = opened(ada)
    assert f"apply: {field}" in refused(held, "bad_arguments", "apply", arguments)["error"]
    assert held.row.timeline.get().tool == "apply"


def test_after_a_limit_the_other_edits_are_not_made(ada: Agent) -> None:
    fill(ada, 20, 20)
    held = opened(ada, max_changes=2)
    answer = held.call("apply", edits=[edit("demote_memory", id=number) for number in (1, 2, 3, 4)])
    assert [each.get("code") for each in answer["edits"]] == [None, None, "limit", "not_made"]
    assert (answer["ok"], answer["session"], answer["demoted"]) == (True, "completed", 2)
    assert (held.row.outcome, held.row.reason) == (Outcome.COMPLETED, "limit_changes")
    assert {1, 2}.isdisjoint(active(ada))


def test_the_edits_of_one_call_count_as_one_refusal_of_the_floor(ada: Agent) -> None:
    fill(ada, 4, 100)
    held = opened(ada)
    cuts = [edit("demote_memory", id=number) for number in (1, 2, 3, 4)]
    assert [each["ok"] for each in apply(held, *cuts)] == [True, False, False, False]
    for left in (1, 2):
        apply(held, *cuts[1:])
        assert held.row.floor_refusals == left
    assert held.send("apply", {"edits": cuts[1:]})["session_ended"]


def test_edits_that_take_long_are_left_for_another_call(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ada, 20, 20)
    held = opened(ada)
    assert knife.APPLY_SECONDS <= 2  # another tenant's write on SQLite waits for them
    monkeypatch.setattr(knife, "APPLY_SECONDS", -1)
    assert [each["code"] for each in apply(held, edit("demote_memory", id=1))] == ["not_made"]
    assert 1 in active(ada)


def test_an_edit_that_fails_midway_undoes_only_itself(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ada, 20, 20)
    held = opened(ada)

    def fail(call: CallContext, wanted: tools.ProtectMemory) -> None:
        operations.protect(call.agent, [wanted.id], call.actor, session=1)
        raise FloorReached("Too late.")

    monkeypatch.setitem(knife.EFFECTS, "protect_memory", fail)
    answers = apply(held, edit("demote_memory", id=1), edit("protect_memory", id=2), edit("demote_memory", id=3))
    assert [each["ok"] for each in answers] == [True, False, True]
    assert (row(ada, 2).constitutional, row(ada, 3).layer, sound(ada)) == (False, "beneath", True)
