"""Accept an audit trail that lost entries."""

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import authority, heads
from memory.access.authentication import agent_named
from memory.errors import Invalid, NotFound


class Command(Task):
    help = (
        "Accept an agent's audit trail, although signed heads in VAR_DIR/heads show that it lost entries. First run "
        "'verify_audit', and check steward, keys and grants. The agent then works again within a minute."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="the agent of the trail")
        last = "the MAC of the last entry that you checked, as audit_heads prints it"
        parser.add_argument("mac", metavar="MAC", help=last)

    def run(self, *, agent: str, mac: str, **options: Any) -> None:
        row = agent_named(agent)
        if heads.known().get(row.pk, {"agent": agent})["agent"] != agent or not authority.is_signed(row):
            raise NotFound(f"{agent} had another name, or was changed outside the service. Run 'verify_audit'.")
        if bytes(row.audit_mac).hex() != mac:
            raise Invalid("mac", f"is not that of entry {row.audit_seq}, the last one now. Run 'verify_audit' again")
        heads.write(confirmed={row.pk: mac})
        self.say(f"Entry {row.audit_seq} is now the newest known entry of {row.label}.")
