"""The command `mcp`: an agent's memory as an MCP server that a client starts as a program."""

import os
import sys
from typing import Any

from django.core.management.base import CommandParser

from config.checks import OURS
from config.commandline import Task
from config.errors import USAGE
from refinement.mcp import stdio

KEY = "PALIMPSEST_AGENT_KEY"


class Command(Task):
    needs_sound_database = False  # the service may be elsewhere
    requires_system_checks = ()
    help = (
        "Serve an agent's memory to an MCP client, over standard input and output. The client starts this command. It "
        f"uses this machine's database, or, with --url, a service elsewhere. Needs {KEY}."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        url = "the service, for example https://memory.example.org"
        parser.add_argument("--url", default="", metavar="URL", help=url)

    def run(self, *, url: str, **options: Any) -> None:
        key = os.environ.get(KEY, "")
        if not (key.isascii() and key.isprintable() and key):
            self.fail(f"set {KEY} to the agent's key (pal_…)", USAGE)
        if not url:
            self.check(tags=[OURS])
            self.require_sound_database()
        if sys.stdin.isatty():
            self.say("Waiting for an MCP client on standard input. To connect a client, see docs/connect.md.")
        with stdio.client(url, key) as service:
            for answer in stdio.answers(sys.stdin.buffer, service):
                self.stdout.write(answer)
                self.stdout.flush()
