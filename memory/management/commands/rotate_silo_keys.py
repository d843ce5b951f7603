"""Wrap every agent's data key with the newest silo key."""

from contextlib import suppress
from typing import Any

from django.core.management import CommandError
from django.db import transaction

from audit.bulk import streamed
from config.commandline import Task
from config.commandline.progress import progress
from config.keyring import keyring
from config.wording import several
from memory.access import authority
from memory.errors import AuthorityBroken
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
        rewrapped = unsigned = 0
        with progress("rewrapping", unit="agents", total=agents.count()) as advance, streamed(agents) as pks:
            for pk in pks:
                is_signed, changed = _rewrap(pk)
                rewrapped, unsigned = rewrapped + changed, unsigned + (not is_signed)
                advance(1)
        if unsigned:
            raise CommandError(
                f"{rewrapped:,} keys rewrapped. {several(unsigned, 'agent')} not rewrapped: SQL changed the row, or it "
                "has an older signature. Do not retire older silo keys yet: run rotate_audit_key, verify_audit --all "
                "and repair_authority."
            )
        self.stdout.write(f"{rewrapped:,} keys rewrapped; silo key {keyring().silo[0].id} now wraps every data key")


def _rewrap(pk: int) -> tuple[bool, bool]:
    """Wrap one agent's data key again. Return whether the row is proven, and whether the wrapped key changed. A row
    that is not proven does not change: SQL may have put back the key of an erased silo. Nor does a row that an older
    audit key signed: this would sign it with the newest one, without a comparison with the trail."""
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True, of=("self",)).select_related("tenant").get(pk=pk)
        with suppress(AuthorityBroken):
            authority.require(row)
        if not row.is_proven or row.authority_key_id != keyring().audit[0].id:
            return False, False
        wrapped = bytes(row.wrapped_key)
        row.wrapped_key = keys.rewrap(pk, wrapped) if wrapped else wrapped
        if row.wrapped_key == wrapped:
            return True, False
        authority.sign(row)
        row.save(update_fields=["wrapped_key", *authority.SIGNATURE])
        return True, True
