"""Export the heads of audit trails."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from audit import heads
from config.commandline import Task
from memory.access.authentication import agent_named


class Command(Task):
    help = (
        "Print the number and the hash of every trail's last entry as JSON, signed (Ed25519) by the heads key. Keep it "
        "where this database's administrator cannot reach: 'verify_audit --heads FILE' then finds a trail that was "
        "cut off or written anew since. Holds no content."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", nargs="?", help="one trail; default: every one")
        parser.add_argument("--json", action="store_true", help="as it is anyway")

    def run(self, *, agent: str | None, **options: Any) -> None:
        self.result(heads.export(agent_named(agent).pk if agent else None))
