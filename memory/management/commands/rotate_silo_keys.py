"""Rewrap every agent's key."""

from __future__ import annotations

from typing import Any

from audit.bulk import streamed
from config.commandline import Task
from config.commandline.progress import progress
from config.keyring import keyring
from memory.models import Agent
from memory.silo import keys


class Command(Task):
    help = (
        "Rewrap every agent's data key by the newest key of the keyring (see create_keys --add-silo-key). Touches no "
        "content, can be stopped and run again at any time. Running processes find an added key in the silo file; "
        "those with SILO_KEYS in their environment must be restarted with it first. When all know the new key and "
        "this has run once more, the older silo keys can be retired."
    )

    def run(self, **options: Any) -> None:
        agents = Agent.objects.exclude(wrapped_key=b"").order_by("pk").values_list("pk", flat=True)
        rewrapped = 0
        with progress("rewrapping", unit="agents", total=agents.count()) as advance, streamed(agents) as pks:
            for pk in pks:
                rewrapped += _rewrap(pk)
                advance(1)
        self.stdout.write(f"{rewrapped:,} keys rewrapped; every silo opens with key {keyring().silo[0].id}")


def _rewrap(pk: int) -> bool:
    """Compare-and-set on the wrapped bytes, so that two rotations at once, or an erasure, are never undone."""
    wrapped = bytes(Agent.objects.values_list("wrapped_key", flat=True).get(pk=pk))
    if not wrapped:
        return False
    fresh = keys.rewrap(pk, wrapped)
    return fresh != wrapped and bool(Agent.objects.filter(pk=pk, wrapped_key=wrapped).update(wrapped_key=fresh))
