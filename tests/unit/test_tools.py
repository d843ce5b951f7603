"""The schemas of the Knife's tools, and the answers to invalid arguments."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinement import tools
from refinement.errors import BadCall
from refinement.models import Mode

MARK = "zanzibar"  # the model sends it; no error contains it
WITH_ID = [("delete_memory", {}), ("protect_memory", {}), ("promote_memory", {}), ("update_memory", {"content": "x"})]
MERGE: dict[str, Any] = {"ids_to_merge": [1, 2], "new_content": "x"}


def parse(name: str, **arguments: Any) -> Any:
    return tools.parse(Mode.FULL, name, arguments)


def problem(name: str, arguments: Any, mode: str = Mode.FULL, code: str = "bad_arguments") -> str:
    with pytest.raises(BadCall) as refusal:
        tools.parse(mode, name, arguments)
    assert refusal.value.code == code
    assert MARK not in str(refusal.value)
    return str(refusal.value)


def test_the_tools_of_each_mode() -> None:
    full = (
        "search_memories consolidate_memories update_memory delete_memory demote_memory protect_memory promote_memory "
        "apply decline_refinement complete_refinement"
    )
    assert list(tools.OFFERED[Mode.FULL]) == full.split()
    dedupe_only = ["search_memories", "delete_memory", "protect_memory", "complete_refinement"]
    assert list(tools.OFFERED[Mode.DEDUPE_ONLY]) == dedupe_only
    for tool in set(tools.OFFERED[Mode.FULL]) - set(dedupe_only):
        problem(tool, {}, Mode.DEDUPE_ONLY, "unknown_tool")
    for mode in Mode.values:
        answer = problem(MARK, {}, mode, "unknown_tool")
        assert all(name in answer for name in tools.OFFERED[mode])


@pytest.mark.parametrize("mode", Mode.values)
def test_a_schema_is_an_object_without_additional_properties(mode: str) -> None:
    schemas = tools.schemas(mode)
    assert [tool.name for tool in schemas] == list(tools.OFFERED[mode])
    assert all((tool.schema["type"], tool.schema["additionalProperties"]) == ("object", False) for tool in schemas)
    assert all(tool.description for tool in schemas)
    assert not re.search(r'"(ge|le|gt|lt)"', json.dumps([tool.schema for tool in schemas])), "it is JSON Schema"
    merges = [tool for tool in schemas if tool.name == "consolidate_memories"]
    assert all(merge.schema["required"] == ["ids_to_merge", "new_content"] for merge in merges)


def test_a_number_may_be_written_as_ledgers_and_models_do() -> None:
    numbers = (12, "12", "#12", " 12 ", " #12\n", "012", 12.0, "12.0")
    assert {parse("delete_memory", id=number).id for number in numbers} == {12}


def test_harmless_forms_of_arguments_are_accepted() -> None:
    merge = parse("consolidate_memories", ids_to_merge='[1, "2", 3.0]', new_content="x", reason=MARK)
    assert merge.ids_to_merge == [1, 2, 3]
    search = parse("search_memories", query="tea", since=None, kind=None, limit="5")
    assert (search.since, search.kind, search.limit) == ("", None, 5)
    assert parse("demote_memory", id=1, reason="old").reason == "old"


STORABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NO_NUMBERS = st.one_of(
    st.integers(max_value=0)
    | st.integers(min_value=2**63)
    | st.floats().filter(lambda n: not n.is_integer())
    | st.booleans()
    | st.none(),
    st.lists(st.integers()) | st.dictionaries(STORABLE, st.integers()),
    STORABLE.filter(lambda text: not re.fullmatch(r"#?\d+(\.0+)?", text.strip())),
    st.sampled_from(["0", "-1", "#0", "1.5", "1e3", "##1", "1,2", "0x1", "1_000", "1 2", "9" * 30]),
)


@given(NO_NUMBERS)
def test_a_value_that_is_not_a_number_names_its_argument(number: object) -> None:
    for tool, rest in WITH_ID:
        assert problem(tool, {"id": number, **rest}).startswith(f"{tool}: id: ")


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_missing_arguments_are_named(tool: str) -> None:
    required = [name for name, field in tools.TOOLS[tool].model_fields.items() if field.is_required()]
    answer = problem(tool, {})
    assert all(f"{name}: Field required" in answer for name in required)
    for arguments in (None, [], [1], MARK, 3, True, [["id", 1]]):
        problem(tool, arguments)


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_an_unknown_argument_is_refused_without_its_name(tool: str) -> None:
    good = {"id": 1, "ids_to_merge": [1, 2], "edits": [{"tool": "x", "arguments": {}}]}
    known = {name: good.get(name, "x") for name, field in tools.TOOLS[tool].model_fields.items() if field.is_required()}
    tools.parse(Mode.FULL, tool, known)
    assert "an unknown argument (known: " in problem(tool, known | {MARK: 1})


def test_a_merge_needs_a_list_of_two_or_more_numbers() -> None:
    for ids in ([], [1], "1,2", MARK, 3, None, {"a": 1}, [1, MARK], [1, None], [1, [2]]):
        assert "ids_to_merge" in problem("consolidate_memories", MERGE | {"ids_to_merge": ids})


def test_a_merge_takes_at_most_a_thousand() -> None:
    assert len(parse("consolidate_memories", ids_to_merge=list(range(1, 1001)), new_content="x").ids_to_merge) == 1_000
    problem("consolidate_memories", MERGE | {"ids_to_merge": list(range(1, 1002))})


@pytest.mark.parametrize(
    ("tool", "field", "rest", "most"),
    [
        ("consolidate_memories", "new_content", {"ids_to_merge": [1, 2]}, 10_000),
        ("update_memory", "content", {"id": 1}, 10_000),
        ("complete_refinement", "summary", {}, 2_000),
        ("decline_refinement", "reason", {}, 2_000),
    ],
)
def test_a_text_that_cannot_be_stored_is_refused(tool: str, field: str, rest: dict[str, Any], most: int) -> None:
    assert len(getattr(parse(tool, **{field: "x" * most}, **rest), field)) == most
    for text in ("", " ", "\n\t", "x" * (most + 1), None, 3, [MARK], {MARK: 1}, True):
        assert f"{tool}: {field}: " in problem(tool, {field: text, **rest})


@pytest.mark.parametrize("bad", [f"{MARK}\0", f"{MARK}\ud800"], ids=ascii)
def test_surrogates_and_nul_are_refused_in_every_argument(bad: str) -> None:
    for arguments in ({"query": bad}, {"query": "tea", "since": bad}):
        problem("search_memories", arguments)
    for arguments in ({"new_content": bad}, {"category": bad}):
        problem("consolidate_memories", MERGE | arguments)
    for arguments in ({"id": bad}, {"id": 1, bad: 1}, {"id": {"a": [{bad: 1}]}}):
        problem("delete_memory", arguments)
    problem("update_memory", {"id": 1, "content": bad})
    problem("decline_refinement", {"reason": bad})
    problem("complete_refinement", {"summary": bad})


def test_an_empty_search_is_refused() -> None:
    wrong: dict[str, list[object]] = {"query": ["x" * 2_001, None, 3, "\ud800"], "kind": [MARK, 1]}
    wrong |= {"limit": [0, 51, -1, MARK], "since": [3], "until": [[MARK]]}
    for field, values in wrong.items():
        for value in values:
            problem("search_memories", {"query": "tea"} | {field: value})


def test_thousands_of_wrong_arguments_give_a_short_error() -> None:
    assert len(problem("consolidate_memories", MERGE | {"ids_to_merge": [MARK] * 1_000})) < 2_000
    assert len(problem("delete_memory", {"id": 1} | {f"{MARK}{n}": n for n in range(10_000)})) < 2_000


def test_a_check_ends_at_the_first_wrong_item_and_reads_no_long_text() -> None:
    """A check of 8 MB took half a minute, while the agent was locked."""
    found = problem("consolidate_memories", MERGE | {"ids_to_merge": [MARK] * 3})
    assert "ids_to_merge.0" in found
    assert "ids_to_merge.1" not in found
    assert "edits.1" not in problem("apply", {"edits": [{}, {}]})
    assert "valid list" in problem("consolidate_memories", MERGE | {"ids_to_merge": f"[{'1, ' * 9_000}1]"})
    assert "too many arguments" in problem("delete_memory", {str(number): 1 for number in range(51)})
