"""A deadline for calls that have none of their own, such as DNS lookups. And how far clocks can differ."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread
from typing import Any

TOLERANCE = timedelta(minutes=1)  # between the clocks of two machines


def within(seconds: float | None, do: Callable[[], Any]) -> Any:
    """Call `do` in a thread, and return its result. If this takes longer, the thread goes on, and its result is lost.
    Raises TimeoutError, and what `do` raises."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(do())
        except Exception as error:  # noqa: BLE001  the caller gets it
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result(seconds)
