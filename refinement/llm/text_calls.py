"""Finds tool calls in the text of a reply. Small models and some servers write calls as text."""

import json
import re
from collections.abc import Collection
from typing import Any

from refinement.llm.base import json_value

_THINKING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
# What may be written around and between calls. It never goes back, which would need a gigabyte of RAM.
_BETWEEN = re.compile(r"(?:[\s,;]++|```\w*+|</?tool_calls?>)*+")
_ARGUMENTS = ("arguments", "parameters")
_decoder = json.JSONDecoder()

Call = tuple[None, str, Any]  # without id; the name, and the arguments


def calls_in(text: str, offered: Collection[str], *, is_cut: bool = False) -> list[Call]:
    """The calls of a text that consists of nothing else. Each call is a JSON object with the name of an offered tool
    and its arguments. For any other text, the result is empty: a call that is only quoted must not be made.

    If `is_cut` is true, the end of the text is missing, and the last call may be incomplete.
    """
    thinking = _THINKING.match(text)
    found: list[Call] = []
    at = _skip(text, thinking.end() if thinking else 0)
    while at < len(text):
        try:
            _, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found if is_cut and text[at] in "{[" else []
        value = json_value(text[at:end])  # this parser is stricter
        calls = [_call(each, offered) for each in (value if isinstance(value, list) else [value])]
        if None in calls:
            return []
        found += [call for call in calls if call]
        at = _skip(text, end)
    return found


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _call(value: Any, offered: Collection[str]) -> Call | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]  # {"type": "function", "function": {...}}
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str):
        return None
    arguments: Any = next((value[each] for each in _ARGUMENTS if each in value), {})
    return (None, name, arguments) if name.removeprefix("functions.") in offered else None
