"""Bring memories in from JSON Lines."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from audit.trail import Actor
from config.commandline import Task, several
from config.commandline.progress import progress
from memory.access import agent_named
from memory.formats import jsonl


class Command(Task):
    help = (
        "Import memories from JSON Lines: one object a line with 'content' and optionally 'created_at' or 'origin' "
        "(ISO 8601), 'tags', 'kind', 'category', 'project'. A bad line stops the import with its number, and nothing "
        "is stored. The constitutional flag is not set by an import: it is reported."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument(
            "file",
            metavar="FILE",
            help="a file, or - for standard input; a pipe is read to its end first, of at most 256 MB",
        )
        parser.add_argument("--format", choices=["jsonl"], default="jsonl")
        parser.add_argument("--json", action="store_true", help='print {"imported": …, "tokens": …}')

    def run(self, *, agent: str, file: str, **options: Any) -> int | None:
        target = agent_named(agent)
        # One transaction with the figures: an import that could not be told would be run again, and stored twice.
        with jsonl.opened(file) as lines, transaction.atomic():
            with progress("importing", unit="memories") as advance:
                done = jsonl.load(target, lines, Actor.operator("import_memories"), advance=advance)
            if options["json"]:
                self.result({"imported": done.imported, "tokens": done.tokens})
            else:
                self.tell(f"imported {several(done.imported, 'memory', 'memories')}, {several(done.tokens, 'token')}")
            self.stdout.flush()
        for warning in done.warnings():
            self.say(f"warning: {warning}")
        return None
