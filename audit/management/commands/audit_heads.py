"""Export the heads of audit trails."""

from typing import Any

from django.core.management.base import CommandParser

from audit import heads
from config.commandline import Task
from memory.access.authentication import agent_named


class Command(Task):
    help = (
        "Print the number and the hash of each trail's last entry as JSON, signed (Ed25519) with the heads key. Store "
        "the output where the administrator of this database has no access. Later, 'verify_audit --heads FILE' detects "
        "each trail that was cut off or rewritten after the export. The output has no content."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", nargs="?", help="one trail; default: all")
        parser.add_argument("--json", action="store_true", help="the default; the output is always JSON")

    def run(self, *, agent: str | None, **options: Any) -> None:
        self.result(heads.export(agent_named(agent).pk if agent else None))
