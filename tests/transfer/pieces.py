"""Pieces of another system's memory, and what a plan and a migration make of them."""

from datetime import UTC, datetime
from typing import Any

from memory.models import Agent
from memory.transfer import migration
from memory.transfer.formats.parts import HERE, Found, LeftOut
from memory.transfer.planning import Plan, State, Step, make_plan
from memory.transfer.reading import Item, Source
from tests.steps import ME, fresh

NOW = datetime(2026, 11, 24, 6, 0, 0, tzinfo=UTC)
WRITTEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)  # the date of every file
HARBOUR = "harbour-desk"


def piece(key: str = "CLAUDE.md", content: str = "Ferries wait.", *, system: str = "claude", **values: Any) -> Item:
    values = {"category": "contextual", "project": HERE, "id": key.partition("#")[2]} | values
    return Item(Source(system, key.partition("#")[0], WRITTEN), Found(key, content, **values))


def left_out_piece(key: str = "empty.md", why: str = "is empty") -> Item:
    return Item(Source("claude", key, WRITTEN), LeftOut(key, why))


def plan(agent: Agent, *items: Item, compares: bool = True, **values: Any) -> Plan:
    return make_plan(fresh(agent), items, values.pop("project", HARBOUR), now=NOW, compares=compares, **values)


def steps(agent: Agent, *items: Item, **values: Any) -> list[Step]:
    return plan(agent, *items, **values).steps


def states(agent: Agent, *items: Item, **values: Any) -> list[State]:
    return [step.state for step in steps(agent, *items, **values)]


def reasons(agent: Agent, *items: Item, **values: Any) -> list[str]:
    return [each.why for each in plan(agent, *items, **values).left_out]


def move(agent: Agent, *items: Item, **values: Any) -> migration.Figures:
    return migration.migrate(fresh(agent), steps(agent, *items), ME, **values)
