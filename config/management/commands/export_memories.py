"""Give an agent's side its memories."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import agent_named, agent_of_key
from memory.errors import KeyRejected
from memory.formats import jsonl
from memory.models import Agent


class Command(Task):
    help = (
        "Print an agent's active memories as JSON Lines, in order of id. This shows content, so it needs the agent's "
        "own key in PALIMPSEST_AGENT_KEY."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument("--with-discarded", action="store_true", help="discarded memories too")

    def run(self, *, agent: str, with_discarded: bool, **options: Any) -> int | None:
        target = agent_named(agent)
        if not _is_of(target, os.environ.get("PALIMPSEST_AGENT_KEY", "")):
            raise KeyRejected("Memories are shown to their agent alone: set PALIMPSEST_AGENT_KEY to its valid key.")
        for line in jsonl.dump(target, with_discarded=with_discarded):
            self.stdout.write(line)
        return None


def _is_of(agent: Agent, key: str) -> bool:
    """Whatever is wrong with a key, the answer is the same."""
    try:
        return agent_of_key(key).pk == agent.pk
    except KeyRejected:
        return False
