"""Tool calls that a model wrote as text."""

import tracemalloc

import pytest

from refinement.llm.text_calls import calls_in

OFFERED = {"delete_memory", "protect_memory"}
ONE = '{"name": "delete_memory", "arguments": {"id": 1}}'
TWO = '{"name": "functions.protect_memory", "parameters": "{\\"id\\": 2}"}'
CALLS = [(None, "delete_memory", {"id": 1}), (None, "functions.protect_memory", '{"id": 2}')]


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}\n{TWO}",
        f"```json\n[{ONE},\n{TWO}]\n```",
        f"```\n{ONE}\n```\n\n```json\n{TWO}\n```",
        f"<tool_call>{ONE}</tool_call>\n<tool_call>\n{TWO}\n</tool_call>",
        f"<think>First {ONE}.</think>\n{ONE}, {TWO};",
        f'{{"type": "function", "function": {ONE}}}{TWO}',
    ],
)
def test_a_text_of_calls_is_read(text: str) -> None:
    assert calls_in(text, OFFERED) == CALLS
    assert calls_in(f'{text}\n{{"name": "delete_memory", "argu', OFFERED, is_cut=True) == CALLS


def test_many_signs_between_calls_need_no_memory() -> None:
    """8 MB of commas took a gigabyte."""
    tracemalloc.start()
    assert calls_in("," * 1_000_000, OFFERED) == []
    assert tracemalloc.get_traced_memory()[1] < 2_000_000, "bytes"
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        *("", "Done.", "[]", "5", "{}", "[" * 99_999, "``` ```", "null"),
        f"I will do this: {ONE}",
        f"{ONE} This is done.",
        f'{ONE} {{"name": "drop_table", "arguments": {{}}}}',
        f'["{ONE}"]',
    ],
)
def test_any_other_text_has_no_calls(text: str) -> None:
    """A call that is only quoted must not be made."""
    assert calls_in(text, OFFERED) == []
