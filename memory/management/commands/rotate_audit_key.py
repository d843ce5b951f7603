"""Sign the row of every agent with the newest audit key."""

from typing import Any

from config.commandline import Task
from config.commandline.progress import progress
from config.errors import FAILED, DomainError
from config.keyring import keyring
from memory.access import authority
from memory.agents import repair
from memory.errors import AuthorityBroken
from memory.models import Agent
from memory.writing import edits


class Command(Task):
    help = (
        "Sign the row of every agent with the newest audit key. Run it after you put a new key first in AUDIT_KEY, or "
        "in the audit file, and started all processes again. You can stop it and run it again at any time. Keep the "
        "older keys: they verify the entries that were written with them."
    )

    def run(self, **options: Any) -> int:
        newest = keyring().audit[0].id
        older = Agent.objects.exclude(authority_key_id__in=(newest, "")).select_related("tenant").order_by("pk")
        refused = 0
        with progress("signing", unit="agents", total=older.count()) as advance:
            for agent in older.iterator(chunk_size=500):
                try:
                    with edits.locked(agent) as row:
                        if repair.repair(row.pk, row.label, is_dry_run=True):  # somebody may have the older key
                            raise AuthorityBroken(row.label)
                        authority.sign(row)
                        row.save(update_fields=authority.SIGNATURE)
                except DomainError as error:
                    refused += 1
                    self.say(f"error: {error}")
                advance(1)
        if not refused:
            self.stdout.write(f"every agent's row is signed with audit key {newest}")
        return FAILED if refused else 0
