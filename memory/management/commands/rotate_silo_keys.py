"""Wrap every agent's data key with the newest silo key."""

from typing import Any

from django.db import transaction

from audit.bulk import streamed
from audit.models import AuditEntry, Operation
from config.commandline import Task
from config.commandline.progress import progress
from config.keyring import keyring
from memory.access import authority
from memory.models import Agent
from memory.silo import keys


class Command(Task):
    help = (
        "Wrap every agent's data key with the newest silo key (see create_keys --add-silo-key). The command does not "
        "change content. You can stop it and run it again at any time. Running processes read a new key from the silo "
        "file. If a process has SILO_KEYS in its environment, restart this process first. After all processes have the "
        "new key, run this command once more. Then you can retire the older silo keys."
    )

    def run(self, **options: Any) -> None:
        agents = Agent.objects.exclude(wrapped_key=b"").order_by("pk").values_list("pk", flat=True)
        rewrapped = 0
        with progress("rewrapping", unit="agents", total=agents.count()) as advance, streamed(agents) as pks:
            for pk in pks:
                rewrapped += _rewrap(pk)
                advance(1)
        self.stdout.write(f"{rewrapped:,} keys rewrapped; silo key {keyring().silo[0].id} now wraps every data key")


def _rewrap(pk: int) -> bool:
    """Wrap one agent's data key again, and return whether the wrapped key changed. A row that does not have the
    service's signature gets none."""
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True, of=("self",)).select_related("tenant").get(pk=pk)
        wrapped, is_signed = bytes(row.wrapped_key), authority.is_signed(row)
        is_erased = AuditEntry.objects.filter(agent_id=pk, operation=Operation.ERASED).exists()
        row.wrapped_key = keys.rewrap(pk, wrapped) if wrapped and not is_erased else wrapped
        if row.wrapped_key == wrapped:
            return False
        if is_signed:
            authority.sign(row)
        row.save(update_fields=["wrapped_key", *authority.SIGNATURE])
        return True
