"""What every adapter owes the interface: ids, arguments and stop reasons that can be relied on."""

from __future__ import annotations

from typing import Any

import pytest

from refinement.llm.base import (
    Message,
    ModelUnavailable,
    Request,
    ToolCall,
    Usage,
    arguments_of,
    json_value,
    reply,
    tool_calls,
    tool_name,
)

ASKED = Request("m", (Message("assistant", "", (ToolCall("old", "x", {}),)), Message("tool", "", tool_call_id="old")))


def ids(*given: str | None) -> list[str]:
    return [call.id for call in tool_calls([(one, "x", {}) for one in given], ASKED)]


def test_ids_are_kept_when_they_can_be() -> None:
    assert ids("a", "b") == ["a", "b"]


@pytest.mark.parametrize("missing", [None, ""])
def test_missing_ids_are_made_from_the_place(missing: str | None) -> None:
    assert ids("a", missing, missing) == ["a", "call_2_1", "call_2_2"]


def test_a_repeated_id_is_replaced() -> None:
    assert ids("a", "a", "a") == ["a", "call_2_1", "call_2_2"]


def test_an_id_used_earlier_in_the_conversation_is_replaced() -> None:
    assert ids("old") == ["call_2_0"]


def test_a_made_id_never_meets_a_given_one() -> None:
    assert ids("call_2_1", None) == ["call_2_1", "call_2_1_"]


@pytest.mark.parametrize("value", [{"id": 1}, '{"id": 1}', ' {"id": 1} '])
def test_an_object_or_its_text_are_arguments(value: Any) -> None:
    assert arguments_of(value) == {"id": 1}


def test_anything_else_is_not() -> None:
    rows: list[Any] = [
        None,
        "",
        "{",
        "[]",
        "null",
        7,
        [],
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"a":' * 9000,
        {"a": float("inf")},
    ]
    for value in rows:
        assert arguments_of(value) is None


def test_json_with_too_many_digits_is_nothing() -> None:
    assert json_value("9" * 10_000) is None


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("delete_memory", "delete_memory"),
        ("functions.delete", "functions_delete"),
        ("", "unnamed"),
        ("é" * 99, "_" * 64),
    ],
)
def test_names_are_made_fit_to_send_back(name: str, sent: str) -> None:
    assert tool_name(name) == sent


@pytest.mark.parametrize(
    ("called", "reason", "stop"),
    [
        (True, "stop", "tool_calls"),
        (True, "length", "length"),
        (False, "calls", "other"),
        (False, "stop", "end"),
        (False, None, "other"),
    ],
)
def test_the_stop_reason_agrees_with_the_reply(called: bool, reason: str | None, stop: str) -> None:
    calls = (ToolCall("a", "x", {}),) if called else ()
    table: dict[str, Any] = {"stop": "end", "length": "length", "calls": "tool_calls"}
    assert reply("", calls, reason, table, Usage(), 1).stop == stop


def test_an_error_costs_nothing_unless_it_says_so() -> None:
    error = ModelUnavailable("down")
    assert (error.usage, error.calls, str(error), error.code) == (Usage(), 0, "down", "model_unavailable")
