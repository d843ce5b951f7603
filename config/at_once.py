"""Counts the requests of one sender that this process works on. So one sender cannot occupy all threads."""

from collections import Counter
from threading import Lock

_running: Counter[object] = Counter()
_lock = Lock()


def begin(sender: object, most: int) -> bool:
    """Whether fewer than `most` requests of the sender are running. Then this counts another one, and the caller calls
    `end` after it."""
    with _lock:
        if _running[sender] >= most:
            return False
        _running[sender] += 1
        return True


def end(sender: object) -> None:
    with _lock:
        _running[sender] -= 1
        if not _running[sender]:
            del _running[sender]
