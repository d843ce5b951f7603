"""The arguments of the six commands: their order, their help, and the older form `memory_rules ACTION`."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from django.core.management import CommandError, load_command_class

from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from memory.policy.categories import SCOPES
from tests.commands.calling import failed, run


def parsed(command: str, *args: str) -> dict[str, Any]:
    parser = load_command_class("memory", command).create_parser("manage.py", command)
    return vars(parser.parse_args(args))


def test_arguments_may_come_before_or_after_options() -> None:
    for args in (
        ("acme/ada", "some text", "--category", "technical", "--tag", "x"),
        ("acme/ada", "--category", "technical", "--tag", "x", "some text"),
        ("--category", "technical", "acme/ada", "--tag", "x", "some text"),
        ("--category", "technical", "--tag", "x", "acme/ada", "some text"),
    ):
        found = parsed("remember", "store", *args)
        values = [found[name] for name in ("agent", "content", "category", "tags")]
        assert values == ["acme/ada", "some text", "technical", ["x"]]
    found = parsed("remember", "session", "acme/ada", "end", "--goal", "tea", "monday")
    assert (found["what"], found["goal"], found["name"]) == ("end", "tea", "monday")
    assert parsed("remember", "session", "acme/ada", "end")["name"] == ""
    found = parsed("rules", "settings", "--yes", "acme/ada", "version", "1.1.0")
    assert (found["key"], found["value"]) == ("version", "1.1.0")
    assert parsed("rules", "settings", "acme/ada")["key"] is None


def test_too_many_or_too_few_arguments_are_refused() -> None:
    for args in (("--nope",), ("more",), ("more", "--json"), ("--category",)):
        with pytest.raises(CommandError):
            parsed("remember", "store", "acme/ada", "some text", *args)


# --- help


def parser_of(old_action: str) -> argparse.ArgumentParser:
    """The parser of the command that the older action is now."""
    name, *action = COMMANDS[old_action].split()
    parser: argparse.ArgumentParser = load_command_class("memory", name).create_parser("manage.py", name)
    for each in parser._actions:
        if action and isinstance(each, argparse._SubParsersAction):
            return each.choices[action[0]]
    return parser


def test_each_argument_is_explained_and_no_two_alike() -> None:
    for action in COMMANDS:
        helps = [each.help for each in parser_of(action)._actions]
        assert all(helps), action
        assert len(set(helps)) == len(helps) or action not in ("record", "session", "topic")
    for action in ("enable", "disable", "store", "cleanup"):
        [category] = [each for each in parser_of(action)._actions if each.dest == "category"]
        assert all(name in (category.help or "") for name in SCOPES)


# --- the older form

CALLS: dict[str, tuple[str, ...]] = {
    "init": ("--json",),
    "status": ("--json",),
    "enable": ("--category", "nothing"),
    "disable": ("--category",),
    "settings": ("memory_rules.nothing",),
    "store": ("--category", "topic", "some text", "--context", "b"),
    "record": ("--prompt", ""),
    "session": ("list",),
    "topic": ("Tea",),
    "retrieve": ("--limit", "1", "tea"),
    "cleanup": ("--json",),
    "index": ("--check",),
    "show": ("none.md",),
    "detect": ("--json", "--project-dir", "tests/data"),
    "migrate": ("--dry-run", "--json", "--project-dir", "tests/data"),
    "analyze_git": ("--days", "0", "--yes"),
}


def test_an_action_is_handed_over_with_its_options(ada: Agent) -> None:
    for action, command in COMMANDS.items():
        older = run("memory_rules", action, "acme/ada", *CALLS[action])
        assert older == run(*command.split(), "acme/ada", *CALLS[action])
        assert older.out + older.err


def test_exit_codes_are_those_of_the_command(ada: Agent) -> None:
    run("memory_rules", "disable", "acme/ada")
    assert run("memory_rules", "store", "acme/ada", "tea").code == 1
    failed(run("memory_rules", "status", "acme/nobody"), 2, "acme/nobody")
    failed(run("memory_rules", "nothing", "acme/ada"), 2, "invalid choice")
    failed(run("memory_rules"), 2, "ACTION")
