"""The circuit breaker's arithmetic."""

from __future__ import annotations

from decimal import Decimal

import pytest

from memory.models import Agent
from refinement import limits
from refinement.effects import CallContext
from refinement.errors import FloorReached
from refinement.models import RefinementSession


def test_the_floor_is_the_retention_of_the_target_for_a_large_memory() -> None:
    assert limits.floor(Decimal("0.75"), target=5_000, high_water=9_000) == 3_750


def test_the_floor_is_the_retention_of_the_high_water_mark_for_a_small_memory() -> None:
    assert limits.floor(Decimal("0.75"), target=5_000, high_water=400) == 300


def test_the_floor_is_rounded_up() -> None:
    assert limits.floor(Decimal("0.75"), target=5_000, high_water=101) == 76


def test_the_floor_of_an_empty_memory_is_nothing() -> None:
    assert limits.floor(Decimal("1.00"), target=5_000, high_water=0) == 0


def cut(lost: int, *, mass: int, floor: int) -> None:
    agent = Agent(core_tokens=mass)
    session = RefinementSession(agent=agent, tokens_before=mass, floor_tokens=floor, max_changes=1)
    CallContext(agent, session).count_changes(1, lost)


def test_a_cut_down_to_the_floor_passes() -> None:
    cut(25, mass=100, floor=75)


def test_a_cut_below_the_floor_is_refused() -> None:
    with pytest.raises(FloorReached):
        cut(26, mass=100, floor=75)


def test_an_edit_that_cuts_nothing_passes_even_below_the_floor() -> None:
    cut(0, mass=50, floor=75)


def test_the_refusal_shows_its_arithmetic() -> None:
    with pytest.raises(FloorReached) as refusal:
        cut(1_000, mass=4_000, floor=3_750)
    assert str(refusal.value) == (
        "The call cuts 1,000 of this session's 4,000 tokens. The remaining 3,000 are below the floor of 3,750. "
        "You can still cut at most 250 tokens. Nothing was changed."
    )


def test_below_the_floor_nothing_more_can_be_cut() -> None:
    with pytest.raises(FloorReached, match=r"You can still cut at most 0 tokens"):
        cut(1, mass=50, floor=75)
