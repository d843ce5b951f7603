"""Accept an audit trail that lost entries."""

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import heads
from memory.access.authentication import agent_named
from memory.errors import NotFound


class Command(Task):
    help = (
        "Accept an agent's audit trail, although signed heads in VAR_DIR/heads show that it lost entries. First run "
        "'verify_audit', and check steward, keys and grants. The agent then works again within a minute."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="the agent of the trail")

    def run(self, *, agent: str, **options: Any) -> None:
        row = agent_named(agent)
        if heads.known().get(row.pk, {"agent": agent})["agent"] != agent:
            raise NotFound(f"{agent} had another name in the signed heads. Run 'verify_audit'.")
        heads.write(confirmed=row.pk)
        self.say(f"Entry {row.audit_seq} is now the newest known entry of {row.label}.")
