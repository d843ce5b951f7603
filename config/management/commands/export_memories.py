"""Give an agent's side its memories."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import agent_named, is_key_of
from memory.errors import KeyRejected
from memory.formats import jsonl


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
        if not is_key_of(target, os.environ.get("PALIMPSEST_AGENT_KEY", "")):
            raise KeyRejected("Memories are shown to their agent alone: set PALIMPSEST_AGENT_KEY to its valid key.")
        for line in jsonl.dump(target, with_discarded=with_discarded):
            self.stdout.write(line)
        return None
