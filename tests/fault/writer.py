"""A process that edits one agent's memory, to be run beside others, or to be killed.

`python -m tests.fault.writer AGENT EDITS SEED` makes so many edits and prints the numbers of its entries.
`python -m tests.fault.writer AGENT forks` makes, for each line it reads, a child that edits until it is killed: it
prints the child's process id, and "gone" when the child is.
"""

from __future__ import annotations

import json
import os
import random
import sys

import django

TEXTS = ("tea", "milk", "a longer text", "another text", "x" * 200)


def edits(agent_id: int, many: int, seed: int) -> list[int]:
    """So many random edits, each whole or refused; the numbers of the entries they made."""
    from memory.errors import NumbersError
    from memory.models import Agent

    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    dice = random.Random(seed)
    made: list[int] = []
    while len(made) < many:
        try:
            seq = one_edit(agent, dice)
        except NumbersError:
            continue
        made += [seq] if seq else []
    return made


def one_edit(agent, dice):  # type: ignore[no-untyped-def]
    from audit.trail import Actor
    from memory.models import Memory
    from memory.policy.validation import Draft
    from memory.writing import duplicates, operations

    me = Actor.agent("writer")
    active = list(
        Memory.objects.filter(agent_id=agent.pk, discarded_at__isnull=True).values_list("number", flat=True)[:60]
    )
    verb = dice.choice(["remember", "remember", "revise", "discard", "consolidate", "deduplicate"])
    if verb == "remember" or len(active) < 3:
        drafts = [Draft(dice.choice(TEXTS), tags=("t",)) for _ in range(dice.randint(1, 3))]
        return operations.remember(agent, drafts, me).seq
    if verb == "revise":
        return operations.revise(agent, dice.choice(active), me, content=f"{dice.choice(TEXTS)} {dice.random()}").seq
    if verb == "discard":
        return operations.discard(agent, dice.sample(active, 2), me).seq
    if verb == "consolidate":
        sources = dice.sample(active, 3)
        text = f"merged {dice.random()}"
        return operations.consolidate(agent, sources, text, me, category="technical", dropping=["x"]).seq
    return duplicates.remove(agent).seq


def forks(agent_id: int) -> None:
    from config.keyring import keyring
    from memory.writing import duplicates  # noqa: F401  loaded before the children, who are to be killed at work

    keyring()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            edits(agent_id, 10**9, int(line))
            os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    if sys.argv[2] == "forks":
        forks(int(sys.argv[1]))
    else:
        print(json.dumps(edits(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
