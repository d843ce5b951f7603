"""The help of the six commands: what each argument is for."""

from __future__ import annotations

import argparse

import pytest
from django.core.management import load_command_class

from memory.management.commands.memory_rules import COMMANDS
from memory.policy.categories import SCOPES


def parser_of(old_action: str) -> argparse.ArgumentParser:
    """The parser of the command that the older action is now."""
    name, *action = COMMANDS[old_action].split()
    parser: argparse.ArgumentParser = load_command_class("memory", name).create_parser("manage.py", name)
    for each in parser._actions:
        if action and isinstance(each, argparse._SubParsersAction):
            return each.choices[action[0]]
    return parser


@pytest.mark.parametrize("action", COMMANDS)
def test_each_argument_is_explained(action: str) -> None:
    assert [each.dest for each in parser_of(action)._actions if not each.help] == []


@pytest.mark.parametrize("action", ["record", "session", "topic"])
def test_no_two_are_explained_alike(action: str) -> None:
    helps = [each.help for each in parser_of(action)._actions]
    assert len(set(helps)) == len(helps)


@pytest.mark.parametrize("action", ["enable", "disable", "store", "cleanup"])
def test_the_help_of_category_names_all_of_them(action: str) -> None:
    [category] = [each for each in parser_of(action)._actions if each.dest == "category"]
    assert all(name in (category.help or "") for name in SCOPES)
