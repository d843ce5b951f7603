"""The arithmetic of the circuit breaker."""

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
    assert limits.floor(Decimal("1.00"), target=5_000, high_water=0) == 0


def test_the_floor_is_rounded_up() -> None:
    assert limits.floor(Decimal("0.75"), target=5_000, high_water=101) == 76


def cut(lost: int, *, tokens: int, floor: int) -> None:
    session = RefinementSession(tokens_before=tokens, floor_tokens=floor, max_changes=1)
    CallContext(Agent(core_tokens=tokens), session).count_changes(1, lost)


def test_a_cut_down_to_the_floor_passes() -> None:
    cut(25, tokens=100, floor=75)
    cut(0, tokens=50, floor=75)


def test_a_cut_below_the_floor_is_refused() -> None:
    with pytest.raises(FloorReached):
        cut(26, tokens=100, floor=75)
    with pytest.raises(FloorReached, match=r"You can still cut at most 0 tokens"):
        cut(1, tokens=50, floor=75)
    with pytest.raises(FloorReached) as refusal:
        cut(1_000, tokens=4_000, floor=3_750)
    assert str(refusal.value) == (
        "The call cuts 1,000 of this session's 4,000 tokens. The remaining 3,000 are below the floor of 3,750. "
        "You can still cut at most 250 tokens. Nothing was changed."
    )
