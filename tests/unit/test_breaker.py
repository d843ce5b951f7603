"""The circuit breaker's arithmetic."""

from __future__ import annotations

from decimal import Decimal

import pytest

from refinement import breaker
from refinement.errors import FloorReached


def test_the_floor_is_the_retention_of_the_target_for_a_large_memory() -> None:
    assert breaker.floor(Decimal("0.75"), target=5_000, high_water=9_000) == 3_750


def test_the_floor_is_the_retention_of_the_high_water_mark_for_a_small_memory() -> None:
    assert breaker.floor(Decimal("0.75"), target=5_000, high_water=400) == 300


def test_the_floor_is_rounded_up() -> None:
    assert breaker.floor(Decimal("0.75"), target=5_000, high_water=101) == 76


def test_the_floor_of_an_empty_memory_is_nothing() -> None:
    assert breaker.floor(Decimal("1.00"), target=5_000, high_water=0) == 0


def test_an_edits_loss_is_what_its_sources_weighed_less_what_its_result_weighs() -> None:
    assert breaker.loss([40, 30], 50) == 20


def test_a_deletion_loses_all_of_it() -> None:
    assert breaker.loss([40]) == 40


def test_padding_is_no_negative_loss() -> None:
    assert breaker.loss([40], 100) == 0


def test_a_cut_down_to_the_floor_passes() -> None:
    breaker.check(counted=100, cut=25, floor=75)


def test_a_cut_below_the_floor_is_refused() -> None:
    with pytest.raises(FloorReached):
        breaker.check(counted=100, cut=26, floor=75)


def test_an_edit_that_cuts_nothing_passes_even_below_the_floor() -> None:
    breaker.check(counted=50, cut=0, floor=75)


def test_the_refusal_shows_its_arithmetic() -> None:
    with pytest.raises(FloorReached) as refusal:
        breaker.check(counted=4_000, cut=1_000, floor=3_750)
    assert str(refusal.value) == (
        "Of this session's 4,000 tokens the call would cut 1,000 and leave 3,000, below the floor of 3,750. "
        "At most 250 can still be cut. Nothing was changed."
    )


def test_below_the_floor_nothing_more_can_be_cut() -> None:
    with pytest.raises(FloorReached, match=r"At most 0 can still be cut"):
        breaker.check(counted=50, cut=1, floor=75)
