"""Arguments of `memory_rules` in whatever order they are typed."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, load_command_class


def parsed(*args: str) -> dict[str, Any]:
    parser = load_command_class("memory", "memory_rules").create_parser("manage.py", "memory_rules")
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
def test_text_and_options_are_found_wherever_they_stand(args: tuple[str, ...]) -> None:
    found = parsed("store", *args)
    assert (found["agent"], found["text"], found["category"], found["tag"]) == (
        "acme/ada",
        "some text",
        "technical",
        ["x"],
    )


def test_a_session_is_named_behind_what_is_told_of_it() -> None:
    found = parsed("session", "acme/ada", "end", "--goal", "tea", "monday")
    assert (found["what"], found["goal"], found["name"]) == ("end", "tea", "monday")


@pytest.mark.parametrize("args", [("--nope",), ("more",), ("more", "--json"), ("--category",)])
def test_what_is_too_much_or_too_little_is_refused(args: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        parsed("store", "acme/ada", "some text", *args)


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(CommandError, match="QUERY"):
        parsed("retrieve", "acme/ada", "--json")


def test_a_variable_is_told_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("retrieve", "--help")
    assert "needs PALIMPSEST_AGENT_KEY." in capsys.readouterr().out
