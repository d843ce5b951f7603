"""Add a run to an agent's log."""

import sys
from typing import Any

from django.core.management.base import CommandParser

from audit.trail import Actor
from config.commandline import Task
from memory.access.authentication import agent_named
from memory.run_log import runs


class Command(Task):
    help = (
        "Add a run to an agent's log. The log is the agent's memory file if it has one, otherwise its journal. The "
        "entry has the time, the task on one line, and the first 1,000 characters of the result."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is, such as acme/ada")
        parser.add_argument("--task", required=True, metavar="TEXT", help="what the agent had to do")
        parser.add_argument("--result", metavar="TEXT", help="the result of the run; default: read standard input")

    def run(self, *, agent: str, task: str, result: str | None, **options: Any) -> None:
        target = agent_named(agent)
        if result is None:
            result = sys.stdin.buffer.read(4 * runs.RESULT_CHARACTERS).decode("utf-8", "replace")
        number = runs.log_run(target, task, result, Actor.operator("log_run"))
        self.result({"id": number, "file": target.memory_path or None})
