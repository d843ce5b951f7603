"""Arguments of the memory commands, and the older form `memory_rules ACTION`."""

import argparse
from typing import Any

import pytest
from django.core.management import CommandError, load_command_class

from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from tests.commands.calling import failed, run


def parser_of(command: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = load_command_class("memory", command).create_parser("manage.py", command)
    return parser


def parse(command: str, *args: str) -> dict[str, Any]:
    return vars(parser_of(command).parse_args(args))


def test_arguments_may_come_before_or_after_options() -> None:
    for args in (
        ("acme/ada", "some text", "--category", "technical", "--tag", "x"),
        ("acme/ada", "--category", "technical", "--tag", "x", "some text"),
        ("--category", "technical", "acme/ada", "--tag", "x", "some text"),
        ("--category", "technical", "--tag", "x", "acme/ada", "some text"),
    ):
        found = parse("remember", "store", *args)
        values = [found[name] for name in ("agent", "content", "category", "tags")]
        assert values == ["acme/ada", "some text", "technical", ["x"]]
    found = parse("remember", "session", "acme/ada", "end", "--goal", "tea", "monday")
    assert (found["what"], found["goal"], found["name"]) == ("end", "tea", "monday")
    assert parse("remember", "session", "acme/ada", "end")["name"] == ""
    found = parse("rules", "settings", "--yes", "acme/ada", "version", "1.1.0")
    assert (found["key"], found["value"]) == ("version", "1.1.0")
    assert parse("rules", "settings", "acme/ada")["key"] is None


def test_too_many_or_too_few_arguments_are_refused() -> None:
    for args in (("--nope",), ("more",), ("more", "--json"), ("--category",)):
        with pytest.raises(CommandError):
            parse("remember", "store", "acme/ada", "some text", *args)


OLDER_CALLS: dict[str, tuple[str, ...]] = {
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


def test_an_older_action_gives_the_result_of_its_command(ada: Agent) -> None:
    for action, command in COMMANDS.items():
        older = run("memory_rules", action, "acme/ada", *OLDER_CALLS[action])
        assert older == run(*command.split(), "acme/ada", *OLDER_CALLS[action])
        assert older.out + older.err


def test_an_older_action_has_the_exit_codes_of_its_command(ada: Agent) -> None:
    run("memory_rules", "disable", "acme/ada")
    assert run("memory_rules", "store", "acme/ada", "tea").code == 1
    failed(run("memory_rules", "status", "acme/nobody"), 2, "acme/nobody")
    failed(run("memory_rules", "nothing", "acme/ada"), 2, "invalid choice")
    failed(run("memory_rules"), 2, "ACTION")
