"""Issue a key to a tenant's programs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access import tenants


class Command(Task):
    help = (
        "Print a new key of a tenant, once: its programs make and configure agents with it over the API and see "
        "metadata, never a word of a silo. With --revoke, end one instead."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT")
        parser.add_argument("--label", default="", help="what it is for")
        parser.add_argument("--revoke", metavar="PREFIX", help="end the key that begins palt_PREFIX_")

    def run(self, *, tenant: str, **options: Any) -> None:
        if options["revoke"]:
            tenants.revoke_key(tenant, options["revoke"])
            self.say("it opens nothing any more")
        else:
            self.tell(tenants.issue_key(tenant, label=options["label"]))
            self.say("The key is shown this once; only its MAC is kept.")
