"""Options before and after the positional arguments of a command."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, load_command_class


def parsed(command: str, *args: str) -> dict[str, Any]:
    parser = load_command_class("memory", command).create_parser("manage.py", command)
    return vars(parser.parse_args(args))


@pytest.mark.parametrize(
    "args",
    [
        ("acme/ada", "some text", "--category", "technical", "--tag", "x"),
        ("acme/ada", "--category", "technical", "--tag", "x", "some text"),
        ("--category", "technical", "acme/ada", "--tag", "x", "some text"),
        ("--category", "technical", "--tag", "x", "acme/ada", "some text"),
    ],
)
def test_text_may_come_before_or_after_options(args: tuple[str, ...]) -> None:
    found = parsed("remember", "store", *args)
    assert (found["agent"], found["content"], found["category"], found["tags"]) == (
        "acme/ada",
        "some text",
        "technical",
        ["x"],
    )


def test_the_name_of_a_session_may_come_after_options() -> None:
    found = parsed("remember", "session", "acme/ada", "end", "--goal", "tea", "monday")
    assert (found["what"], found["goal"], found["name"]) == ("end", "tea", "monday")
    assert parsed("remember", "session", "acme/ada", "end")["name"] == ""


def test_a_setting_may_come_after_options() -> None:
    found = parsed("rules", "settings", "--yes", "acme/ada", "version", "1.1.0")
    assert (found["key"], found["value"]) == ("version", "1.1.0")
    assert parsed("rules", "settings", "acme/ada")["key"] is None


@pytest.mark.parametrize("args", [("--nope",), ("more",), ("more", "--json"), ("--category",)])
def test_too_many_or_too_few_arguments_are_refused(args: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        parsed("remember", "store", "acme/ada", "some text", *args)
