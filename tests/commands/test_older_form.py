"""`memory_rules ACTION`, the older form of six commands."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command

from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from tests.commands.calling import failed, run
from tests.steps import active

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


@pytest.mark.parametrize("action", COMMANDS)
def test_an_action_is_handed_over_with_its_options(action: str, ada: Agent) -> None:
    older = run("memory_rules", action, "acme/ada", *CALLS[action])
    assert older == run(*COMMANDS[action].split(), "acme/ada", *CALLS[action])
    assert older.out + older.err


@pytest.mark.parametrize("action", COMMANDS)
def test_help_is_that_of_the_command(action: str) -> None:
    ran = run("memory_rules", action, "--help")
    assert (ran.code, ran.out.split("[")[0].strip()) == (0, f"usage: manage.py {COMMANDS[action]}")


def test_a_memory_is_stored(ada: Agent) -> None:
    assert run("memory_rules", "store", "--tag", "x", "acme/ada", "tea").json["id"] == 1
    assert active(ada) == [1]


def test_exit_codes_are_those_of_the_command(ada: Agent) -> None:
    run("memory_rules", "disable", "acme/ada")
    assert run("memory_rules", "store", "acme/ada", "tea").code == 1
    failed(run("memory_rules", "status", "acme/nobody"), 2, "acme/nobody")
    failed(run("memory_rules", "nothing", "acme/ada"), 2, "invalid choice")
    failed(run("memory_rules"), 2, "ACTION")


def test_python_can_call_it(ada: Agent, capsys: Any) -> None:
    call_command("memory_rules", "status", "acme/ada", "--json")
    assert '"agent": "acme/ada"' in capsys.readouterr().out
