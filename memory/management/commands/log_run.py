"""Write down a run in an agent's log (seed 001)."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from audit.trail import Actor
from config.commandline import Task
from memory.access.authentication import agent_named
from memory.run_log import runs


class Command(Task):
    help = (
        "Append a run to an agent's log: to its memory file, where it has one, else to its journal. The entry is a "
        "time, the task on one line, and the result's first 1,000 characters."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument("--task", required=True, metavar="TEXT", help="what the agent was asked")
        parser.add_argument("--result", metavar="TEXT", help="what came of it; default: what is on standard input")

    def run(self, *, agent: str, task: str, result: str | None, **options: Any) -> None:
        target = agent_named(agent)
        said = (
            sys.stdin.buffer.read(4 * runs.RESULT_CHARACTERS).decode("utf-8", "replace") if result is None else result
        )
        number = runs.log_run(target, task, said, Actor.operator("log_run"))
        self.result({"id": number, "file": target.memory_path or None})
