"""How the time of an algorithm grows with the size of what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

_TRIES = 6


def growth(run: Callable[[int], object], size: int, times: int = 4) -> float:
    """What `times` the size costs over what the size costs, in processor time: the least of a few tries.

    Linear gives about `times`, quadratic its square. A busy machine makes single tries worse, never all of them
    better, so that what grows too fast is never let through.
    """
    small = large = float("inf")
    for _ in range(_TRIES):
        small, large = min(small, _seconds(run, size)), min(large, _seconds(run, times * size))
        if large < 1.5 * times * small:
            break
    return large / small


def _seconds(run: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    run(size)
    return time.process_time() - started
