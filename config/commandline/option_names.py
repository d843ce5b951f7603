"""What is wrong with a value, told by the option that somebody typed, and not by the field that it fills."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from config.errors import InvalidField

# Fields that are called otherwise than the options they are filled by.
_FILLED_BY = {
    "approaches": "approach",
    "content": "text",
    "insights": "insight",
    "pitfalls": "pitfall",
    "practices": "practice",
    "questions": "question",
    "resources": "resource",
    "response_seconds": "seconds",
    "tags": "tag",
    "tools": "tool",
    "vault_path": "vault",
}
_NEEDED = "is needed"  # how a problem begins that typing the option mends


def as_typed(wrong: InvalidField, parser: argparse.ArgumentParser, options: Mapping[str, Any]) -> InvalidField:
    """The same, of `--vault` instead of `vault_path`; as it is where no such option was typed: the value came from the
    environment, a file or the settings then."""
    field = wrong.field.replace("-", "_")
    name = _FILLED_BY.get(field, field)
    known = {action.dest: action for action in _arguments(parser, options)}
    for dest in (name, f"{name}_file"):
        if dest in known and (_is_typed(known[dest], options) or wrong.problem.startswith(_NEEDED)):
            return InvalidField(_written(known[dest]), wrong.problem)
    return wrong


def _arguments(parser: argparse.ArgumentParser, options: Mapping[str, Any]) -> Iterator[argparse.Action]:
    """A command's, and those of the deed of it that was asked for."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            deed = action.choices.get(str(options.get(action.dest)))
            yield from _arguments(deed, options) if deed is not None else ()
        else:
            yield action


def _is_typed(action: argparse.Action, options: Mapping[str, Any]) -> bool:
    return bool(options.get(action.dest, action.default) != action.default)


def _written(action: argparse.Action) -> str:
    """`--vault`; of what has no name its place in the usage, `TEXT`."""
    longest = max(action.option_strings, key=len, default="")
    return longest or str(action.metavar or action.dest)
