"""Shared by the tests that walk a state machine. Each step is real, with a database and often with files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import time_machine
from django.conf import settings as django_settings
from django.db import connection, transaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from audit.consent import LAPSES
from config.errors import DomainError
from memory.agents import lifecycle
from memory.consent import links
from memory.models import Agent
from tests.conftest import OPERATOR
from tests.steps import fresh, problems

QUICK = 25  # examples of the default profile (tests/conftest.py)
_tenants = itertools.count(1)


def walk(machine: type[Walk], count: int, *, steps: int) -> None:
    """Do `count` walks of so many steps on SQLite, and half of them on PostgreSQL, where a step takes three times as
    long. A more thorough profile sets the number of walks."""
    thorough = settings().max_examples
    few = count if connection.vendor == "sqlite" else (count + 1) // 2
    examples = few if thorough <= QUICK else thorough
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


class Walk(RuleBasedStateMachine):
    """A walk in a transaction that is rolled back. What enters `at_end` ends with the walk, before the transaction."""

    agent: Agent

    def __init__(self) -> None:
        super().__init__()
        self.at_end = ExitStack()
        self.block = self.at_end.enter_context(_rolled_back())
        self.created: list[Agent] = []
        self._verified: dict[int, int] = {}

    def teardown(self) -> None:
        with self.at_end:
            assert [problem for agent in self.created for problem in problems(agent)] == []

    def create(self, name: str = "ada", **values: Any) -> Agent:
        """An agent of a new tenant. Its trail is verified at the end of the walk."""
        tenant = f"{name}-{next(_tenants)}"
        agent, _ = lifecycle.create(tenant, name, model="builtin/dedupe", actor=OPERATOR, **values)
        self.created.append(agent)
        return agent

    def create_with_vault(self, **values: Any) -> Path:
        """Create the agent of this walk with a vault; the vault's folder."""
        root = Path(self.at_end.enter_context(TemporaryDirectory()))
        self.at_end.enter_context(mock.patch.object(django_settings, "VAULT_ROOTS", [str(root)]))
        self.agent = self.create(vault_path=str(root / "vault"), **values)
        return root / "vault"

    def row(self) -> Agent:
        return fresh(self.agent)

    def grown(self, *agents: Agent) -> list[Agent]:
        """The agents whose trail has new entries since the last call. Their trails are verified."""
        found = [agent for agent in agents if self._verified.get(agent.pk) != fresh(agent).audit_seq]
        for agent in found:
            assert problems(agent) == []
            self._verified[agent.pk] = fresh(agent).audit_seq
        return found


class TimedWalk(Walk):
    """A walk with a clock that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.traveller = self.at_end.enter_context(time_machine.travel(self.now, tick=False))

    def move(self, **delta: int) -> None:
        self.now += timedelta(**delta)
        self.traveller.move_to(self.now, tick=False)

    def latest(self) -> datetime:
        """The time of the agent's trail, which never goes back."""
        at = self.row().audit_at
        return max(self.now, at) if at else self.now


class DecisionWalk(TimedWalk):
    """A walk with items (requests or proposals) on which someone decides, also by a link that the steward gets."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Any] = []
        self.links: list[tuple[str, Any, str, datetime]] = []  # token, item, steward, time

    def one(self, pick: int) -> Any:
        """The newest item in half of the cases."""
        return self.items[-1 if pick % 2 else pick % len(self.items)]

    def is_open(self, item: Any) -> bool:
        return not item.is_over and self.latest() < item.at + LAPSES

    def is_own(self, item: Any, address: str, approves: bool) -> bool:
        """Whether the person at this address may not decide so because the item is theirs."""
        raise NotImplementedError

    def decided(self, item: Any, approves: bool, at: datetime) -> None:
        """Change the item after a decision."""
        raise NotImplementedError

    def decide(self, item: Any, act: Callable[[], Any], approves: bool, *, may: bool) -> None:
        """The act is a decision on the item. It succeeds if the item is open and the actor may decide."""
        may, at = may and self.is_open(item), self.latest()
        assert isinstance(attempt(act), Exception) != may
        if may:
            self.decided(item, approves, at)

    @rule(pick=st.integers(0, 50))
    def mail(self, pick: int) -> None:
        if not self.items:
            return
        item, steward = self.one(pick), self.row().steward
        token = attempt(lambda: links.make(self.row(), item.number))
        if isinstance(token, Exception):
            assert not (self.is_open(item) and steward)
        else:
            self.links.append((token, item, steward, self.now))

    @rule(pick=st.integers(0, 50), approves=st.booleans())
    def steward_decides(self, pick: int, approves: bool) -> None:
        if self.links:
            token, item, steward, made = self.links[pick % len(self.links)]
            may = steward == self.row().steward and self.now < made + LAPSES
            may = may and not self.is_own(item, steward, approves)
            self.decide(item, lambda: links.decide(token, approve=approves), approves, may=may)


def attempt(act: Callable[[], Any], error: type[Exception] = DomainError, *, atomic: bool = True) -> Any:
    """The result of an act, or the error that refuses it. A refused act leaves nothing if it is atomic."""
    try:
        with transaction.atomic() if atomic else nullcontext():
            return act()
    except error as refusal:
        return refusal


@contextmanager
def _rolled_back() -> Iterator[transaction.Atomic]:
    block = transaction.atomic()
    with block:
        yield block
        transaction.set_rollback(True)
