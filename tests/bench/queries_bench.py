"""How many statements each verb sends, for 2 memories and for 200."""

from collections.abc import Callable, Iterator

from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.trail import Actor
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import duplicates, operations
from tests.bench import texts
from tests.bench.agents import created
from tests.bench.figures import Figure

ME, PERSON = Actor.agent("bench"), Actor.person("pat@acme.test")
Verb = Callable[[Agent, list[int]], object]

VERBS: dict[str, tuple[bool, Verb]] = {  # whether the memories are to be gone before, and the verb
    "remember": (False, lambda agent, numbers: operations.remember(agent, drafts(len(numbers), "more"), ME)),
    "discard": (False, lambda agent, numbers: operations.discard(agent, numbers, ME)),
    "restore": (True, lambda agent, numbers: operations.restore(agent, numbers, PERSON)),
    "protect": (False, lambda agent, numbers: operations.protect(agent, numbers, PERSON)),
    "consolidate": (False, lambda agent, numbers: operations.consolidate(agent, numbers, "All of it.", ME)),
    "remove duplicates": (False, lambda agent, _: duplicates.remove(agent)),
}
FEW, MANY = 2, 200
NOT_COUNTED = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")


def run(*, quick: bool) -> Iterator[Figure]:
    for name, (is_gone, verb) in VERBS.items():
        few, many = (asked(name, is_gone, verb, count) for count in (FEW, MANY))
        what = f"{name}: statements for {MANY} memories (floor: for {FEW})"
        yield Figure(what, many, floor=few, ratio=many / few, target="equal", met=many == few)


def asked(name: str, is_gone: bool, verb: Verb, count: int) -> int:
    agent = created(f"{name.replace(' ', '-')}-{count}")
    given = drafts(count // 2, name) * 2 if name == "remove duplicates" else drafts(count, name)
    numbers = [memory.number for memory in operations.remember(agent, given, ME).memories]
    if is_gone:
        operations.discard(agent, numbers, ME)
    with CaptureQueriesContext(connection) as captured:
        verb(agent, numbers)
    return len([query for query in captured if not query["sql"].startswith(NOT_COUNTED)])


def drafts(count: int, seed: object) -> list[Draft]:
    return [Draft(text) for text in texts.many(count, seed)]
