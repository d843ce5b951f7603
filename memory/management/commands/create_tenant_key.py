"""Issue a tenant key, or revoke one."""

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import tenants


class Command(Task):
    help = (
        "Print a new key of a tenant. It is not shown again. With this key, the tenant's programs can create agents, "
        "configure agents and see metadata. They cannot read memories. With --revoke, revoke a key."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="its slug, such as acme")
        parser.add_argument("--label", default="", help="what the key is for")
        parser.add_argument("--revoke", metavar="PREFIX", help="revoke the key that begins with palt_PREFIX_")

    def run(self, *, tenant: str, **options: Any) -> None:
        if options["revoke"]:
            tenants.revoke_key(tenant, options["revoke"])
            self.say("The key is revoked.")
        else:
            self.tell(tenants.issue_key(tenant, label=options["label"]))
            self.say("Store the key now: it is not shown again.")
