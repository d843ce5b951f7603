"""What walks of state machines share, and how far they go. Each step is real, with a database and often with files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import connection, transaction
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from memory.models import Agent
from tests.steps import fresh, problems

QUICK = 25  # examples of the profile that tests run with unless told otherwise (tests/conftest.py)


def walks(usual: int, *, steps: int) -> settings:
    """So many walks of so many steps: `usual` of them on SQLite, and half on PostgreSQL, where a step takes three times
    as long; with a more thorough profile as many as that says."""
    thorough = settings().max_examples
    few = usual if connection.vendor == "sqlite" else (usual + 1) // 2
    return settings(max_examples=few if thorough <= QUICK else thorough, stateful_step_count=steps, deadline=None)


class Walk(RuleBasedStateMachine):
    """A walk in a transaction that is rolled back. Whatever enters `at_end` ends with it, before the transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.at_end = ExitStack()
        self.block = self.at_end.enter_context(_rolled_back())
        self._verified: dict[int, int] = {}

    def teardown(self) -> None:
        with self.at_end:
            self.check_at_end()

    def check_at_end(self) -> None:
        """What must hold once more at the end of a walk."""

    def grown(self, *agents: Agent) -> list[Agent]:
        """The agents whose trail has entries that it had not at the last call. Their trails are verified."""
        found = [agent for agent in agents if self._verified.get(agent.pk) != fresh(agent).audit_seq]
        for agent in found:
            assert problems(agent) == []
            self._verified[agent.pk] = fresh(agent).audit_seq
        return found


@contextmanager
def _rolled_back() -> Iterator[transaction.Atomic]:
    block = transaction.atomic()
    with block:
        yield block
        transaction.set_rollback(True)
