"""`memory_rules ACTION`, the older form of six commands."""

from __future__ import annotations

import pytest

from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from tests.commands.calling import failed, run

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


def test_exit_codes_are_those_of_the_command(ada: Agent) -> None:
    run("memory_rules", "disable", "acme/ada")
    assert run("memory_rules", "store", "acme/ada", "tea").code == 1
    failed(run("memory_rules", "status", "acme/nobody"), 2, "acme/nobody")
    failed(run("memory_rules", "nothing", "acme/ada"), 2, "invalid choice")
    failed(run("memory_rules"), 2, "ACTION")
