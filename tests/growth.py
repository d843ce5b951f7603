"""How the time of an algorithm grows with the size of its input."""

import gc
import time
from collections.abc import Callable

_TRIES = 6


def growth(run: Callable[[int], object], size: int, times: int = 4) -> float:
    """The processor time of a run that is `times` as large, divided by the time of a run of this size.

    Linear growth gives about `times`, quadratic growth its square. The result uses the fastest of several tries: a busy
    machine slows single tries.
    """
    small = large = float("inf")
    for _ in range(_TRIES):
        small, large = min(small, _seconds(run, size)), min(large, _seconds(run, times * size))
        if large < 1.5 * times * small:
            break
    return large / small


def _seconds(run: Callable[[int], object], size: int) -> float:
    gc.disable()  # its time depends on the objects of earlier tests
    try:
        started = time.process_time()
        run(size)
        return time.process_time() - started
    finally:
        gc.enable()
