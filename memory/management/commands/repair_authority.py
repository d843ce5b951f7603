"""Repair the row of an agent whose settings were changed with SQL."""

from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.agents import repair
from memory.errors import NotFound
from memory.models import Agent


class Command(Task):
    help = (
        "Put back the settings that decide who can read an agent's memory, after somebody changed them with SQL. The "
        "values come from the agent's audit trail, which must be intact. The trail records the repair. First find out "
        "who changed the database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="the agent, such as acme/ada")
        parser.add_argument("--dry-run", action="store_true", help="only print which settings would be put back")

    def run(self, *, agent: str, dry_run: bool, **options: Any) -> None:
        tenant, _, slug = agent.partition("/")
        found = Agent.objects.filter(tenant__slug=tenant, slug=slug).values_list("pk", flat=True).first()
        if found is None:
            raise NotFound(f"The agent {agent} does not exist.")
        names = repair.repair(found, agent, is_dry_run=dry_run)
        what = "would put back" if dry_run else "put back"
        self.stdout.write(f"{what}: {', '.join(names)}" if names else "nothing to repair")
