"""Random edits of one agent's memory, in a process to run beside others, or to kill.

`python -m tests.fault writer AGENT EDITS SEED` makes so many edits and prints the numbers of its entries.
`python -m tests.fault writer AGENT forks` makes, for each line it reads, a child that edits until it is killed. It
prints the child's process id, and "gone" when the child ended.
"""

import json
import os
import random
import sys

from audit.trail import Actor
from config.keyring import keyring
from memory.errors import NumbersError
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.writing import duplicates, operations

ME = Actor.agent("writer")
TEXTS = ("tea", "milk", "a longer text", "another text", "x" * 200)
VERBS = ["remember", "remember", "revise", "discard", "consolidate", "deduplicate"]


def edits(agent_id: int, count: int, seed: int) -> list[int]:
    """Make so many random edits; the numbers of their entries. A refused edit does not count."""
    agent = Agent.objects.select_related("tenant").get(pk=agent_id)
    dice = random.Random(seed)
    made: list[int] = []
    while len(made) < count:
        try:
            seq = one_edit(agent, dice)
        except NumbersError:
            continue
        made += [seq] if seq else []
    return made


def one_edit(agent: Agent, dice: random.Random) -> int:
    memories = Memory.objects.filter(agent_id=agent.pk, discarded_at__isnull=True)
    active = list(memories.values_list("number", flat=True)[:60])
    verb = dice.choice(VERBS)
    if verb == "remember" or len(active) < 3:
        drafts = [Draft(dice.choice(TEXTS), tags=("t",)) for _ in range(dice.randint(1, 3))]
        return operations.remember(agent, drafts, ME).seq
    if verb == "revise":
        return operations.revise(agent, dice.choice(active), ME, content=f"{dice.choice(TEXTS)} {dice.random()}").seq
    if verb == "discard":
        return operations.discard(agent, dice.sample(active, 2), ME).seq
    if verb == "consolidate":
        sources, text = dice.sample(active, 3), f"merged {dice.random()}"
        return operations.consolidate(agent, sources, text, ME, category="technical").seq
    return duplicates.remove(agent).seq


def forks(agent_id: int) -> None:
    keyring()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            edits(agent_id, 10**9, int(line))
            os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)


def main(agent_id: str, count: str, seed: str = "") -> None:
    if count == "forks":
        forks(int(agent_id))
    else:
        print(json.dumps(edits(int(agent_id), int(count), int(seed))))
